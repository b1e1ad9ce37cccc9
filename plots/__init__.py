"""Draw timelines, memory and comparisons with matplotlib."""
