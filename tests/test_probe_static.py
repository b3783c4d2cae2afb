"""The probe without Python beside the one in Python: the same message read alike, the same life and death, and its own size and limits."""

from __future__ import annotations

import ctypes
import fcntl
import importlib.util
import json
import mmap
import os
import platform
import re
import shutil
import signal
import string
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from compiled import once_compiled
from examples import examples
from failing import MIB, Silent, wait_for, with_patience
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from native_programs import program, ran_until_seen

from memprof import probe as probe_package
from memprof.errors import InputError, UsageError
from memprof.measuring import attach
from memprof.measuring.bundle import probe_command
from memprof.measuring.message import Hold, Message, Start, encode
from memprof.measuring.orders import plan
from memprof.measuring.probing import ask
from memprof.measuring.suite import Suite, Variant
from memprof.probe import procfs
from memprof.programs import commands, static_probe
from memprof.reports.tables import table
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


@examples(12, suppress_health_check=list(HealthCheck))
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
    message = Message(asked_for, start, 100 * 10**9, {"": 10**7})

    by_first, by_second = (asked(kind, message) for kind in KINDS)

    assert by_first.job == by_second.job == asked_for
    assert by_first.output_tail == by_second.output_tail
    for run in (by_first, by_second):
        assert (run.outcome.status, run.outcome.exit_code, run.outcome.message) == ("exit", 3, "end")
    # Another test may make swap for a moment.
    assert replace(by_first.machine, swap_bytes=0) == replace(by_second.machine, swap_bytes=0)


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
    done = subprocess.run(probe_command(kind), input=line, capture_output=True, start_new_session=True, timeout=120, check=False)

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"not understood: ")


# -- the page cache


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_in_a_file_that_was_read_through_brings_in_its_neighbours_and_no_large_folio(kind, tmp_path):
    """So that as much of a mapped model is resident with either probe. With read-ahead, a fault may map a folio of a MiB."""
    model = tmp_path / "model"
    model.write_bytes(os.urandom(16 * MIB))
    message = Message(job(), Start(("true",), command={}), 600 * 10**9, {"": 10**6}, [str(model)], "warm", cache_drop=True)

    assert asked(kind, message).outcome.ok

    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        touched = [mapped[at] for at in range(0, 16 * MIB, MIB)]
        (resident,) = (found.rss for found in psutil.Process().memory_maps() if found.path == str(model))
    assert len(touched) * mmap.PAGESIZE <= resident <= len(touched) * (64 << 10)  # the kernel's fault_around_bytes


# -- a program that no poll saw


def unseen(kind: str, path: str, folder: Path) -> Run:
    """The Run of a program that began and ended while its probe stood still. A lease on its file (fcntl(2), F_SETLEASE) holds it at its exec, where
    the probe waits for it; a signal then stops the probe."""
    copy = str(shutil.copy(path, folder / "program"))  # nobody else may have the file open
    message = Message(job(), Start((copy,), command={}), 600 * 10**9, {"": 10**6})
    words = probe_command(kind)
    with open(copy, "rb") as file, subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as probe:
        assert probe.stdin is not None and probe.stdout is not None
        try:
            fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)  # which does nothing; SIGIO ends a process
            try:
                fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            except OSError as error:
                pytest.skip(f"this file system has no leases: {error}")
            probe.stdin.write(encode(message))
            probe.stdin.flush()
            wait_for(lambda: fcntl.fcntl(file, fcntl.F_GETLEASE) != fcntl.F_WRLCK)
            probe.send_signal(signal.SIGSTOP)
            wait_for(lambda: procfs.stopped(probe.pid))
            (child,) = procfs.children(probe.pid)
            file.close()
            wait_for(lambda: procfs.stat(child).ended)
            probe.send_signal(signal.SIGCONT)
            answer = probe.stdout.read()
        finally:
            probe.kill()
    return store.decode(answer.rpartition(b"run ")[2].rstrip(b"\n"), "its answer")


