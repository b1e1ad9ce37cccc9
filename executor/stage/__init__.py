"""One stage on one device: what its forwards, backwards and updates do, and with which version of the weights."""
