"""What a comparison says first, and what a table says last."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.sample_runs import USUAL, machine, mark, of_program, run, runs

from memprof.records import summary
from memprof.records.types import About, Outcome
from memprof.reports.pictures import choosing
from memprof.reports.tables import comparison, gate, headline, table
from memprof.verdicts import baseline, budgets, compare, verdicts
from memprof.verdicts.verdicts import Report

SPREAD = (0.0, 0.1, 0.2, 0.3, 0.4)


def raised(mib):
    return runs(extra_mib=[mib + extra for extra in SPREAD])


def reported(made, version, packages=None):
    return [replace(each, about=About(version, "3.11.2", (), packages or {})) for each in made]


def file_backed(made, mib):
    """The same runs, their memory at each phase's end file-backed by so much more and anonymous by so much less."""
    extra = int(mib * (1 << 20))
    return [
        replace(
            each,
            marks=tuple(
                replace(mark, file_end_bytes=mark.file_end_bytes + extra, anon_end_bytes=max(mark.anon_end_bytes - extra, 0))
                for mark in each.marks
            ),
        )
        for each in made
    ]


@pytest.mark.parametrize(
    ("base", "head", "words"),
    [
        (raised(0), raised(27), "PEAK is 27.0 MiB more (270.2 MiB to 297.2 MiB), in PREPARE; at its end anonymous memory is 27.0 MiB more"),
        (raised(0), raised(27), "file-backed memory is the same; EXECUTE takes the same time within noise."),
        (raised(27), raised(0), "PEAK is 27.0 MiB less (297.2 MiB to 270.2 MiB), in PREPARE"),
        (raised(0), file_backed(raised(27), 27), "anonymous memory is the same and file-backed memory is 27.0 MiB more"),
        (raised(0), raised(0), "net.onnx, a: PEAK is the same within noise (270.2 MiB); EXECUTE"),
        (
            raised(0),
            file_backed(raised(0), -9) + runs(extra_mib=(27,) * 3),
            "PEAK differs within noise, by -153.6 KiB to +26.9 MiB (270.2 MiB to 270.2 MiB or 297.0 MiB)",
        ),
        (runs(extra_mib=(0,)), runs(extra_mib=(27,)), "(270.0 MiB to 297.0 MiB, with too few repeats to tell it from noise)"),
    ],
)
def test_comparison_begins_with_sentence(base, head, words):
    first = comparison.render(compare.compare(base, head)).splitlines()[0]
    assert words in first


# What a runtime needs that maps the model: it is in memory once the model runs.
OF_MAPPED = {**USUAL, "MODEL_LOAD": (40, 41), "PREPARE": (60, 70), "WARMUP": (255, 256), "EXECUTE": (255, 258)}


def test_sentences_have_phase_of_each_peak():
    """Base peaks while it prepares, head while it executes: each size is of a phase of its own, and what is gained shows at the last end."""
    base, head = runs(), file_backed(runs(memory=OF_MAPPED), 64)
    words = (
        "PEAK is 12.0 MiB less (270.2 MiB in PREPARE to 258.2 MiB in EXECUTE); at the end of EXECUTE anonymous memory is 74.0 MiB less",
        " and file-backed memory is 64.0 MiB more, which the kernel can take back; EXECUTE takes",
    )
    assert "".join(words) in headline.of_comparison(compare.compare(base, head))
    report = judged(base, head)
    assert words[0] in headline.of_gate(report)
    assert words[0] in headline.of_gate(replace(report, rows=tuple(reversed(report.rows)))), "the worst first"
    named = [replace(each, job=replace(each.job, variant=name)) for name, side in (("a", base), ("b", head)) for each in side]
    first, second = headline.of_runs(named).split(". ", 1)
    assert first == "The smallest of 2 PEAKs is 258.2 MiB in EXECUTE (b)" and second.startswith(
        "The largest is 270.2 MiB in PREPARE (a); it"
    )
    assert headline.of_picture(named) == "PEAK is 270.2 MiB (a) to 258.2 MiB (b)", "in the order of the rows"


def test_phases_of_one_side_are_named():
    base, head = runs(), [replace(each, marks=each.marks[:-1]) for each in runs()]
    remarks = compare.compare(base, head).remarks
    assert [remark for remark in remarks if "only the" in remark] == ["net.onnx, a: only the base has EXECUTE (RSS peak 268.2 MiB)"]


def released(made, mib):
    """The same runs, each with a RELEASE that leaves so much above the baseline."""
    return [replace(each, marks=(*each.marks, mark("RELEASE", len(each.marks), 40 + mib, 40 + mib))) for each in made]


