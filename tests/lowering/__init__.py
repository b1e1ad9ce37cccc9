"""Tests of the passes from a program to its task graph."""
