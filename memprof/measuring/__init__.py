"""Suites and orders in, Runs out: everything from a suite to a line in a runs file."""
