"""The command `memprof`, and `python -m memprof`: starts the command line, or says why there is not even memory for that."""

from __future__ import annotations

import os
import sys

from .base.errors import InputError, out_of_memory


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from .doors.cli import main as command
    except Exception as error:
        if not out_of_memory(error):
            raise
        sys.stderr.write("memprof: there is too little memory to start; ulimit -v may limit it\n")
        sys.stderr.flush()
        os._exit(InputError.exit_code)  # what Python does at its exit fails too, and would be told behind the sentence
    command()


if __name__ == "__main__":
    main()
