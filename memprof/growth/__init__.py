"""How memory grows: grow/ with use, scale/ with batch, threads, sessions and other dimensions; laws/ are the pure part of the second."""
