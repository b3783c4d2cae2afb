#!/usr/bin/env python3
"""`make bench`: measures what the README claims, beside memory_profiler's mprof and psrecord, and prints one table. See bench/main.py."""

from bench.main import main

if __name__ == "__main__":
    main()
