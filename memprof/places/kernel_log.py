"""What the kernel's log says of processes of a control group that were killed for lack of memory.

/dev/kmsg (Documentation/ABI/testing/dev-kmsg): each read gives one record, `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;MESSAGE`, and EAGAIN at the end.
Where it may not be read, the journal of systemd may. mm/oom_kill.c writes `oom-kill:...,task_memcg=PATH,...`, then `...: Killed process PID ...`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress

_GROUP, _KILLED = "task_memcg=", ": Killed process "
_WITHIN_S = 10


def kills(group: str) -> tuple[str, ...] | None:
    """The lines on killed processes of a group and of those below it, the oldest first; None if the log may not be read.

    group: its path below the mount, which in a container may be the end of the path that the kernel writes; empty where nothing is known of it.
    """
    messages = _kernel_messages() if group else None
    return None if messages is None else tuple(lines_of(messages, group))


def lines_of(messages: Iterable[str], group: str) -> Iterator[str]:
    """The lines on killed processes of a group among the messages."""
    belongs = False
    for message in messages:
        if _GROUP in message:
            path = message.partition(_GROUP)[2].partition(",")[0]
            belongs = f"{group.rstrip('/')}/" in f"{path}/"
        elif _KILLED in message and belongs:
            belongs = False
            yield message


def _kernel_messages() -> list[str] | None:
    with suppress(OSError):
        return _records(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    with suppress(OSError, subprocess.TimeoutExpired):
        command = ["journalctl", "--dmesg", "--output", "cat", "--no-pager"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
        if done.returncode == 0 and done.stdout:
            return done.stdout.splitlines()
    return None


def _records(descriptor: int) -> list[str]:
    messages: list[str] = []
    try:
        while True:
            try:
                record = os.read(descriptor, 8192).decode("utf-8", "replace")
            except BlockingIOError:
                return messages
            except BrokenPipeError:  # records were overwritten before they were read
                continue
            messages.append(record.partition(";")[2].partition("\n")[0])
    finally:
        os.close(descriptor)
