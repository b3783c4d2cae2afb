"""Why the peak is what it is: the child is stopped at the end of each phase and its memory accounted for.

engine.py leads through it. look.py reads a process that stands still; snippets.py chooses what of the weights to look for, scan.py finds it there,
copies.py says which copies that makes, small.py finds what is too small for that; glibc.py walks the allocator's blocks; waterfall.py sums it up to
100% of RSS; findings.py says what is wrong and what to do, beside the plan of activations.py; verify.py measures whether that helps.
numpy is imported by these modules, not by this one.
"""