TIMES = ", 2.3 times the model's 100.0 MiB"


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (runs(), f"net.onnx, a: PEAK is 270.2 MiB, in PREPARE, 230.2 MiB above the baseline{TIMES}."),
        (
            released(runs(), 12),
            f"net.onnx, a: PEAK is 270.2 MiB, in PREPARE, 230.2 MiB above the baseline{TIMES}; 12.0 MiB stays after release.",
        ),
        (
            released(runs(), -1),
            f"net.onnx, a: PEAK is 270.2 MiB, in PREPARE, 230.2 MiB above the baseline{TIMES}; nothing stays after release.",
        ),
        (
            [run(exact=False)],
            f"net.onnx, a: PEAK is ~270.0 MiB, in PREPARE, 230.0 MiB above the baseline{TIMES}.",
        ),
        ([run(outcome=Outcome("signal", "EXECUTE", signal=9))], ""),
        (
            [run("a", extra_mib=5), run("b", threads=2), run("c", extra_mib=9), run("d", outcome=Outcome("signal", "EXECUTE", signal=9))],
            "1 of 4 variants failed in every run: d, default threads. The smallest of 3 PEAKs is 270.0 MiB (b, 2 threads). "
            "The largest is 279.0 MiB (c, default threads); it lies 239.0 MiB above its baseline, 2.4 times the model's 100.0 MiB.",
        ),
    ],
    ids=["one", "kept", "nothing kept", "polled", "failed", "several"],
)
def test_runs_begin_with_sentence(made, words):
    assert headline.of_runs(made) == words
    assert table.render(made).startswith(words)


def of_version(version, **words):
    made = run(f"onnxruntime@{version}", **words)
    return replace(made, about=About(version, ""))


def test_sentence_compares_within_one_model():
    made = [run("a"), run("b", extra_mib=2)]
    large = (run("a", extra_mib=90), run("b", extra_mib=99))
    made += [replace(one, job=replace(one.job, model=replace(one.job.model, name="big.onnx"))) for one in large]
    sentences = headline.of_runs(made).split(". The smallest")
    assert len(sentences) == 2 and sentences[0].count("big.onnx") == 2 and sentences[1].count("net.onnx") == 2
    assert headline.of_picture(made) == "PEAK of big.onnx 360.0 MiB (a) to 369.0 MiB (b); of net.onnx 270.0 MiB (a) to 272.0 MiB (b)"


TWO_MODES = (0, 0.1, 0.1, 7.9, 7.9, 8.0)


def test_modes_of_peak_are_told():
    """The median of six repeats lies between two modes, where no run was."""
    made, moved = runs(extra_mib=TWO_MODES), runs(extra_mib=(0.1, 7.9, 7.9, 8, 8, 8))
    assert "PEAK is 270.1 MiB or 277.9 MiB, in PREPARE, 230.1 MiB or 237.9 MiB above the baseline" in headline.of_runs(made)
    note = "PEAK has 2 modes, 270.1 MiB in 3 runs and 277.9 MiB in 3: --deterministic leaves one"
    assert note in table.render(made, brief=True)
    assert "270.1 ±7.9" in table.render(made, brief=True)
    assert note.partition(":")[0] in " ".join(choosing.remarks(summary.groups(made)))
    assert "modes" not in table.render(runs(extra_mib=TWO_MODES, deterministic=True)[:3], brief=True)
    sentence = headline.of_gate(judged(made, moved))
    assert "PEAK of net.onnx, a is 277.9 MiB, and was 270.1 MiB or 277.9 MiB" in sentence
    assert "2 modes" in gate.render(judged(made, moved)).partition("PEAK")[2]


def test_height_has_modes_only_where_peak_has():
    """2.5 MiB is less than 1% of this PEAK, and more than 1% of what lies above the baseline."""
    sentence = headline.of_runs(runs(extra_mib=(0, 0, 2.5, 2.5, 2.5)))
    assert "PEAK is 272.5 MiB, in PREPARE, 232.5 MiB above the baseline" in sentence


def test_sentence_of_two_releases_tells_change():
    made = [of_version("1.20.0", extra_mib=27), of_version("1.9.2")]
    words = f"net.onnx, {made[0].job.runtime} 1.9.2 to 1.20.0: PEAK is 27.0 MiB more (270.0 MiB to 297.0 MiB"
    few = ", with too few repeats to tell it from noise), in PREPARE; at its end anonymous memory is 27.0 MiB more"
    assert headline.of_runs(made).startswith(words + few)
    assert "The smallest of" in headline.of_runs([run("a"), run("b")]), "one release"
    assert "The smallest of" in headline.of_runs([*made, of_version("1.30")])


