"""What can be measured on this machine, and how exactly."""
