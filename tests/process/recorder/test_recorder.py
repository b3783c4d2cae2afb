"""The contract of the recorders (memprof/recorder/__init__.py and memprof/recording/__init__.py), shown on real programs."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import mmap
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from support.compiler import once_compiled
from support.group_trees import GroupTree, files

from .harness import HEAD, MIB, WITHIN_S, Event, Recorder, Recording, alive, order, python, wait_until

PAGE = os.sysconf("SC_PAGE_SIZE")
FAR_S = 50
DEVICES = ("buffers", "clients", "tables")  # which stand before a look

# The child of vfork waits for a byte in its parent's memory, and becomes another program then.
VFORK = """
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    char byte;
    int pid = vfork();
    if (pid == 0) {
        if (read(0, &byte, 1) == 1) execlp("cat", "cat", (char *)0);
        _exit(1);
    }
    waitpid(pid, 0, 0);
    return 0;
}"""

# The first thread ends; another one has memory of its own, and waits for a byte.
FIRST_THREAD_ENDS = """
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *other(void *first) {
    char byte, *memory;
    pthread_join(*(pthread_t *)first, 0);
    memory = malloc(64 << 20);
    memset(memory, 1, 64 << 20);
    if (write(1, memory, 1) != 1 || read(0, &byte, 1) != 1) exit(1);
    exit(0);
}
int main(void) {
    static pthread_t first;
    pthread_t thread;
    first = pthread_self();
    pthread_create(&thread, 0, other, &first);
    pthread_exit(0);
}"""


def places(events: list[Event], *kinds: str) -> list[int]:
    """Where the first event of each kind stands."""
    return [next(place for place, event in enumerate(events) if event.kind == kind) for kind in kinds]


def found(recording: Recording) -> Event:
    """The process that was found beside the one that was started."""
    root = recording.wait_pid()
    return recording.wait("process", lambda event: event[2] != root)


# -- the begin


def test_program_from_start_to_end(recorder: Recorder) -> None:
    with recorder.run(python("print('hello')")) as recording:
        events = recording.finish()

    assert events[0].kind == "recording"
    assert events[0].fields == ("1", str(PAGE), str(os.sysconf("SC_CLK_TCK")), recorder.kind)
    begin, start, process, ended = (recording.of(kind)[0] for kind in ("begin", "start", "process", "ended"))
    assert begin.fields[3] == str(recording.process.pid)
    assert begin[1] == len(os.sched_getaffinity(0))
    assert start[1] == process[2] == ended[1]
    assert process[3] == process[4] == 0
    assert ended[2] == 0
    assert ended[6] > 1000
    assert recording.of("tail")[0].fields[1:] == ("6", "hello\\n")
    order_ = places(events, "recording", "kills", "begin", "start", "process", "gone", "ended", "tail", "periods", "end")
    assert order_ == sorted(order_)
    times = [event[0] for event in events if event.kind in ("begin", "start", "gone", "ended", "tail", "end")]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("words", "facts", "step", "number"),
    [
        (["/nowhere/at/all"], {}, "exec", errno.ENOENT),
        (["no-such-program-anywhere"], {}, "exec", errno.ENOENT),
        (["/"], {}, "exec", errno.EACCES),
        (["true"], {"cwd": "/nowhere"}, "exec", errno.ENOENT),
        (["true"], {"group": "/nowhere/at/all"}, "group", errno.ENOENT),
        (["true"], {"cpus": "99999"}, "cpus", None),
    ],
    ids=["path", "name", "folder", "cwd", "group", "cpus"],
)
def test_error_with_its_number(recorder: Recorder, words: list[str], facts: dict[str, str], step: str, number: int | None) -> None:
    with recorder.run(words, **facts) as recording:
        events = recording.finish()

    error = recording.of("error")[0]
    assert error.fields[1] == step
    assert number is None or error.fields[2:4] == (str(number), "-")
    assert not {"start", "ended", "process"} & {event.kind for event in events}


def test_error_with_head_of_file(recorder: Recorder, tmp_path: Path) -> None:
    path = tmp_path / "it"
    path.write_bytes(b"\x7fELF\x02\x01" + bytes(range(40)))
    path.chmod(0o755)
    with recorder.run([str(path)]) as recording:
        recording.finish()

    assert recording.of("error")[0].fields[1:] == ("exec", str(errno.ENOEXEC), path.read_bytes()[:20].hex(), str(path))


@pytest.mark.parametrize(
    "text", [b"argv true\n", b"\n", b"argv true\nnothing 1\n\n", b"argv true\ninterval x\n\n"], ids=["no end", "empty", "name", "number"]
)
def test_order_that_is_not_understood(recorder: Recorder, text: bytes) -> None:
    with recorder.started(text) as process:
        out, err = process.communicate()

    assert (process.returncode, out) == (2, b"")
    assert err


def test_environment_of_the_program(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMPROF_PAD_7", "left")
    monkeypatch.setenv("TO_BE_UNSET", "1")
    monkeypatch.setenv("TO_BE_KEPT", "1")
    code = """
