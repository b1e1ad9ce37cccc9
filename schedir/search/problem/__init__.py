"""What is searched, in the numbers that a search runs on: pieces of work, what they take, what a device may hold."""
