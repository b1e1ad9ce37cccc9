"""`schedir compare`: its flags, and one module for each thing that it compares."""
