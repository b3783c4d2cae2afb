"""Why the peak is what it is: the child is stopped at the end of each phase and its memory accounted for.

engine.py measures a model plain and held, and calls the others. memory_map.py reads a process that stands still. snippets.py chooses pieces of the
model's tensors (memprof.models.tensors), scan.py looks for them in the process, with filtering.py beneath it, and copies.py counts the copies.
small_weights.py chooses of the tensors that are too small for that what whole_weights.py finds. glibc.py walks the allocator's blocks. snapshot.py
is one look by all of these; remote_look.py is the program that takes it on another machine, and remote.py asks for it. waterfall.py sums up to 100%
of RSS. findings.py asks the rules of copy_rules.py and memory_rules.py for findings and advice, beside the plan of activations.py, and verify.py
measures whether the advice helps.
numpy is imported by these modules, not by this one.
"""
