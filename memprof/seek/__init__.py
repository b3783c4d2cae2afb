"""Which settings have the least peak, and in how little memory a model runs."""
