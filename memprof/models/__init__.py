"""What a model file is: which files belong to it, how its format is read, which tensors it holds."""

# A shape of more dimensions is no model's, and the product of a million extents takes minutes to multiply.
MOST_DIMENSIONS = 1024


class Torn(Exception):
    """The bytes of a file are not as its format says, or end too early."""
