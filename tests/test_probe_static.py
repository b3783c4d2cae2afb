"""The probe without Python beside the one in Python: the same message read alike, the same life and death, and its own size and limits."""

from __future__ import annotations

import signal
import string
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import psutil
import pytest
from compiled import once_compiled
from failing import MIB, Silent, wait_for
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native_programs import program, ran

from memprof.errors import InputError, UsageError
from memprof.measuring import attach
from memprof.measuring.bundle import probe_command
from memprof.measuring.message import Message, Start, encode
from memprof.measuring.orders import plan
from memprof.measuring.probing import ask
from memprof.measuring.suite import Suite, Variant
from memprof.programs import commands, static_probe
from memprof.runs import store
from memprof.runs.records import COMMAND, Job, Model, Run

KINDS = ("python", "static")
DUMP = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
extern char **environ;
static int by_text(const void *left, const void *right) { return strcmp(*(char **)left, *(char **)right); }
int main(int count, char **words) {
    char folder[4096];
    int number = 0, letter;
    for (int at = 1; at < count; ++at) printf("[%s]\n", words[at]);
    while (environ[number]) ++number;
    qsort(environ, number, sizeof *environ, by_text);
    for (int at = 0; at < number; ++at) if (strncmp(environ[at], "T_", 2) == 0) printf("%s\n", environ[at]);
    printf("%s\n", getcwd(folder, sizeof folder));
    while ((letter = getchar()) != EOF) putchar(letter);
    puts("\nend");
    return 3;
}
"""


def job(**words: object) -> Job:
    return Job(Model("m", "/m", (), 0, ""), COMMAND, "v", 1, 0, 1, **words)  # type: ignore[arg-type]


def asked(kind: str, message: Message) -> Run:
    run, line = ask(message.job, message, "", lambda phase, rss: None, probe=kind)  # type: ignore[arg-type]
    assert store.decode(line.rstrip(b"\n"), "its answer") == run
    return run


# -- the message

plain = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
names = st.text(string.ascii_letters, min_size=1, max_size=5).map(lambda name: "T_" + name)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    words=st.lists(plain, max_size=4),
    env=st.dictionaries(names, st.none() | plain, max_size=4),
    stdin=plain,
    named=plain,
    numbers=st.dictionaries(plain, st.lists(st.integers(0, 2**40), max_size=3).map(tuple), max_size=3),
    deterministic=st.booleans(),
)
def test_both_read_any_message_alike(words, env, stdin, named, numbers, deterministic):
    dump = str(once_compiled("gcc", "dump.c", DUMP))
    asked_for = job(env=env, cwd=named, shapes=numbers, knobs={named: named}, deterministic=deterministic)
    start = Start((dump, *words), env, "/", stdin, deterministic=deterministic, command={})
    message = Message(asked_for, start, 10 * 10**9, {"": 10**7})

    one, other = (asked(kind, message) for kind in KINDS)

    assert one.job == other.job == asked_for
    assert one.output_tail == other.output_tail
    for run in (one, other):
        assert (run.outcome.status, run.outcome.exit_code, run.outcome.message) == ("exit", 3, "end")
    assert one.machine == other.machine


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (Start(("/not/there",), command={}), "/not/there: No such file or directory"),
        (Start(("nobody-has-this",), command={}), "nobody-has-this: No such file or directory"),
        (Start(("/etc/passwd",), command={}), "/etc/passwd: Permission denied"),
        (Start(("true",), cwd="/not/there", command={}), "true: No such file or directory"),
        (Start(("true", "a\0b"), command={}), "true: Invalid argument"),
    ],
    ids=["file", "name", "right", "folder", "zero"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_started_is_told_alike(kind, start, reason):
    run = asked(kind, Message(job(), start, 10**9, {"": 10**6}))

    assert (run.outcome.status, run.outcome.phase, run.outcome.message) == ("start", "STARTUP", reason)


@pytest.mark.parametrize("line", [b"", b"{}\n", b"no JSON\n", b'{"job":{},"start":{}}\n', b'{"job":\xff}\n'])
@pytest.mark.parametrize("kind", KINDS)
def test_a_line_that_is_no_message_is_refused(kind, line):
    done = subprocess.run(probe_command(kind), input=line, capture_output=True, start_new_session=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"not understood: ")


# -- life and death


@contextmanager
def waiting(kind: str) -> Iterator[tuple[subprocess.Popen[bytes], list[psutil.Process]]]:
    """A probe whose child, a shell, has started another process; and these two."""
    start = Start(("sh", "-c", "sleep 600 & sleep 600"), command={})
    with subprocess.Popen(probe_command(kind), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as probe:
        assert probe.stdin is not None
        probe.stdin.write(encode(Message(job(), start, 600 * 10**9, {"": 10**6})))
        probe.stdin.flush()
        below = psutil.Process(probe.pid)
        wait_for(lambda: len(below.children(recursive=True)) == 3)
        yield probe, below.children(recursive=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["stdin", "SIGTERM"])
def test_the_end_of_its_input_or_sigterm_ends_the_tree(kind, end):
    with waiting(kind) as (probe, tree):
        if end == "stdin":
            probe.stdin.close()
        else:
            probe.terminate()

        assert probe.wait(10) == 3
        assert not any(process.is_running() for process in tree)


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_probe_takes_its_child_with_it(kind):
    with waiting(kind) as (probe, tree):
        probe.kill()
        probe.wait()

        wait_for(lambda: not tree[0].is_running() or tree[0].status() == psutil.STATUS_ZOMBIE)
        for process in tree[1:]:
            process.kill()


@pytest.mark.parametrize("kind", KINDS)
def test_it_ignores_an_interruption(kind):
    with waiting(kind) as (probe, tree):
        probe.send_signal(signal.SIGINT)
        time.sleep(0.2)

        assert probe.poll() is None and tree[0].is_running()


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_runs_is_looked_at_and_left_alone(kind):
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        asked_for = attach.job(sleeper.pid, 3 * 10**8, 10**6, None)
        (run,) = attach.measure(asked_for, sleeper.pid, Silent(), lambda line: None, kind)

        assert sleeper.poll() is None
        sleeper.kill()
    (mark,) = run.marks
    assert run.outcome.ok
    assert (mark.phase, mark.rss_peak_exact) == ("RUN", False)
    assert mark.rss_begin_bytes <= mark.rss_peak_bytes == mark.rss_end_bytes == run.timeline.rss_max_bytes
    assert mark.time_ns >= 0.3e9 and mark.samples == run.timeline.samples - 1 > 10


# -- the timeline


def test_its_columns_are_what_pythons_store_reads():
    body = (
        "for (int i = 0; i < 40; ++i) { size_t size = (size_t)(1 + i * 7 % 23) * MIB; char *m = hold(size); usleep(5000); drop(m, size); }"
    )
    start = Start((program(body),), command={})

    run = asked("static", Message(job(), start, 60 * 10**9, {"": 10**6}))

    columns = store.unpack(run.timeline)
    t_ns, rss, file, vms = columns.t_ns, columns.rss, columns.file, columns.vms
    assert len(t_ns) == len(rss) == len(file) == len(vms) > 40
    assert all(earlier < later for earlier, later in pairwise(t_ns))
    assert (min(rss), max(rss)) == (run.timeline.rss_min_bytes, run.timeline.rss_max_bytes)
    assert max(rss) > 22 * MIB and all(0 <= part <= whole <= space for part, whole, space in zip(file, rss, vms, strict=True))
    assert run.timeline.rss_min_bytes < run.timeline.rss_mean_bytes < run.timeline.rss_max_bytes


# -- patterns


@pytest.mark.parametrize("regex", [r"took \d+", r"\bload", "(?:a|b)", "a+?", r"[\d.]+ ms"])
def test_a_pattern_in_pythons_syntax_is_refused_beforehand(regex):
    variant = Variant(runtime=COMMAND, name="it", command=commands.of_words(["true"]))

    with pytest.raises(UsageError, match="POSIX"):
        plan(Suite(variants=(variant,), repeats=1, phase_regexes={"LOAD": regex}, probe="static"))


def test_a_pattern_of_posix_ends_a_phase():
    body = 'hold(20 * MIB); usleep(50000); printf("LOAD (a) took 12 ms\\n"); usleep(50000); puts("end");'

    run = ran(program(body), phase_regexes={"LOAD": r"^LOAD [(][[:alpha:]]\) took [0-9]{1,3} ms$"}, probe="static")

    assert run.outcome.ok, run.outcome
    assert run.mark("LOAD").rss_peak_bytes > 20 * MIB


def test_a_pattern_that_is_none_is_said():
    start = Start(("true",), command={"regexes": [["LOAD", "a(b"]]})

    run = asked("static", Message(job(), start, 10**9, {"": 10**6}))

    assert run.outcome.status == "start"
    assert run.outcome.message.startswith("the pattern 'a(b' is no extended expression of POSIX: ")


# -- the program


def test_without_a_compiler_there_is_a_sentence(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(static_probe.importlib.util, "find_spec", lambda name: None)

    with pytest.raises(
        InputError, match="the probe for sparc64 is compiled on first use, and there is no compiler for it: pip install ziglang"
    ):
        static_probe.built("sparc64")


def test_it_needs_little_memory():
    with waiting("static") as (probe, _):
        time.sleep(1)

        assert psutil.Process(probe.pid).memory_info().rss <= MIB
