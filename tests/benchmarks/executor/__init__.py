"""Tests of benchmarks.executor."""