def test_what_stays_of_two_releases_is_told_of_both():
    made = [released([of_version(version, extra_mib=27)], mib)[0] for version, mib in (("1.9.2", 12), ("1.20.0", 64))]
    assert headline.of_runs(made).endswith("; 64.0 MiB stays after release, 12.0 MiB before.")
    same = [released([of_version(version, extra_mib=27)], 12)[0] for version in ("1.9.2", "1.20.0")]
    assert headline.of_runs(same).endswith("; 12.0 MiB stays after release.")


def test_modes_of_what_stays_are_told():
    made = [released([one], mib)[0] for one, mib in zip(runs(), (64, 64, 12, 64, 12), strict=False)]
    assert "; 12.0 MiB or 64.0 MiB stays after release." in headline.of_runs(made)
    note = "a: of 5 runs, 12.0 MiB in 2 and 64.0 MiB in 3 stay after release: glibc gives a heap back only from its end"
    assert note in table.render(made, brief=True)
    assert "stay after release" not in table.render([released([one], 12)[0] for one in runs()], brief=True)
    spread = [released([one], mib)[0] for one, mib in zip(runs(), (10, 24, 37, 51, 64), strict=False)]
    assert "from 10.0 MiB to 64.0 MiB stay after release" in table.render(spread, brief=True)


def test_sentence_only_with_all_phases_of_usual_metrics():
    assert not any("PEAK is" in text for text in (table.render([run()], ["rss_peak_bytes"]), table.render([run()], style="models")))


def judged(base, head, **rest):
    sides = baseline.entries(base), baseline.entries(head)
    return Report("head against base", tuple(verdicts.judge(*sides, **rest)), sources=(*sides[0], *sides[1]))


def limited(made, budget):
    return Report("head against a budget", tuple(budgets.judge((budgets.of_peak(budget),), baseline.entries(made))))


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (
            judged(raised(0), raised(27)),
            "net.onnx, a: PEAK is 27.0 MiB more (270.2 MiB to 297.2 MiB), in PREPARE; "
            "at its end anonymous memory is 27.0 MiB more (250.2 MiB to 277.2 MiB).",
        ),
        (
            judged(raised(27), raised(0)),
            "net.onnx, a: PEAK is 27.0 MiB less (297.2 MiB to 270.2 MiB), in PREPARE; "
            "at its end anonymous memory is 27.0 MiB less (277.2 MiB to 250.2 MiB).",
        ),
        (
            judged(raised(0), file_backed(raised(27), 27)),
            "net.onnx, a: PEAK is 27.0 MiB more (270.2 MiB to 297.2 MiB), in PREPARE; at its end anonymous memory is the same.",
        ),
        (judged(raised(0), raised(0)), "Nothing changed beyond the thresholds: PEAK of net.onnx, a is 270.2 MiB, and was 270.2 MiB."),
        (limited(raised(0), "300MiB"), "net.onnx, a: PEAK is 270.4 MiB, 29.6 MiB below the budget of 300.0 MiB."),
        (limited(raised(0), "200MiB"), "net.onnx, a: PEAK is 270.4 MiB, 70.4 MiB above the budget of 200.0 MiB."),
        (judged(raised(0), [run(outcome=Outcome("signal", "EXECUTE", signal="SIGKILL"))] * 5), "net.onnx, a: 5 of 5 runs failed"),
        (Report("head", ()), ""),
    ],
    ids=["regressed", "improved", "file-backed", "same", "below budget", "above budget", "failed", "no rows"],
)
def test_gate_begins_with_sentence(report, words):
    assert headline.of_gate(report).startswith(words) and bool(headline.of_gate(report)) == bool(words)


def test_gate_ends_with_versions_and_machine():
    report = judged(reported(raised(0), "1.0"), reported(raised(0), "1.1"))
    expected = "Measured with onnxruntime 1.0, onnxruntime 1.1, Python 3.11.2; on here (a CPU, 2 CPUs, x86_64, Linux 6.18)."
    assert gate.render(report).splitlines()[-1] == expected


def test_comparison_counts_several_peaks():
    base = [*runs("a", SPREAD), *runs("b", SPREAD)]
    head = [*runs("a", SPREAD), *runs("b", [9 + extra for extra in SPREAD])]
    first = headline.of_comparison(compare.compare(base, head))
    assert first.startswith("net.onnx, b: PEAK is 9.0 MiB more")
    assert first.endswith("Of 2 PEAKs, 1 higher, 1 the same within noise.")


def test_comparison_without_peaks_has_none():
    assert headline.of_comparison(compare.compare(runs(), runs(), ["time_ns"])) == ""


@pytest.mark.parametrize(
    ("package", "others"), [("onnxruntime", []), ("numpy", ["runtime version differs: base 1.0, head 1.1"])], ids=["own package", "another"]
)
def test_version_that_differs_once(package, others):
    versions = ("1.0", "1.1") if package == "onnxruntime" else ("2.0", "2.1")
    base, head = (reported(runs(), own, {package: version}) for own, version in zip(("1.0", "1.1"), versions, strict=True))
    remarks = [remark for remark in compare.compare(base, head).remarks if "differs" in remark]
    assert sorted(remarks) == sorted([f"{package} differs: base {versions[0]}, head {versions[1]}", *others])


