"""Search for orders that are better than those of the registered schedules, under given costs and limits."""
