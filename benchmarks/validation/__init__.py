"""Predictions against measurements of real training on the CPU: docs/validation.md and the spans that it is made of."""
