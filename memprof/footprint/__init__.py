"""How small it can be: fit finds the limit of memory in which a model still runs, tune/ the settings with the least peak."""
