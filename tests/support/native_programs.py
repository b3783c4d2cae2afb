"""What the tests of commands share: small C programs with marks, compiled once, and one command through a real recorder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from memprof.base.runners import runners_path
from memprof.campaign import campaign
from memprof.places.machine import this_machine
from memprof.programs import commands
from memprof.recording import order as recording_order
from memprof.recording.fold import Fold
from memprof.records.recorder_order import Header, Message
from memprof.records.types import COMMAND, Machine, Run
from memprof.subjects.order import Order
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite, Variant
from support.compiler import once_compiled
from support.recorder_runs import Silent, with_patience

MIB = 1 << 20
HEADER = runners_path() / "native" / "memprof.h"
EXAMPLES = runners_path() / "native" / "examples"
TRANSIENT = Path(__file__).with_name("transient.c")

HEAD = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "memprof.h"
#define MIB ((size_t)1 << 20)
static char *hold(size_t bytes) {
    char *memory = (char *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, bytes);
    return memory;
}
static void drop(char *memory, size_t bytes) { munmap(memory, bytes); }
static void until(const char *file) { while (access(file, F_OK)) usleep(1000); }
"""


# 64 MiB that are given up to swap, and 48 MiB beside them.
SWAPPED_OUT = """
    memprof_begin("HOLD");
    { char *first = hold(64 * MIB);
      madvise(first, 64 * MIB, 21 /* MADV_PAGEOUT */);
      hold(48 * MIB); }
    memprof_end();
"""


def swapped_out(run: Run) -> None:
    """The figures of `SWAPPED_OUT` hold."""
    mark = run.mark("HOLD")
    assert run.outcome.ok and mark is not None, run
    assert mark.swapped_bytes > 60 * MIB, "it was not swapped out"
    assert mark.rss_peak_bytes is not None and mark.rss_peak_bytes < 80 * MIB
    assert mark.with_swap_bytes is not None and 112 * MIB <= mark.with_swap_bytes < 120 * MIB


def program(body: str) -> str:
    """The path of a C program with this main; compiled once a session."""
    source = (
        HEAD
        + "int main(int count, char **words) { (void)count; (void)words; (void)hold; (void)drop; (void)until;\n"
        + body
        + "\nreturn 0; }"
    )
    return str(once_compiled("gcc", "program.c", source, f"-I{HEADER.parent}"))


def built(source: Path, *flags: str) -> str:
    """The path of a program of this source; compiled once a session."""
    return str(once_compiled("gcc", "program.c", source.read_text(), f"-I{HEADER.parent}", *flags))


def order(*words: object, env: dict[str, str] | None = None, **settings: object) -> Order:
    """The order of a command, as `memprof exec` makes it."""
    variant = Variant(runtime=COMMAND, name="it", command=commands.of_words([str(word) for word in words]), env=env or {})
    (order,) = plan(Suite(variants=(variant,), repeats=1, **settings)).orders  # type: ignore[arg-type]
    return order


def ran(*words: object, **settings: object) -> Run:
    """The Run of a command through a real recorder."""
    (run,) = campaign.measure([order(*words, **settings)], Silent(), lambda line: None)  # type: ignore[arg-type]
    return run


class _Noticing(Silent):
    """Makes a file when a program and what it has started have been seen at this size together, twice.

    The recorder tells of it ten times a second at most. In between it has gone round its loop: by the second time it has read all marks that were
    written before the first.
    """

    def __init__(self, file: Path, mib: float) -> None:
        super().__init__()
        self._file, self._bytes, self._times = file, mib * MIB, 0

    def live(self, phase: str, rss_bytes: int) -> None:
        self._times += rss_bytes >= self._bytes
        if self._times == 2:
            self._file.touch()


def ran_until_seen(mib: float, file: Path, path: str, *words: object) -> Run:
    """The Run of a program that gets a file's path and holds its memory `until` there is one, which is made when this much has been seen."""
    (run,) = campaign.measure([order(path, file, *words)], _Noticing(file, mib), lambda line: None)
    return run


def ran_in_time(came_so_far: Callable[[Run], bool], *words: object, **settings: object) -> Run:
    """The Run of a command in which {us} and {s} are how long it waits: long enough for the recorder to see what it must; at first 0.25 s."""

    def attempt(limit_ns: int) -> Run:
        timed = (str(word).replace("{us}", str(limit_ns // 4000)).replace("{s}", str(limit_ns / 4e9)) for word in words)
        return ran(*timed, **settings)

    return with_patience(attempt, came_so_far)


def folded(message: Message, recording: bytes, machine: Machine | None = None) -> Run:
    """The Run of what a recorder wrote for this message, on this machine or another."""
    first, *lines = recording.split(b"\n")[:-1]  # a carriage return ends no line
    fold = Fold()
    fold.take(first)
    fold.take(b"order 0 " + recording_order.encode(Header(message, machine or this_machine(), 0)))
    for line in lines:
        fold.take(line)
    return fold.run()


def phases(run: Run) -> list[str]:
    """The names of its phases, in their order."""
    return [mark.phase for mark in run.marks]


def peak_mib(run: Run, phase: str) -> float:
    """A phase's peak above where the phase began."""
    mark = run.mark(phase)
    assert mark is not None, run
    return (mark.rss_peak_bytes - (mark.rss_begin_bytes or 0)) / MIB
