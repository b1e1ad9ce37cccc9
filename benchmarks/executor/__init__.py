"""What the executor adds to training, and how it compares with torch's own pipelining: see `benchmarks.executor.__main__`."""
