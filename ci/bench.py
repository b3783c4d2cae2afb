#!/usr/bin/env python3
"""`make bench`: measures the manual's figures beside memory_profiler's mprof and psrecord, and writes them into it. See bench/main.py."""

from bench.main import main

if __name__ == "__main__":
    main()
