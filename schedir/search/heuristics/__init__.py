"""Good orders without a proof: a list scheduler, and local search from the orders that are known."""
