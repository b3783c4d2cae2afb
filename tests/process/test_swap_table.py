"""The swap table over windows of a run, with what programs report of themselves; and the trainer, whose answers are known."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.native_programs import EXAMPLES
from support.recorder_runs import PYTHON
from support.tables import cells
from support.trainer import HOLDS, LAYERS, TENSOR_KIB, tensors, trained  # noqa: F401  (the fixture)

from memprof.records import store
from memprof.reports.tables import swap, table

pytestmark = pytest.mark.xdist_group("trainer")  # one worker makes what its tests share


@pytest.mark.parametrize("variant", HOLDS)
def test_trainer_holds_expected_tensors(trained, variant):
    (anonymous, mapped), measured = HOLDS[variant], trained[variant]
    assert tensors(measured, "anonymous", 2) == pytest.approx(anonymous, abs=0.3)
    # What was in use at the worst moment, but for the program and its libraries, of which there are a tensor's worth.
    assert mapped - 0.1 <= tensors(measured, "file-backed", 2) <= mapped + 1.2
    peak = measured.mark("EPOCH").rss_peak_bytes / (TENSOR_KIB << 10)
    assert anonymous + mapped - 0.1 <= peak <= anonymous + mapped + 1.4
    assert measured.mark("EPOCH").rss_peak_exact


def test_onert_training_by_phase(tmp_path, memprof):
    pytest.importorskip("onert", reason="onert is not installed")
    assert memprof("zoo", "mnist", "--format", "tflite", "-o", "mnist.tflite").returncode == 0
    for path in (EXAMPLES / "onert_train.py", EXAMPLES.parents[1] / "memprof_marks.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())

    commands = [
        word
        for name in ("sgd", "adam")
        for word in ("--cmd", f"{name}={PYTHON} onert_train.py {{model}} --epochs {{runs}} --optimizer {name}")
    ]
    done = memprof("run", "mnist.tflite", *commands, "--runs", "3", "--repeats", "1", "-o", "r.jsonl")

    assert done.returncode == 0, done.stderr
    sgd, adam = store.load([tmp_path / "r.jsonl"]).runs
    for measured in (sgd, adam):
        assert [mark.phase for mark in measured.marks] == ["STARTUP", "MODEL_LOAD", "PREPARE", "EXECUTE"]
        assert all(mark.rss_peak_exact for mark in measured.marks)
        assert len(measured.mark("EXECUTE").times_ns) == 3
        assert [value.name for value in measured.values] == ["batch_bytes", "loss", "loss", "loss"]
        assert (measured.job.model.name, measured.job.runs) == ("mnist.tflite", 3)
    table_of = memprof("table", "r.jsonl", "--style", "swap", "--window", "execute")
    assert "mnist.tflite: batch (KiB)" in table_of.stdout or "mnist.tflite: batch (MiB)" in table_of.stdout


def test_swapping_moves_anonymous_memory(trained):
    made = [replace(measured, job=replace(measured.job, variant=name)) for name, measured in trained.items() if name in ("orig", "swap")]
    text = table.render(made, style="swap", window="EPOCH")
    change = {kind: cells(text, f"{kind} in EPOCH (MiB)")["MAX difference"]["program, swap"] for kind in swap.KINDS}
    assert change["anonymous"].startswith("-9")
    assert change["RSS"].startswith("-")
    assert change["file-backed"].startswith("+")


def test_swapping_keeps_losses(trained):
    losses = {name: [value.value for value in measured.values if value.name == "loss"] for name, measured in trained.items()}
    assert len({tuple(reported[:4]) for reported in losses.values()}) == 1
    assert losses["orig"] == sorted(losses["orig"], reverse=True)
    assert all(len(measured.mark("EPOCH").times_ns) == len(losses[name]) >= 4 for name, measured in trained.items())


def test_trainer_reports_tensor_bytes(trained):
    reported = {value.name: value.value for value in trained["swap"].values}
    assert reported["weight_bytes"] == LAYERS * TENSOR_KIB << 10
    assert reported["tensor_bytes"] == (2 * LAYERS + 2) * TENSOR_KIB << 10
