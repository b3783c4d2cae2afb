"""Which settings have the least peak."""
