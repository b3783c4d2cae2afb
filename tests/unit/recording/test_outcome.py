"""How a run ended, and the sentence that tells it."""

from __future__ import annotations

import errno

import pytest

from memprof.records.recorder_order import CommandStart, Start
from memprof.records.types import Run

from .written import MIB, ROOT, Recording, phases

OWN = None  # memprof's own side, which says "done"


def ended(command: CommandStart | None, *, done: bool = False, phase: str = "", error: dict[str, str] | None = None, **end: int) -> Run:
    """The Run of a program that was through STARTUP, and in this phase when it ended so."""
    recording = Recording(command)
    recording.startup()
    if phase:
        recording.begin(phase)
    if error is not None:
        recording.mark("error", **error)
    if done:
        recording.mark("done")
    return recording.run(**end)


@pytest.mark.parametrize(
    ("run", "word", "sentence"),
    [
        (ended(OWN, done=True), "ok", ""),
        (ended(CommandStart()), "ok", ""),
        (ended(OWN), "lost", "ended after STARTUP without saying that it was done: the rest is not known"),
        (ended(OWN, phase="A"), "lost", "ended in A without saying that it was done: the rest is not known"),
        (ended(OWN, done=True, code=3), "exit code 3", "ended with exit code 3 after STARTUP"),
        (ended(CommandStart(), code=3, phase="A"), "exit code 3", "ended with exit code 3 in A"),
        (ended(CommandStart(), signal=11, phase="A"), "SIGSEGV", "ended by SIGSEGV in A, its RSS last 10.0 MiB"),
        (ended(OWN, signal=64 + 40, phase="A"), "SIG104", "ended by SIG104 in A, its RSS last 10.0 MiB"),
        (
            ended(OWN, code=1, error={"phase": "LOAD", "kind": "error", "message": "ValueError: no."}),
            "error",
            "in LOAD: ValueError: no",
        ),
        (ended(OWN, error={"phase": "LOAD", "kind": "refused", "message": "no"}), "not measured", "in LOAD: no"),
        (ended(OWN, error={"phase": "STARTUP", "kind": "import", "message": "no x"}), "import", "in STARTUP: no x"),
        (
            ended(OWN, signal=6, phase="A", error={"phase": "LOAD", "kind": "error", "message": "no"}),
            "SIGABRT",
            "ended by SIGABRT in A, its RSS last 10.0 MiB",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_end_is_told_in_words(run: Run, word: str, sentence: str) -> None:
    assert run.outcome.word == word
    assert run.outcome.ok or run.outcome.sentence == sentence
    assert run.outcome.out_of_memory is False


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("one\ntwo: no\n\n", "two: no"),
        ("FAILED t.py::test_a - assert 0\nFAILED t.py::test_b\n==== 2 failed, 3 passed in 0.48s ====\n",
         "FAILED t.py::test_a - assert 0; 2 failed, 3 passed in 0.48s"),
        ("ERROR t.py - no module\n1 error in 0.10s\n", "ERROR t.py - no module; 1 error in 0.10s"),
        ("FAILED to read x\ndone\n", "done"),
        ("FAILED t.py::test_a\n==== 1 failed, 2 passed in 101.5s (0:01:41) ====\n", "FAILED t.py::test_a; 1 failed, 2 passed in 101.5s (0:01:41)"),
    ],
)  # fmt: skip
def test_last_line_of_output_names_what_failed(output: str, sentence: str) -> None:
    assert Recording().run(code=1, output=output.encode()).outcome.message == sentence


@pytest.mark.parametrize(
    ("timeout_ms", "limit"), [(1000, "1 s"), (250, "0.25 s"), (100.4, "0.1 s"), (0.001, "0 s"), (8000, "8 s"), (90_061.5, "90.061 s")]
)
@pytest.mark.parametrize("command", [OWN, CommandStart()])
def test_time_limit_is_told(timeout_ms: float, limit: str, command: CommandStart | None) -> None:
    recording = Recording(command, timeout_ms=timeout_ms)
    recording.startup()
    recording.begin("PREPARE")
    recording.poll({ROOT: 44})
    recording.tell("limit %d killed")
    recording.tell("left %d 101 sleep")
    run = recording.run(signal=9)
    assert run.outcome.word == "timeout"
    assert run.outcome.sentence == f"did not end in time (timeout {limit}) in PREPARE, its RSS last 44.0 MiB"
    assert (run.outcome.exit_code, run.outcome.signal) == (None, None)
    assert phases(run) == ["STARTUP"] and run.warnings == ()  # what it had started had to be ended, of course


def test_program_that_ends_when_asked_was_late() -> None:
    recording = Recording()
    recording.tell("limit %d asked")
    assert recording.run(code=0).outcome.word == "timeout"


def test_time_limit_before_the_first_phase() -> None:
    recording = Recording(OWN, timeout_ms=1)
    recording.tell("limit %d killed")
    run = recording.run(signal=9)
    assert (run.outcome.phase, run.marks) == ("STARTUP", ())


def test_program_that_does_not_end_is_none_the_less_late() -> None:
    """One that has become another user's is not waited for."""
    recording = Recording()
    recording.tell("limit %d killed")
    recording.tell("refused %d 100 setuid")
    recording.tell("refused %d 105 ")
    run = recording.finish()
    assert run.outcome.word == "timeout"
    assert run.warnings == ("processes of another user that could not be ended and may still run: 2 (setuid, 105)",)


def test_last_words_of_a_failure_are_told() -> None:
    run = Recording().run(code=3, output=b"first\ncannot open the model \xff\n\n")
    assert run.outcome.sentence == "ended with exit code 3 in RUN (cannot open the model �)"
    assert run.output_tail is not None and run.output_tail.endswith("model �\n\n")


def test_shell_without_a_word_is_explained() -> None:
    assert Recording().run(code=127).outcome.sentence == "ended with exit code 127 in RUN (its shell did not find the command)"
    assert Recording().run(code=127, output=b"sh: x: not found\n").outcome.sentence.endswith("(sh: x: not found)")


def test_output_of_a_good_run_is_only_counted() -> None:
    recording = Recording()
    recording.tail(b"hello", 300_000_000)
    recording.zombie(ROOT)
    recording.ended()
    run = recording.finish()
    assert (run.outcome.ok, run.output_bytes, run.output_tail) == (True, 300_000_000, None)


@pytest.mark.parametrize(("code", "signal"), [(139, "SIGSEGV"), (128, None), (3, None)])
def test_shell_around_the_program_tells_a_signal(code: int, signal: str | None) -> None:
    recording = Recording(OWN, rss=2)
    recording.spawn(101, 40)
    recording.startup(101)
    recording.begin("LOAD", 101)
    recording.poll({101: 70})
    run = recording.run(code=code)
    assert (run.outcome.signal, run.outcome.exit_code) == (signal, code)
    assert (run.outcome.phase, run.outcome.rss_last_bytes) == ("LOAD", 70 * MIB)


def test_large_code_of_the_program_itself_is_a_code() -> None:
    assert Recording().run(code=139).outcome.word == "exit code 139"


def test_processes_that_outlived_it_are_named() -> None:
    recording = Recording()
    for name in ("sleep", "sleep", "tail", ""):
        recording.tell(f"left %d 105 {name}")
    assert recording.run().warnings == ("processes that outlived the measured one and were ended: 4 (sleep, tail)",)


def test_layout_that_was_not_fixed_is_said() -> None:
    recording = Recording()
    recording.tell("layout %d 1")
    assert recording.run().warnings == ()
    recording = Recording()
    recording.tell("layout %d 0")
    assert recording.run().warnings == ("address space randomisation could not be turned off here: --deterministic is only partly so",)


def test_polls_that_were_left_out_are_said() -> None:
    recording = Recording()
    recording.tell("fault %d behind 3")
    recording.tell("fault %d behind 4")
    assert recording.run().warnings == ("7 polls were left out, as memprof did not take what was read in time",)


def test_periods_are_their_percentiles() -> None:
    recording = Recording()
    recording.quiet(4999)
    recording.zombie(ROOT)
    recording.ended()
    recording.tail(b"")
    recording.tell("periods 5000 " + " ".join(str(part) for part in range(101)))
    recording.tell("end %d")
    polling = recording.so_far().polling
    assert polling is not None and (polling.polls, polling.median_ns, polling.p99_ns) == (5000, 50, 99)
    assert Recording().run().polling is None


# -- what did not start


def refused(step: str, number: int, subject: str, head: str = "-", start: Start = Start(("a",))) -> Run:  # noqa: B008  (frozen)
    recording = Recording(rss=None, cpus=start.cpus, attach=start.attach)
    recording.tell(f"error %d {step} {number} {head} {subject}")
    return recording.finish()


def elf(machine: int, little: bool = True) -> str:
    """The begin of a program for this machine, in hexadecimal."""
    order = "little" if little else "big"
    return (b"\x7fELF\x02" + bytes([1 if little else 2]) + bytes(10) + (2).to_bytes(2, order) + machine.to_bytes(2, order)).hex()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (refused("exec", errno.ENOENT, "/not/there"), "/not/there: No such file or directory"),
        (refused("exec", errno.EACCES, "/etc/passwd"), "/etc/passwd: Permission denied"),
        (refused("exec", errno.ENOENT, "a\\nb\\\\"), "a\nb\\: No such file or directory"),
        (refused("group", errno.EROFS, "/sys/fs/cgroup/x"), "/sys/fs/cgroup/x: Read-only file system"),
        (
            refused("exec", errno.ENOEXEC, "app", elf(183)),
            "app: Exec format error (a program for AArch64; this machine is x86_64)",
        ),
        (
            refused("exec", errno.ENOEXEC, "app", elf(22, little=False)),
            "app: Exec format error (a program for S390; this machine is x86_64)",
        ),
        (
            refused("exec", errno.ENOEXEC, "app", elf(999)),
            "app: Exec format error (a program for machine type 999; this machine is x86_64)",
        ),
        (
            refused("exec", errno.ENOEXEC, "app", b"echo hello\n".hex()),
            "app: Exec format error (a script needs #! and its interpreter in its first line)",
        ),
        (
            refused("cpus", errno.EINVAL, "8000", start=Start(cpus=(8000,))),
            "it may not run on exactly the CPUs 8000: one of them is not there, or not allowed to this process",
        ),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_program_that_does_not_start_is_told(run: Run, message: str) -> None:
    assert (run.outcome.status, run.outcome.phase, run.outcome.message) == ("start", "STARTUP", message)
    assert (run.marks, run.warnings, run.timeline.samples) == ((), (), 0)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("gone", "process 42 has ended, or is one of the kernel's own"),
        ("reused", "process 42 has ended, and its number is another process's now"),
        ("log", "/l og: No such file or directory"),
    ],
)
def test_process_that_cannot_be_looked_at_is_told(step: str, message: str) -> None:
    run = refused(step, errno.ENOENT, "/l og", start=Start(attach=42))
    assert (run.outcome.status, run.outcome.phase, run.outcome.message) == ("start", "RUN", message)
