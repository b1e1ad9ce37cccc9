"""The kinds of workers that carry out a device's tasks."""
