"""Laws of memory: terms, their fit and its intervals. Pure."""
