"""The figures of one timeline, simulated or measured alike."""
