"""Who is alive, and the one first cause of which a run ends."""
