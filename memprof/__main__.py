"""`python -m memprof` is the command `memprof`."""

from .cli import main

main()
