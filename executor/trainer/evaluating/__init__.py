"""What happens between two steps of training when a trainer is asked how good its model is."""
