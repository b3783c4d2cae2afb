"""The command line: quick to answer, the main job from end to end, and nothing imported before it is needed."""

from __future__ import annotations

import collections
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import msgspec
import pytest
from msgspec.structs import replace
from support import sample_runs

import memprof as package
from memprof.base.errors import UsageError
from memprof.doors import cli
from memprof.doors.cli import group, progress
from memprof.doors.cli.subject import SharedOption, _next
from memprof.programs import environments
from memprof.programs.environments import Environment
from memprof.records.types import COMMAND, Attempt, ModelFile, Outcome
from memprof.subjects.settings import OF_A_SUITE, SETTINGS


def test_errors_of_removal_told_unless_of_memory(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "__unraisablehook__", told.append)
    lost = [SimpleNamespace(exc_type=kind) for kind in (MemoryError, ValueError)]
    for each in lost:
        cli._heed(each)

    assert told == lost[1:]


def test_progress_of_run_without_peak():
    assert progress.ended(sample_runs.run()) == "peak 270.0 MiB"
    assert progress.ended(sample_runs.run(exact=False)) == "peak ~270.0 MiB"
    assert progress.ended(msgspec.structs.replace(sample_runs.run(), marks=())) == "no peak was seen"


def test_hint_explains_least_peak_of_largest_model():
    def made(model, variant, *peaks_mib, **words):
        return [
            sample_runs.run(variant, repeat, model=model, memory={"STARTUP": (1, 1), "EXECUTE": (1, peak)}, **words)
            for repeat, peak in enumerate(peaks_mib, 1)
        ]

    small, few, many = made("s.onnx", "a", 10, 10), made("l.onnx", "few", 50, 90, 90), made("l.onnx", "many", 80, 80, 80)
    program = made("l.onnx", "app", 5, argv=("app",))

    file = Path("my runs.jsonl")
    tables = "`memprof table 'my runs.jsonl'` prints every table"
    assert f"accounts for this memory, {tables}" in _next(small, False, file)
    hint = _next([*small, *few, *many, *program], False, file)  # few has the least run, many the least median
    assert hint.startswith("`memprof explain ") and "l.onnx" in hint
    assert f"accounts for the smallest peak, that of many, {tables}" in hint
    alone = [replace(run, job=replace(run.job, model=replace(run.job.model, files=()))) for run in program]
    assert _next(alone, False, file) == tables
    programs = [*program, *made("l.onnx", "larger", 9, argv=("app", "-n", "a b"), threads=2)]
    model = replace(programs[0].job.model, path="l.bin", files=(ModelFile("l.bin", 100, "0"),))
    named = [replace(run, job=replace(run.job, model=model, runtime=COMMAND)) for run in programs]
    assert " --on ssh:board" in _next(small, False, file, "ssh:board")
    of_fleet = [replace(run, attempt=Attempt("1f", 1, 1)) for run in small]
    assert _next(of_fleet, False, file, "dask:tcp://desk:8786") == tables
    assert _next(named, False, file) == f"`memprof explain l.bin -- app -n 'a b'` accounts for the largest peak, that of larger, {tables}"


def test_hint_names_measured_release(monkeypatch, tmp_path):
    file = tmp_path / "runs.jsonl"
    interpreter = tmp_path / "python"
    interpreter.symlink_to(sys.executable)
    measured = sample_runs.run(python=str(interpreter))

    assert f" -r onnxruntime --python {interpreter}`" in _next([measured], False, file)
    made = Environment("onnxruntime", "1.19.2", "3.11.2", str(interpreter), 5, True, {})
    monkeypatch.setattr(environments, "every", lambda: [made])
    assert " -r onnxruntime@1.19.2`" in _next([measured], False, file)
    assert " -r onnxruntime`" in _next([sample_runs.run(python=sys.executable)], False, file)


def test_hint_names_trade():
    """The least peak may be that of a variant which takes many times as long."""

    def made(variant, peak_mib, time_ns):
        run = sample_runs.run(variant, memory={"STARTUP": (1, 1), "EXECUTE": (1, peak_mib)})
        marks = tuple(msgspec.structs.replace(mark, times_ns=(time_ns,) * 3) for mark in run.marks if mark.phase != "WARMUP")
        return msgspec.structs.replace(run, marks=marks)

    hint = _next([made("slow", 80, 160), made("fast", 100, 10)], False, Path("runs.jsonl"))
    assert "peak, that of slow (20.0 MiB less than fast, the fastest, and an iteration takes 16.0 times as long), " in hint
    assert "times as long" not in _next([made("slow", 80, 14), made("fast", 100, 10)], False, Path("runs.jsonl"))


def test_hint_after_failures_only():
    file = Path("runs.jsonl")
    failed = sample_runs.run(outcome=Outcome("error", phase="PREPARE", message="no"))
    printed = msgspec.structs.replace(failed, output_bytes=7)

    assert _next([failed], False, file) == "" and _next([printed], True, file) == ""
    assert _next([failed, printed], False, file) == "--verbose shows all that a failed run printed"
    assert "explain" in _next([printed, sample_runs.run()], False, file)


