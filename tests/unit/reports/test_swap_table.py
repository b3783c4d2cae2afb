"""The swap table over windows of a run, with what programs report of themselves; and the trainer, whose answers are known."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from support.sample_runs import MIB, machine, mark, run, timeline
from support.tables import cells

from memprof.base.errors import UsageError
from memprof.records import store
from memprof.records.types import Outcome, Value
from memprof.reports.tables import swap, table

S = 10**9
# RSS in MiB with 10 MiB of it file-backed, by second; phases of made.run begin at each whole second and last 0.4 s.
LEVELS = {0: 40, 1: 140, 2: 260, 3: 100, 4: 200, 5: 50}


def levels(variant="orig", times=1.0, **rest):
    samples = [(second * S, int(times * mib * MIB), 10 * MIB, 0) for second, mib in LEVELS.items()]
    return run(variant, model="net", samples=samples, memory=dict.fromkeys(("STARTUP", "MODEL_LOAD", "PREPARE", "EXECUTE"), (1, 1)), **rest)


def figures(window, kind="RSS", measured=None):
    extremes = swap.run_extremes(measured or levels(), kind, swap.window(window))
    assert extremes is not None
    return tuple(round(value / MIB, 1) for value in extremes)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (None, (40, (40 * 0.6 + 140 + 260 + 100 + 200) / 4.6, 260)),  # from the baseline, at 0.4 s, to the last sample
        ("load", (140, 140, 140)),  # 1 to 1.4 s
        ("MODEL_LOAD", (140, 140, 140)),
        ("PREPARE..", (50, (260 + 100 + 200) / 3, 260)),
        ("..load", (40, (40 + 140 * 0.4) / 1.4, 140)),
        ("load..prepare", (140, (140 + 260 * 0.4) / 1.4, 260)),
        ("1.5s..3.5s", (100, (140 * 0.5 + 260 + 100 * 0.5) / 2, 260)),
        ("2500ms..2600ms", (260, 260, 260)),  # between two samples the level before holds
        ("4.5s..", (50, 200, 200)),
        ("prepare..2.5s", (260, 260, 260)),
        ("0.5s..load", (40, (40 * 0.5 + 140 * 0.4) / 0.9, 140)),
    ],
)
def test_window_forms(window, expected):
    assert figures(window) == tuple(round(value, 1) for value in expected)


def test_anonymous_without_file_backed():
    assert figures("prepare", "anonymous") == (250, 250, 250)
    assert figures("prepare", "file-backed") == (10, 10, 10)


def test_window_from_value():
    measured = replace(levels(), values=(Value("epoch", 3 * S, 1), Value("epoch", 4 * S, 2)))
    assert figures("epoch..", measured=measured) == (50, 150, 200)


def test_max_includes_exact_peaks():
    measured = levels()
    measured = replace(measured, marks=(*measured.marks[:2], mark("PREPARE", 2, 260, 900), *measured.marks[3:]))
    assert figures("prepare", measured=measured)[2] == 900
    assert figures("load", measured=measured)[2] == 140
    inexact = replace(measured, marks=(*measured.marks[:2], replace(measured.marks[2], rss_peak_exact=False), *measured.marks[3:]))
    assert figures("prepare", measured=inexact)[2] == 260


def test_window_without_phases():
    measured = levels()
    whole = mark("RUN", 0, 10, 900)
    measured = replace(measured, marks=(replace(whole, begin_ns=whole.begin_ns - 1_000_000),))  # the first sample comes a moment later
    assert figures(None, measured=measured)[2] == 900


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ("2s", "has two ends"),
        ("..", "write PHASE"),
        ("3s..2s", "ends before it begins"),
        ("3 parsecs..", "is not a duration"),
        ("prepar..", "did you mean PREPARE"),
        ("nonsense", "there are STARTUP"),
    ],
)
def test_window_refusals(window, said):
    with pytest.raises(UsageError, match=said):
        table.render([levels()], style="swap", window=window)


def test_window_titles():
    said = {text: swap.window(text).title for text in (None, "epoch", "load..", "..2s", "1s..load", "load..execute")}
    assert said == {
        None: "over the run",
        "epoch": "in epoch",
        "load..": "from MODEL_LOAD on",
        "..2s": "from the start to 2s",
        "1s..load": "from 1s to MODEL_LOAD",
        "load..execute": "from MODEL_LOAD to EXECUTE",
    }


def test_variants_compared_with_first():
    text = table.render([levels(), levels("swap", 0.5), levels("ahead", 2.0)], style="swap", window="prepare", unit="MiB")

    columns = cells(text, "RSS in PREPARE (MiB)")
    assert columns["MAX"] == {"": "MAX", "net, orig": "260.0", "net, swap": "130.0", "net, ahead": "520.0"}
    assert columns["AVR difference"] == {"": "AVR difference", "net, orig": "", "net, swap": "-50.0%", "net, ahead": "+100.0%"}
    assert "in percent" not in text


def test_threads_and_machines_compared_separately():
    made = [levels(variant, times, threads=threads) for threads in (1, 2) for variant, times in (("orig", 1.0), ("swap", 0.5))]
    columns = cells(table.render(made, style="swap", window="prepare"), "RSS in PREPARE (MiB)")
    assert [cell for cell in columns["MAX difference"].values() if cell.endswith("%")] == ["-50.0%", "-50.0%"]
    there = [levels(), levels(where=machine("there"))]
    assert "difference" not in table.render(there, style="swap")


def test_reported_values_as_columns():
    values = (Value("tensor_bytes", 1 * S, 64 * MIB), Value("loss", 2 * S, 0.5), Value("loss", 4 * S, 0.25))
    made = [replace(levels(name), values=values) for name in ("orig", "swap")]

    columns = cells(table.render(made, style="swap", unit="MiB"), "RSS over the run (MiB)")

    assert columns["MIN"]["net: tensor (MiB)"] == columns["MAX"]["net: tensor (MiB)"] == "64.0"
    assert (columns["MIN"]["net: loss"], columns["AVR"]["net: loss"], columns["MAX"]["net: loss"]) == ("0.250", "0.375", "0.500")
    assert columns["MIN difference"]["net: loss"] == ""
    differing = [made[0], replace(made[1], values=(Value("tensor_bytes", 1 * S, 32 * MIB),))]
    columns = cells(table.render(differing, style="swap", unit="MiB"), "RSS over the run (MiB)")
    assert (columns["MIN"]["net, orig: tensor (MiB)"], columns["MIN"]["net, swap: tensor (MiB)"]) == ("64.0", "32.0")


def test_reported_value_before_window():
    measured = replace(levels(), values=(Value("arena_bytes", 1 * S, 8 * MIB), Value("arena_bytes", 4 * S, 99 * MIB)))
    columns = cells(table.render([measured], style="swap", window="prepare", unit="MiB"), "RSS in PREPARE (MiB)")
    assert columns["MAX"]["net: arena (MiB)"] == "8.00"


def test_failed_and_empty_runs_omitted():
    failed = levels("bad", outcome=Outcome("signal", phase="PREPARE", signal="SIGSEGV"))
    empty = replace(levels("none"), timeline=timeline([]))
    text = table.render([levels(), failed, empty], style="swap")
    assert cells(text, "RSS over the run (MiB)")["MAX"]["net, bad"] == "-"
    assert "ended by SIGSEGV" in text
    assert cells(text, "RSS over the run (MiB)")["MAX"]["net, none"] == "-"


def test_json_figures():
    rows = json.loads(table.render([levels(), levels("swap", 0.5)], style="swap", format="json", window="prepare"))
    assert rows[0] == {
        "model": "net",
        "variant": "orig",
        "machine": "here",
        "window": "prepare",
        "what": "RSS",
        "min": 260 * MIB,
        "avr": 260 * MIB,
        "max": 260 * MIB,
    }
    assert [row["what"] for row in rows] == ["RSS", "anonymous", "file-backed"] * 2


def test_table_command_with_window(memprof, tmp_path):
    store.RunsWriter(tmp_path / "r.jsonl", append=False).write(store.encode(levels()))
    done = memprof("table", "r.jsonl", "--style", "swap", "--window", "load..prepare")
    assert done.returncode == 0, done.stderr
    assert "RSS from MODEL_LOAD to PREPARE (MiB)" in done.stdout
    assert memprof("table", "r.jsonl", "--style", "swap", "--window", "2s").returncode == 2


def test_nntrainer_published_table():
    models = {"MNIST": 100, "Resnet": 400, "VGG16": 900}
    made = [
        run(variant, model=name, samples=[(0, int(share * mib) * MIB, 10 * MIB, 0), (S, int(share * mib) * MIB, 10 * MIB, 0)])
        for name, mib in models.items()
        for variant, share in (("orig", 1), ("swap", 0.4))
    ]
    columns = cells(table.render(made, style="swap", unit="MiB"), "RSS over the run (MiB)")
    assert [name for name in columns if "difference" not in name] == ["MIN", "AVR", "MAX"]
    assert list(columns["MIN"])[1:] == [f"{name}, {variant}" for name in models for variant in ("orig", "swap")]
    assert columns["AVR difference"]["VGG16, swap"] == "-60.0%"
