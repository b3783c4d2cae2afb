"""Graphs of operators and tensors, read from model files and written back."""
