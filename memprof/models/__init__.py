"""What a model file is: which files belong to it, how its format is read, which tensors it holds."""
