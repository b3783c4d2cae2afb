"""In how little memory a model runs."""
