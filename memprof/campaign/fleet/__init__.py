"""Many machines at once: comparisons travel to them whole, by Dask, and Runs come back."""