@pytest.mark.parametrize("name", group.listed)
def test_command_help_has_example(memprof, name):
    done = memprof(name, "--help")

    assert done.returncode == 0
    assert "Example" in done.stdout
    assert f"memprof {name}" in done.stdout


def test_command_unknown_suggests_near_name(memprof):
    done = memprof("tabel")

    assert done.returncode == 2
    assert "did you mean table" in done.stderr


@pytest.mark.parametrize(
    ("command", "option", "named"),
    [
        ("fit", "--budget", "here it is --within"),
        ("scale", "--budget", "here it is --within"),
        ("tune", "--within", "here it is --budget"),
        ("gate", "--within", "here it is --budget"),
        ("run", "--budget", "`memprof gate --run SUITE.toml --budget SIZE` holds peaks to a budget, and `memprof fit --within SIZE` tries"),
        ("grow", "--within", "`memprof gate --run SUITE.toml --budget SIZE`"),  # its --budget is of units or time
        ("grow", "--time", "here it is --budget or --for"),
        ("attach", "--time", "here it is --for"),
        ("fit", "--for", "here it is --time"),
        ("run", "--time", "--timeout TIME is the longest time of one run"),
        ("tune", "--iterations", "here it is --runs"),
        ("run", "--max-latency", "`memprof tune --max-latency +10%`"),
    ],
)
def test_option_unknown_names_near_meaning(memprof, command, option, named):
    done = memprof(command, option, "9")

    assert (done.returncode, done.stdout) == (2, "")
    assert f"memprof {command} has no {option}: {named}" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "option", "hint"),
    [
        (("heap", "diff", "a", "b"), "--my", ""),
        (("heap", "diff", "a", "b"), "--fail-if-grow", "--fail-if-grows"),
        (("table",), "--metrics", "--metric"),
    ],
)
def test_option_unknown_names_near_spelling(memprof, words, option, hint):
    done = memprof(*words, option, "x")

    assert done.returncode == 2
    assert f"No such option: {option}" in done.stderr or f"No such option '{option}'" in done.stderr
    assert (hint in done.stderr) if hint else ("Did you mean" not in done.stderr)


def test_public_names_available():
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing


@pytest.mark.parametrize("error", [ZeroDivisionError("of our own\nin two lines"), RecursionError("deep"), KeyError("k")])
def test_defect_writes_report_file(tmp_path, monkeypatch, capsys, error):
    def broken(*words, **rest):
        raise error

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(cli.group, "main", broken)

    with pytest.raises(SystemExit) as end:
        cli.main(["run"])

    assert end.value.code == 70
    (line,) = capsys.readouterr().err.splitlines()
    (report,) = (tmp_path / "memprof").glob("defect-*.txt")
    assert line.startswith(f"memprof: this is a defect of memprof: {type(error).__name__}: ")
    assert line.endswith(f"; {report} holds the details for a report")
    assert "Traceback" in report.read_text() and "in broken" in report.read_text()


def test_defect_with_unwritable_report(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(cli.group, "main", lambda *words, **rest: 1 / 0)

    with pytest.raises(SystemExit) as end:
        cli.main(["run"])

    assert end.value.code == 70 and "no file for a report could be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(12, "Cannot allocate memory"), ImportError("x.so: failed to map segment from shared object")]
)
def test_memory_shortage_is_one_sentence(monkeypatch, capsys, error):
    def broken(*words, **rest):
        raise error

    monkeypatch.setattr(cli.group, "main", broken)
    with pytest.raises(SystemExit) as end:
        cli.main(["run"])
    assert (end.value.code, capsys.readouterr().err) == (5, "memprof: there is too little memory; ulimit -v may limit it\n")


def test_help_names_differences_on_other_machine(memprof):
    shown = " ".join(memprof("exec", "--help-all").stdout.split())

    assert "on another machine (--on) it reads nothing" in shown
    assert "[default: python; with --on c where there is no Python 3.8]" in shown


def test_shared_options_short_in_help(memprof):
    short, whole = memprof("scale", "--help").stdout, memprof("scale", "--help-all").stdout

    assert "--no-swap" in short and "out of swap" not in short
    assert "out of swap" in whole
    own = whole[: whole.index("What is measured and how")]
    assert own == short[: short.index("What is measured and how")]


