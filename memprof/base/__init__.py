"""Ground: errors, units, files, the cache, safe text for terminals. It imports nothing of memprof."""
