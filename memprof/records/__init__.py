"""Every type that crosses a wall, and the files that hold them."""