pads = [name for name in os.environ if name.startswith("MEMPROF_PAD_")]
fd, device, inode = map(int, os.environ["MEMPROF_MARKS"].split(":"))
print(len(os.environ) % 64, sorted(pads) == sorted("MEMPROF_PAD_%d" % n for n in range(len(pads))), "TO_BE_UNSET" in os.environ)
print(repr(os.environ["NEW"]), os.environ["TO_BE_KEPT"], (os.fstat(fd).st_dev, os.fstat(fd).st_ino) == (device, inode))
print(0 < time.monotonic_ns() - int(os.environ["MEMPROF_STARTED_NS"]) < 60 * 10**9, os.getpgid(0) == os.getpid())
"""
    with recorder.run(python(code), env=["NEW=a=b\\c\nd"], unset=["TO_BE_UNSET"], pad=64) as recording:
        recording.finish()

    lines = recording.of("tail")[0].text(2).splitlines()
    assert lines == ["0 True False", repr("a=b\\c\nd") + " 1 True", "True True"]


def test_surroundings_of_the_program(recorder: Recorder, tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    code = """
import resource
print(os.getcwd(), sorted(os.sched_getaffinity(0)), resource.getrlimit(resource.RLIMIT_DATA)[0], sys.stdin.read(), os.isatty(1))
"""
    with recorder.run(python(code), stdin="two\nlines", cwd=tmp_path, cpus=cpu, rlimit=[f"RLIMIT_DATA {1 << 33}"]) as recording:
        recording.finish()

    assert recording.of("tail")[0].text(2) == f"{tmp_path} [{cpu}] {1 << 33} two\nlines False\n"
    assert recording.of("begin")[0][1] == 1


def test_terminal_and_fixed_layout(recorder: Recorder) -> None:
    with recorder.run(python("print(os.isatty(1), open('/proc/self/personality').read())"), terminal=1, personality=1) as recording:
        recording.finish()

    terminal, personality = recording.of("tail")[0].text(2).split()
    assert terminal == "True"
    assert recording.of("layout")[0][1] == bool(int(personality, 16) & 0x0040000)


def test_page_cache_before_the_start(recorder: Recorder, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(4 * MIB))
    for state, drop in (("cold", 0), ("warm", 0), ("asis", 1), ("cold", 1)):
        before = resident(path)
        with recorder.run(["true"], file=[path], cache=state, drop=drop) as recording:
            recording.finish()
        after = resident(path)
        if state == "cold" and after == before == 1:
            pytest.skip("the file system of temporary files keeps all in memory")
        assert after == pytest.approx({"cold": 0, "warm": 1, "asis": before}[state], abs=0.1)  # others have use for the memory too


def resident(path: Path) -> float:
    """Which part of a file is in the page cache."""
    library = ctypes.CDLL(None, use_errno=True)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        count = -(-len(mapped) // PAGE)
        pages = (ctypes.c_char * count)()
        here = (ctypes.c_char * len(mapped)).from_buffer(mapped)
        assert library.mincore(ctypes.c_void_p(ctypes.addressof(here)), ctypes.c_size_t(len(mapped)), pages) == 0
        del here
        return sum(page[0] & 1 for page in pages) / count


# -- processes and their memory


def test_memory_as_the_kernel_writes_it(recorder: Recorder) -> None:
    with recorder.run(python("go(); block = b'x' * (64 << 20); mark('made'); go()")) as recording:
        pid = recording.wait_pid()
        before = recording.wait("process").fields[5:8]
        recording.go()
        recording.wait_mark("made")
        statm = tuple(map(int, Path(f"/proc/{pid}/statm").read_text().split()[:3]))
        recording.wait(".", lambda event: event.changes.get(pid) == statm)
        recording.go()
        recording.finish()

    assert statm[1] - int(before[1]) >= (64 * MIB) // PAGE


def test_polls_with_their_count(recorder: Recorder) -> None:
    with recorder.run(python("go()")) as recording:
        recording.wait(".", lambda event: event[3] > 200)
        recording.go()
        recording.finish()

    polls = recording.of(".")
    counts = [event[3] for event in polls]
    assert counts == sorted(set(counts))
    for earlier, later in pairwise(polls):
        assert earlier[0] <= later[2] < later[0]
        assert (later[2] == earlier[0]) == (later[3] == earlier[3] + 1)
    assert len(polls) < counts[-1] / 2  # most polls have seen nothing new
    assert max(later[0] - earlier[0] for earlier, later in pairwise(polls)) < 10**10
    periods = list(map(int, recording.of("periods")[0].fields))
    assert 150 <= periods[0] <= counts[-1]
    assert len(periods) == 102
    assert periods[1:] == sorted(periods[1:])
    assert 5 * 10**5 < periods[51] < 10**9


def test_program_that_is_not_polled(recorder: Recorder) -> None:
    with recorder.run(python("go()"), interval=0) as recording:
        third = recording.wait(".", lambda event: event[3] >= 3)
        recording.go()
        recording.finish()

    assert third[0] - recording.of("start")[0][0] > 100 * 10**6
    assert recording.of("periods")[0].fields == ("0",)


def test_child_is_found_and_goes(recorder: Recorder) -> None:
    code = "block = b'x' * (32 << 20)\nif os.fork() == 0: go(); os._exit(3)\nmark(str(os.wait()[0])); go()"
    with recorder.run(python(code), tree=1) as recording:
        root, child = recording.wait_pid(), found(recording)
        recording.go()
        gone = recording.wait("gone", lambda event: event[1] == child[2])
        recording.wait("mark")
        recording.go()
        events = recording.finish()

    assert child.fields[3:5] == (str(root), "0")
    assert int(child.fields[6]) * PAGE > 32 * MIB  # its own memory
    assert int(child.fields[16]) * PAGE > 32 * MIB  # that of its parent
    assert child.fields[14] == child.fields[24] != "0"  # both stacks begin at the same place
    before = [event for event in events[: events.index(gone)] if event.kind == "stat"]
    its = [event.fields[2] for event in before if event[1] == child[2]]
    waited = [event[4] for event in before if event[1] == root]
    assert (its and its[-1] != "S") or waited[-1] > 0  # the faults of its end: its own, or those that its parent has of it
    after = events[events.index(gone) :]
    assert next(event for event in after if event.kind == "." and event[0] > gone[0])
    assert not [event for event in recording.of("ended") if event[1] == child[2]]


def test_child_without_a_tree(recorder: Recorder) -> None:
    with recorder.run(python("if os.fork() == 0: go(); os._exit(0)\nmark('forked'); os.wait()")) as recording:
        recording.wait_mark("forked")
        recording.wait(".", lambda event: event[3] > 20)
        recording.go()
        recording.finish()

    assert [event[2] for event in recording.of("process")] == [recording.wait_pid()]


def test_child_of_another_thread(recorder: Recorder) -> None:
    code = """
import threading
def run():
    if os.fork() == 0: wait()
    go(); os.kill(0, 9)
threading.Thread(target=run).start()
"""
    with recorder.run(
        python(code.replace("import threading", f"sys.path.append({os.path.dirname(os.__file__)!r}); import threading")), tree=1
    ) as recording:
        child = found(recording)
        recording.go()
        recording.finish()

    assert child[3] == recording.wait_pid()


def test_child_of_vfork_until_exec(recorder: Recorder) -> None:
    with recorder.run([str(once_compiled("cc", "vforks.c", VFORK))], tree=1) as recording:
        root, child = recording.wait_pid(), found(recording)
        recording.go()
        separate = recording.wait("separate")
        os.close(recording.program_input)
        recording.wait("ended")
        events = recording.events

    assert child.fields[3:5] == (str(root), "1")
    assert separate[2] == child[2]
    assert len(separate.fields) == 3 + 3 + 7
    assert separate.fields[-1] != child.fields[14]  # another program has another stack
    assert any(event.kind == "." for event in events[events.index(separate) :])


def test_first_thread_ends_before_others(recorder: Recorder) -> None:
    with recorder.run([str(once_compiled("cc", "first_thread.c", FIRST_THREAD_ENDS))], output=1) as recording:
        pid = recording.wait_pid()
        recording.wait("output")
        recording.wait(".", lambda event: (event.changes.get(pid) or (0, 0, 0))[1] * PAGE > 64 * MIB)
        assert not recording.of("gone")
        recording.go()
        recording.finish()

    assert recording.of("gone")
    assert recording.of("ended")[0][2] == 0


def test_orphan_without_its_parent(recorder: Recorder) -> None:
    """Nothing is polled while a process stands still, so the child between the two is gone by then."""
    code = """
helper = os.fork()
if not helper: wait()
mark("helper %d" % helper)
go()
if os.fork() == 0:
    if os.fork() == 0: mark("orphan"); go(); os._exit(0)
    os._exit(0)
