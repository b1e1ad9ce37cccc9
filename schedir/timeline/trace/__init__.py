"""Trace files: timelines written for Perfetto and read back without loss."""
