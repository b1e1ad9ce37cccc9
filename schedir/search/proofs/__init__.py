"""What no order can beat: a bound without a search, and CP-SAT, which proves that an order is the best."""
