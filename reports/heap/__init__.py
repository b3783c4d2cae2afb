"""Allocation profiles for people: in the terminal, as a picture, as a page, and as a table of differences."""
