"""`memprof explain` from its words to what it prints, draws and keeps."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from support import recorder_runs, sample_runs
from support.explanations import MIB, explanation

from memprof.base.errors import InputError
from memprof.explain import records, verify
from memprof.explain.records import Advice, PhaseFigures, PhaseLook, Verified
from memprof.programs.runtimes import Knob, Runtime
from memprof.records.types import Outcome
from memprof.reports import page
from memprof.reports.pictures import waterfall
from memprof.subjects.orders import Plan
from memprof.subjects.suite import Suite, Variant


def report():
    from memprof.reports.tables import explain

    return explain


@pytest.mark.parametrize(
    ("looked", "sentence"),
    [
        (210, "Nothing was found that makes it larger than it must be."),
        (190, "The looks saw at most 190.0 MiB of 225.0 MiB: what the rest consists of is not known."),
        (0, "The looks saw at most 0 B of 225.0 MiB: what the rest consists of is not known."),
    ],
)
@pytest.mark.parametrize("form", ["text", "markdown"])
def test_no_findings_said_of_what_was_looked_at(looked: int, sentence: str, form: str) -> None:
    """Where the looks came too late, that they found nothing says little."""
    look = PhaseLook("EXECUTE", looked * MIB, (), beyond_one_bytes=0)
    found = explanation(findings=(), phases=(look,) if looked else ())
    assert [line for line in report().render(found, form).split("\n") if "Nothing was found" in line or "The looks" in line] == [sentence]


def test_no_findings_without_look_for_copies() -> None:
    """Where no model was named, copies of weights may stand in the peak that no rule saw."""
    found = explanation(findings=(), phases=(PhaseLook("EXECUTE", 225 * MIB, ()),))
    unnamed = replace(found, model=replace(found.model, files=()))
    sentence = "Nothing was found, but memprof did not look for copies of weights, which may make it larger than it must be"
    for made, cause in ((unnamed, "name the model before --."), (found, "a note has the cause.")):
        text = report().render(made)
        assert f"{sentence}: {cause}" in text
        assert "Nothing was found that makes it larger" not in text


def test_report_has_what_issue_needs() -> None:
    from memprof.reports.tables import explain_report

    found = explanation(libc="glibc 2.36", machine_words="Cortex, 4 CPUs, aarch64, Linux 6.1", packages={"onnxruntime": "1.0"})
    text = explain_report.render(found, "memprof explain net.onnx -r onnxruntime", "to send.png")
    wanted = (
        "# onnxruntime 1.0: memory that was freed & kept",
        "PEAK 225.0 MiB, in MODEL_LOAD",
        "(to%20send.png)",
        "| slice ",
        "--set malloc_trim=on",
    )
    assert all(words in text for words in wanted), text
    assert "```sh\nmemprof explain net.onnx -r onnxruntime\n```" in text and "To be attached: to send.png, the picture; and" in text
    model = found.model
    versions = (
        f"SHA-256 {model.sha256}",
        "runtime: onnxruntime 1.0",
        "C library: glibc 2.36",
        "machine: Cortex",
        "packages: onnxruntime 1.0",
    )
    assert all(words in text for words in versions), text
    assert "How each slice was found" not in text and "how one" not in text and "explain.md" in text
    with pytest.raises(InputError, match="nothing to report"):
        explain_report.render(explanation(phases=()), "memprof explain", "p.png")


@pytest.fixture
def rules_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what rules propose is verified: no other value of a knob is tried."""
    monkeypatch.setattr(verify, "_screened", lambda explanation, *others: (explanation, [], True))


@pytest.mark.usefixtures("rules_alone")
def test_verification_interrupted_keeps_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = explanation().findings
    first, second = Advice("do that", {"malloc_trim": "on"}), Advice("or that", {"malloc_mmap_threshold": "64KiB"})
    before = explanation(findings=(replace(finding, proposals=(first, second)),))

    def measure(orders, progress, keep):
        yield from (sample_runs.run("as it is"), sample_runs.run("malloc_trim=on"))
        raise KeyboardInterrupt

    monkeypatch.setattr(verify, "plan", lambda suite: Plan((SimpleNamespace(runtime=Runtime("mine")),) * 15, ()))
    monkeypatch.setattr(verify.campaign, "measure", measure)
    progress = recorder_runs.Silent()
    verified = verify.verify(before, Suite(), Variant("onnxruntime"), progress, lambda line: None)
    left, done = verified.findings[0].proposals  # what was measured to save nothing comes last
    assert done.verified is not None
    assert done.verified.repeats == 1
    assert left.verified is None
    assert progress.said == ["interrupted after 2 of 15 runs of --verify"]
    assert verified.remarks[-1:] == tuple(progress.said)
    assert "--set malloc_mmap_threshold=64KiB: or that" in report().render(verified)


