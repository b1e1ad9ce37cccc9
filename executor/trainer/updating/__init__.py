"""What becomes of gradients before their update: unscaled, clipped, or left out."""
