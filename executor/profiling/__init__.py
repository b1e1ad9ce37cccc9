"""Measure what the stages or layers of a model cost on this machine."""
