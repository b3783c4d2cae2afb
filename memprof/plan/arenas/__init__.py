"""Offsets of buffers in one arena."""
