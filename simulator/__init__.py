"""Predict the timeline of a task graph."""
