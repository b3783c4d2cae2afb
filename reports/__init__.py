"""Runs in, text and pictures out: each module has a `render`. The only place that imports pandas and matplotlib."""
