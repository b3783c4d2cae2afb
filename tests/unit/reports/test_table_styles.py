"""The other shapes of a table: by model, by threads, over the whole run, in other units and forms."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from msgspec.structs import replace
from support.sample_runs import MIB, USUAL, machine, run, runs
from support.tables import cells

from memprof.base.errors import UsageError
from memprof.records import metrics, store
from memprof.records.types import OUTSIDE, Outcome
from memprof.reports.tables import missing, table

S = 10**9


def test_models_style_rows_and_columns():
    made = [*runs("orig", model="mnist"), *runs("swap", model="mnist", extra_mib=(-50,)), *runs("orig", model="vgg16", extra_mib=(700,))]

    shown = cells(table.render(made, style="models"), "RSS peak (MiB)")

    assert shown["mnist"] == {"model": "mnist", "orig": "270.2 ±0.2", "swap": "220.0"}
    assert shown["vgg16"] == {"model": "vgg16", "orig": "970.0", "swap": "-"}


def test_threads_style_columns():
    made = [run(name, threads=threads, extra_mib=threads) for name in ("tflite", "onert") for threads in (8, 4, 2, 1)]

    shown = cells(table.render(made, ["rss_peak_bytes"], style="threads", phase="PREPARE"), "RSS peak in PREPARE (MiB)")

    assert list(shown) == ["tflite", "onert"]
    assert shown["onert"] == {"variant": "onert", "T=1": "271.0", "T=2": "272.0", "T=4": "274.0", "T=8": "278.0"}


def test_threads_style_needs_thread_counts():
    with pytest.raises(UsageError, match="measure with several"):
        table.render([run()], style="threads")


@pytest.mark.parametrize("window", [None, "MODEL_LOAD..", "EXECUTE", "0.1s..60s"])
def test_swap_style_maximum_includes_exact_peak(window):
    """The last phase ends after the last sample, and its peak came and went between two of them."""
    memory = {**USUAL, "EXECUTE": (265, 500)}
    made = run("orig", memory=memory, samples=[(0, MIB, 0, 0), (4 * S + S // 10, 265 * MIB, 0, 0)])

    text = table.render([made], style="swap", window=window, unit="MiB")

    title = next(line for line in text.splitlines() if line.startswith("RSS "))
    assert "500.0" in cells(text, title)["MAX"].values()


def notes(made):
    return [
        line[2:] for line in table.render(made).splitlines() if line.startswith("- ") and ": " in line and not line.startswith("- Cells")
    ]


def test_notes_shared_by_rows_once():
    made = [replace(run(name, argv=("app",)), warnings=("same", f"own of {name}")) for name in ("a", "b", "c")]
    assert notes(made) == ["all: same", "a: own of a", "b: own of b", "c: own of c"]
    assert notes([*made, run("d", argv=("app",))])[0] == "a; b; c: same"


def test_notes_of_repeats_merged():
    first, second = ("read 4 times", "step 1 never ended", "step 2 never ended"), ("read 5.5 times", "step 2 never ended")
    made = [replace(run(repeat=repeat, argv=("app",)), warnings=warnings) for repeat, warnings in ((1, first), (2, second))]
    assert notes(made) == ["a: read 4 times (in other repeats other figures)", "a: step 1 never ended", "a: step 2 never ended"]


def test_notes_explain_missing_figures():
    words = {"argv": ("app",), "runtime": "command"}
    known = run("marks", **words)
    known = replace(known, marks=tuple(replace(mark, pss_end_bytes=MIB) for mark in known.marks))
    functions = run("functions", phases={"EXECUTE": "f"}, **words)
    ended = run("ended", memory={"RUN": (40, 50)}, exact=False, **words)
    ended = replace(ended, marks=tuple(replace(mark, rss_end_bytes=None) for mark in ended.marks))
    between = replace(functions, job=known.job, marks=tuple(replace(mark, phase=OUTSIDE, rss_end_bytes=None) for mark in ended.marks))
    assert notes([known]) == []
    assert notes([known, between])[1:] == ["PSS: -, read where a phase ends, and no phase ends between phases"]
    assert (
        missing.why_absent([between], OUTSIDE, metrics.METRICS["pss_end_bytes"])
        == "read where a phase ends, and no phase ends between phases"
    )
    assert notes([known, functions, ended]) == [
        "~ not exact: the high-water mark was not reset where the phase began, or was gone where it ended; the peak is only what polling saw; "
        "it may have been higher.",
        "PSS: -, not read after each of many short calls of a function",
        "PSS: -, RUN lasted until the program's end, and then there is nothing to read",
    ]


@pytest.mark.parametrize(("stat", "expected"), [("min", "270.0"), ("max", "280.0"), ("mean", "273.2 ±6.8"), ("p90", "277.2")])
def test_statistic_over_repeats(stat, expected):
    text = table.render(runs(extra_mib=(0, 1, 2, 3, 10)), ["rss_peak_bytes"], stat=stat)

    assert cells(text, f"RSS peak, {stat} (MiB)")["a"]["PREPARE"] == expected


@pytest.mark.parametrize(("stat", "expected"), [("min", "20.0"), ("median", "22.0"), ("max", "24.0"), ("p90", "23.6")])
def test_statistic_over_iterations(stat, expected):
    text = table.render([run()], ["time_ns"], stat=stat)

    assert text.split("\n\n")[2].splitlines()[2].split("|")[-2].strip() == expected


@pytest.mark.parametrize(("unit", "expected"), [("KiB", "153600"), ("MiB", "150.0"), ("kB", "157286"), ("MB", "157.3"), ("GiB", "0.146")])
def test_unit_of_table(unit, expected):
    text = table.render([run()], ["rss_peak_bytes"], unit=unit)

    assert cells(text, f"RSS peak ({unit})")["a"]["MODEL_LOAD"] == expected


def test_unit_unknown_refused():
    with pytest.raises(UsageError, match="'Mb' is not a unit"):
        table.render([run()], unit="Mb")


def test_unit_of_small_figures():
    tiny = {"STARTUP": (0.01, 0.01), "EXECUTE": (0.02, 0.5)}

    assert "RSS peak (KiB)" in table.render([run(memory=tiny)], ["rss_peak_bytes"])


class Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.texts = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.texts.append(data)


def test_html_escapes_hostile_names():
    name = "<script>alert(1)</script>"
    parser = Cells()
    parser.feed(table.render([run(name, model=name)], ["rss_peak_bytes"], format="html"))

    assert "script" not in parser.tags
    assert name in parser.texts
    assert "270.0" in parser.texts
    assert parser.tags.count("table") == 1


def test_parquet_holds_frame(memprof, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    store.RunsWriter(tmp_path / "runs.jsonl", append=False).write(store.encode(run()))

    done = memprof("table", "runs.jsonl", "--format", "parquet", "-o", "runs.parquet")

    assert done.returncode == 0, done.stderr
    frame = pandas.read_parquet(tmp_path / "runs.parquet")
    assert list(frame["phase"]) == ["STARTUP", "MODEL_LOAD", "PREPARE", "WARMUP", "EXECUTE", "PEAK"]


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["--format", "parquet"], 2, "name the file to write"),
        (["--metric", "rss_pek"], 2, "there is no metric 'rss_pek'"),
        (["-o", "none/out.md"], 5, "none/out.md cannot be written: there is no folder none"),
        (["-o", "runs.jsonl"], 5, "runs.jsonl holds runs; a report is not written over it"),
        (["--style", "threads"], 2, "no run has a thread count"),
    ],
)
def test_table_command_refusals(memprof, tmp_path, words, code, reason):
    store.RunsWriter(tmp_path / "runs.jsonl", append=False).write(store.encode(run()))

    done = memprof("table", "runs.jsonl", *words)

    assert done.returncode == code
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_machines_in_own_rows():
    text = table.render([run(), run(where=machine("there"))], ["rss_peak_bytes"])

    assert "| variant | machine |" in text
    assert text.count("270.0") == 4  # PREPARE and PEAK, on each machine


def test_machine_rows_grouped_with_note():
    there = machine("board", arch="aarch64", cpu="", cpus=4, kernel="6.1")
    made = [run("a"), run("a", where=there), run("b"), run("b", where=there)]
    text = table.render(made, ["rss_peak_bytes"])

    rows = [line.split()[1:4:2] for line in text.splitlines() if line.startswith(("| a ", "| b "))]
    assert rows == [["a", "here"], ["b", "here"], ["a", "board"], ["b", "board"]]
    assert "- here: a CPU, 2 CPUs, x86_64, Linux 6.18\n- board: 4 CPUs, aarch64, Linux 6.1" in text
    assert "- here:" not in table.render(made[:1], ["rss_peak_bytes"])


def test_table_of_failures_only():
    text = table.render([run(outcome=Outcome("import", phase="STARTUP", message="ImportError: no libfoo.so"))])

    assert "a: failed: in STARTUP: ImportError: no libfoo.so" in text


def test_note_on_peak_that_rises_with_iterations() -> None:
    """The hint stands at the variant whose runs show it, and at no other."""
    flat = {"STARTUP": (40, 40), "WARMUP": (100, 100), "EXECUTE": (101, 101)}
    rising = {**flat, "EXECUTE": (140, 142)}
    text = table.render([*runs("arena off", memory=rising), *runs("default", memory=flat)])
    (note,) = (line for line in text.splitlines() if "memprof grow" in line)
    said = "EXECUTE peaks 42.0 MiB above WARMUP: a single step or growth, which more iterations (--runs) or memprof grow tell apart"
    assert note == f"- arena off: {said}"


def test_notes_that_differ_in_sizes_merged() -> None:
    """One per variant would bury the other notes: a law has a variant for each place."""
    rising = {
        name: {"STARTUP": (40, 40), "WARMUP": (100, 100), "EXECUTE": (peak, peak)}
        for name, peak in zip("abc", (140, 110, 120), strict=True)
    }
    told = [
        [line for line in table.render([run(name, memory=rising[name]) for name in names]).splitlines() if "above WARMUP" in line]
        for names in ("abc", "ab")
    ]
    said = "above WARMUP: a single step or growth, which more iterations (--runs) or memprof grow tell apart"
    assert told[0] == [f"- all: EXECUTE peaks 10.0 MiB to 40.0 MiB {said}"]
    assert told[1] == [f"- a: EXECUTE peaks 40.0 MiB {said}", f"- b: EXECUTE peaks 10.0 MiB {said}"]
