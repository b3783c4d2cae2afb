"""`labgrid-client` without its start: labgrid's imports take half a second of CPU time, and the tests call it dozens of times.

    LABGRID'S PYTHON lab_clients.py serve NAME       imports labgrid's client once and runs it in a fork for each call; says "ready" first
    ANY PYTHON lab_clients.py ask NAME [WORDS...]    is `labgrid-client WORDS`: its input, outputs, environment, folder and exit code

NAME is a socket's, in the kernel's abstract space. One call runs at a time.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import traceback
from contextlib import suppress


def serve(name: str) -> None:
    """Answer calls for ever."""
    import labgrid.remote.client  # type: ignore[import-not-found]  # noqa: F401

    gc.freeze()  # what is imported is not looked through again in each fork
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind("\0" + name)
        server.listen()
        print("ready", flush=True)
        while True:
            with server.accept()[0] as call, suppress(OSError, ValueError):  # who asked may be gone
                message, descriptors, _, _ = socket.recv_fds(call, 1 << 17, 3)
                pid = os.fork()
                if pid == 0:
                    _call(message, descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
                call.send(bytes([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 255]))


def _call(message: bytes, descriptors: list[int]) -> None:
    """Be the program, and end. The interpreter is not taken apart, which would take as long as the call."""
    code = 1
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        words, environment, folder = json.loads(message)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv[1:] = words
        from labgrid.remote.client import main  # type: ignore[import-not-found]

        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ask(name: str, words: list[str]) -> int:
    """Have the words run. Gives the exit code."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as call:
        call.connect("\0" + name)
        socket.send_fds(call, [json.dumps([words, dict(os.environ), os.getcwd()]).encode()], [0, 1, 2])
        return call.recv(1)[0]


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(ask(sys.argv[2], sys.argv[3:]))
