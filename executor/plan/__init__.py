"""What each device does in turn, resolved from a task graph before the run. Nothing here loads torch."""
