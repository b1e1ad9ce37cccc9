"""Tests of the pages: what they show can be done."""
