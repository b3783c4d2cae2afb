"""Boots a board of tests/board beside a worker of the fleet's bench, in the network namespace that it is started in: FOLDER PORT.

Prints the path of an `ssh` that knows the board's key, and ends the board at the end of its standard input.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

# The tests' folder is no package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from board import booting
from support import session_cache


def main() -> None:
    """See the module's text."""
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    os.environ[session_cache.SHARED] = str(folder)
    with booting.shared(1, python=True, port=port) as board:
        client = folder / "bin" / "ssh"
        client.parent.mkdir(exist_ok=True)
        options = f"-F none -i {board.key} -o UserKnownHostsFile={board.known_hosts} -o StrictHostKeyChecking=accept-new"
        client.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} {options} "$@"\n')
        client.chmod(0o755)
        print(client, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
