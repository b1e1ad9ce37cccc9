"""Tests of what comes before what, and when."""
