"""Says which figures can be measured on this machine, and how exactly."""