def test_proposals_ranked_with_latency_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = explanation().findings
    wanted = ({"arena": "off"}, {"prepacking": "off"}, {"threads": "2"})
    before = explanation(findings=(replace(finding, proposals=tuple(Advice("do that", setting) for setting in wanted)),))
    peaks = {"as it is": 100, "arena=off": 120, "prepacking=off": 60, "threads=2": 80, "prepacking=off + threads=2": 50}
    planned = []

    def plan(suite):
        planned.append(suite.variants)
        return Plan((SimpleNamespace(runtime=Runtime("mine")),), ())

    def measure(orders, progress, keep):
        for repeat in range(5):
            for name in [variant.name for variant in planned[-1]]:
                peak = peaks[name]
                run = sample_runs.run(name, repeat, memory={"STARTUP": (40, 40), "PREPARE": (peak, peak), "EXECUTE": (peak - 10, peak)})
                execute = replace(run.marks[-1], times_ns=((10 + repeat) * 1_000_000,) * 3)
                yield replace(run, marks=(*run.marks[:-1], execute))

    monkeypatch.setattr(verify, "plan", plan)
    monkeypatch.setattr(verify.campaign, "measure", measure)
    verified = verify.verify(before, Suite(), Variant("onnxruntime", threads=(1,)), recorder_runs.Silent(), lambda line: None)
    proposals = verified.findings[0].proposals
    assert [dict(proposal.settings) for proposal in proposals] == [
        {"prepacking": "off", "threads": "2"},
        {"prepacking": "off"},
        {"threads": "2"},
        {"arena": "off"},
    ]
    screened, together = [(1,), (1,), (1,), (2,)], [(1,), (1,), (1,), (2,), (2,)]
    assert [[variant.threads for variant in planned[place]] for place in (4, -1)] == [screened, together]
    assert {each.verified.peaks_bytes[0] for each in proposals} == {(100 * MIB,) * 5}, "one session, and one base"
    assert proposals[0].verified.iteration_spread_ns == (2_000_000, 2_000_000)
    assert proposals[0].verified.end_bytes == (90 * MIB, 40 * MIB)
    text = report().render(verified)
    assert "an iteration 12 ms ± 2 ms -> 12 ms ± 2 ms (the same time within noise)" in text
    assert "it raises PEAK by 20.0 MiB" in text
    assert "> --threads 2: do that" in text


