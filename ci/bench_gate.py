#!/usr/bin/env python3
"""`make bench-gate`: how often the gate is wrong, on real processes. See bench/gate.py."""

from bench.gate import main

if __name__ == "__main__":
    main()
