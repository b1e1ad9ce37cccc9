"""What is trained: a model in stages with its loss, optimizers and data, and how a whole model is cut into stages."""
