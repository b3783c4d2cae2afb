"""How memory grows with batch, threads, sessions and the like."""
