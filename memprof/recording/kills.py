"""Whether the kernel ended a process for lack of memory. A count of such kills tells that there was one, the kernel's log tells of whom."""

from __future__ import annotations

from collections.abc import Collection


class KillCounts:
    """The kernel's kills for lack of memory, as a recording has them: counts of the machine and of this container, and the processes in the log."""

    def __init__(self) -> None:
        self._machine: list[int | None] = []
        self._container: list[int | None] = []
        self._named: set[int] = set()
        self._named_count = 0
        self._lost = False

    def count(self, machine: int | None, container: int | None) -> None:
        """Take both counts as of now; the first ones are from before the program started."""
        self._machine.append(machine)
        self._container.append(container)

    def name(self, pid: int | None) -> None:
        """The log names a process, or None: a part of it was lost."""
        self._lost = self._lost or pid is None
        self._named_count += pid is not None
        if pid is not None:
            self._named.add(pid)

    def killed(self, pids: Collection[int]) -> bool | None:
        """True if one of these processes was, False if not, None if it may have been: there was a kill, and the log does not say of whom."""
        if not self._machine or self._machine[-1] is None:
            return False
        count = self._machine[-1] - (self._machine[0] or 0)
        inside, before = self._container[-1], self._container[0]
        if count <= 0 or (inside is not None and before is not None and inside <= before):
            return False
        if self._named.intersection(pids):
            return True
        return False if not self._lost and self._named_count >= count else None
