"""Tests of what is proved of a program."""
