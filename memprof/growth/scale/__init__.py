"""How memory grows with batch, threads, sessions and other dimensions."""
