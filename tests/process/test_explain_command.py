"""`memprof explain` from its words to what it prints, draws and keeps."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from support import recorder_runs, sample_runs
from support.explanations import MIB

from memprof.base.units import format_bytes
from memprof.programs.runtimes import Knob


def test_explain_tidy_program_without_findings(memprof, scenario, tmp_path: Path, nothing_left) -> None:
    model = scenario(load=[{"allocate": "weights", "bytes": 32 * MIB}], execute=[{"sleep_s": 0.001}])
    done = memprof("explain", model, "-r", "synthetic", "--json", "-o", "why.json", "--plot", "why.png", "--keep-runs", "runs.jsonl")
    assert done.returncode == 0, done.stderr
    explained = json.loads(done.stdout)
    assert explained["findings"] == []
    assert [phase["name"] for phase in explained["phases"]] == ["STARTUP", "MODEL_LOAD", "PREPARE", "WARMUP", "EXECUTE"]
    unplaced = f"copies of weights are not counted, and none of the {format_bytes(Path(model).stat().st_size)} of its files is placed"
    assert unplaced in " ".join(explained["remarks"])
    assert json.loads((tmp_path / "why.json").read_text()) == explained
    assert (tmp_path / "why.png").read_bytes().startswith(b"\x89PNG")
    (run,) = recorder_runs.runs_in(tmp_path / "runs.jsonl")
    assert not run["job"]["hold"]
    for phase in explained["phases"]:
        assert sum(part["bytes"] for part in phase["slices"]) == phase["rss_bytes"]
    again = memprof("explain", model, "-r", "synthetic", "-o", "why.json")
    assert again.returncode == 5
    assert "why.json exists" in recorder_runs.sentence(again)
    text = memprof("explain", "--from", "why.json")
    assert "Nothing was found" in text.stdout
    page = memprof("page", "runs.jsonl", "--explain", "why.json", "-o", "report.html")
    assert page.returncode == 0, page.stderr
    assert "Why the memory is what it is" in (tmp_path / "report.html").read_text()


def test_explain_warns_of_lower_examined_peak(memprof, scenario, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    heights = iter([112, 105])

    def measure(orders, progress, keep, look=None):
        (order,) = orders
        yield replace(sample_runs.run(memory={"STARTUP": (40, 40), "EXECUTE": (100, next(heights))}), job=order.job)

    monkeypatch.setattr("memprof.explain.engine.campaign.measure", measure)
    done = memprof("explain", scenario(), "-r", "synthetic", "--json", "-o", "why.json")

    explained = json.loads(done.stdout)
    assert max(phase["rss_peak_bytes"] for phase in explained["measured"]) == 112 * MIB
    assert explained["looked_peak_bytes"] == 105 * MIB
    said = "the process that was looked at peaked at 105.0 MiB; memory of the plain run beyond it is not explained"
    assert explained["warnings"] == [said]
    assert said in memprof("explain", "--from", "why.json").stdout


TWICE = """
import numpy
from onnx import load, numpy_helper

class Runtime:
    version = "1"
    def load(self, model, options):
        data = open(model, "rb").read()
        graph = load(model).graph
        self.kept = [numpy_helper.to_array(tensor).copy() for tensor in graph.initializer]
        self.turned = [numpy.ascontiguousarray(array.T) for array in self.kept]
    def prepare(self): pass
    def execute(self): pass
