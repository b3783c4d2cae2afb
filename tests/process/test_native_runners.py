"""Runtimes that a C program of memprof's own measures: the same figures as from Python above a baseline of a few MiB, and a clear word where
there is no compiler."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import need_tool
from support.recorder_runs import runs_in
from support.session_cache import once

import memprof
from memprof import zoo
from memprof.base.errors import InputError, MemprofError
from memprof.programs import native, runtimes
from memprof.records.types import Run
from memprof.subjects.suite import Variant

MIB = 1 << 20
PAIRS = {"onert": "tflite", "onnxruntime": "onnx"}
PHASES = ("STARTUP", "MODEL_LOAD", "PREPARE", "WARMUP", "EXECUTE")


@pytest.fixture
def nets() -> Path:
    pytest.importorskip("onnx", reason="the zoo needs onnx")
    pytest.importorskip("flatbuffers", reason="the zoo needs flatbuffers")
    return once("the nets of test_native_runners.py", _make_nets)


def _make_nets(folder: Path) -> None:
    for form in PAIRS.values():
        zoo.make("mobilenet_v2", folder / f"net.{form}", format=form)
        zoo.make("mnist", folder / f"small.{form}", format=form)


def installed(name: str) -> None:
    need_tool("cc")
    try:
        runtimes.find(name, sys.executable)
    except InputError as error:
        pytest.skip(str(error))


def measured(model: Path, *variants: Variant, **words: object) -> list[Run]:
    settings: dict[str, object] = {"warmup": 1, "runs": 3, "repeats": 1, "threads": [1], **words}
    return list(memprof.measure([model], (), variants, **settings))  # type: ignore[arg-type]


def ended_well(run: Run) -> Run:
    assert run.outcome.ok, (run.outcome.sentence, run.output_tail)
    return run


def above(run: Run, field: str) -> int:
    """A figure at the end of EXECUTE above the same at the end of STARTUP."""
    return int(getattr(run.before_release[-1], field) - getattr(run.marks[0], field))


@pytest.mark.parametrize("name", PAIRS)
def test_native_figures_agree_with_python(nets: Path, name: str) -> None:
    installed(name + "-native")
    given_back = {"malloc_mmap_threshold": "64KiB"}  # how much of freed blocks glibc keeps depends on what the program did before
    variants = [Variant(runtime, label, given_back) for runtime, label in ((name, name), (f"{name}-native", "native"))]
    runs = measured(nets / f"net.{PAIRS[name]}", *variants)
    python, own = (ended_well(run) for run in runs)
    assert [mark.phase for mark in own.marks] == [*PHASES, "RELEASE"]
    assert own.about is not None and own.about.runtime_version == python.about.runtime_version  # type: ignore[union-attr]
    baselines = [run.marks[0].rss_end_bytes or 0 for run in (python, own)]
    assert 0 < baselines[1] < 40 * MIB and baselines[1] < baselines[0]
    # What the runtime holds cannot depend on who asked it to. Freed blocks that glibc keeps differ by some hundreds of KiB, pages of libraries by
    # some MiB: how many a fault maps depends on which of them the page cache holds.
    held, anonymous, mapped = (
        abs(above(python, field) - above(own, field)) for field in ("heap_used_end_bytes", "anon_end_bytes", "file_end_bytes")
    )
    assert held < MIB // 2
    assert anonymous < 2 * MIB
    peaks = [
        max(mark.rss_peak_bytes for mark in run.before_release) - baseline for run, baseline in zip((python, own), baselines, strict=True)
    ]
    assert abs(peaks[0] - peaks[1]) < 2 * MIB + mapped + 2 * own.machine.peak_bound_bytes
    execute = own.mark("EXECUTE")
    assert len(execute.times_ns) == 3 and execute.rss_peak_exact
    assert own.marks[0].rss_end_bytes == own.timeline.rss_min_bytes or own.timeline.rss_max_bytes < python.timeline.rss_max_bytes


def test_native_onert_knobs(nets: Path) -> None:
    installed("onert-native")
    runs = measured(
        nets / "net.tflite",
        Variant("onert-native", "plain"),
        Variant("onert-native", "mapped", {"mmap": "on", "malloc_trim": "on"}),
        Variant("onert-native", "heavy", {"ballast": "7MiB"}),
    )
    plain, mapped, heavy = (ended_well(run).mark("MODEL_LOAD").anon_end_bytes or 0 for run in runs)  # type: ignore[union-attr]
    assert plain - mapped > 5 * MIB, "mapped weights are not copied"
    assert heavy - plain == pytest.approx(7 * MIB, abs=MIB)


def test_native_onnxruntime_knobs(nets: Path) -> None:
    installed("onnxruntime-native")
    knobs = {"optimization": "off", "prepacking": "off", "arena": "off", "mem_pattern": "off", "spinning": "off", "constant_folding": "off"}
    default, spare, converted = measured(
        nets / "net.onnx",
        Variant("onnxruntime-native", "default"),
        Variant("onnxruntime-native", "spare", knobs),
        Variant("onnxruntime-native", "ort", {"format": "ort", "arena_shrink": "on", "mode": "parallel"}),
    )
    peaks = [max(mark.rss_peak_bytes for mark in ended_well(run).marks) for run in (default, spare, converted)]
    assert peaks[0] - peaks[1] > MIB
    assert converted.job.built is not None and converted.job.built.endswith(".ort")


@pytest.mark.parametrize("name", PAIRS)
def test_native_inputs_and_shapes_by_name(nets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    installed(name + "-native")
    monkeypatch.setattr("memprof.models.inputs.names", lambda path: ())  # or memprof would refuse the name itself
    numpy = pytest.importorskip("numpy")
    form = PAIRS[name]
    shape = (1, 1, 28, 28) if form == "onnx" else (1, 28, 28, 1)
    model, own = nets / f"small.{form}", Variant(name + "-native", "native")
    wrong = tmp_path / "wrong.npz"
    numpy.savez(wrong, nowhere=numpy.zeros(3, "float32"))
    (run,) = _with(model, own, inputs=wrong)
    assert run.outcome.status == "refused" and "the model has no input 'nowhere'; it has " in run.outcome.sentence
    inside = run.outcome.sentence.rpartition("it has ")[2].strip()
    right = tmp_path / "right.npz"
    numpy.savez_compressed(right, **{inside: numpy.ones(shape, "float32")})
    (run,) = _with(model, own, inputs=right)
    ended_well(run)
    for content, said in ((numpy.ones((1, 3), "float32"), "another shape"), (numpy.ones(shape, "float64"), "another type")):
        bad = tmp_path / f"{said[-4:]}.npz"
        numpy.savez(bad, **{inside: content})
        (run,) = _with(model, own, inputs=bad)
        assert run.outcome.status == "refused" and said in run.outcome.sentence
    (run,) = _with(model, own, shapes={"nowhere": (1, 2)})
    assert run.outcome.status == "refused" and "no input 'nowhere'" in run.outcome.sentence


def _with(model: Path, variant: Variant, **words: object) -> list[Run]:
    from unittest.mock import Mock

    from memprof.campaign import campaign
    from memprof.subjects import orders, suite

    settings = {key: str(value) if key == "inputs" else value for key, value in words.items()}
    wanted = suite.Suite(models=(str(model),), variants=(variant,), repeats=1, warmup=0, runs=1, **settings)  # type: ignore[arg-type]
    return list(campaign.measure(orders.plan(wanted).orders, Mock(), lambda line: None))


@pytest.mark.parametrize("name", PAIRS)
def test_native_broken_model_runtime_error(tmp_path: Path, name: str) -> None:
    installed(name + "-native")
    model = tmp_path / f"broken.{PAIRS[name]}"
    model.write_bytes(b"\0no model" * 100)
    (run,) = measured(model, Variant(name + "-native", "native"))
    assert run.outcome.phase == "MODEL_LOAD"
    assert run.outcome.status in ("error", "signal")  # onert 0.1.0 does not survive what is no model at all
    assert run.mark("STARTUP") is not None


def test_run_command_with_native_runtime(nets: Path, memprof, tmp_path: Path) -> None:
    installed("onert-native")
    done = memprof("run", nets / "small.tflite", "-r", "onert-native", "--repeats", "1", "--runs", "2", "--warmup", "0", "-o", "runs.jsonl")
    assert done.returncode == 0, done.stderr
    assert "onert-native" in done.stdout
    (line,) = runs_in(tmp_path / "runs.jsonl")
    assert line["job"]["runtime"] == "onert-native" and line["about"]["runtime_version"]
    listed = memprof("runtimes", "onert-native", "onnxruntime-native")
    assert listed.returncode == 0 and "planner=wic|firstfit|bump" in listed.stdout


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and nothing compiled yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    native.compiled.cache_clear()
    native.version.cache_clear()
    yield tmp_path
    native.compiled.cache_clear()
    native.version.cache_clear()


def test_compiled_program_cached_until_source_changes(fresh: Path) -> None:
    need_tool("cc")
    source = fresh / "hello.c"
    source.write_text("int main(void) { return 3; }")
    first = native.compiled(source)
    assert subprocess.run([first], check=False).returncode == 3
    made = first.stat().st_mtime_ns
    native.compiled.cache_clear()
    assert native.compiled(source) == first and first.stat().st_mtime_ns == made
    source.write_text("int main(void) { return 4; }")
    native.compiled.cache_clear()
    second = native.compiled(source)
    assert second != first and subprocess.run([second], check=False).returncode == 4
    (fresh / "shared.h").write_text("")
    native.compiled.cache_clear()
    assert native.compiled(source) != second
    assert not list(first.parent.glob(".*")), "nothing half made is left"


def test_compiler_missing(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(InputError, match=r"no C compiler here \(cc or gcc or clang\): apt install gcc, or set CC"):
        native.compiled(fresh / "hello.c")


def test_compiler_named_by_cc(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(InputError, match="no-such-compiler"):
        native.compiled(fresh / "hello.c")


def test_compiler_error_passed_on(fresh: Path) -> None:
    need_tool("cc")
    source = fresh / "broken.c"
    source.write_text("int main(void) { return nothing; }")
    with pytest.raises(InputError, match=r"broken.c cannot be compiled with .*error: .*nothing"):
        native.compiled(source)


def test_wheel_without_library(fresh: Path) -> None:
    runtime = runtimes.Runtime("onert-native", "onert", "9.9", native="onert_runner.c")
    with pytest.raises(InputError, match=r"onert-native: this package of onert 9.9 carries no library that C could open"):
        native.ready(runtime)


def test_inputs_not_npz(fresh: Path) -> None:
    path = fresh / "inputs.npz"
    path.write_text("no zip")
    with pytest.raises(MemprofError, match=r"cannot be read as .npz"):
        native._arrays(str(path))
