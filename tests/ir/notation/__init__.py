"""Tests of how programs are written and drawn."""
