"""Tests of executor.workers."""
