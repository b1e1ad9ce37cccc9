"""What schedules are laid out with: patterns, list schedulers, the times they go by."""
