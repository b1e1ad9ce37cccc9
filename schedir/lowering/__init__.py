"""From a program to its task graph: recomputation, updates, versions, predictions, transfers, memory; one pass a module."""
