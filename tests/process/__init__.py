"""Tests that start the recorder and look at what it writes."""
