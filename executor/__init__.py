"""Train with PyTorch as a task graph says, and measure the timeline."""
