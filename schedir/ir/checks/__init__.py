"""What is proved of a program: every action stands once, nothing waits in a circle, nothing is stuck in a send."""
