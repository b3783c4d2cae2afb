"""Control groups that keep a run out of swap, or count several processes together, here or elsewhere: groups.sh finds where one can be made there."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..base import control_groups
from ..base.errors import InputError
from ..records.recorder_order import GroupOrder
from . import limits
from .place import Place

_SCRIPT = Path(__file__).with_name("groups.sh")
_WITHIN_S = 120
_SUBJECT = "--no-swap needs a control group for the run, and none can be made"
# Words of groups.sh, and their meaning for the user.
_REASONS = {
    "absent": "its kernel has no control groups of memory",
    "off": "its kernel was started without control groups of memory; cgroup_enable=memory on its command line turns them on",
    "unmounted": "its control groups are not mounted; as root: mount -t cgroup2 none /sys/fs/cgroup",
    "refused": "this user may make none there; try to log in as root",
    "swap": "swap does not count in its control groups; swapaccount=1 on its kernel's command line changes that",
}


def without_swap(place: Place) -> Callable[[], dict[str, object]]:
    """What gives the fields of an Order whose child gets a new group that keeps it out of swap. Raises InputError if none can be made there."""
    if not place.beside:
        return _Groups(place).following
    try:
        limiter = limits.find("cgroup")
    except InputError:
        raise InputError(f"{_SUBJECT} here (try as root)") from None
    return lambda: limiter.start(None)


def common(place: Place) -> tuple[str, int] | None:
    """The path of a new group there for processes that count together, and its version; None where no folder for groups can be had."""
    if place.beside:
        limiter = limits.find("auto")
        return (str(limiter.new_folder()), limiter.version) if isinstance(limiter, limits.Groups) else None
    with suppress(InputError):
        return _Groups(place).path()
    return None


def counting(place: Place) -> Callable[[], dict[str, object]] | None:
    """What gives the fields of an Order whose child gets a new group that limits nothing: its own peaks tell what a reading can miss where pages are
    swapped out. None where none can be made."""
    if place.beside:
        limiter = limits.find("auto")
        return (lambda: {"group": GroupOrder(str(limiter.new_folder()))}) if isinstance(limiter, limits.Groups) else None
    with suppress(InputError):
        groups = _Groups(place)
        if groups.path() is not None:
            return groups.without_limit
    return None


def remove(place: Place, path: str) -> None:
    """End what is in a group, and remove it. Raises InputError."""
    if place.beside:
        control_groups.remove(Path(path))
    else:
        _asked(place, path)


class _Groups:
    """Groups on another machine for one run after another."""

    def __init__(self, place: Place) -> None:
        self._place, self._numbers = place, itertools.count(1)
        self._look()

    def _look(self) -> None:
        self._owner = self._place.owner()
        found, _, rest = _asked(self._place, "").partition(" ")
        if found not in ("group", "scope"):
            raise InputError(f"{_SUBJECT} on {self._place.name}: {_REASONS.get(rest, _REASONS['refused'])}")
        self._version, _, self._folder = rest.partition(" ")

    def following(self) -> dict[str, object]:
        """The fields of an Order for the next run."""
        if self._place.owner() != self._owner:  # the connection was made again, perhaps to a machine that was started again
            self._look()
        path = self.path()
        return limits.scope(None) if path is None else limits.group(*path, None)

    def without_limit(self) -> dict[str, object]:
        """The same, with a group that limits nothing."""
        path = self.path()
        return {} if path is None else {"group": GroupOrder(path[0])}

    def path(self) -> tuple[str, int] | None:
        """The path of a new group and its version; None where there are only scopes of the user's systemd."""
        return (f"{self._folder}/{control_groups.PREFIX}-{self._owner}-{next(self._numbers)}", int(self._version)) if self._folder else None


def _asked(place: Place, path: str) -> str:
    words = ["sh", "-c", _SCRIPT.read_text(), "memprof", place.owner(), path]
    return place.run(words, _WITHIN_S).stdout.decode("utf-8", "replace").strip()