os.wait(); mark("alone"); go(); os.kill(helper, 9); os.wait()
"""
    with recorder.run(python(code), tree=1, hold=FAR_S * 10**9, eager=1) as recording:
        helper = found(recording)[2]
        recording.wait("mark")
        recording.say(f"stop {helper}")
        recording.wait("stopped")
        recording.go()
        recording.wait_mark("orphan")
        recording.wait_mark("alone")
        recording.say(f"continue {helper}")
        orphan = recording.wait("process", lambda event: event[2] not in (helper, recording.wait_pid()))
        recording.go(2)
        recording.finish()

    assert orphan[3] == 0
    assert orphan.fields[-3:-1] == ("-", "-")  # nothing is known of its parent
    assert [event[1] for event in recording.of("ended")].count(orphan[2]) == 1  # it became the recorder's child


def test_process_without_a_file_left(recorder: Recorder) -> None:
    code = "for _ in range(20):\n    if os.fork() == 0: wait()\nmark('forked'); go(); os.killpg(0, 9)"
    read, write = os.pipe()
    lines = [f"argv {line}" for line in (*python("")[:4],)] + [
        "argv " + (HEAD + code).replace("\\", "\\\\").replace("\n", "\\n"),
        f"input {read}",
    ]
    with recorder.started(order(lines, tree=1), read, wrap=["sh", "-c", 'ulimit -n 30; exec "$0" "$@"']) as process:
        recording = Recording(process, write)
        missed = recording.wait("missed")
        recording.read_until(
            lambda: len({event[2] for event in recording.of("process")} | {event[1] for event in recording.of("missed")}) == 21
        )
        recording.go()
        recording.finish()
    os.close(read)
    os.close(write)

    assert missed.fields[2] == "files"


def test_command_again_after_an_exec(recorder: Recorder) -> None:
    words = python("go(); os.execlp('sleep', 'sleep', '  600')")
    with recorder.run(words, tree=1) as recording:
        recording.wait("command")
        recording.go()
        recording.wait("command", lambda event: event.text(2) == "sleep 600")
        os.kill(recording.wait_pid(), signal.SIGKILL)
        recording.finish()

    first, *others = [event.text(2) for event in recording.of("command")]
    assert first == " ".join(" ".join(words).split())[:200]
    assert others == ["sleep 600"]


def test_status_of_a_program_that_swaps(recorder: Recorder) -> None:
    with recorder.run(python("block = bytearray(20 << 20); go()"), swap=1) as recording:
        status = recording.wait("status", lambda event: event[7] > 19 << 10)
        recording.go()
        recording.finish()

    size, peak, rss, hwm, anon, file, shmem, _swap, threads = map(int, status.fields[3:])
    assert size <= peak
    assert rss <= hwm
    assert abs(rss - anon - file - shmem) <= 4
    assert threads == 1


def test_round_of_all_shares(recorder: Recorder) -> None:
    with recorder.run(python("block = b'x' * (8 << 20)\nif os.fork() == 0: go(); os._exit(0)\nos.wait()"), tree=1) as recording:
        pids = {recording.wait_pid(), found(recording)[2]}
        recording.wait("round", lambda event: event.fields[1] == "end")
        huge = recording.wait("huge")
        recording.go()
        events = recording.finish()

    assert huge.fields[1] == "-" or huge[1] >= 0
    rounds = recording.of("round")
    end = next(place for place, event in enumerate(rounds) if event.fields[1] == "end")
    within = recording.between(rounds[end - 1], rounds[end])
    assert rounds[end - 1].fields[1] == "begin"
    shares = {event[2]: list(map(int, event.fields[3:])) for event in within if event.kind == "shares"}
    assert shares.keys() == pids
    for rss, pss, pss_anon, anon, *kinds in shares.values():
        assert rss > pss >= pss_anon
        assert sum(kinds) == rss
        assert anon > 8 << 10
    known = events[: events.index(rounds[end - 1])]
    assert {event[1] for event in known if event.kind == "stat"} | {event[2] for event in known if event.kind == "process"} >= pids


def file_pages(pid: int) -> int:
    """How many pages of files, [vdso] and its like a process has mapped: neither heap nor stack."""
    count = 0
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        where, _, _, _, inode, *name = line.split(None, 5)
        if inode != "0" or "".join(name).startswith("[v"):
            begin, end = (int(address, 16) for address in where.split("-"))
            count += (end - begin) // PAGE
    return count


def test_maps_around_a_poll(recorder: Recorder, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(256)) * 4096 * 4)
    code = f"""
import mmap
file = open({str(path)!r}, "rb")
child = os.fork()
block = mmap.mmap(file.fileno(), 2 << 20, prot=mmap.PROT_READ, offset=1 << 20)
sum(block[::4096])
if not child: wait()
mark("mapped"); go(); os.kill(child, 9); os.wait()
"""
    words = python(
        code.replace("import mmap", f"sys.path += {[entry for entry in sys.path if entry.endswith('lib-dynload')]!r}; import mmap")
    )
    with recorder.run(words, tree=1) as recording:
        pids = {recording.wait_pid(), found(recording)[2]}
        recording.wait_mark("mapped")
        wanted = f":{(1 << 20) // PAGE}:{(2 << 20) // PAGE}"
        parts = {
            pid: recording.wait("maps", lambda event, pid=pid: event[1] == pid and any(part.endswith(wanted) for part in event.fields[2:]))
            for pid in pids
        }
        recording.wait("mapped")
        pages = {pid: file_pages(pid) for pid in pids}
        recording.go()
        events = recording.finish()

    kinds = [event.kind for event in events if event.kind in ("mapped", ".", "maps")]
    assert kinds.count("mapped") >= 2
    assert {pid: sum(int(part.split(":")[2]) for part in event.fields[2:]) for pid, event in parts.items()} == pages
    assert len({next(part for part in event.fields[2:] if part.endswith(wanted)) for event in parts.values()}) == 1
    own = [{part.split(":")[0] for part in event.fields[2:]} for event in parts.values()]
    assert own[0] - own[1] and own[1] - own[0], "[vdso] is each process's own"


# -- marks


def test_mark_with_a_poll_before(recorder: Recorder) -> None:
    with recorder.run(python("go(); mark('a \\\\\\\\ b\\\\n'); go()"), eager=1) as recording:
        recording.wait(".", lambda event: event[3] > 20)
        recording.go()
        mark = recording.wait("mark")
        recording.go()
        events = recording.finish()

    assert mark.text(2) == "a \\\\ b\\n"
    polls = [event for event in events[: events.index(mark)] if event.kind == "."]
    assert polls[-1][3] == mark[1]
    assert recording.of("closed")[0][1] == 0


def test_marks_closed_by_the_program(recorder: Recorder) -> None:
    with recorder.run(python("os.close(int(os.environ['MEMPROF_MARKS'].split(':')[0])); go()")) as recording:
        closed = recording.wait("closed")
        recording.go()
        recording.finish()

    assert closed[1] == 1


def test_mark_longer_than_64_kib(recorder: Recorder) -> None:
    with recorder.run(python("mark('first'); mark('x' * 70000); mark('second' + 'y' * 60000); mark('third')")) as recording:
        recording.finish()

    assert [event.text(2)[:6] for event in recording.of("mark")] == ["first", "second", "third"]
    assert [event.fields[1] for event in recording.of("fault")] == ["mark"]


@pytest.mark.parametrize("space", ["", " "])
def test_mark_of_another_process(recorder: Recorder, space: str) -> None:
    code = f"""
