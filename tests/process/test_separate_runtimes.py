"""Runtimes that live in environments apart: torch, executorch and genai. They are too large for the environment of the tests.

A test runs if `memprof runtimes install NAME` was done on this machine, and is skipped otherwise. The nets in tests/data are one net with the same
weights, so that their outputs must agree.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from support import genai_model
from support.exported_models import DATA, interpreter, planned
from support.recorder_runs import NEAR
from support.session_cache import once

import memprof
from memprof.campaign import campaign
from memprof.campaign.outputs import output_error
from memprof.campaign.progress import Silent
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite, Variant

NETS = {"torch": ("net.py", "net.pt2"), "executorch": ("net.pte", "net_xnnpack.pte")}
EXECUTING, GENERATING = ["WARMUP", "EXECUTE"], ["WARMUP", "PROMPT", "GENERATE"]
CASES = [*((name, net) for name, nets in NETS.items() for net in nets), ("genai", "llama")]


def net(name: str) -> Path:
    """The path of a net of tests/data, or the folder of the decoder."""
    if name != "llama":
        return DATA / name
    pytest.importorskip("onnx")
    return once("a decoder for genai", genai_model.make)


@pytest.mark.parametrize(("name", "model"), CASES)
def test_separate_runtime_follows_contract(name, model):
    python = interpreter(name)

    (run,) = memprof.measure([net(model)], variants=[Variant(name, python=python)], warmup=1, runs=2, repeats=1, threads=[1])

    assert run.outcome.ok, run.outcome.sentence
    executing = GENERATING if name == "genai" else EXECUTING
    assert [mark.phase for mark in run.marks] == ["STARTUP", "MODEL_LOAD", "PREPARE", *executing, "RELEASE"]
    assert run.about is not None and run.about.runtime_version[0].isdigit()
    assert all(len(mark.times_ns) == 2 for mark in run.marks if mark.phase in executing[1:])
    for mark in run.marks:
        assert mark.rss_peak_bytes >= mark.rss_end_bytes > 0
        assert mark.hwm_bytes >= mark.rss_end_bytes - NEAR
    if name == "executorch":
        assert {value.value for value in run.values if value.name == "planned_bytes"} == {planned(model)}


def test_runtime_outputs_agree(tmp_path):
    pythons = {name: interpreter(name) for name in NETS}
    files = [outputs(name, pythons[name], DATA / model, tmp_path) for name, models in NETS.items() for model in models]

    assert [output_error(files[0], file) < 1e-3 for file in files] == [True] * 4


def outputs(name: str, python: str, model: Path, folder: Path) -> Path:
    """The outputs of a model as a file, for inputs that are the same in every runtime."""
    target = folder / f"{model.name}.npz"
    suite = Suite(models=(str(model),), runtimes=(name,), python=python, warmup=0, runs=1, repeats=1)
    orders = [replace(order, outputs=str(target)) for order in plan(suite).orders]
    (run,) = campaign.measure(orders, Silent(), lambda line: None)
    assert run.outcome.ok, run.outcome.sentence
    return target
