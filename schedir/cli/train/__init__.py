"""`schedir train`."""