if os.fork() == 0:
    if os.fork() == 0: mark('{{"mark":"begin","pid":{space}%d,"t_ns":1}}' % os.getpid()); go(); os._exit(0)
    os.wait(); os._exit(0)
os.wait()
"""
    with recorder.run(python(code)) as recording:
        root = recording.wait_pid()
        lineage = recording.wait("lineage")
        process = recording.wait("process", lambda event: event[2] == lineage[1])
        mark = recording.wait("mark")
        recording.go()
        events = recording.finish()

    assert lineage[3] in (root, recording.process.pid)
    assert len(lineage.fields) in (4, 5)
    assert process[3] == 0
    assert events.index(lineage) < events.index(process) < events.index(mark)
    assert len(recording.of("lineage")) == 1


def test_mark_of_a_stranger(recorder: Recorder) -> None:
    with recorder.run(
        python(f"mark('{{\"pid\": {os.getpid()}}}'); mark('{{\"pid\": 99999999999999}}'); mark('{{\"pid\": {{}}')")
    ) as recording:
        recording.finish()

    assert recording.of("lineage")[0][1] == os.getpid()
    assert len(recording.of("mark")) == 3
    assert [event[2] for event in recording.of("process")] == [recording.wait_pid()]


def test_rule_with_another_period(recorder: Recorder) -> None:
    rules = ['0 0 0 "begin" "SLOW"', '1000000 0 0 "begin"']
    code = "mark('\"SLOW\" \"begin\"'); go(); mark('nothing'); go(); mark('\"begin\"'); go()"
    with recorder.run(python(code), rule=rules, eager=1) as recording:
        slow = recording.wait("mark")
        later = recording.wait(".", lambda event: event[3] >= slow[1] + 3)
        recording.go()
        recording.wait_mark("nothing")
        recording.go()
        fast = recording.wait("mark", lambda event: event.text(2) == '"begin"')
        last = recording.wait(".", lambda event: event[3] >= fast[1] + 100)
        recording.go()
        recording.finish()

    assert (later[0] - slow[0]) / (later[3] - slow[1]) > 50 * 10**6
    assert (last[0] - fast[0]) / (last[3] - fast[1]) < 50 * 10**6


# -- output and looks


def test_output_with_a_look_after(recorder: Recorder) -> None:
    code = (
        "block = b'x' * (64 << 20)\nfor word in 'one', 'two \\\\', 'three': print(word, flush=True); go(); block = None; mark(word); go()"
    )
    with recorder.run(python(code), output=1, reset=1, eager=1) as recording:
        for word in ("one", "two \\", "three"):
            recording.wait("look", lambda event, word=word: has_come(recording, word))
            recording.go()
            recording.wait_mark(word)
            recording.go()
        events = recording.finish()

    assert [event.text(1) for event in recording.of("output")] == ["one\n", "two \\\n", "three\n"]
    kinds = [event.kind for event in events if event.kind not in DEVICES]
    assert kinds[kinds.index("output") + 1] == "look"
    first, _, third = looks = recording.of("look")
    assert {event.fields[-1] for event in looks} == {"output"}
    assert {event[2] for event in looks} == {recording.wait_pid()}
    assert int(first.fields[4 + 3]) > 64 << 10  # VmHWM
    if first[3]:
        assert int(third.fields[4 + 3]) < 64 << 10  # the second look has let it begin again, when the block had gone


def has_come(recording: Recording, word: str) -> bool:
    """Whether a look has come after a line of output."""
    kinds = [event.text(1) if event.kind == "output" else event.kind for event in recording.events]
    return f"{word}\n" in kinds and "look" in kinds[kinds.index(f"{word}\n") :]


def test_output_faster_than_the_looks(recorder: Recorder) -> None:
    code = "for _ in range(200): os.write(1, b'line\\n')\nmark('done'); go()"
    with recorder.run(python(code), output=1, eager=1) as recording:
        recording.wait_mark("done")
        recording.go()
        events = recording.finish()

    kinds = [event.kind for event in events if event.kind in ("output", "look")]
    assert kinds[-1] == "look"
    looks = recording.of("look")
    assert len(looks) - 2 <= (looks[-1][0] - looks[0][0]) / 10**6


def test_output_after_a_due_poll(recorder: Recorder) -> None:
    """A recorder without CPU time finds output and a due poll together: the poll that stands before the output is of the output's time."""
    code = "mark('ready'); go(); block = b'x' * (64 << 20); print('grown', flush=True); go()"
    with recorder.run(python(code), output=1) as recording:
        recording.wait_mark("ready")
        program = psutil.Process(recording.wait_pid())
        recording.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(recording.process.pid).status() == psutil.STATUS_STOPPED)
        recording.go()
        wait_until(lambda: program.memory_info().rss > 64 * MIB and program.status() == psutil.STATUS_SLEEPING)
        recording.process.send_signal(signal.SIGCONT)
        recording.wait("output")  # before the program ends, and has no memory
        recording.go()
        events = recording.finish()

    output = events.index(recording.of("output")[0])
    poll = next(event for event in reversed(events[:output]) if event.kind == ".")
    assert poll.changes[program.pid][1] * PAGE > 64 * MIB


def test_output_that_nobody_asked_for(recorder: Recorder) -> None:
    with recorder.run(python("sys.stdout.write('x' * 10000 + 'end')")) as recording:
        events = recording.finish()

    tail = recording.of("tail")[0]
    assert tail[1] == 10003
    assert tail.text(2) == "x" * 4093 + "end"
    assert not {"output", "look"} & {event.kind for event in events}


def test_output_of_4_mib(recorder: Recorder) -> None:
    code = "line = bytes(range(1, 256)) * 258\nfor _ in range(64): os.write(1, line[:65536])"
    with recorder.run(python(code), output=1) as recording:
        recording.finish()

    written = "".join(event.text(1) for event in recording.of("output")).encode("utf-8", "surrogateescape")
    line = (bytes(range(1, 256)) * 258)[:65536]
    assert hashlib.sha256(written).digest() == hashlib.sha256(line * 64).digest()
    assert recording.of("tail")[0][1] == 4 * MIB
    looks = recording.of("look")
    assert len(looks) - 2 <= (looks[-1][0] - looks[0][0]) / 10**6


def test_look_that_was_asked_for(recorder: Recorder) -> None:
    with recorder.run(python("block = b'x' * (32 << 20); mark('made'); go()"), eager=1) as recording:
        recording.wait_mark("made")
        recording.say('look {"word": "ended \\n"}')
        first = recording.wait("look")
        recording.say("beat")
        recording.say("look again")
        recording.wait("look", lambda event: event.fields[-1] == "again")
        recording.go()
        events = recording.finish()

    assert first.text(4 + 9 + 8 + 7 + 1) == '{"word": "ended \\n"}'
    rss, hwm = int(first.fields[6]), int(first.fields[7])
    assert hwm >= rss > 32 << 10
    assert abs(int(first.fields[13]) - rss) < 4096  # Rss of smaps_rollup
    assert first.fields[21] in ("S", "R")
    assert first.fields[28] == "-" or first[28] >= 0
    before = [event.kind for event in events[: events.index(first)] if event.kind not in DEVICES]
    assert before[-1] in (".", "mark")


