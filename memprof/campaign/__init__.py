"""Orders in, Runs out: one at a time, resumed, converted, driven, side by side; fleet/: on many machines."""
