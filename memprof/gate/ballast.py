"""A known increase of what a run holds, for the positive control of a gate.

A runtime's own process holds it, by the knob ballast. For a program another process holds it: dd reads so many zeros into its buffer, and then waits
to write them into a full pipe. It is no child of the program, which may wait for its children, but belongs to what is measured with it. A shell
starts both, and becomes the program as soon as the buffer is full. The program has the pipe's other end open, so that dd ends with it. That takes sh,
dd, mktemp and mkfifo, which POSIX systems and small boards have, and needs nothing of the recorder.
"""

from __future__ import annotations

from dataclasses import replace

from ..records.types import COMMAND
from ..subjects.order import Order

# $0: how many bytes; the other words: the program. A shell has descriptors of one digit only, and the marks may have one of them.
_HELD = """\
case "${MEMPROF_MARKS-}" in 9:*) end=8 ;; *) end=9 ;; esac
folder=$(mktemp -d) && mkfifo "$folder/full" || exit 125
(dd if=/dev/zero of="$folder/full" bs="$0" count=1 </dev/null >/dev/null 2>&1 &)
eval "exec $end<\"\\$folder/full\""
rm -r "$folder"
eval "dd bs=1 count=1 <&$end >/dev/null 2>&1"
exec "$@"
"""


def heavier(order: Order, more: int) -> Order:
    """The order with `more` bytes held beside what it holds."""
    if order.job.runtime == COMMAND:
        return replace(order, wrap=("sh", "-c", _HELD, str(more), *order.wrap))
    held = int(order.job.knobs.get("ballast", 0))
    return replace(order, job=replace(order.job, knobs={**order.job.knobs, "ballast": str(held + more)}))
