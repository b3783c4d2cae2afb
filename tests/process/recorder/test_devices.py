"""Memory outside of all resident sets as either recorder reads it: memfds of known sizes, what cannot be read, and what it costs."""

from __future__ import annotations

import os
import subprocess
import time

import psutil
import pytest
from conftest import need_tool

from .harness import MIB, Event, Recorder, Recording, order, python

RULES = ["1000000 0 0 begin", "1000000 0 0 end"]  # at a mark with one of these words all is read
MAKE = "def make(mib):\n    file = os.memfd_create('it'); os.write(file, bytes(mib << 20)); return file\n"


def buffers(event: Event) -> list[tuple[str, int, int, int]]:
    """(kind, size, mapped, resident) in MiB of each buffer."""
    fields = [field.split(":") for field in event.fields[3:] if field]
    return [(kind, *(int(size) // MIB for size in sizes)) for kind, _, _, *sizes in fields]  # type: ignore[misc]


def last(recording: Recording, mark: str) -> list[tuple[str, int, int, int]]:
    """What was read last before a mark."""
    place = recording.events.index(recording.wait_mark(mark))
    found = [event for event in recording.events[:place] if event.kind == "buffers"]
    return buffers(found[-1]) if found else []


def test_memfd_by_descriptor_mapping_and_neither(recorder: Recorder) -> None:
    code = (
        "import mmap\n"
        + MAKE
        + "file = make(8); mark('begin 1'); go()\nview = mmap.mmap(file, 8 << 20); view[: 3 << 20] = bytes(3 << 20)\n"
        "mark('begin 2'); go(); os.close(file); mark('begin 3'); go(); view.close(); mark('begin 4'); go(); mark('end')"
    )
    with recorder.run(python(code), rule=RULES) as recording:
        seen = []
        for number in range(1, 5):
            seen.append(last(recording, f"begin {number}"))
            recording.go()
        recording.finish()

    # mmap has a descriptor of its own, and what is mapped is known by its address where the kernel lets it be looked at.
    assert seen == [[("memfd", 8, 0, 0)], [("memfd", 8, 8, 3)], [("memfd", 8, 8, 3)], []]


def test_descriptor_passed_by_socket_is_the_same(recorder: Recorder) -> None:
    code = (
        "import socket\n" + MAKE + "here, there = socket.socketpair()\n"
        "if os.fork() == 0:\n    here.close(); socket.recv_fds(there, 1, 1); mark('begin child'); there.recv(1); os._exit(0)\n"
        "there.close(); file = make(8); socket.send_fds(here, [b'x'], [file]); go()"
    )
    with recorder.run(python(code), rule=RULES, tree=1) as recording:
        recording.wait_mark("begin child")
        recording.go()
        events = recording.finish()

    found = {event[2]: event.fields[3] for event in events if event.kind == "buffers" and "memfd" in event.fields[-1]}
    assert len(found) == 2
    assert len(set(found.values())) == 1  # kind, inode and size are the same in both


def test_memfd_of_20_ms_seen_from_the_first_on(recorder: Recorder) -> None:
    """The kernel counts descriptors from 6.2 on; before, only a process that is known to use devices is looked at so often."""
    code = MAKE + "mark('begin')\nfor _ in range(5):\n    file = make(8); time.sleep(0.02); os.close(file); time.sleep(0.05)\nmark('end')"
    for attempt in range(4):  # a busy machine may not let the recorder run in time
        with recorder.run(python(code), rule=RULES) as recording:
            recording.finish()
        seen = [event for event in recording.of("buffers") if buffers(event) == [("memfd", 8, 0, 0)]]
        if len(seen) == 5 or attempt == 3:
            break
    assert len(seen) == 5


def test_page_tables_of_a_process_without_devices(recorder: Recorder) -> None:
    code = (
        "block = b'x' * (64 << 20)\n"
        "mark('begin ' + next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmPTE')))\ngo()"
    )
    with recorder.run(python(code), rule=RULES) as recording:
        size = recording.wait("mark").text(2).split()[1]
        tables = recording.of("tables")[-1]
        recording.go()
        recording.finish()

    assert tables.fields[3:] == (size, "0", "0")
    assert not recording.of("buffers") and not recording.of("clients")


# -- what cannot be read, or only seldom


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as somebody else")
def test_hidden_descriptors_are_told(recorder: Recorder) -> None:
    need_tool("setpriv")
    with subprocess.Popen(["sleep", "60"], user=65534) as process:
        text = order([f"attach {process.pid} 0"], timeout=3 * 10**8)
        with recorder.started(text, wrap=["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]) as running:
            assert running.stdout is not None
            told = running.stdout.read().decode().splitlines()
        process.kill()

    hidden = [line.split() for line in told if line.startswith("buffers ")]
    assert [words[3:] for words in hidden] == [[str(process.pid), "-"]]


def test_readings_left_out_with_thousands_of_descriptors(recorder: Recorder) -> None:
    code = (
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (9000, 9000))\n" + MAKE + "file = make(1); mark('begin')\n"
        "for _ in range(8000): os.dup(file)\n"
        "end = time.monotonic() + 3\nwhile time.monotonic() < end: os.close(os.dup(0)); time.sleep(0.002)"
    )
    with recorder.run(python(code), rule=RULES) as recording:
        events = recording.finish()

    assert [event for event in events if event.kind == "fault" and event.fields[1] == "devices" and event[2] > 10]
    assert buffers(recording.of("buffers")[0]) == [("memfd", 1, 0, 0)]


def test_cost_with_a_hundred_descriptors(recorder: Recorder) -> None:
    """docs/device-memory.md has the figures; here is ten times what is allowed, as on a busy machine any time is longer."""
    code = MAKE + "file = make(1)\nfor _ in range(100): os.dup(0)\nmark('begin'); go()"
    with recorder.run(python(code), rule=RULES) as recording:
        recording.wait_mark("begin")
        process = psutil.Process(recording.process.pid)
        before, begin_ns = sum(process.cpu_times()[:2]), time.monotonic_ns()
        recording.wait(".", lambda event: event[3] > 4000)
        spent, took_ns = sum(process.cpu_times()[:2]) - before, time.monotonic_ns() - begin_ns
        recording.go()
        recording.finish()

    assert spent / took_ns * 1e9 < 0.1 + 0.1
