"""Costs from a table, hand-written or measured, by stage or by layer."""
