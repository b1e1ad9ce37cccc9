"""Save a training whole or not at all, and go on from it."""