# -- processes that stand still

HOLDS = '1000000 0 1 "end"'


def test_stop_of_the_process_itself(recorder: Recorder) -> None:
    code = "mark('{\"end\", \"pid\": %d}' % os.getpid()); os.kill(os.getpid(), signal.SIGSTOP); mark('goes'); go()"
    with recorder.run(python(code), hold=FAR_S * 10**9, rule=[HOLDS], timeout=10**9) as recording:
        stopped = recording.wait("stopped")
        time.sleep(1)  # longer than it may run: the time in which it stands still does not count
        polls = len(recording.of("."))
        recording.say(f"continue {stopped[1]}")
        recording.wait("continued")
        recording.wait_mark("goes")
        recording.go()
        events = recording.finish()

    assert stopped.fields[1:] == (str(recording.wait_pid()), "itself")
    between = recording.between(stopped, recording.of("continued")[0])
    assert len([event for event in between if event.kind == "."]) <= 1 + polls
    assert not [event for event in between if event.kind in ("stat", "status", "look")]
    assert "limit" not in {event.kind for event in events}


def test_stop_where_memory_grows(recorder: Recorder) -> None:
    rules = [f'1000000 {48 * MIB} 0 "begin"', '1000000 0 0 "end"']
    code = "mark('{\"begin\", \"pid\": %d}' % os.getpid())\nblocks = []\nfor _ in range(64): blocks.append(b'x' * (1 << 20)); go()"
    with recorder.run(python(code), hold=FAR_S * 10**9, rule=rules) as recording:
        pid = recording.wait_pid()
        recording.wait("mark")
        recording.go(64)
        stopped = recording.wait("stopped")
        size = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
        recording.say(f"continue {pid}")
        recording.finish()

    assert stopped.fields[1:] == (str(pid), "size")
    assert size >= 48 * MIB
    assert len(recording.of("stopped")) == 1


def test_stop_that_was_asked_for(recorder: Recorder) -> None:
    with recorder.run(python("mark('ready'); go()"), hold=FAR_S * 10**9, eager=1) as recording:
        pid = recording.wait_pid()
        recording.wait_mark("ready")
        recording.say(f"stop {pid}")
        stopped = recording.wait("stopped")
        assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        recording.say(f"continue {pid}")
        recording.wait("continued", lambda event: event[1] == pid)
        recording.go()
        recording.finish()

    assert stopped.fields[1:] == (str(pid), "told")


def test_stop_up_to_its_limit(recorder: Recorder) -> None:
    with recorder.run(python("mark('ready'); go()"), hold=50 * 10**6, eager=1) as recording:
        pid = recording.wait_pid()
        recording.wait_mark("ready")
        recording.say(f"stop {pid}")
        stopped, fault = recording.wait("stopped"), recording.wait("fault")
        recording.wait("continued")
        recording.go()
        recording.finish()

    assert fault.fields[1] == "held"
    assert fault[0] - stopped[0] > 50 * 10**6


def test_stop_that_does_not_come(recorder: Recorder) -> None:
    with recorder.run(python('mark(\'{"end", "pid": %d}\' % os.getpid()); go()'), hold=FAR_S * 10**9, rule=[HOLDS]) as recording:
        fault = recording.wait("fault")
        recording.go()
        recording.finish()

    assert fault.fields[1] == "free"
    assert not recording.of("stopped")


# -- time limits and ends

DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN); mark('ready'); wait()"
OBEYS = "signal.signal(signal.SIGTERM, lambda *_: os._exit(7)); mark('ready'); wait()"


def test_limit_without_being_asked(recorder: Recorder) -> None:
    with recorder.run(python(OBEYS), timeout=300 * 10**6) as recording:
        recording.finish()

    assert [event.fields[1] for event in recording.of("limit")] == ["killed"]
    assert recording.of("ended")[0][2] == signal.SIGKILL
    assert recording.of("limit")[0][0] - recording.of("begin")[0][0] >= 300 * 10**6


def test_limit_where_it_is_asked(recorder: Recorder) -> None:
    with recorder.run(python(OBEYS), timeout=FAR_S * 10**9, grace=FAR_S * 10**9, eager=1) as recording:
        recording.wait_mark("ready")
        recording.say("leave 0")
        recording.finish()

    assert [event.fields[1] for event in recording.of("limit")] == ["asked"]
    assert os.waitstatus_to_exitcode(recording.of("ended")[0][2]) == 7


def test_limit_where_it_is_deaf(recorder: Recorder) -> None:
    with recorder.run(python(DEAF), timeout=FAR_S * 10**9, grace=100 * 10**6, eager=1) as recording:
        recording.wait_mark("ready")
        recording.say("leave 1000000")
        recording.finish()

    asked, killed = recording.of("limit")
    assert (asked.fields[1], killed.fields[1]) == ("asked", "killed")
    assert killed[0] - asked[0] > 90 * 10**6
    assert recording.of("ended")[0][2] == signal.SIGKILL


def test_limit_leaves_out_the_writers(recorder: Recorder, tmp_path: Path) -> None:
    writer = tmp_path / "writes"
    writer.write_text("#!/bin/sh\nread line\n")
    writer.chmod(0o755)
    script = f"exec 3<&0; sleep {FAR_S} & a=$!; {writer} <&3 & b=$!; wait $a; echo $?; wait $b; echo $?"
    with recorder.run(["sh", "-c", script], tree=1, output=1, timeout=FAR_S * 10**9, grace=FAR_S * 10**9, writer=["writes"]) as recording:
        wait_until(lambda: {"writes", "sleep"} <= names_below(recording.wait_pid()))
        recording.say("leave 0")
        recording.wait("output")
        os.write(recording.program_input, b"\n")
        recording.finish()

    assert recording.of("tail")[0].text(2).split()[-2:] == [str(128 + signal.SIGTERM), "0"]


def names_below(pid: int) -> set[str]:
    """The names of the children of a process."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {Path(f"/proc/{child}/comm").read_text().strip() for child in children}


def test_end_that_was_asked_for(recorder: Recorder) -> None:
    with recorder.run(python(f"child = os.fork()\n{OBEYS}"), eager=1) as recording:
        recording.wait_mark("ready")
        recording.wait("mark", lambda event: len(recording.of("mark")) == 2)
        recording.say(f"end {FAR_S * 10**9}")
        recording.finish()

    assert os.waitstatus_to_exitcode(recording.of("ended")[0][2]) == 7
    assert not recording.of("limit")


def test_end_of_a_deaf_program(recorder: Recorder) -> None:
    with recorder.run(python(DEAF), eager=1) as recording:
        recording.wait_mark("ready")
        recording.say("end 50000000")
        recording.finish()

    assert recording.of("ended")[0][2] == signal.SIGKILL
    assert not recording.of("limit")


def test_processes_left_by_the_program(recorder: Recorder) -> None:
    with recorder.run(["sh", "-c", f"setsid sleep {FAR_S} & exit 4"]) as recording:
        recording.finish()

    left = recording.of("left")
    assert len(left) == 1
    assert left[0].text(2) in ("sleep", "setsid", "sh")
    assert not alive(left[0][1])
    root, other = recording.of("ended")
    assert (os.waitstatus_to_exitcode(root[2]), other[1], other[2]) == (4, left[0][1], signal.SIGKILL)


def test_orphan_that_ends_by_itself(recorder: Recorder) -> None:
    """As Python's resource tracker: it learns from the end of a pipe that its process has gone, and takes a moment to clean up."""
    code = "read, write = os.pipe()\nif os.fork() == 0: os.close(write); os.read(read, 1); time.sleep(0.02); os._exit(0)"
    for _ in range(10):  # it is given 200 ms, in which a busy machine may not let it run
        with recorder.run(python(code)) as recording:
            recording.finish()
        if not recording.of("left"):
            break

    assert not recording.of("left")
    assert len(recording.of("ended")) == 2


