"""Timelines: spans of simulated and measured runs, metrics, comparison, trace files."""