def test_values_that_no_rule_proposes_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that saves PEAK stands before what rules propose, whatever they know of it."""
    (finding,) = explanation().findings
    before = explanation(findings=(replace(finding, proposals=(Advice("do that", {"trim": "on"}),)),))
    knobs = [Knob(name, ("on", "off", "half"), "on", "load", f"about {name}") for name in ("prepacking", "pattern", "given")]
    knobs += [Knob("trim", ("on", "off"), "off", "load", ""), Knob("shrink", ("on", "off"), "off", "load", "")]
    peaks = {
        "pattern=half": 99.9,
        "prepacking=off": 70,
        "prepacking=half": 72,
        "pattern=off": 90,
        "trim=on": 100,
        "prepacking=off + pattern=off": 60,
    }
    planned: list[tuple[Suite, list[str]]] = []

    def plan(suite: Suite) -> Plan:
        planned.append((suite, [variant.name for variant in suite.variants]))
        order = SimpleNamespace(runtime=Runtime("mine", knobs=tuple(knobs)))
        return Plan((order,) * len(suite.variants) * (suite.repeats or 1), ())  # type: ignore[arg-type]

    def measure(orders, progress, keep):
        suite, names = planned[-1]
        for repeat in range(suite.repeats or 1):
            for name in names:
                # shrink=on needs little in the first iteration, and 10 MiB more in each later one.
                peak = 80 + 10 * (suite.runs or 0) if name == "shrink=on" else peaks.get(name, 100)
                yield sample_runs.run(name, repeat, memory={"STARTUP": (40, 40), "PREPARE": (peak, peak), "EXECUTE": (peak, peak)})

    monkeypatch.setattr(verify, "plan", plan)
    monkeypatch.setattr(verify.campaign, "measure", measure)
    progress = recorder_runs.Silent()
    verified = verify.verify(before, Suite(repeats=5, warmup=2, runs=6), Variant("mine", set={"given": "off"}), progress, lambda line: None)

    assert progress.said == ["net.onnx: trying 6 settings once each"]
    assert next((suite.repeats, suite.warmup, suite.runs) for suite, _ in planned if len(suite.variants) == 7) == (1, 2, 6)
    assert [suite.repeats for suite, names in planned if len(names) > 1] == [1, 5]
    assert [dict(proposal.settings) for proposal in verified.ranked] == [
        {"prepacking": "off", "pattern": "off"},
        {"prepacking": "off"},
        {"pattern": "off"},
        {"trim": "on"},
    ]
    assert verified.findings[-1].title == "other settings save PEAK" and verified.findings[-1].bytes == 40 * MIB, "as measured, of the best"
    assert "2. other settings save PEAK: --set prepacking=off --set pattern=off saves 40.0 MiB of PEAK\n" in report().render(verified)
    assert "> --set prepacking=off: no rule proposes it (about prepacking)" in report().render(verified)


def measured_by(monkeypatch: pytest.MonkeyPatch, knobs: Sequence[Knob], peak_of: Callable[[str], float]) -> None:
    """A runtime with these knobs, whose runs have the PEAK (MiB) of their variant's name."""
    planned: list[Suite] = []

    def plan(suite: Suite) -> Plan:
        planned.append(suite)
        order = SimpleNamespace(runtime=Runtime("mine", knobs=tuple(knobs)))
        return Plan((order,) * len(suite.variants) * (suite.repeats or 1), ())  # type: ignore[arg-type]

    def measure(orders, progress, keep):
        for repeat in range(planned[-1].repeats or 1):
            for variant in planned[-1].variants:
                peak = peak_of(variant.name or "")
                yield sample_runs.run(variant.name or "", repeat, memory={"STARTUP": (20, 20), "EXECUTE": (peak, peak)})

    monkeypatch.setattr(verify, "plan", plan)
    monkeypatch.setattr(verify.campaign, "measure", measure)


@pytest.mark.parametrize(("needs", "pairs"), [({}, 10), ({"b": "on"}, 9)])
def test_pairs_of_all_that_saves_are_tried(monkeypatch: pytest.MonkeyPatch, needs: dict[str, str], pairs: int) -> None:
    """The best pair may hold a knob that saves less by itself than the three that are proposed. The best single setting is third. needs: of the
    knob e, which acts only beside these values."""
    saved = {"a": 30, "b": 28, "c": 26, "d": 24, "e": 1}
    knobs = [Knob(name, ("on", "off"), "on", "load", "", needs=needs if name == "e" else {}) for name in saved]

    def peak_of(variant: str) -> float:
        """Two together save as much as the better one, but for two pairs."""
        together = sorted(name for name in saved if f"{name}=off" in variant)
        return 100 - {("c", "d"): 60, ("a", "d"): 50}.get(tuple(together), max(map(saved.__getitem__, together), default=0))

    measured_by(monkeypatch, knobs, peak_of)
    progress = recorder_runs.Silent()
    verified = verify.verify(explanation(findings=()), Suite(repeats=5), Variant("mine"), progress, lambda line: None)

    assert progress.said[1:] == [f"net.onnx: trying {pairs} pairs of settings once each"]
    assert ["".join(proposal.settings) for proposal in verified.ranked] == ["cd", "ad", "a", "b", "c"]


