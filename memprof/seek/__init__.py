"""Finds the settings with the least peak, and the least memory in which a model runs."""
