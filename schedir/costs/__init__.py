"""What tasks cost in seconds and bytes: cost models and clusters."""