"""


def test_explain_weights_held_twice(memprof, tmp_path: Path, nothing_left) -> None:
    onnx = pytest.importorskip("onnx")
    values = np.random.default_rng(0).standard_normal((1000, 2000)).astype("f4")
    graph = onnx.helper.make_graph([], "g", [], [], [onnx.numpy_helper.from_array(values, "w")])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "net.onnx")
    (tmp_path / "mine.py").write_text(TWICE)
    done = memprof("explain", "net.onnx", "-r", "./mine.py", "--json")
    assert done.returncode == 0, done.stderr
    explained = json.loads(done.stdout)
    first = next(finding for finding in explained["findings"] if finding["rule"] == "shared_repacked")
    assert abs(first["bytes"] - values.nbytes) < 16384
    assert explained["phases"][-1]["beyond_one_bytes"] == first["bytes"]
    assert max(phase["slices"][-1]["bytes"] / phase["rss_bytes"] for phase in explained["phases"]) < 0.05


def test_explain_verifies_onnxruntime_shared_weight(memprof, monkeypatch: pytest.MonkeyPatch, nothing_left) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    # What no rule proposes takes a run for each value of each knob, thirty in all; of these one is enough here.
    candidates = Knob.candidates
    monkeypatch.setattr(Knob, "candidates", lambda knob: candidates(knob) if knob.name == "mem_pattern" else ())
    assert memprof("zoo", "shared_if", "--format", "onnx", "--size", "32MiB", "-o", "if.onnx").returncode == 0
    done = memprof(
        "explain", "if.onnx", "-r", "onnxruntime", "--threads", "1", "--warmup", "1", "--runs", "1", "--verify", "--repeats", "1", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert "if.onnx: trying " in done.stderr and " settings once each" in done.stderr
    first = json.loads(done.stdout)["findings"][0]
    assert first["rule"] == "shared_repacked"
    assert abs(first["bytes"] - 64 * MIB) < 2 * MIB
    saved = {}
    for proposal in first["proposals"]:
        if proposal["verified"]:
            before, after = proposal["verified"]["end_bytes"]
            saved[tuple(sorted(proposal["settings"]))] = (before - after) / MIB
    # Of one run each: what the allocator keeps beside the weights comes to some MiB more or less.
    assert 24 < saved[("prepacking",)] < 40
    assert 24 < saved[("constant_folding",)] < 40
    assert 56 < saved[("constant_folding", "prepacking")] < 72


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("explain",), 2, "name a model"),
        (("explain", "gone.onnx"), 2, "name a runtime"),
        (("explain", "gone.onnx", "-r", "synthetic"), 5, "no such file"),
        (("explain", "a.json", "--from", "b.json"), 2, "name a model"),
        (("explain", "--from", "gone.json"), 5, "No such file"),
        (("explain", "ok.json", "-r", "synthetic", "--set", "nonsense=1"), 2, "no knob"),
        (("explain", "ok.json", "-r", "synthetic", "--plot", "x.gif"), 2, "ends in .png"),
        (("explain", "--from", "ok.json"), 5, "is not an explanation"),
        (("explain", "ok.json", "-r", "synthetic", "-o", "no/folder.json"), 5, "no/folder.json cannot be written"),
        (("explain", "ok.json", "-r", "synthetic", "--verify", "--repeats", "0"), 2, "--repeats"),
        (("explain", "ok.json", "-r", "synthetic", "--threads", "0"), 2, "--threads"),
    ],
)
def test_explain_refusals_in_one_sentence(memprof, tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    (tmp_path / "ok.json").write_text("{}")
    done = memprof(*words)
    assert done.returncode == code
    assert said in recorder_runs.sentence(done)


def test_explain_exit_code_of_failed_child(memprof, scenario, nothing_left) -> None:
    done = memprof("explain", scenario(prepare=[{"crash": "SIGSEGV"}]), "-r", "synthetic")
    assert done.returncode == 4
    assert "ended by SIGSEGV in PREPARE" in done.stderr.splitlines()[-1]
    assert done.stderr.count("SIGSEGV") == 1
    assert "Traceback" not in done.stderr


def test_explain_exit_code_of_unreadable_memory(scenario, monkeypatch: pytest.MonkeyPatch, capsys, nothing_left) -> None:
    from memprof.doors import cli
    from memprof.explain import memory_map as look

    def refused(pid: int, name: str) -> int:
        raise look._refused(pid, 1)

    monkeypatch.setattr(look, "_open", refused)
    with pytest.raises(SystemExit) as ended:
        cli.main(["explain", str(scenario()), "-r", "synthetic"])
    assert ended.value.code == 5
    assert "cannot be read: Operation not permitted" in capsys.readouterr().err
