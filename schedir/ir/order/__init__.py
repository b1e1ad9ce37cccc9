"""What comes before what, and when: an order in which everything can run, and the longest-path pass along it."""
