"""One measurement as memprof asks for it: what the recorder needs, in its own lines (memprof/recorder/__init__.py has them), and what the fold needs
besides, in the recording's line `order`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from ..base.counter_bounds import late_by_thread
from ..records.recorder_order import Header, Message
from ..records.types import Machine
from .events import escaped

_PAD = 128  # see `_environment`


_decoder = msgspec.json.Decoder(Header)


def encode(header: Header) -> bytes:
    """The text of a recording's line `order`."""
    return escaped(msgspec.json.encode(header))


def decode(text: bytes) -> Header:
    """Raises msgspec.ValidationError for a field of another type."""
    return _decoder.decode(text)


def lines(message: Message, machine: Machine) -> bytes:
    """The order that a recorder reads. Raises ValueError for a text that no program can be given, as it holds a 0."""
    text = b"".join(b"%s %s\n" % (name.encode(), escaped(os.fsencode(value))) for name, value in _facts(message, machine))
    if b"\0" in text:
        raise ValueError("a word with a zero in it")
    return text + b"\n"


def _facts(message: Message, machine: Machine) -> Iterator[tuple[str, str]]:
    start, hold = message.start, message.hold
    yield "interval", str(message.intervals[""])
    yield "timeout", str(message.timeout_ns)
    yield "silence", str(message.silence_ns)
    if machine.swap_bytes or late_by_thread(machine.kernel):
        yield "swap", "1"
    if start.followed:
        yield "tree", "1"
    if start.command is not None and start.command.regexes:
        yield "output", "1"
        if start.attach is None:
            yield "reset", "1"
            yield "terminal", "1"
    if start.attach is not None:
        yield "attach", f"{start.attach} {start.attach_started or 0}"
        for folder in start.watch:
            yield "watch", folder
        if start.command is not None and start.command.log is not None:
            yield "log", start.command.log
        return
    if hold is not None:
        yield "hold", str(hold.limit_ns)
        if hold.is_outside or hold.at:
            yield "eager", "1"
        if "" in hold.at:
            yield "size", str(hold.at[""])
    for words in _rules(message):
        yield "rule", words
    yield from _start_facts(message)


def _start_facts(message: Message) -> Iterator[tuple[str, str]]:
    start = message.start
    for word in start.argv:
        yield "argv", word
    yield from _environment(message)
    if start.cwd:
        yield "cwd", start.cwd
    if start.input is not None:
        yield "input", str(start.input)
    else:
        yield "stdin", start.stdin
    if start.deterministic:
        yield "personality", "1"
    if start.cpus:
        yield "cpus", ",".join(map(str, start.cpus))
    if start.group is not None:
        yield "group", start.group.path
        for file, text in start.group.settings:
            yield "setting", f"{file} {text}"
    for name, size in (start.rlimits or {}).items():
        yield "rlimit", f"{name} {size}"
    yield "grace", str(start.grace_ns)
    for name in start.writers or ():
        yield "writer", name
    for path in message.files:
        yield "file", path
    yield "cache", message.cache
    if message.cache_drop:
        yield "drop", "1"


def _environment(message: Message) -> Iterator[tuple[str, str]]:
    start, hold = message.start, message.hold
    for name, value in start.env.items():
        if value is None:
            yield "unset", name
        else:
            yield "env", f"{name}={value}"
    if start.command is not None and start.command.regexes and "TERM" not in start.env:
        yield "env", "TERM=dumb"
    # A process that will be stopped shall have its memory where one that will not has it, so that one of them tells of the other.
    yield "env", "MEMPROF_HOLD=1" if hold is not None and not hold.is_outside else "MEMPROF_GOES=1"
    if start.command is None:
        # glibc copies the environment's array into the heap where a library sets a variable, as OpenBLAS does. A knob that is a variable
        # would change that array's size, and with it where all later memory lies.
        yield "pad", str(_PAD)


def _rules(message: Message) -> Iterator[str]:
    """What the recorder does where a phase begins or ends, which it knows by the line's text: json's and printf's lines differ in their spaces."""
    hold, usual = message.hold, message.intervals[""]
    sizes = hold.at if hold is not None else {}
    stops = int(hold is not None and not hold.is_outside)
    for phase in dict.fromkeys((*message.intervals, *sizes)):
        if phase:
            yield f'{message.intervals.get(phase, usual)} {sizes.get(phase, 0)} 0 "begin" "t_ns": "{phase}"'
    yield f'{usual} 0 0 "begin" "t_ns":'
    if stops and message.start.command is not None and message.start.command.alone:  # gdb says which end it stops at
        yield f'{usual} 0 1 "end" "end_ns": "first":'
        stops = 0
    yield f'{usual} 0 {stops} "end" "end_ns":'
