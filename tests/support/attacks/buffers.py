"""Buffers that trees of processes share: made-up trees by their seeds, what is known of their memory, and what a recorder finds of it.

The buffers are memfds, which are there without a device; a recorder reads them as it reads dma-bufs. A tree shares them by fork and by sockets, maps
them or does not, and closes, unmaps and ends in any order. No page is touched by two processes, so that what resident sets have of a buffer is known.
"""

from __future__ import annotations

import json
import mmap
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from memprof.base.runners import runners_path
from memprof.places.machine import this_machine
from memprof.places.recorder_start import RecorderKind, recorder_command
from memprof.recording.devices import MEMFD
from memprof.recording.order import lines
from memprof.records.recorder_order import CommandStart, Message, Start
from memprof.records.types import COMMAND, Job, Mark, Model, Run
from support.native_programs import folded

KINDS: tuple[RecorderKind, ...] = ("python", "c")
PROGRAM = Path(__file__).with_name("buffer_tree.py")
_PROCESSES, _BUFFERS, _PAGES, _COMMANDS = 7, 10, 200, 12  # at most: the last of them in a phase
_PAUSES_S = (0.05, 0.5, 3.0)  # after a phase's end, tried in turn: a busy machine reads late
Command = tuple[int, str, tuple[int, ...]]  # who does it, what, and its figures


@dataclass
class Holder:
    """What a process has. touched: how many pages of each buffer that it has mapped."""

    descriptors: set[int] = field(default_factory=set)
    touched: dict[int, int] = field(default_factory=dict)


@dataclass
class World:
    """A tree as it must be after the commands so far. sizes: pages of all buffers so far; free: the first page of each that nobody touched."""

    holders: dict[int, Holder] = field(default_factory=lambda: {0: Holder()})
    sizes: list[int] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    processes: int = 1

    def there(self) -> set[int]:
        """The buffers that some process has."""
        return {buffer for holder in self.holders.values() for buffer in (*holder.descriptors, *holder.touched)}

    def truth(self) -> tuple[int, int]:
        """Bytes of all buffers that no resident set has, and bytes that one has."""
        resident = sum(sum(holder.touched.values()) for holder in self.holders.values())
        return (sum(self.sizes[buffer] for buffer in self.there()) - resident) * mmap.PAGESIZE, resident * mmap.PAGESIZE

    def possible(self, draw: random.Random) -> Iterator[Command]:
        """A command of each kind that can be done."""
        process = draw.choice(sorted(self.holders))
        holder = self.holders[process]
        if len(self.sizes) < _BUFFERS:
            yield process, "make", (len(self.sizes), draw.randint(1, _PAGES))
        if self.processes < _PROCESSES:
            yield process, "fork", (self.processes,)
        if process:
            yield process, "exit", ()
        for buffer in draw.sample(sorted(holder.descriptors), min(1, len(holder.descriptors))):
            yield process, "dup", (buffer,)
            yield process, "close", (buffer,)
            for other in draw.sample(sorted(self.holders.keys() - {process}), min(1, len(self.holders) - 1)):
                yield process, "pass", (buffer, other)
            if buffer not in holder.touched:
                yield process, "map", (buffer, self.free[buffer], draw.randint(0, self.sizes[buffer] - self.free[buffer]))
        for buffer in draw.sample(sorted(holder.touched), min(1, len(holder.touched))):
            yield process, "unmap", (buffer,)

    def mapped_alone(self) -> bool:
        """Whether a buffer is mapped of which no process has a descriptor."""
        descriptors = {buffer for holder in self.holders.values() for buffer in holder.descriptors}
        return bool(self.there() - descriptors)

    def do(self, command: Command) -> None:
        """Change as the command says."""
        process, kind, words = command
        holder = self.holders[process]
        if kind == "make":
            holder.descriptors.add(words[0])
            self.sizes.append(words[1])
            self.free.append(0)
        elif kind == "map":
            holder.touched[words[0]] = words[2]
            self.free[words[0]] += words[2]
        elif kind == "unmap":
            del holder.touched[words[0]]
        elif kind == "close":
            holder.descriptors.discard(words[0])
        elif kind == "pass":
            self.holders[words[1]].descriptors.add(words[0])
        elif kind == "fork":  # pages of a shared mapping are not in the child before it touches them
            self.holders[words[0]] = Holder(set(holder.descriptors), dict.fromkeys(holder.touched, 0))
            self.processes += 1
        elif kind == "exit":
            del self.holders[process]


@dataclass(frozen=True)
class Phase:
    """Its commands, the bytes at its end as World.truth has them, and those of all buffers that were there in it."""

    commands: tuple[Command, ...]
    outside: int
    resident: int
    most: int


def phases_of(seed: int, sees_mapped: bool) -> tuple[Phase, ...]:
    """The phases of a tree. sees_mapped: whether a recorder can tell the size of a buffer that is mapped alone."""
    draw, world, made = random.Random(seed), World(), []
    for _ in range(draw.randint(2, 4)):
        there, commands = world.there(), []
        for _ in range(draw.randint(4, _COMMANDS)):
            command = draw.choice(list(world.possible(draw)))
            after = deepcopy(world)
            after.do(command)
            if sees_mapped or not after.mapped_alone():
                world = after
                there |= world.there()
                commands.append(command)
        made.append(Phase(tuple(commands), *world.truth(), sum(world.sizes[buffer] for buffer in there) * mmap.PAGESIZE))
    return tuple(made)


@cache
def sees_mapped_files() -> bool:
    """Whether /proc/PID/map_files may be looked into here, as with CAP_CHECKPOINT_RESTORE."""
    return any(path.exists() for path in Path("/proc/self/map_files").iterdir())


def tried(seed: int, kind: RecorderKind) -> list[str]:
    """What is wrong of a tree as this recorder sees it."""
    phases = phases_of(seed, sees_mapped_files())
    for pause_s in _PAUSES_S:
        run = _measured(phases, pause_s, kind)
        wrongs = [wrong for number, phase in enumerate(phases) for wrong in judged(phase, run.mark(f"P{number}"))]
        if not wrongs:
            break
    return wrongs


def judged(phase: Phase, mark: Mark | None) -> Iterator[str]:
    """What is wrong of a phase's figures."""
    if mark is None or mark.device_peak_bytes is None:
        yield "a phase without figures"
        return
    resident = sum(kind.resident_end_bytes or 0 for kind in mark.devices if kind.kind == MEMFD)
    if (mark.device_end_bytes, resident) != (phase.outside, phase.resident):
        yield f"{mark.phase}: {mark.device_end_bytes} and {resident} bytes, not {phase.outside} and {phase.resident}"
    if not phase.outside <= mark.device_peak_bytes <= phase.most:
        yield f"{mark.phase}: a peak of {mark.device_peak_bytes} bytes, not {phase.outside} to {phase.most}"


def _measured(phases: Sequence[Phase], pause_s: float, kind: RecorderKind) -> Run:
    plan = json.dumps({"processes": _PROCESSES, "phases": [phase.commands for phase in phases]})
    words = (sys.executable, "-I", "-S", str(PROGRAM), str(runners_path()), str(pause_s), plan)
    message = Message(
        Job(Model("m", "/m", (), 0, ""), COMMAND, "v", 1, 0, 1), Start(words, command=CommandStart()), 60 * 10**9, {"": 10**6}
    )
    with subprocess.Popen(recorder_command(kind), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(lines(message, this_machine()))
        process.stdin.flush()  # and stays open: its end would end the recorder
        recording = process.stdout.read()
    return folded(message, recording)
