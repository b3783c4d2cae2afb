"""`memprof explain` from its words to what it prints, draws and keeps."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import failing
import made
import numpy as np
import pytest

from memprof.errors import InputError
from memprof.explain import records, verify
from memprof.explain.records import KEPT, LIBRARIES, ONCE, REST, Explanation, Finding, Held, Measured, Phase, Proposal, Slice, Verified
from memprof.measuring.orders import Plan
from memprof.measuring.suite import Suite, Variant
from memprof.reports.page.explained import page_piece
from memprof.reports.pictures import waterfall
from memprof.units import format_bytes

MIB = 1 << 20


def explanation(**changes: object) -> Explanation:
    slices = (
        Slice(LIBRARIES, 40 * MIB, "how one"),
        Slice(ONCE, 90 * MIB, "how two"),
        Slice(KEPT, 60 * MIB, "how three"),
        Slice(REST, MIB, "how four"),
    )
    phases = (
        Phase("STARTUP", 40 * MIB, slices[:1]),
        Phase("MODEL_LOAD/peak", 220 * MIB, slices, (Held("as stored", "", "private anonymous", 3, 3, 90 * MIB),), 30 * MIB),
        Phase("EXECUTE", 191 * MIB, slices, (Held("transposed", "", "private anonymous", 3, 3, 90 * MIB),), 0),
    )
    done = Verified(5, (2e8, 1e8), (2e8, 1e8), (1e8, 5e7), (2e8, 1e8), (1e6, 2e6), (1e9, 1e9), True)
    finding = Finding(
        "kept",
        "memory that was freed & kept | <b>",
        60 * MIB,
        "EXECUTE",
        ("because of `this`",),
        (Proposal("do that", {"malloc_trim": "on"}, done),),
    )
    facts = {
        "memprof_explain": 1,
        "model": made.job("net.onnx").model,
        "runtime": "onnxruntime",
        "runtime_version": "1.0",
        "knobs": {},
        "threads": 1,
        "machine": "here",
        "measured": (Measured("MODEL_LOAD", 225 * MIB, 150 * MIB, 10), Measured("EXECUTE", 191 * MIB, 191 * MIB, 10, 5)),
        "phases": phases,
        "weight_bytes": 91 * MIB,
        "counted_bytes": 90 * MIB,
        "counted_tensors": 3,
        "not_counted": {"tiny": MIB},
        "tensors": (),
        "findings": (finding,),
    }
    return Explanation(**{**facts, **changes})


def report():
    from memprof.reports.tables import explain

    return explain


# -- the command


def test_a_tidy_program_is_explained_and_nothing_is_found(memprof, scenario, tmp_path: Path, nothing_left) -> None:
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
    (run,) = failing.runs_in(tmp_path / "runs.jsonl")
    assert not run["job"]["hold"]
    for phase in explained["phases"]:
        assert sum(part["bytes"] for part in phase["slices"]) == phase["rss_bytes"]
    again = memprof("explain", model, "-r", "synthetic", "-o", "why.json")
    assert again.returncode == 5
    assert "why.json exists" in failing.sentence(again)
    text = memprof("explain", "--from", "why.json")
    assert "Nothing was found" in text.stdout
    page = memprof("page", "runs.jsonl", "--explain", "why.json", "-o", "report.html")
    assert page.returncode == 0, page.stderr
    assert "Why the memory is what it is" in (tmp_path / "report.html").read_text()


def test_a_process_that_was_looked_at_in_another_mode_is_told(memprof, scenario, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    heights = iter([112, 105])

    def measure(orders, progress, keep, look=None):
        (order,) = orders
        yield replace(made.run(memory={"STARTUP": (40, 40), "EXECUTE": (100, next(heights))}), job=order.job)

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


def test_a_runtime_that_holds_weights_twice_is_named_with_the_right_bytes(memprof, tmp_path: Path, nothing_left) -> None:
    onnx = pytest.importorskip("onnx")
    values = np.random.default_rng(0).standard_normal((2000, 3000)).astype("f4")
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


def test_onnxruntime_s_shared_weight_comes_first_and_the_options_are_verified(memprof, tmp_path: Path, nothing_left) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    assert memprof("zoo", "shared_if", "--format", "onnx", "--size", "32MiB", "-o", "if.onnx").returncode == 0
    done = memprof(
        "explain", "if.onnx", "-r", "onnxruntime", "--threads", "1", "--warmup", "1", "--runs", "1", "--verify", "--repeats", "1", "--json"
    )
    assert done.returncode == 0, done.stderr
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
def test_bad_words_are_one_sentence(memprof, tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    (tmp_path / "ok.json").write_text("{}")
    done = memprof(*words)
    assert done.returncode == code
    assert said in failing.sentence(done)


def test_a_child_that_fails_is_exit_code_4(memprof, scenario, nothing_left) -> None:
    done = memprof("explain", scenario(prepare=[{"crash": "SIGSEGV"}]), "-r", "synthetic")
    assert done.returncode == 4
    assert "ended by SIGSEGV in PREPARE" in done.stderr.splitlines()[-1]
    assert done.stderr.count("SIGSEGV") == 1
    assert "Traceback" not in done.stderr


def test_memory_that_cannot_be_read_is_exit_code_5(scenario, monkeypatch: pytest.MonkeyPatch, capsys, nothing_left) -> None:
    from memprof import cli
    from memprof.explain import look

    def refused(pid: int, name: str) -> int:
        raise look._refused(pid, 1)

    monkeypatch.setattr(look, "_open", refused)
    with pytest.raises(SystemExit) as ended:
        cli.main(["explain", str(scenario()), "-r", "synthetic"])
    assert ended.value.code == 5
    assert "cannot be read: Operation not permitted" in capsys.readouterr().err


def test_an_interrupted_verification_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = explanation().findings
    first, second = Proposal("do that", {"malloc_trim": "on"}), Proposal("or that", {"malloc_mmap_threshold": "64KiB"})
    before = explanation(findings=(replace(finding, proposals=(first, second)),))

    def measure(orders, progress, keep):
        yield from (made.run("as it is"), made.run("malloc_trim=on"))
        raise KeyboardInterrupt

    monkeypatch.setattr(verify, "plan", lambda suite: Plan((None,) * 15, ()))
    monkeypatch.setattr(verify.campaign, "measure", measure)
    progress = failing.Silent()
    verified = verify.verify(before, Suite(), Variant("onnxruntime"), progress, lambda line: None)
    done, left = verified.findings[0].proposals
    assert done.verified is not None
    assert done.verified.repeats == 1
    assert left.verified is None
    assert progress.said == ["interrupted after 2 of 15 runs of --verify"]
    assert verified.remarks[-1:] == tuple(progress.said)
    assert "--set malloc_mmap_threshold=64KiB: or that" in report().render(verified)


def test_a_proposal_that_raises_the_peak_is_not_first_and_latencies_have_their_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = explanation().findings
    wanted = ({"arena": "off"}, {"prepacking": "off"}, {"threads": "2"})
    before = explanation(findings=(replace(finding, proposals=tuple(Proposal("do that", setting) for setting in wanted)),))
    peaks = {"as it is": 100, "arena=off": 120, "prepacking=off": 60, "threads=2": 80}
    planned = []

    def plan(suite):
        planned.append(suite.variants)
        return Plan((), ())

    def measure(orders, progress, keep):
        for repeat in range(5):
            for name, peak in peaks.items():
                run = made.run(name, repeat, memory={"STARTUP": (40, 40), "PREPARE": (peak, peak), "EXECUTE": (peak, peak)})
                execute = replace(run.marks[-1], times_ns=((10 + repeat) * 1_000_000,) * 3)
                yield replace(run, marks=(*run.marks[:-1], execute))

    monkeypatch.setattr(verify, "plan", plan)
    monkeypatch.setattr(verify.campaign, "measure", measure)
    verified = verify.verify(before, Suite(), Variant("onnxruntime", threads=(1,)), failing.Silent(), lambda line: None)
    proposals = verified.findings[0].proposals
    assert [dict(proposal.settings) for proposal in proposals] == [{"prepacking": "off"}, {"threads": "2"}, {"arena": "off"}]
    assert [variant.threads for variant in planned[-1]] == [(1,), (1,), (1,), (2,)]
    assert proposals[0].verified.iteration_spread_ns == (2_000_000, 2_000_000)
    text = report().render(verified)
    assert "an iteration 12 ms ± 2 ms -> 12 ms ± 2 ms (+0%)" in text
    assert "it raises PEAK by 20.0 MiB" in text
    assert "> --threads 2: do that" in text


# -- the file


def test_an_explanation_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "why.json"
    path.write_bytes(records.encode(explanation()))
    assert records.load(path) == explanation()


def test_a_file_of_a_newer_memprof_or_a_torn_one_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "why.json"
    whole = records.encode(replace(explanation(), memprof_explain=99))
    for data, said in (
        (whole, "newer memprof"),
        (whole[:200], "is not an explanation"),
        (b'{"memprof_explain": 1}', "missing"),
        (b"\xff", "is no"),
    ):
        path.write_bytes(data)
        with pytest.raises(InputError, match=said):
            records.load(path)


# -- what is shown


def test_text_and_markdown_say_what_was_found() -> None:
    for form in ("text", "markdown"):
        text = report().render(explanation(), form)
        for wanted in (
            "net.onnx in onnxruntime 1.0",
            "60.0 MiB",
            "malloc_trim=on",
            "it saves 95.4 MiB of PEAK",
            "+100%",
            "how three",
            "98.9%",
        ):
            assert wanted in text, (form, wanted)
        assert "because of `this`" in text.replace("\\`", "`")
        assert ("freed & kept | <b>" in text) == (form == "text"), "only Markdown is escaped"
    assert "PEAK 225.0 MiB" in report().render(explanation())


def test_warnings_and_shapes_are_said_before_the_findings() -> None:
    doubtful = explanation(warnings=("15.8% is not explained",), shapes={"x": (1, 3, 48, 192), "y": (2,)}, assumed={"x": (1, 3, 48, 192)})
    for form in ("text", "markdown"):
        head = report().render(doubtful, form).partition("60.0 MiB")[0]
        assert "warning: 15.8% is not explained" in head
        assert "x 1x3x48x192 (open dimensions taken as 1: --shape), y 2" in head
    assert "warning: 15.8% is not explained" in page_piece(doubtful)
    assert any("warning: 15.8% is not explained" in text.get_text() for text in waterfall.draw(doubtful).texts)


def test_a_proposal_that_failed_or_saved_nothing_says_so() -> None:
    finding = explanation().findings[0]
    for done, said in (
        (Verified(1, error="ended by SIGSEGV in PREPARE"), "it does not run: ended by SIGSEGV"),
        (Verified(5, (1e8, 1e8), (1e8, 1e8)), "it saves nothing"),
        (Verified(2, (2e8, 1e8), (2e8, 1e8)), "too few runs to tell"),
    ):
        proposals = (replace(finding.proposals[0], verified=done),)
        assert said in report().render(explanation(findings=(replace(finding, proposals=proposals),)))


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_picture_is_drawn(tmp_path: Path, ending: str) -> None:
    from memprof.reports.pictures import saving

    saving.save(waterfall.draw(explanation()), tmp_path / f"why.{ending}")
    assert (tmp_path / f"why.{ending}").stat().st_size > 1000


@pytest.mark.parametrize("peak", [191, 200, 215, 225, 400])
def test_a_bars_total_has_room_beside_the_bar(peak: int) -> None:
    """The total of a bar whose peak is near the picture's edge is the widest, and once lay over the bar."""
    figure = waterfall.draw(explanation(measured=(Measured("EXECUTE", peak * MIB, 191 * MIB, 10, 5),)))
    figure.canvas.draw()
    (axes,) = figure.axes
    bars = [patch.get_window_extent() for patch in axes.patches]
    totals = [text.get_window_extent() for text in axes.texts if text.get_weight() == "bold"]
    assert len(totals) == 3
    for total in totals:
        assert not any(total.overlaps(bar) for bar in bars)
        assert total.x1 <= axes.get_window_extent().x1


def test_without_a_look_there_is_nothing_to_draw_but_text() -> None:
    empty = explanation(phases=(), findings=(), measured=())
    assert "Nothing was found" in report().render(empty)
    with pytest.raises(InputError, match="never looked at"):
        waterfall.draw(empty)


def test_the_piece_of_the_page_is_escaped() -> None:
    piece = page_piece(explanation())
    assert "<b>:" not in piece
    assert "&lt;b&gt;" in piece
    assert 'class="waterfall"' in piece


def test_help_needs_neither_numpy_nor_matplotlib() -> None:
    import subprocess

    code = (
        "import sys\nfrom memprof.cli import group\n"
        "try: group(['explain', '--help'])\nexcept SystemExit: pass\n"
        "assert not {'numpy', 'matplotlib', 'pandas'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "memprof explain model.onnx -r onnxruntime" in done.stdout
