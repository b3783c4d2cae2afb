"""Suites and orders in, Runs out: everything from what was asked to a line in a runs file."""
