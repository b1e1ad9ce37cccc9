"""A prediction against measurements of the same graph."""
