"""How a model is cut into stages: between its layers, or where its forward calls a module."""
