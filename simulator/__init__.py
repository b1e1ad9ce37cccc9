"""Predict the timeline of a task graph."""

from simulator.simulation import simulate

__all__ = ["simulate"]
