"""How the processes of a run find each other, and how long anybody waits for somebody."""
