"""The fold: recordings that are written by hand, and the Runs that they make."""