def of_numpy(numpy, baseline_mib, version="1.0", variant="a"):
    """Five runs that differ from the usual in the baseline alone, and in all that lies above it as much."""
    memory = {phase: (end + baseline_mib, peak + baseline_mib) for phase, (end, peak) in USUAL.items()}
    made = [run(variant, repeat=repeat, memory=memory, extra_mib=extra) for repeat, extra in enumerate(SPREAD, 1)]
    return reported(made, version, {"onnxruntime": version, "numpy": numpy})


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (of_numpy("1.26.4", 9), "its baseline has 9.0 MiB more, all from numpy 1.26.4 instead of 2.4.6, and above it PEAK is the same"),
        (
            of_numpy("1.26.4", 9, "1.1"),
            "its baseline has 9.0 MiB more, from the runtime and from numpy 1.26.4 instead of 2.4.6, and above it PEAK is the same",
        ),
        (of_numpy("2.4.6", 9, "1.1"), "its baseline has 9.0 MiB more, and above it PEAK is the same"),
        (reported(raised(9), "1.1", {"onnxruntime": "1.1", "numpy": "1.26.4"}), "with numpy 1.26.4 instead of 2.4.6"),
    ],
    ids=["another numpy", "numpy and runtime", "another runtime", "same baseline"],
)
def test_baselines_of_two_environments(head, expected):
    """What numpy makes of a PEAK is not called the runtime's: in the sentences of compare, of the gate and of run."""
    base = of_numpy("2.4.6", 0)
    assert f"; {expected}" in headline.of_comparison(compare.compare(base, head))
    assert f"; {expected}" in headline.of_gate(judged(base, head))
    named = [replace(each, job=replace(each.job, variant=name)) for name, side in (("a", base), ("b", head)) for each in side]
    assert f"; {expected}" in headline.of_runs(named)


def test_same_environment_has_no_words():
    base, head = of_numpy("2.4.6", 0), reported(raised(9), "1.0", {"onnxruntime": "1.0", "numpy": "2.4.6"})
    for sentence in (headline.of_comparison(compare.compare(base, head)), headline.of_gate(judged(base, head))):
        assert "numpy" not in sentence and "baseline" not in sentence


def test_last_line_names_packages_that_differ():
    both = [*of_numpy("2.4.6", 0), *of_numpy("1.26.4", 9, variant="b")]
    assert "Python 3.11.2, numpy 2.4.6, numpy 1.26.4; on here" in headline.origin(both)
    assert "Python 3.11.2, numpy 2.4.6, numpy 1.26.4; on here" in gate.render(judged(both[:5], of_numpy("1.26.4", 9)))
    assert "numpy" not in headline.origin(of_numpy("2.4.6", 0))


def test_last_line_versions_and_machine():
    expected = "Measured with onnxruntime 1.0, Python 3.11.2; on here (a CPU, 2 CPUs, x86_64, Linux 6.18)."
    measured = reported(runs(), "1.0")
    assert table.render(measured).splitlines()[-1] == expected
    assert comparison.render(compare.compare(measured, measured)).splitlines()[-1] == f"- {expected}"


def test_last_line_of_several():
    both = [*reported([run()], "1.0"), *reported([run(where=machine("there", cpu="another"))], "1.1")]
    assert headline.origin(both) == "Measured with onnxruntime 1.0, onnxruntime 1.1, Python 3.11.2; on here and there."


def test_heading_names_all_programs():
    """Programs of one command line are there to be compared, and are recorded under the first one's name."""
    made = [each for name in ("before", "mmap") for each in of_program(runs(name, model="engine_before"), f"engine_{name}", name[0])]
    assert "engine_before, engine_mmap, warming up 5 & running 5, 5 repeats" in table.render(made).split("\n")
    assert {each.job.model.name for each in choosing.chosen(made, "engine_before")} == {"engine_before, engine_mmap"}
    assert '"engine_before"' in table.render(made, format="json"), "what programs read has the recorded name"
    named = [replace(each, job=replace(each.job, model=replace(each.job.model, name="loader"))) for each in made]
    assert "loader, warming up 5 & running 5, 5 repeats" in table.render(named).split("\n"), "a name that the user gave stays"
    many = [each for n in range(5) for each in of_program(runs(f"v{n}", model="e0"), f"e{n}", str(n))]
    assert "e0 and 4 more programs, warming up 5 & running 5, 5 repeats" in table.render(many).split("\n")
