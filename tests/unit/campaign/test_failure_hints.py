"""What a failed run says of the inputs that memprof made: only where other inputs may mend it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from support import sample_runs
from support.model_inputs import model

from memprof.campaign import failure_hints
from memprof.records.types import Outcome

MAY_BE = "memprof chose inputs, which may be the cause or not: "
NAMED = "the error names x, which memprof chose: "


@pytest.mark.parametrize(
    ("outcome", "limit", "hint"),
    [
        (Outcome("error", "WARMUP", "a shape is wrong"), None, MAY_BE),
        (Outcome("signal", "EXECUTE", signal="SIGSEGV"), None, MAY_BE),
        (Outcome("error", "PREPARE", "x is too small"), None, NAMED),
        (Outcome("refused", "WARMUP", "input x is a sequence"), None, NAMED),
        (Outcome("error", "MODEL_LOAD", "x is too small"), None, ""),
        (Outcome("signal", "WARMUP", signal="SIGKILL", out_of_memory=True), None, ""),
        (Outcome("signal", "WARMUP", signal="SIGKILL", out_of_memory=None), None, ""),
        (Outcome("timeout", "PREPARE"), None, ""),
        (Outcome("error", "WARMUP", "std::bad_alloc"), "70 MiB of data", ""),
        (Outcome("refused", "PREPARE", "TensorFlow Lite Micro has no operator RANGE"), None, ""),
        (Outcome("error", "PREPARE", "RuntimeError: Encountered unresolved custom op: Foo."), None, ""),
    ],
)
def test_hint_on_made_inputs(tmp_path: Path, outcome: Outcome, limit: str | None, hint: str) -> None:
    path = model(tmp_path, ("n", 3))
    run = sample_runs.run(assumed={"x": (1, 3)}, limit=limit)
    run = replace(run, outcome=outcome, job=replace(run.job, model=replace(run.job.model, path=str(path))))

    hints = failure_hints.of(run)

    assert len(hints) == bool(hint) and all(text.startswith(f"{hint}open dimensions") for text in hints)


@pytest.mark.parametrize(
    ("knobs", "hinted"),
    [({"order": "memory_efficient"}, False), ({"order": "priority"}, True), ({"arena": "memory_efficient"}, True), ({}, True)],
    ids=["named", "another value", "another knob", "no knob"],
)
def test_no_hint_where_error_names_setting(tmp_path: Path, knobs: dict[str, str], hinted: bool) -> None:
    """In the words of ONNX Runtime 1.32."""
    run = sample_runs.run(assumed={"x": (1, 3)}, knobs=knobs)
    error = Outcome("error", "PREPARE", "Memory efficient topological order is not enabled for non-training build")
    run = replace(run, outcome=error, job=replace(run.job, model=replace(run.job.model, path=str(model(tmp_path, ("n", 3))))))

    assert bool(failure_hints.of(run)) == hinted


def test_hint_on_values_once_fed(tmp_path: Path) -> None:
    """The integers of an input are not there before it is set."""
    run = sample_runs.run(ranges={"x": 50})
    job = replace(run.job, model=replace(run.job.model, path=str(model(tmp_path, (1, 3)))))
    hints = {phase: failure_hints.of(replace(run, job=job, outcome=Outcome("error", phase, "no"))) for phase in ("PREPARE", "WARMUP")}

    assert hints["PREPARE"] == () and hints["WARMUP"][0].startswith(f"{MAY_BE}memprof made these integers: x 0 to 49")


@pytest.mark.parametrize(("given", "out_of_memory", "hinted"), [((4, 3), False, True), ((1, 3), False, False), ((4, 3), True, False)])
def test_hint_on_fixed_dimension(tmp_path: Path, given: tuple[int, ...], out_of_memory: bool, hinted: bool) -> None:
    run = sample_runs.run(shapes={"x": given})
    job = replace(run.job, model=replace(run.job.model, path=str(model(tmp_path, (1, 3)))))

    hints = failure_hints.of(replace(run, job=job, outcome=Outcome("error", "WARMUP", "invalid dimensions", out_of_memory=out_of_memory)))

    said = "open.onnx fixes x=1,3: export it with a dynamic dimension (dynamic_shapes of torch.onnx.export), or open one in this file by "
    assert [text.startswith(said) for text in hints] == [True] * hinted
