"""The command `memprof`, and `python -m memprof`: starts the command line, or says why there is not even memory for that."""

from __future__ import annotations

import os

from .base.errors import TOO_LITTLE_MEMORY, InputError, out_of_memory

_TOO_LITTLE = f"memprof: {TOO_LITTLE_MEMORY}\n".encode()  # made while there is memory


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from .doors.cli import main as command

        command()
    except Exception as error:  # of the import, or of what the command line does with an error
        if not out_of_memory(error):
            raise
        os.write(2, _TOO_LITTLE)
        os._exit(InputError.exit_code)  # what Python does at its exit fails too, and would be told behind the sentence


if __name__ == "__main__":
    main()
