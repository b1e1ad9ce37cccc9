"""One thread per GPU, with a stream each for computing, sending and receiving."""
