"""Why the peak is what it is: the child is stopped at the end of each phase and its memory accounted for.

look.py reads a process that stands still; weights.py reads a model's tensors; copies.py finds them in the process; heap.py walks glibc's
blocks; waterfall.py sums it up to 100% of RSS; findings.py says what is wrong and what to do; verify.py measures whether that helps.
numpy is imported by these modules, not by this one.
"""
