"""What a training leaves in its folder, and that it has that folder to itself."""
