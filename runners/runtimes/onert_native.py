"""onert without an interpreter: the library of the same wheel, opened by a C program of memprof's, native/onert_runner.c.

This file describes it; the program is compiled on first use and started in place of the interpreter. Its baseline is a few MiB.
"""

from . import onert


class Runtime:
    distribution = onert.Runtime.distribution
    native = "onert_runner.c"
    library = "onert/native/libonert.so"
    formats = onert.Runtime.formats
    threads_env = onert.Runtime.threads_env
    default_threads = onert.Runtime.default_threads
    knobs = onert.Runtime.knobs
