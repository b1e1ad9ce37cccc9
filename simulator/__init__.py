"""Predict the timeline of a task graph."""

from simulator.samples import MonteCarlo, monte_carlo
from simulator.simulation import simulate

__all__ = ["MonteCarlo", "monte_carlo", "simulate"]