@pytest.mark.parametrize("kind", KINDS)
def test_the_peak_of_a_large_program_is_exact_though_no_poll_saw_it(kind, tmp_path):
    run = unseen(kind, program("hold(64 * MIB);"), tmp_path)

    (mark,) = run.marks
    assert (mark.phase, mark.rss_peak_exact, mark.rss_peak_high_bytes) == ("RUN", True, None)
    assert 64 * MIB <= mark.rss_peak_bytes < 68 * MIB
    assert run.outcome.ok and run.warnings == ()
    assert "not exact" not in table.render([run])


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_small_program_that_no_poll_saw_there_is_what_the_kernel_tells(kind, tmp_path):
    """Of the Python probe's child it tells the copy of the probe before the exec, which is larger. The probe in C is smaller than any program."""
    run = unseen(kind, program(""), tmp_path)

    if kind == "python":
        assert run.marks == ()
        (said,) = run.warnings
        bound = re.fullmatch(r"it ended before it could be looked at, and had at most (\d+\.\d) MiB resident", said)
        assert bound and 1 < float(bound[1]) < 30
    else:
        (mark,) = run.marks
        assert mark.rss_peak_exact and mark.rss_peak_bytes < 4 * MIB


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "if (fork() == 0) { hold(64 * MIB); _exit(0); } wait(NULL);",
            "processes that started and ended between two polls and are in no figure",
        ),
        ("if (fork() == 0) { usleep(600000000); _exit(0); } hold(64 * MIB);", "processes that outlived the measured one and were ended: 1"),
    ],
    ids=["waited for", "left behind"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_program_with_a_child_that_no_poll_saw_had_at_least_the_largest_of_the_two(kind, body, said, tmp_path):
    run = unseen(kind, program(body), tmp_path)

    (mark,) = run.marks
    assert (mark.phase, mark.rss_peak_exact, mark.rss_peak_high_bytes) == ("RUN", False, None)
    assert 64 * MIB <= mark.rss_peak_bytes < 68 * MIB
    assert [word for word in run.warnings if word.startswith(said)], run.warnings


def test_the_kernel_bounds_the_peak_of_a_small_program_that_polling_saw(tmp_path):
    run = ran_until_seen(0.1, tmp_path / "seen", program("until(words[1]);"))

    (mark,) = run.marks
    assert not mark.rss_peak_exact and mark.rss_peak_bytes < 4 * MIB < mark.rss_peak_high_bytes < 30 * MIB
    text = table.render([run])
    more = mark.rss_peak_high_bytes / mark.rss_peak_bytes - 1
    assert f"the peak is what polling saw of a program smaller than memprof's probe, and up to {more:.0%} more is possible" in text


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
@pytest.mark.parametrize("hold", [None, Hold(600 * 10**9, {"": 1})], ids=["measured", "held"])
def test_a_silent_input_ends_the_tree_if_it_must_not_be_silent(kind, hold):
    start = Start(("sleep", "600"), command={})
    message = Message(job(), start, 600 * 10**9, {"": 10**6}, hold=hold, silence_ns=5 * 10**8)
    with subprocess.Popen(probe_command(kind), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as probe:
        assert probe.stdin is not None
        probe.stdin.write(encode(message))
        probe.stdin.flush()
        assert probe.wait(120) == 3
        assert probe.stdout is not None and (b"\nheld /peak " in probe.stdout.read()) == (hold is not None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sign_of_life_is_no_order_even_if_it_comes_with_the_first_line(kind):
    message = Message(job(), Start(("true",), command={}), 600 * 10**9, {"": 10**6}, silence_ns=600 * 10**9)
    done = subprocess.run(probe_command(kind), input=encode(message) + b"beat\nbea", capture_output=True, timeout=120, check=False)
    assert done.returncode in (0, 3) and b"not understood" not in done.stderr

    with subprocess.Popen(["sleep", "60"]) as sleeper:
        attach = Message(job(), Start(attach=sleeper.pid), 600 * 10**9, {"": 10**6})
        with subprocess.Popen(probe_command(kind), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as probe:
            assert probe.stdin is not None and probe.stdout is not None
            try:
                probe.stdin.write(encode(attach) + b"beat\nend\n")
                probe.stdin.flush()
                assert probe.stdout.read().rpartition(b"run ")[2].startswith(b"{")
                assert probe.wait(120) == 0
            finally:
                probe.kill()
                sleeper.kill()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["stdin", "SIGTERM"])
def test_the_end_of_its_input_or_sigterm_ends_the_tree(kind, end):
    with waiting(kind) as (probe, tree):
        if end == "stdin":
            probe.stdin.close()
        else:
            probe.terminate()

        assert probe.wait(120) == 3
        assert not any(process.is_running() for process in tree)


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_probe_takes_its_child_with_it(kind):
    with waiting(kind) as (probe, tree):
        probe.kill()
        probe.wait()

        wait_for(lambda: ended(tree[0]))
        for process in tree[1:]:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def ended(process: psutil.Process) -> bool:
    """Whether a process has ended, also if nobody has waited for it yet."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("kind", KINDS)
def test_the_probe_ignores_an_interruption(kind):
    with waiting(kind) as (probe, tree):
        probe.send_signal(signal.SIGINT)
        time.sleep(0.2)

        assert probe.poll() is None and tree[0].is_running()


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_runs_is_looked_at_and_left_alone(kind):
    with subprocess.Popen(["sh", "-c", "echo; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sleeper:
        assert sleeper.stdout is not None and sleeper.stdout.readline() == b"\n"
        # It reads from now on. While a program still starts, its own mark rises, and then the peak is exact.
        wait_for(lambda: psutil.Process(sleeper.pid).status() == psutil.STATUS_SLEEPING)

        def attempt(limit_ns: int) -> Run:
            process = attach.running(sleeper.pid)
            asked_for = attach.job(process, limit_ns // 4, 10**6, None)
            (run,) = attach.measure(asked_for, process, Silent(), lambda line: None, kind)
            return run

        run = with_patience(attempt, lambda run: run.timeline.samples > 10)

        assert sleeper.poll() is None
        sleeper.kill()
    (mark,) = run.marks
    assert run.outcome.ok
    assert (mark.phase, mark.rss_peak_exact) == ("RUN", False)
    assert mark.rss_begin_bytes <= mark.rss_peak_bytes == mark.rss_end_bytes == run.timeline.rss_max_bytes
    assert mark.time_ns >= run.job.timeout_ns and mark.samples >= run.timeline.samples - 1 >= 10  # a late sample is left out


# -- the timeline


def test_its_columns_are_what_pythons_store_reads():
    body = """for (int i = 0; i < atoi(words[1]) / 5000; ++i) {
        size_t size = (size_t)(1 + i * 7 % 23) * MIB; char *m = hold(size); usleep(5000); drop(m, size); }
        hold(23 * MIB); usleep(atoi(words[1]));"""

    def attempt(limit_ns: int) -> Run:
        start = Start((program(body), str(limit_ns // 4000)), command={})
        return asked("static", Message(job(), start, 600 * 10**9, {"": 10**6}))

    run = with_patience(attempt, lambda run: len(store.unpack(run.timeline).t_ns) > 40 and run.timeline.rss_max_bytes > 22 * MIB)

    columns = store.unpack(run.timeline)
    t_ns, rss, file, vms = columns.t_ns, columns.rss, columns.file, columns.vms
    assert len(t_ns) == len(rss) == len(file) == len(vms) > 40
    assert all(earlier < later for earlier, later in pairwise(t_ns))
    assert (min(rss), max(rss)) == (run.timeline.rss_min_bytes, run.timeline.rss_max_bytes)
    assert max(rss) > 22 * MIB and all(0 <= part <= whole <= space for part, whole, space in zip(file, rss, vms, strict=True))
    assert run.timeline.rss_min_bytes < run.timeline.rss_mean_bytes < run.timeline.rss_max_bytes


# -- numbers

MARKER = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
    int marks = atoi(getenv("MEMPROF_MARKS"));
    for (int at = 1; at < count; ++at) {
        if (write(marks, words[at], strlen(words[at])) < 0 || write(marks, "\n", 1) < 0) return 1;
    }
    return 0;
}
"""


def values(kind: str, numbers: list[str]) -> list[object]:
    marker = str(once_compiled("gcc", "marker.c", MARKER))
    lines = [f'{{"mark":"value","pid":1,"name":"n{index}","t_ns":1e3,"value":{number}}}' for index, number in enumerate(numbers)]
    run = asked(kind, Message(job(), Start((marker, *lines), command={}), 60 * 10**9, {"": 10**7}))
    assert run.outcome.ok and not any("not understood" in words for words in run.warnings), run
    return [(value.name, value.t_ns, value.value, value.note) for value in run.values]


@examples(6, suppress_health_check=list(HealthCheck))
@given(st.lists(st.floats().map(json.dumps) | st.integers(-(10**18), 10**18).map(str), min_size=50, max_size=100))
def test_both_read_numbers_alike(numbers):
    assert values("static", numbers) == values("python", numbers)


def test_numbers_in_unusual_forms_are_read():
    forms = [
        "1E+5",
        "1e-400",
        "-0",
        "1e999",
        "-1e999",
        "0e999999999999",
        "100000000000000000000000000000",
        "0.10000000000000000000000000000001",
    ]
    assert values("static", forms) == values("python", forms)


@pytest.mark.parametrize(("timeout_ns", "limit"), [(10**9, "1 s"), (25 * 10**7, "0.25 s"), (100_400_000, "0.1 s")])
@pytest.mark.parametrize("kind", KINDS)
def test_a_time_limit_is_told_alike(kind, timeout_ns, limit):
    run = asked(kind, Message(job(), Start(("sleep", "60"), command={}), timeout_ns, {"": 10**6}))

    assert run.outcome.message == f"did not end in time (timeout {limit})"


# -- patterns

SOURCES = Path(probe_package.__path__[0]) / "static"


@cache
def library() -> ctypes.CDLL:
    sources = [str(SOURCES / name) for name in ("memory.c", "text.c", "pattern.c", "json.c")]
    patterns = ctypes.CDLL(str(once_compiled("gcc", "patterns.c", "", "-shared", "-fPIC", f"-I{SOURCES}", *sources)))
    patterns.pattern_read.restype = ctypes.c_void_p
    return patterns


def in_c(regex: str, lines: list[str]) -> str:
    """Which of the lines match, as 0 and 1, or "refused: " and the reason."""
    reason, text = ctypes.c_char_p(), regex.encode()
    pattern = library().pattern_read(text, ctypes.c_size_t(len(text)), ctypes.byref(reason))
    if not pattern:
        assert reason.value is not None
        return f"refused: {reason.value.decode()}"
    data = [line.encode() for line in lines]
    return "".join(str(library().pattern_found(ctypes.c_void_p(pattern), line, ctypes.c_size_t(len(line)))) for line in data)


def in_python(regex: str, lines: list[str]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of sets in sets, which there are not yet
        compiled = re.compile(regex)
    return "".join("1" if compiled.search(line) else "0" for line in lines)


LETTERS = "ab_1 .-"
atoms = st.sampled_from(
    ["a", "b", "1", " ", "_", ".", r"\.", r"\-", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\x61", r"\u0062", "é"]
) | st.sampled_from(["[ab]", "[^a]", "[a-b1]", r"[\d.]", r"[^\w]", r"[\W1]", "[]a]", "[a-]", r"[\-a]", "[^]]", "{", "}", "a{", "]"])
quantified = st.tuples(
    atoms, st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,2}", "{,2}", "{2,}", "*?", "+?", "??", "{0}", "{0,3}?"])
).map("".join)
edges = st.sampled_from(["^", "$", r"\b", r"\A", r"\Z"])
expressions = st.recursive(
    quantified | edges,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=4).map("".join)
        | st.tuples(st.sampled_from(["(", "(?:", "(?P<n>"]), inner, st.sampled_from([")", ")*", ")+", "){2}", "){1,3}?", ")?"])).map(
            "".join
        )
        | st.tuples(inner, inner | st.just("")).map("|".join)
    ),
    max_leaves=8,
)
lines_of = st.lists(st.text(LETTERS + "é", max_size=8), min_size=1, max_size=10)


@examples(400, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["", "", "(?i)"]), expressions, lines_of)
def test_a_pattern_means_what_it_means_in_python(flag, expression, lines):
    regex = flag + expression
    try:
        expected = in_python(regex, lines)
    except re.error:
        return  # a name twice
    # Beyond ASCII there are no letters, digits and spaces for the probe in C.
    if any(not line.isascii() for line in lines) and re.search(r"\\[wWdDsSb]", regex):
        return

    static_probe.check_regexes({"A": regex})
    assert in_c(regex, lines) == expected


@examples(200, suppress_health_check=list(HealthCheck))
@given(st.text(r"ab1-.|()[]{}?*+^$\dwsbBAZn,:P<>=!i", max_size=9), lines_of)
def test_any_pattern_of_pythons_is_refused_or_means_the_same(regex, lines):
    lines = [line for line in lines if line and line.isascii()]  # \B and nothing differs between Pythons
    try:
        expected = in_python(regex, lines)
    except (re.error, OverflowError):
        return
    answer = in_c(regex, lines)

    assert answer == expected or answer.startswith("refused: ")
    try:
        static_probe.check_regexes({"A": regex})
    except UsageError:
        return
    assert answer == expected


@pytest.mark.parametrize("regex", ["(.*)*" * 8 + "c", "(a|a)*" * 20 + "c", "(a?){25}" + "a{25}"], ids=["nested", "alike", "optional"])
def test_no_pattern_takes_for_ever(regex):
    assert in_c(regex, ["a" * 24, "a" * 2000]) in ("00", "01")


@pytest.mark.parametrize(
    "regex", [r"(a)\1", "(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", "(?P=n)", "(?s)a", "(?i:a)", "a(?#b)", r"\N{DASH}", r"[\0]", r"\07"]
)
def test_a_pattern_that_c_does_not_know_is_refused_beforehand(regex):
    variant = Variant(runtime=COMMAND, name="it", command=commands.of_words(["true"]))

    with pytest.raises(UsageError, match="LOAD: the static probe cannot read"):
        plan(Suite(variants=(variant,), repeats=1, phase_regexes={"LOAD": regex}, probe="static"))
    assert in_c(regex, []).startswith("refused: ")


def test_a_pattern_that_is_none_is_said():
    start = Start(("true",), command={"regexes": [["LOAD", "a(b"]]})

    run = asked("static", Message(job(), start, 10**9, {"": 10**6}))

    assert run.outcome.status == "start"
    assert run.outcome.message == "the static probe cannot read the pattern 'a(b': a group is not closed"


# -- the program


def test_without_a_compiler_there_is_a_sentence(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(static_probe.importlib.util, "find_spec", lambda name: None)

    with pytest.raises(
        InputError, match="the probe for sparc64 is compiled on first use, and there is no compiler for it: pip install ziglang"
    ):
        static_probe.built("sparc64")


ARCHITECTURES = {"x86_64": None, "aarch64": "qemu-aarch64", "armv7l": "qemu-arm", "riscv64": "qemu-riscv64"}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_measures_on_each_architecture_and_is_small(architecture):
    qemu, here = ARCHITECTURES[architecture], architecture == platform.machine()
    emulator = None if here else next((path for name in (f"{qemu}-static", qemu) if (path := shutil.which(name))), None)
    if not here and emulator is None:
        pytest.skip(f"no {qemu}")
    try:
        program = static_probe.built(architecture)
    except InputError as error:
        pytest.skip(str(error))

    def attempt(limit_ns: int) -> Run:
        script = f"echo load took 12 ms; sleep {limit_ns / 4e9}; echo end; exit 3"
        start = Start(("sh", "-c", script), command={"regexes": [["LOAD", r"took \d+"], ["REST", "^end$"]]})
        with subprocess.Popen([*([emulator] if emulator else []), str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as probe:
            assert probe.stdin is not None and probe.stdout is not None
            probe.stdin.write(encode(Message(job(), start, 600 * 10**9, {"": 10**6})))
            probe.stdin.flush()
            *_, line = probe.stdout
        return store.decode(line.removeprefix(b"run ").rstrip(b"\n"), "its answer")

    run = with_patience(attempt, lambda run: run.mark("REST").rss_peak_bytes > 100_000)

    assert run.machine.arch == architecture
    assert (run.outcome.status, run.outcome.exit_code, run.outcome.message) == ("exit", 3, "end")
    assert [mark.phase for mark in run.marks] == ["LOAD", "REST"]
    assert run.mark("REST").rss_peak_bytes > 100_000
    assert len(store.unpack(run.timeline).t_ns) > 0
    if importlib.util.find_spec("ziglang"):  # glibc's static programs are larger
        assert program.stat().st_size <= 120_000


def test_the_static_probe_needs_at_most_a_mebibyte():
    with waiting("static") as (probe, _):
        wait_for(lambda: psutil.Process(probe.pid).num_ctx_switches().voluntary > 300)  # one a poll

        assert psutil.Process(probe.pid).memory_info().rss <= MIB