def commands(command=group, name="memprof"):
    """Every command, by its name."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    with click.Context(command) as context:
        for each in command.list_commands(context):
            yield from commands(command.get_command(context, each), f"{name} {each}")


def test_refused_setting_absent_from_help(memprof):
    """heap record refuses --phase for each subject, with its reason."""
    for words in ("--help", "--help-all"):
        shown = memprof("heap", "record", words).stdout
        assert "--phase NAME=FUNCTION" not in shown and "--phase-regex NAME=REGEX" in shown
    done = memprof("heap", "record", "--phase", "load=f", "-o", "out", "--", "true")
    assert (done.returncode, "name the phases by marks (memprof.h) or --phase-regex" in done.stderr) == (2, True)


def test_shared_options_declared_once():
    meanings = collections.defaultdict(set)
    for _, command in commands():
        for option in command.params:
            if isinstance(option, SharedOption):
                meanings[option.opts[-1]].add(option.help)
    of_settings = {f"--{setting.name}" for setting in OF_A_SUITE}

    assert of_settings <= set(meanings)
    assert {name for name in of_settings if len(meanings[name]) > 1} == set()


def test_option_count_bounded():
    options = {(option.opts[-1], option.help) for _, command in commands() for option in command.params if isinstance(option, click.Option)}

    assert len(options) <= 300


def counted_once(command):
    """Its options that take one text."""
    options = [option for option in command.params if isinstance(option, click.Option) and not (option.multiple or option.is_flag)]
    return [option.opts[-1] for option in options if isinstance(option.type, click.types.StringParamType) and option.callback is None]


@pytest.mark.parametrize(("name", "command"), [pytest.param(*each, id=each[0]) for each in commands() if counted_once(each[1])])
def test_option_given_twice_refused(memprof, name, command):
    for option in counted_once(command):
        done = memprof(*name.split()[1:], option, "1", option, "2")

        assert done.returncode == 2
        assert done.stderr.startswith(f"memprof: {option} takes one value, and two are given: ")


NAMED = {
    "set": ("arena=on", "arena=off", "arena"),
    "env": ("A=1", "A=2", "A"),
    "shape": ("x=1,3", "x=2,3", "x"),
    "input": ("sr=1", "sr=2", "sr"),
    "phase": ("load=a", "MODEL_LOAD=b", "MODEL_LOAD"),
    "phase-regex": ("load=a", "MODEL_LOAD=b", "MODEL_LOAD"),
}


@pytest.mark.parametrize("setting", [setting for setting in SETTINGS if setting.many], ids=lambda setting: setting.name)
def test_name_given_twice_refused(setting):
    first, second, name = NAMED[setting.name]

    assert len(setting.value([first])) == 1
    for again in (first, second):
        with pytest.raises(UsageError, match=f"--{setting.name} {name} takes one value, and two are given: leave one out"):
            setting.value([first, again])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("run a.onnx -r onnxruntime --set arena=on --set arena=off", "--set arena takes one value, and two are given"),
        ("run a.onnx --variant a=onnxruntime,arena=off,arena=on", "--variant a: arena takes one value, and two are given"),
        ("run a.onnx --variant a=onnxruntime,threads=1,threads=2", "--variant a: threads takes one value, and two are given"),
        (
            "run a.onnx --cmd a=true --drive http:80,parallel=1,parallel=2",
            "--drive 'http:80,parallel=1,parallel=2': parallel takes one value",
        ),
        ("exec --env A=1 --env A=2 -- true", "--env A takes one value, and two are given"),
        ("gate --phase a=f --phase a=g -- true", "--phase a takes one value, and two are given"),
        ("grow a.onnx -r onnxruntime --shapes", "--shapes: x takes one value, and two are given: leave one out"),
        ("tune a.onnx -r onnxruntime --try arena=on --try arena=off", "--try arena takes one value, and two are given: its values stand"),
        ("plan show a.onnx --shape x=1,3 --shape x=2,3", "--shape x takes one value, and two are given"),
    ],
)
def test_name_given_twice_refused_by_command(memprof, tmp_path, words, sentence):
    (tmp_path / "a.onnx").write_bytes(b"")

    done = memprof(*words.split(), *(["x=1,H; x=2,H; H in 3"] if words.endswith("--shapes") else []))

    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr


def test_runtimes_of_one_question_say_how(memprof):
    done = memprof("fit", "a.onnx", "-r", "mnn", "-r", "onnxruntime")
    assert "--runtime takes one value, and two are given: call memprof fit once for each" in done.stderr
    assert "--variant x=mnn: only `memprof run` takes it" in memprof("fit", "a.onnx", "--variant", "x=mnn").stderr


def test_list_option_twice_says_how(memprof):
    assert (
        "--threads takes one value, and two are given: its values stand together, with commas"
        in memprof("run", "a.onnx", "--threads", "1", "--threads", "2").stderr
    )


@pytest.mark.parametrize("error", [MemoryError(), SystemError("error return without exception set")])
def test_shortage_while_an_error_is_told_is_one_sentence(monkeypatch, error):
    """What tells of an error may itself need memory that is not there."""
    from memprof import __main__ as start
    from memprof.base import errors

    written: list[bytes] = []

    def fails(*words, **rest):
        raise error

    def ended(code):
        raise SystemExit(code)

    monkeypatch.setattr(cli, "main", fails)
    monkeypatch.setattr(errors, "address_space_is_limited", lambda: True)
    monkeypatch.setattr(start.os, "write", lambda file, text: written.append((file, text)))
    monkeypatch.setattr(start.os, "_exit", ended)
    with pytest.raises(SystemExit) as end:
        start.main()
    assert (end.value.code, written) == (5, [(2, b"memprof: there is too little memory; ulimit -v may limit it\n")])