def test_other_runtime_is_paired_with_the_best_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best of all was the native runtime with both knobs, which alone and in pairs save less."""
    saved = {"a": 30, "b": 28, "runtime": 25}
    knobs = [Knob(name, ("on", "off"), "on", "load", "") for name in ("a", "b")]
    measured_by(monkeypatch, knobs, lambda variant: 120 - sum(size for name, size in saved.items() if f"{name}=" in variant))
    monkeypatch.setattr(verify, "described", lambda name: Runtime(name, knobs=tuple(knobs)))
    (finding,) = explanation().findings
    native = replace(finding, proposals=(Advice("no interpreter", {records.RUNTIME: "mine-native"}),))
    verified = verify.verify(explanation(findings=(native,)), Suite(repeats=5), Variant("mine"), recorder_runs.Silent(), lambda line: None)

    best = next(proposal for proposal in verified.ranked if records.RUNTIME in proposal.settings)
    assert set(best.settings) == {"runtime", "a", "b"} and best.text.startswith("together: ")


def test_rise_with_iterations_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """PEAK of few iterations says little of a setting that needs more in each: the report says so beside what it saves."""
    (finding,) = explanation().findings
    before = explanation(findings=(replace(finding, proposals=(Advice("do that", {"trim": "on"}),)),))
    order = SimpleNamespace(runtime=Runtime("mine"))  # which has no knob, so that only what rules propose is measured
    monkeypatch.setattr(verify, "plan", lambda suite: Plan((order,) * 10, ()))  # type: ignore[arg-type]
    rising = {"WARMUP": (50, 50), "EXECUTE": (90, 90)}

    def measure(orders, progress, keep):
        for repeat in range(5):
            yield sample_runs.run("as it is", repeat)
            yield sample_runs.run("trim=on", repeat, memory=rising)

    monkeypatch.setattr(verify.campaign, "measure", measure)
    verified = verify.verify(before, Suite(), Variant("mine"), recorder_runs.Silent(), lambda line: None)
    said = "EXECUTE peaks 40.0 MiB above WARMUP: a single step or growth, which more iterations (--runs) or memprof grow tell apart"
    assert said in report().render(verified)


def test_values_without_effect_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """--verify of an .mnn file tried ten values, and the answer had neither a proposal nor a word of them."""
    knobs = [Knob("prepacking", ("on", "off"), "on", "load", ""), Knob("placed", ("embedded", "separate"), "embedded", "build", "")]
    order = SimpleNamespace(runtime=Runtime("mnn", knobs=tuple(knobs)))

    def measure(orders, progress, keep):
        failed = Outcome("refused", "MODEL_LOAD", message="it is not converted")
        yield from (sample_runs.run("as it is"), sample_runs.run("prepacking=off"), sample_runs.run("placed=separate", outcome=failed))

    monkeypatch.setattr(verify, "plan", lambda suite: Plan((order,) * len(suite.variants), ()))  # type: ignore[arg-type]
    monkeypatch.setattr(verify.campaign, "measure", measure)
    found = verify.verify(explanation(findings=()), Suite(), Variant("mnn"), recorder_runs.Silent(), lambda line: None)
    assert not found.findings
    assert found.remarks[-1].startswith("--verify tried 1 other value of knobs once each: none saves more than ")
    assert "; placed=separate cannot run: " in found.remarks[-1] and "it is not converted" in found.remarks[-1]


def measured(change: float, at_end: float = 0, error: str | None = None) -> Verified:
    return Verified(
        5, (100 * MIB, (100 + change) * MIB), (90 * MIB, (90 + at_end) * MIB), error=error, peak_raised=change > 1, beyond_noise=True
    )


def test_ranking_has_helpful_before_others() -> None:
    effects = {
        "a": measured(0.2),
        "b": measured(44.9, at_end=-50),
        "c": measured(-14.8),
        "d": measured(0, error="in BUILD: refused"),
        "e": measured(-0.3, at_end=-13),
        "f": measured(-36.7),
        "g": measured(-14.9, at_end=8),
        "runtime": measured(-40),  # another program
    }
    (finding,) = explanation().findings
    advice = [Advice("do that", {name: "off"}, effect) for name, effect in effects.items()]
    twice = replace(finding, proposals=(advice[2], Advice("in words")))
    ranked = replace(explanation(findings=(replace(finding, proposals=tuple(advice)), twice)), peak_bound_bytes=MIB // 2).ranked

    assert " ".join(name for proposal in ranked for name in proposal.settings) == "f g c runtime e a b d"


def test_unmeasured_proposals_say_so() -> None:
    (finding,) = explanation().findings
    plain = explanation(findings=(replace(finding, proposals=(Advice("do that", {"arena": "off"}),)),))
    done = replace(plain, findings=(replace(finding, proposals=(Advice("do that", {"arena": "off"}, measured(-20)),)),))

    for form in ("text", "markdown"):
        assert report().NOT_MEASURED in report().render(plain, form)
        assert report().NOT_MEASURED not in report().render(done, form)
        assert "1. --set arena=off: it saves 20.0 MiB of PEAK" in report().render(done, form)


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_proposal_has_words_of_program(form: str) -> None:
    (finding,) = explanation().findings
    refused = replace(measured(0), error="refused")
    advice = (Advice("do", {"a": "off"}, calls=("a()", "b()")), Advice("do", {"c": "off"}, refused, ("c()",)), Advice("shrink the model"))
    text = report().render(explanation(findings=(replace(finding, proposals=advice),)), form)

    assert [line.strip(" -") for line in text.splitlines() if "in a program: " in line] == ["in a program: a(); b()"]


TWO_MODES = tuple(round(mib * MIB) for mib in (77.6, 77.6, 77.6, 85.5, 85.5))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((100 * MIB,) * 5, (80 * MIB,) * 5, ("it saves 20.0 MiB of PEAK and ", "PEAK 100.0 MiB ± 0 B -> 80.0 MiB ± 0 B")),
        (
            (100 * MIB,) * 5,
            tuple(mib * MIB for mib in (78, 79, 80, 80, 80)),
            ("it saves 20.0 MiB of PEAK (20.0 MiB to 22.0 MiB)", "-> 80.0 MiB ± 2.0 MiB"),
        ),
        (
            TWO_MODES,
            (76 * MIB,) * 5,
            (
                "it saves 1.6 MiB of PEAK (1.6 MiB to 9.5 MiB)",
                "PEAK 77.6 MiB or 85.5 MiB -> 76.0 MiB ± 0 B",
                "warning: PEAK of the settings as they are has 2 modes, 77.6 MiB in 3 runs and 85.5 MiB in 2: a saving is of one of them",
            ),
        ),
        ((100 * MIB,) * 2, (80 * MIB,) * 2, ("it saves 20.0 MiB of PEAK and ",)),
    ],
    ids=["alike", "noise", "modes", "too few"],
)
def test_savings_have_intervals_and_modes(before: tuple[int, ...], after: tuple[int, ...], said: tuple[str, ...]) -> None:
    middles = before[len(before) // 2], after[len(after) // 2]
    done = replace(measured(0, at_end=-20), peak_bytes=middles, peaks_bytes=(before, after))
    text = report().render(of_proposals(a=done))

    assert not [words for words in said if words not in text], text
    assert ("modes" in text) == (before is TWO_MODES)


def priced(times: float, verdict: str = "more", saves: int = 30) -> Verified:
    return replace(measured(-saves), iteration_ns=(1e7, times * 1e7), iteration_verdict=verdict)


def of_proposals(**proposals: Verified) -> records.Explanation:
    (finding,) = explanation().findings
    advice = tuple(Advice("do that", {name: "off"}, effect, calls=(f"{name}()",)) for name, effect in proposals.items())
    return explanation(findings=(replace(finding, proposals=advice),))


@pytest.mark.parametrize(
    ("proposals", "best", "said"),
    [
        (
            {"a": priced(18.8), "b": priced(1.04, saves=20)},
            "b",
            "`b()`. Measured, the best of those whose cost in time is little or within noise: it saves 20.0 MiB of PEAK;"
            " an iteration takes 4% more time.",
        ),
        (
            {"a": priced(1.6, "noise"), "b": priced(0.9, saves=20)},
            "a",
            "`a()`. Measured: it saves 30.0 MiB of PEAK; an iteration takes 60% more time by the medians, which is within noise.",
        ),
        (
            {"a": priced(16), "b": priced(4.2, "noise", saves=20)},
            "a",
            "`a()`. Measured: it saves 30.0 MiB of PEAK; an iteration takes 16 times as long.",
        ),
        ({"a": priced(18.8), "b": priced(9, saves=20)}, "a", "Measured: it saves 30.0 MiB of PEAK; an iteration takes 19 times as long."),
        (
            {"runtime": priced(0.8, saves=90), "a": priced(18.8)},
            "a",
            "Measured: it saves 30.0 MiB of PEAK; an iteration takes 19 times as long.",
        ),
        ({"runtime": priced(0.8, "less", saves=90)}, "runtime", "it saves 90.0 MiB of PEAK; an iteration takes 20% less time."),
        (
            {"a": replace(measured(-30), prepared_ns=(1e8, 3e8), prepared_verdict="more"), "b": measured(-20)},
            "b",
            "Measured, the best of those whose cost in time is little or within noise: it saves 20.0 MiB of PEAK.",
        ),
    ],
)
def test_recommendation_weighs_time(proposals: dict[str, Verified], best: str, said: str) -> None:
    """The least PEAK at twenty times the time is what few want: the price stands beside it, and a cheaper setting goes before it."""
    found = of_proposals(**proposals)
    assert found.best is not None and list(found.best.settings) == [best]
    assert said in report().render(found, "markdown")


def shown_in_all_views(found: records.Explanation) -> list[str]:
    """The explanation as text, as Markdown, on the page, in the picture and in the report for maintainers, without marks and line ends."""
    from memprof.reports.tables import explain_report

    views = [report().render(found), report().render(found, "markdown"), page.render([sample_runs.run()], explanations=[found])]
    views.append(" ".join(text.get_text() for text in waterfall.draw(found).texts))
    views.append(explain_report.render(found, "memprof explain", "p.png"))
    return [" ".join(re.sub(r"<[^>]*>|[*\\\\]", "", view).split()) for view in views]


@pytest.mark.parametrize(
    ("proposals", "figure", "found"),
    [
        ({"b": measured(-12, at_end=-13.7), "a": measured(-13.6)}, "--set a=off saves 13.6 MiB of PEAK", True),
        ({"a": replace(measured(-13.6), beyond_noise=False)}, "--set a=off saves 13.6 MiB of PEAK (not beyond noise", True),
        ({"a": measured(-0.3, at_end=-13.7), "b": measured(0, error="refused")}, "60.0 MiB at the end of EXECUTE", False),
        ({}, "60.0 MiB at the end of EXECUTE", False),
    ],
    ids=["best", "noise", "none", "not measured"],
)
def test_title_has_best_measured_saving(proposals: dict[str, Verified], figure: str, found: bool) -> None:
    """The figure beside a finding's title is one of the list below it. What was found stands below it then."""
    (finding,) = explanation().findings
    advice = tuple(Advice("do that", {name: "off"}, effect) for name, effect in proposals.items()) or (Advice("do that", {"a": "off"}),)
    kept = replace(finding, title="memory that was kept", proposals=advice)
    made = explanation(findings=(kept, replace(kept, title="a second")), peak_bound_bytes=MIB // 2)

    for view in shown_in_all_views(made):
        assert f"emory that was kept: {figure}" in view, view
    for view in shown_in_all_views(made)[:4]:
        assert f"a second: {figure}" in view, view
    assert [view.count("found: 60.0 MiB at the end of EXECUTE") for view in shown_in_all_views(made)[:3]] == [2 * found] * 3


def test_other_settings_are_told_as_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """What saved PEAK in a single run, and not when it was measured again, saves nothing; nor is its figure of a phase's end."""
    planned: list[Suite] = []

    def plan(suite: Suite) -> Plan:
        planned.append(suite)
        order = SimpleNamespace(runtime=Runtime("mine", knobs=(Knob("a", ("on", "off"), "on", "load", ""),)))
        return Plan((order,) * len(suite.variants) * (suite.repeats or 1), ())  # type: ignore[arg-type]

    def measure(orders, progress, keep):
        for repeat in range(planned[-1].repeats or 1):
            for variant in planned[-1].variants:
                peak = 80 if variant.name == "a=off" and planned[-1].repeats == 1 else 100
                yield sample_runs.run(variant.name or "", repeat, memory={"STARTUP": (20, 20), "EXECUTE": (peak, peak)})

    monkeypatch.setattr(verify, "plan", plan)
    monkeypatch.setattr(verify.campaign, "measure", measure)
    verified = verify.verify(explanation(findings=()), Suite(repeats=5), Variant("mine"), recorder_runs.Silent(), lambda line: None)

    text = report().render(verified)
    assert "1. other settings, which saved PEAK in a single run only: 20.0 MiB near MODEL_LOAD's peak\n" in text
    assert "> --set a=off: no rule proposes it" in text and "it saves nothing" in text


@pytest.mark.parametrize(("saved_kib", "saves"), [(700, True), (400, False)])
def test_saving_by_one_rule(saved_kib: int, saves: bool) -> None:
    """What ranks as a saving is called one, and no setting is advised that saves nothing."""
    peaks = (int(56.9 * MIB), int(56.9 * MIB) - (saved_kib << 10))
    done = replace(measured(0), peak_bytes=peaks, end_bytes=peaks, peaks_bytes=((peaks[0],) * 5, (peaks[1],) * 5))
    found = replace(of_proposals(a=done), peak_bound_bytes=512 << 10)
    text = report().render(found)
    assert (found.best is not None) == saves
    assert text.count("it saves nothing") == (0 if saves else 2)
    assert text.count("it saves 700.0 KiB of PEAK and 700.0 KiB at the end") == (3 if saves else 0)
    assert ("In your program" in text) == saves


def test_ranking_has_prices_and_its_order() -> None:
    own = of_proposals(a=priced(18.8), b=priced(1.04, "too few", saves=20), c=measured(0, error="refused"))
    both = of_proposals(runtime=priced(0.8, "less", saves=90), a=priced(18.8))

    lines = report().render(own).splitlines()
    place = lines.index("Proposals as measured, what saves the most PEAK first")
    assert lines[place + 1 : place + 4] == [
        "   1. --set a=off: it saves 30.0 MiB of PEAK; an iteration takes 19 times as long",
        "   2. --set b=off: it saves 20.0 MiB of PEAK; an iteration takes 4% more time, with too few repeats to tell it from noise",
        "   3. --set c=off: it does not run",
    ]
    for form in ("text", "markdown"):
        assert "first; another runtime stands behind all settings that save PEAK" in report().render(both, form)


@pytest.mark.parametrize(("warmup", "runs", "said"), [(2, 5, ", with 2 warm-ups and 5 timed iterations"), (None, None, "")])
def test_report_counts_iterations(warmup: int | None, runs: int | None, said: str) -> None:
    assert f"PEAK 225.0 MiB, in MODEL_LOAD{said}; the model has" in report().render(explanation(warmup=warmup, runs=runs))


def test_explanation_file_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "why.json"
    path.write_bytes(records.encode(explanation()))
    assert records.load(path) == explanation()


def test_explanation_newer_or_torn_refused(tmp_path: Path) -> None:
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


def test_report_text_and_markdown() -> None:
    for form in ("text", "markdown"):
        text = report().render(explanation(), form)
        for wanted in (
            "net.onnx in onnxruntime 1.0",
            "60.0 MiB",
            "malloc_trim=on",
            "it saves 95.4 MiB of PEAK",
            "2.0 times as long",
            "how three",
            "98.9%",
            "the look near MODEL_LOAD's peak was taken at 220.0 MiB, 5.0 MiB below that peak",
        ):
            assert wanted in text, (form, wanted)
        assert "because of `this`" in text.replace("\\`", "`")
        assert ("freed & kept | <b>" in text) == (form == "text"), "only Markdown is escaped"
    assert "PEAK 225.0 MiB" in report().render(explanation())


def test_table_says_look_was_at_end() -> None:
    """A look at the end of a phase that had held much more says nothing of what the phase held before."""
    made = explanation()
    load = PhaseLook("MODEL_LOAD", 150 * MIB, made.phases[1].slices, (), 0)
    missed = replace(made, phases=(made.phases[0], load, made.phases[2]))
    seen = replace(made, phases=(*made.phases[:2], load, made.phases[2]))
    near = replace(made, phases=(made.phases[1],))

    heads, with_peak, _ = (report().render(each).splitlines() for each in (missed, seen, near))

    assert any("| MODEL_LOAD end | EXECUTE |" in line for line in heads)
    assert any("| MODEL_LOAD peak | MODEL_LOAD end | EXECUTE |" in line for line in with_peak)
    assert "the phase's peak above its end" in report().render(missed)
    assert "above its end" not in report().render(near), "no look was at an end"


def test_picture_and_page_name_looks_as_table() -> None:
    made = explanation()
    end = PhaseLook("MODEL_LOAD", 120 * MIB, made.phases[1].slices, (), 0)
    both = replace(made, phases=(made.phases[1], end), measured=(PhaseFigures("MODEL_LOAD", 222 * MIB, 120 * MIB, 10),))

    (axes,) = waterfall.draw(both).axes
    text = page.render([sample_runs.run()], explanations=[both])

    assert [label.get_text() for label in axes.get_yticklabels()] == ["MODEL_LOAD peak", "MODEL_LOAD end"]
    assert "<span>MODEL_LOAD peak</span>" in text and "<span>MODEL_LOAD end</span>" in text
    assert not any("(peak" in label.get_text() for label in axes.texts), "the bar above it has the peak"
    (axes,) = waterfall.draw(replace(both, phases=(end,))).axes
    assert any("(peak 222" in label.get_text() for label in axes.texts)


def test_report_warnings_and_shapes_first() -> None:
    doubtful = explanation(warnings=("15.8% is not explained",), shapes={"x": (1, 3, 48, 192), "y": (2,)}, assumed={"x": (1, 3, 48, 192)})
    for form in ("text", "markdown"):
        head = report().render(doubtful, form).partition("60.0 MiB")[0]
        assert "warning: 15.8% is not explained" in head
        assert "x=1x3x48x192 (open dimensions taken as 1: --shape), y=2" in head
    assert "warning: 15.8% is not explained" in page.render([sample_runs.run()], explanations=[doubtful])
    assert any("warning: 15.8% is not explained" in text.get_text() for text in waterfall.draw(doubtful).texts)


def test_report_failed_or_useless_proposal() -> None:
    finding = explanation().findings[0]
    for done, said in (
        (Verified(1, error="ended by SIGSEGV in PREPARE"), "it does not run: ended by SIGSEGV"),
        (Verified(5, (1e8, 1e8), (1e8, 1e8)), "it saves nothing"),
        (Verified(2, (2e8, 1e8), (2e8, 1e8)), "too few runs to tell"),
    ):
        proposals = (replace(finding.proposals[0], verified=done),)
        assert said in report().render(explanation(findings=(replace(finding, proposals=proposals),)))


@pytest.mark.parametrize("peak", [191, 200, 215, 225, 400])
def test_waterfall_total_clear_of_bars(peak: int) -> None:
    """The total of a bar whose peak is near the picture's edge is the widest, and once lay over the bar."""
    figure = waterfall.draw(explanation(measured=(PhaseFigures("EXECUTE", peak * MIB, 191 * MIB, 10, 5),)))
    figure.canvas.draw()
    (axes,) = figure.axes
    bars = [patch.get_window_extent() for patch in axes.patches]
    totals = [text.get_window_extent() for text in axes.texts if text.get_weight() == "bold"]
    assert len(totals) == 3
    for total in totals:
        assert not any(total.overlaps(bar) for bar in bars)
        assert total.x1 <= axes.get_window_extent().x1


def test_explanation_without_look_draws_nothing() -> None:
    empty = explanation(phases=(), findings=(), measured=())
    assert "Nothing was found" in report().render(empty)
    with pytest.raises(InputError, match="never looked at"):
        waterfall.draw(empty)
    assert "Nothing was found" in page.render([sample_runs.run()], explanations=[empty])


def test_page_tells_that_proposals_were_not_measured() -> None:
    made = explanation()
    bare = tuple(replace(finding, proposals=tuple(replace(each, verified=None) for each in finding.proposals)) for finding in made.findings)
    unmeasured = replace(made, findings=bare)
    assert not unmeasured.ranked

    assert "The proposals follow from rules, and none was measured" in page.render([sample_runs.run()], explanations=[unmeasured])


def test_interrupted_trials_are_told() -> None:
    """Each setting was tried once, the proposals were not measured: neither is "none was measured" true, nor are they ranked."""
    made = explanation()
    bare = tuple(replace(finding, proposals=tuple(replace(each, verified=None) for each in finding.proposals)) for finding in made.findings)
    tried = replace(bare[0], rule=records.TRIED)
    text = report().render(replace(made, findings=(*bare, tried)))
    assert "none was measured" not in text and "--verify was interrupted before it measured the proposals together" in text


def test_explanation_on_page_is_escaped() -> None:
    text = page.render([sample_runs.run()], explanations=[explanation()])

    piece = text.partition('<section id="explained"')[2].partition("</section>")[0]
    assert "<b>:" not in piece
    assert len(re.findall("<ol>", piece)) == 1 and report().ranking(explanation()) in html.unescape(piece)
    assert "&lt;b&gt;" in piece
    assert 'class="waterfall"' in piece
