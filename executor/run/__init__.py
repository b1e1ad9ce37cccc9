"""A run over a planned graph: the interpreter of a device's tasks, what they do, and when they started and ended."""
