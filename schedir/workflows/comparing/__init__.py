"""Schedules side by side: on the same work by simulation, and predicted against measured by training."""
