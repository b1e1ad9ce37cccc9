"""Timelines, predicted or measured, and pure functions on them: metrics, comparison, trace files."""