def test_kills_after_a_sigkill(recorder: Recorder) -> None:
    for words in (python("os.kill(os.getpid(), 9)"), ["sh", "-c", "sh -c 'kill -9 $$'; exit $?"]):
        with recorder.run(words) as recording:
            recording.finish()

        first, second = recording.of("kills")
        assert first[0] < recording.of("begin")[0][0] < second[0]
        assert second.fields[1] == "-" or second[1] >= first[1]

    with recorder.run(["true"]) as recording:
        recording.finish()
    assert len(recording.of("kills")) == 1


# It and a grandchild in another session, whose parent has ended, say who they are; neither heeds SIGTERM.
BELOW = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: mark(str(os.getpid())); wait()
    os._exit(0)
os.wait(); mark(str(os.getpid())); wait()
"""


def gone_after(recording: Recording, end: Callable[[], object]) -> None:
    """All processes of BELOW are there before this, and none after it."""
    recording.wait("mark", lambda event: len(pids(recording)) == 2)
    below = pids(recording)
    assert all(map(alive, below))
    end()
    recording.finish(3)
    wait_until(lambda: not any(map(alive, below)))
    assert "end" not in {event.kind for event in recording.events}


def pids(recording: Recording) -> list[int]:
    return [int(event.text(2)) for event in recording.of("mark") if event.text(2).isdigit()]


def test_end_of_standard_input(recorder: Recorder) -> None:
    with recorder.run(python(BELOW), eager=1) as recording:
        assert recording.process.stdin is not None
        gone_after(recording, recording.process.stdin.close)


def test_end_by_sigterm(recorder: Recorder) -> None:
    with recorder.run(python(BELOW), eager=1, tree=1) as recording:
        gone_after(recording, recording.process.terminate)


def test_end_after_a_silence(recorder: Recorder) -> None:
    with recorder.run(python(BELOW), eager=1, tree=1, silence=500 * 10**6) as recording:
        gone_after(recording, lambda: None)


def test_end_with_the_recorder(recorder: Recorder) -> None:
    with recorder.run(python(DEAF), eager=1) as recording:
        pid = recording.wait_pid()
        recording.wait_mark("ready")
        recording.process.kill()
        wait_until(lambda: not alive(pid))


# -- who reads

FLOOD = "signal.signal(signal.SIGTERM, signal.SIG_IGN); os.set_blocking(1, True); mark('ready')\nwhile True: os.write(1, b'x' * 4096)"


def test_reader_that_is_torn(recorder: Recorder) -> None:
    with recorder.run(python(FLOOD), eager=1, output=1) as recording:
        pid = recording.wait_pid()
        recording.wait_mark("ready")
        assert recording.process.stdout is not None
        assert recording.process.stdin is not None
        recording.process.stdout.close()
        written = output_of(pid)
        wait_until(lambda: output_of(pid) > written + MIB)  # the program is not disturbed
        recording.process.stdin.close()
        assert recording.process.wait(WITHIN_S) == 3
        assert not alive(pid)


def output_of(pid: int) -> int:
    """How many bytes a process has written so far."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["wchar"])


def test_reader_that_takes_nothing(recorder: Recorder) -> None:
    with recorder.run(python(FLOOD), output=1) as recording:
        pid = recording.wait_pid()
        wait_until(lambda: output_of(pid) > 4 * MIB)
        assert recording.process.stdin is not None
        recording.process.stdin.close()
        assert recording.process.wait(WITHIN_S) == 3
        assert not alive(pid)


def test_reader_that_is_late(recorder: Recorder) -> None:
    code = "for _ in range(4 * 256): os.write(1, b'x' * 4096)"
    with recorder.run(python(code), output=1) as recording:
        pid = recording.wait_pid()
        wait_until(lambda: not alive(pid))
        recording.finish()

    assert sum(len(event.text(1)) for event in recording.of("output")) == 4 * MIB


def test_reader_behind_the_polls(recorder: Recorder) -> None:
    code = "mark('ready')\nfor _ in range(6 * 256): os.write(1, b'\\\\' * 4096)\nmark('done'); go()"
    with recorder.run(python(code), output=1) as recording:
        pid = recording.wait_pid()
        stands_since = [0, 0.0]

        def stands() -> bool:
            written = output_of(pid)
            if written != stands_since[0]:
                stands_since[:] = [written, time.monotonic()]
            return written > 4 * MIB and time.monotonic() - stands_since[1] > 0.3

        wait_until(stands)
        recording.wait_mark("done")
        recording.go()
        recording.finish()

    behind = [event for event in recording.of("fault") if event.fields[1] == "behind"]
    assert behind
    assert sum(event[2] for event in behind) > 10
    assert sum(len(event.text(1)) for event in recording.of("output")) == 6 * MIB


# -- control groups

_GROUPS = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")


@pytest.fixture
def group() -> Iterator[Path]:
    """The path of a control group that can be made here, with a memory controller."""
    for parent in map(Path, _GROUPS):
        path = parent / f"memprof-test-{secrets.token_hex(4)}"
        try:
            path.mkdir()
        except OSError:
            continue
        counts = (path / "memory.max_usage_in_bytes").exists() or (path / "memory.peak").exists()
        path.rmdir()
        if counts:
            yield path
            assert not path.exists()
            return
    pytest.skip("no control group for memory can be made here")


def test_group_with_its_figures(recorder: Recorder, group: Path) -> None:
    code = "block = b'x' * (32 << 20); mark('\"end\" 1'); go(); del block; mark('\"end\" 2'); print(open('/proc/self/cgroup').read())"
    limit = [f"memory.limit_in_bytes {256 * MIB}", f"memory.max {256 * MIB}", "no.such.file 1"]
    with recorder.run(python(code), group=group, setting=limit, rule=['1000000 0 0 "end"']) as recording:
        recording.wait("mark")
        assert (group / "cgroup.procs").read_text().split() == [str(recording.wait_pid())]
        files = [group / "memory.limit_in_bytes", group / "memory.max"]
        assert {int(file.read_text()) for file in files if file.exists()} == {256 * MIB}
        recording.go()
        events = recording.finish()

    figures = [event for event in recording.of("group") if event.fields[5] != "-"]
    marks = recording.of("mark")
    assert [events[events.index(mark) - 1] for mark in marks] == figures[:2]
    assert len(figures) == 3
    assert figures[0][1] > 32 * MIB
    for event in figures:
        peak, both, refaults, kills = event.fields[1:5]
        assert kills == "0"
        assert both == "-" or int(both) >= int(peak)
        assert refaults == "-" or int(refaults) >= 0
    assert figures[2].fields[5] == "0"
    if figures[0][5]:
        assert figures[2][1] < figures[0][1]
    assert group.name in recording.of("tail")[0].text(2)


