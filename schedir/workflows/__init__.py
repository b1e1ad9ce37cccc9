"""Workflows that need several back ends at once: compare with training, plan, search, study."""
