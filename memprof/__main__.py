"""The command `memprof`, and `python -m memprof`: starts the command line, or says why there is not even memory for that."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from .cli import main as command
    except (ImportError, MemoryError, OSError, SystemError) as error:
        # Nothing but what is there already can be relied on now.
        if not isinstance(error, MemoryError) and not _is_limited():
            raise
        sys.stderr.write("memprof: there is too little memory to start; ulimit -v may limit it\n")
        sys.exit(5)
    command()


def _is_limited() -> bool:
    """Whether this process may take only so much address space; then an extension that cannot be mapped is an ImportError."""
    import resource

    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


if __name__ == "__main__":
    main()