# Many names that no file has, which the kernel remembers in its slab; then 2,048 pages with a page table for each; then these are given back.
_KERNEL_OBJECTS = """
import mmap
mark('"end" 1')
for at in range(100_000):
    try: os.stat("/no-such-%d-%d" % (os.getpid(), at))
    except OSError: pass
mark('"end" 2')
go()
block = mmap.mmap(-1, 4 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
block.madvise(mmap.MADV_NOHUGEPAGE)
for at in range(0, 4 << 30, 2 << 20): block[at] = 1
mark('"end" 3')
go()
block.close()
mark('4')
go()
mark('"end" 5')
mark('"end" 6')
"""
_DENTRY = 192  # bytes of a name, sizeof(struct dentry) on 64-bit machines


def kernel_figures(group: Path) -> tuple[int | None, ...]:
    """KERNEL STACKS SLAB TABLES SOCK PERCPU of a group, as its files have them now."""
    rows = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    files = {
        "kernel": group / "memory.kmem.usage_in_bytes",
        "sock": group / "memory.kmem.tcp.usage_in_bytes",
    }
    rows |= {name: file.read_text() for name, file in files.items() if file.exists()}
    return tuple(int(rows[name]) if name in rows else None for name in ("kernel", "kernel_stack", "slab", "pagetables", "sock", "percpu"))


def test_group_with_memory_of_the_kernel(recorder: Recorder, group: Path) -> None:
    with recorder.run(python(_KERNEL_OBJECTS), group=group, rule=['1000000 0 0 "end"']) as recording:
        recording.wait("mark", lambda event: event.text(2).endswith("2"))
        now = kernel_figures(group)
        recording.go()
        recording.wait("mark", lambda event: event.text(2).endswith("3"))
        recording.go()
        recording.wait("mark", lambda event: event.text(2) == "4")
        wait_until(lambda: (kernel_figures(group)[0] or 0) < (now[0] or 0) + 4 * MIB)  # the kernel frees page tables a moment later
        recording.go()
        recording.finish()

    before, names, tables, freed, after, _ = [event for event in recording.of("group") if event.fields[5] != "-"]
    for figure, wanted in zip(names.fields[7:], now, strict=True):
        assert figure == "-" if wanted is None else abs(int(figure) - wanted) <= MIB
    grown = slice(7, 8) if now[2] is None else slice(7, 10, 2)  # KERNEL, and SLAB of version 2
    for first, second in zip(before.fields[grown], names.fields[grown], strict=True):
        assert int(second) - int(first) >= 0.9 * 100_000 * _DENTRY
    assert tables[7] - names[7] >= 2048 * 4096 * 0.9
    if tables.fields[10] != "-":
        assert tables[10] - names[10] >= 2048 * 4096 * 0.9
    if tables.fields[6] != "-":  # version 1 has a peak, which begins again at each mark
        assert freed[6] - freed[7] >= 2048 * 4096 * 0.8 > after[6] - after[7]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("known", [True, False])
def test_group_files_of_each_version(recorder: Recorder, tmp_path: Path, version: int, known: bool) -> None:
    """Both recorders tell what the files have; known: whether they have the kernel's memory, which old kernels lack, and some are built without."""
    gate, group = tmp_path / "gate", tmp_path / "group"
    os.mkfifo(gate)
    sizes = {"used": 60, "peak": 70, "kernel": 3, "tables": 1, "percpu": 4, "sockets": 2, "kills": 2}
    found = dict(files(version, **sizes))
    if not known:
        found = {name: text for name, text in found.items() if "kmem" not in name}
        lines = [line for line in found["memory.stat"].splitlines() if line.split()[0] in ("anon", "total_rss", "inactive_file")]
        found["memory.stat"] = "".join(f"{line}\n" for line in lines)
    code = "mark('\"end\" 1'); go()"
    # The recorder waits where it writes a setting into the FIFO, behind the making of the group and before it reads anything of it.
    with recorder.run(python(code), group=group, setting=["../gate 1"], rule=['1000000 0 0 "end"']) as recording:
        wait_until(group.exists)
        for name, text in {"cgroup.procs": "", **found}.items():
            (group / name).write_text(text)
        assert gate.read_text() == "1"
        recording.wait("mark")
        for file in group.iterdir():
            file.unlink()
        recording.go()
        recording.finish()

    first, last = (event for event in recording.of("group") if event.fields[5] != "-")
    kernel = {
        (1, True): (4 * MIB, 3 * MIB, "-", "-", "-", 2 * MIB, "-"),
        (2, True): ("-", 3 * MIB, 3, 9, MIB, 2 * MIB, 4 * MIB),
    }.get((version, known), ("-",) * 7)
    assert first.fields[1:] == tuple(map(str, (70 * MIB, "-", "-", 2, 1, *kernel)))
    assert last.fields[2:6] == ("-", "-", "-", "0") and last.fields[7:] == ("-",) * 6  # the folder is empty by now


def test_group_that_kills(recorder: Recorder, group: Path) -> None:
    limit = [f"memory.limit_in_bytes {64 * MIB}", f"memory.memsw.limit_in_bytes {64 * MIB}", f"memory.max {64 * MIB}", "memory.swap.max 0"]
    with recorder.run(python("block = b'x' * (512 << 20)"), group=group, setting=limit) as recording:
        pid = recording.wait_pid()
        recording.finish()

    assert recording.of("ended")[0][2] == signal.SIGKILL
    assert recording.of("group")[-1].fields[4] in ("1", "-")
    before, after = recording.of("kills")
    assert before.fields[1] == "-" or after[1] > before[1]
    names = {event.fields[1] for event in recording.of("kernel")}  # other tests' programs are killed meanwhile
    assert not names or names & {str(pid), "-"}


# -- processes that already run


@pytest.fixture
def running() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a child that is another program."""
    code = "import subprocess, sys; child = subprocess.Popen(['cat']); print(child.pid, flush=True); child.wait()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.child = int(process.stdout.readline())  # type: ignore[attr-defined]
        yield process
        process.stdin.close()


def started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_attach_to_a_process(recorder: Recorder, running: subprocess.Popen[bytes]) -> None:
    pid, child = running.pid, running.child  # type: ignore[attr-defined]
    with recorder.run([], attach=f"{pid} {started(pid)}", tree=1, swap=1) as recording:
        recording.wait("process", lambda event: event[2] == child)
        recording.wait(".", lambda event: event[3] > 20)
        recording.say("look x")
        recording.wait("look", lambda event: event.fields[-1] == "x")
        recording.say(f"stop {pid}")
        recording.say("end 0")
        events = recording.finish()

    looks = recording.of("look")
    assert [event.fields[-1] for event in looks] == ["begin", "x", "end"]
    assert {event[3] for event in looks} == {0}
    assert {event[2] for event in looks} == {pid}
    assert recording.of("begin")[0][1] == len(os.sched_getaffinity(pid))
    assert recording.wait_pid() == pid
    assert next(event for event in recording.of("process") if event[2] == child)[3] == pid
    assert not {"ended", "left", "limit", "stopped", "kills"} & {event.kind for event in events}
    assert alive(pid)
    assert alive(child)
    assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T"


def test_attach_until_its_end(recorder: Recorder, running: subprocess.Popen[bytes]) -> None:
    with recorder.run([], attach=f"{running.pid} 0", tree=1) as recording:
        recording.wait(".", lambda event: event[3] > 5)
        assert running.stdin is not None
        running.stdin.close()
        running.wait()
        recording.finish()

    assert {event[1] for event in recording.of("gone")} == {running.pid, running.child}  # type: ignore[attr-defined]


def test_attach_for_a_while(recorder: Recorder, running: subprocess.Popen[bytes]) -> None:
    with recorder.run([], attach=f"{running.pid} 0", timeout=200 * 10**6) as recording:
        recording.finish()

    assert alive(running.pid)
    assert recording.of("end")[0][0] - recording.of("start")[0][0] >= 150 * 10**6


def test_attach_ends_with_its_input(recorder: Recorder, running: subprocess.Popen[bytes]) -> None:
    with recorder.run([], attach=f"{running.pid} 0") as recording:
        recording.wait("start")
        assert recording.process.stdin is not None
        recording.process.stdin.close()
        recording.finish(3)

    assert alive(running.pid)


def test_attach_to_another_process(recorder: Recorder, running: subprocess.Popen[bytes], tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    orders: dict[str, tuple[str, dict[str, object]]] = {
        "reused": (f"{running.pid} {started(running.pid) + 1}", {}),
        "gone": (f"{ended.pid} 0", {}),
        "log": (f"{running.pid} 0", {"log": tmp_path / "none"}),
    }
    for step, (attach, facts) in orders.items():
        with recorder.run([], attach=attach, **facts) as recording:
            recording.finish()

        assert recording.of("error")[0].fields[1] == step
        assert not recording.of("start")


@pytest.mark.parametrize("version", [1, 2])
def test_attach_to_a_control_group(recorder: Recorder, running: subprocess.Popen[bytes], tmp_path: Path, version: int) -> None:
    tree = GroupTree(tmp_path, (version,))
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other, subprocess.Popen(["cat"], stdin=subprocess.PIPE) as later:
        sizes = {
            "used": 60,
            "peak": 70,
            "inactive": 5,
            "anon": 40,
            "file": 10,
            "kernel": 3,
            "tables": 1,
            "sockets": 2,
            "swap": 7,
            "kills": 2,
        }
        above = tree.group("pods", limit=80 * MIB, peak=75)
        group = tree.group("pods/one", [0, running.pid], 90 * MIB, **sizes)
        tree.group("pods/one/below", [other.pid], kills=4)
        with recorder.run([], attach=f"{running.pid} 0", tree=1, watch=[group, above, tree.mount]) as recording:
            recording.wait("process", lambda event: event[2] == other.pid)
            recording.wait("charge")
            tree.group("pods/one", [running.pid, later.pid], 90 * MIB, **{**sizes, "anon": 41})
            recording.wait("process", lambda event: event[2] == later.pid)
            recording.wait("charge", lambda event: event.fields[3] == str(41 * MIB))
            recording.say("end 0")
            recording.finish()
        for process in (other, later):
            assert alive(process.pid)
            process.kill()

    assert {event[2] for event in recording.of("process")} == {running.pid, running.child, other.pid, later.pid}  # type: ignore[attr-defined]
    first, *_ = recording.of("charge")
    parts = ["-", "-", "-"] if version == 1 else ["3", "9", str(MIB)]
    assert list(first.fields[1:]) == [*(str(size * MIB) for size in (60, 5, 40, 10, 3)), *parts, str(2 * MIB), str(7 * MIB)]
    assert len(recording.of("charge")) == 2
    # Version 1 counts the kills of each group alone, and its files say none of a limit by a number.
    kills = "6" if version == 1 else "2"
    assert [event.fields[1:] for event in recording.of("bound")] == [
        ("0", str(70 * MIB), str(90 * MIB), kills),
        ("1", str(75 * MIB), str(80 * MIB), "-"),
    ]


def test_group_that_goes_meanwhile(recorder: Recorder, running: subprocess.Popen[bytes], tmp_path: Path) -> None:
    tree = GroupTree(tmp_path)
    group = tree.group("one", [running.pid], used=60, anon=40)
    with recorder.run([], attach=f"{running.pid} 0", tree=1, watch=[group]) as recording:
        recording.wait("charge")
        for path in (*group.iterdir(), group):
            path.rmdir() if path.is_dir() else path.unlink()
        recording.wait(".", lambda event: event[3] > 200)
        assert running.stdin is not None
        running.stdin.close()
        running.wait()
        recording.finish()

    assert len(recording.of("charge")) == len(recording.of("bound")) == 1
    assert {event[1] for event in recording.of("gone")} == {running.pid, running.child}  # type: ignore[attr-defined]


def test_attach_with_a_log(recorder: Recorder, running: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """A log is followed where it is appended to, replaced, and cut off; what stood in it before is none of its lines."""
    log = tmp_path / "log"
    log.write_text("before\n")
    with recorder.run([], attach=f"{running.pid} 0", log=log, output=1) as recording:
        recording.wait("start")

        def come(line: str) -> None:
            recording.wait("output", lambda event: line in "".join(output.text(1) for output in recording.of("output")))

        with log.open("a") as file:
            file.write("appended\n")
        come("appended\n")
        log.rename(tmp_path / "log.1")
        with (tmp_path / "log.1").open("a") as file:
            file.write("last of the old\n")
        come("last of the old\n")
        log.write_text("first of the new")
        come("\nfirst of the new")
        os.truncate(log, 0)
        with log.open("a") as file:
            file.write("cut\n")
        come("\ncut\n")
        recording.say("end 0")
        events = recording.finish()

    text = "".join(event.text(1) for event in recording.of("output"))
    assert "before" not in text
    kinds = [event.kind for event in events if event.kind not in DEVICES]
    assert kinds[kinds.index("output") + 1] == "look"
    assert {event[3] for event in recording.of("look")} == {0}
    assert recording.of("tail")[0].text(2) == text


def test_attach_with_a_fifo(recorder: Recorder, running: subprocess.Popen[bytes], tmp_path: Path) -> None:
    fifo = tmp_path / "log"
    os.mkfifo(fifo)
    with recorder.run([], attach=f"{running.pid} 0", log=fifo, output=1) as recording:
        recording.wait("start")
        with fifo.open("w") as file:
            file.write("one\n")
        recording.wait("output", lambda event: event.text(1) == "one\n")
        with fifo.open("w") as file:
            file.write("two\n")
        recording.wait("output", lambda event: event.text(1) == "two\n")
        recording.say("end 0")
        recording.finish()
