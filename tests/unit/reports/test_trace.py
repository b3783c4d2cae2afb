"""The trace, held to the rules of Chrome's event form by a strict validator of it, from made-up Runs."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
from support.explanations import explanation
from support.sample_runs import MIB, machine, mark, run, runs

from memprof.base.errors import InputError
from memprof.explain import engine
from memprof.records import store, summary
from memprof.records.types import Outcome
from memprof.reports import trace
from memprof.reports.pictures import timeline
from memprof.reports.tables.explain import lead

CRASH = Outcome("signal", phase="PREPARE", signal="SIGSEGV", rss_last_bytes=200 * MIB)

KEYS = {
    "X": {"ph", "pid", "tid", "ts", "dur", "name", "cat", "args"},
    "C": {"ph", "pid", "tid", "ts", "name", "args"},
    "i": {"ph", "pid", "tid", "ts", "name", "cat", "s", "args"},
    "M": {"ph", "pid", "tid", "ts", "name", "args"},
}
METADATA = {
    "process_name": ("name", str),
    "process_labels": ("labels", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}


def refuse_constant(name):
    raise ValueError(f"{name} is no JSON")


def validate(text):
    """The events of a trace by kind; raises AssertionError where a rule is broken."""
    whole = json.loads(text, parse_constant=refuse_constant)
    assert set(whole) <= {"traceEvents", "displayTimeUnit", "otherData"}
    assert whole.get("displayTimeUnit", "ms") in ("ms", "ns")
    assert isinstance(whole["traceEvents"], list)
    for event in whole["traceEvents"]:
        check_event(event)
    by_kind = {kind: [event for event in whole["traceEvents"] if event["ph"] == kind] for kind in KEYS}
    check_nesting(by_kind["X"])
    check_counters(by_kind["C"])
    check_names(by_kind)
    return by_kind


def number(value):
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_event(event):
    assert event["ph"] in KEYS, event
    assert set(event) == KEYS[event["ph"]], event
    for key in ("pid", "tid"):
        assert isinstance(event[key], int) and not isinstance(event[key], bool) and 0 <= event[key] < 2**31, event
    assert number(event["ts"]) and event["ts"] >= 0, event
    assert isinstance(event["name"], str) and event["name"], event
    assert isinstance(event["args"], dict), event
    if event["ph"] == "X":
        assert number(event["dur"]) and event["dur"] >= 0, event
    if event["ph"] == "C":
        assert event["args"] and all(number(value) for value in event["args"].values()), event
    if event["ph"] == "i":
        assert event["s"] in ("g", "p", "t"), event
    if event["ph"] == "M":
        key, kind = METADATA[event["name"]]
        assert list(event["args"]) == [key] and isinstance(event["args"][key], kind), event


def check_nesting(slices):
    """Slices of a thread lie inside or apart from one another, to the nanosecond."""
    threads = {}
    for event in slices:
        begin = round(event["ts"] * 1000)
        threads.setdefault((event["pid"], event["tid"]), []).append((begin, begin + round(event["dur"] * 1000)))
    for spans in threads.values():
        open_ends = []
        for begin, end in sorted(spans, key=lambda both: (both[0], -both[1])):
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1], (begin, end, open_ends)
            open_ends.append(end)


def check_counters(events):
    """A counter goes forward in time and has the same series all along."""
    last = {}
    for event in events:
        key = (event["pid"], event["name"])
        if key in last:
            assert last[key]["ts"] <= event["ts"] and set(last[key]["args"]) == set(event["args"]), event
        last[key] = event


def check_names(by_kind):
    """Each process and each thread that shows something has one name."""
    processes = [event["pid"] for event in by_kind["M"] if event["name"] == "process_name"]
    threads = [(event["pid"], event["tid"]) for event in by_kind["M"] if event["name"] == "thread_name"]
    assert len(processes) == len(set(processes)) and len(threads) == len(set(threads))
    shown = by_kind["X"] + by_kind["i"]
    assert {event["pid"] for event in shown + by_kind["C"]} <= set(processes)
    assert {(event["pid"], event["tid"]) for event in shown} <= set(threads)


def test_phase_slices_contain_iterations():
    events = validate(trace.render([run()]))

    phases = [event for event in events["X"] if event["cat"] == "phase"]
    assert [(event["name"], event["ts"], event["dur"]) for event in phases] == [
        (phase, index * 1e6, 4e5) for index, phase in enumerate(("STARTUP", "MODEL_LOAD", "PREPARE", "WARMUP", "EXECUTE"))
    ]
    assert phases[1]["args"]["rss_peak_bytes"] == 150 * MIB
    assert phases[1]["args"]["anon_end_bytes"] == 130 * MIB
    assert not {"pss_end_bytes", "times_ns"} & set(phases[1]["args"])
    inside = [event for event in events["X"] if event["cat"] == "iteration" and event["ts"] >= 4e6]
    assert [(event["ts"], event["dur"]) for event in inside] == [
        (4e6, 20e3),
        (4.02e6, 21e3),
        (4.041e6, 22e3),
        (4.063e6, 23e3),
        (4.086e6, 24e3),
    ]


def test_iterations_longer_than_phase_omitted():
    made = run()
    long = msgspec.structs.replace(mark("EXECUTE", 4, 265, 268), times_ns=(300_000_000, 300_000_000))

    events = validate(trace.render([msgspec.structs.replace(made, marks=(*made.marks[:-1], long))]))

    assert [event["dur"] for event in events["X"] if event["cat"] == "iteration" and event["ts"] >= 4e6] == [3e5]


def test_memory_counter_split_in_two():
    events = validate(trace.render([run(samples=[(0, 50, 20, 90), (5_000, 70, 25, 95), (9_500, 60, 25, 95)])]))

    split = [(event["ts"], event["args"]) for event in events["C"] if event["name"] == "RSS (bytes)"]
    assert split == [
        (0, {"anonymous": 30, "file-backed and shared": 20}),
        (5, {"anonymous": 45, "file-backed and shared": 25}),
        (9.5, {"anonymous": 35, "file-backed and shared": 25}),
        (10.5, {"anonymous": 0, "file-backed and shared": 0}),
    ]
    assert [event["args"]["vms"] for event in events["C"] if event["name"] == "VMS (bytes)"] == [90, 95, 95, 0]


def test_peaks_as_instants():
    samples = [(0, 40 * MIB, 0, 0), (1_300_000_000, 150 * MIB, 0, 0), (1_350_000_000, 140 * MIB, 0, 0), (2_200_000_000, 255 * MIB, 0, 0)]

    events = validate(trace.render([run(samples=samples)]))

    instants = {event["name"]: event for event in events["i"]}
    assert instants["peak of MODEL_LOAD: 150.0 MiB"]["ts"] == 1.3e6
    assert "time" not in instants["peak of MODEL_LOAD: 150.0 MiB"]["args"]
    top = instants["PEAK: 270.0 MiB in PREPARE"]
    assert (top["s"], top["ts"], top["args"]["seen_by_polling_bytes"]) == ("p", 2.2e6, 255 * MIB)
    assert "not known" in top["args"]["time"]
    assert [event["s"] for event in events["i"]].count("p") == 1


def test_peak_inexact_has_tilde():
    assert any("~" in event["name"] for event in validate(trace.render([run(exact=False)]))["i"])


def test_failed_run_slice_of_phase():
    made = run(outcome=CRASH, samples=[(0, 5, 1, 9), (1_500_000_000, 6, 1, 9), (2_500_000_000, 7, 1, 9)])

    events = validate(trace.render([made]))

    last = events["X"][-1]
    assert (last["name"], last["ts"], last["dur"]) == ("PREPARE (failed: SIGSEGV)", 1.4e6, 1.1e6)
    assert "ended by SIGSEGV in PREPARE" in last["args"]["outcome"]
    assert any(event["name"] == "process_labels" and "failed" in event["args"]["labels"] for event in events["M"])
    assert not [event for event in events["i"] if event["s"] == "p"]


def test_trace_median_repeat_or_all():
    made = [*runs("a", (0, 9, 5)), *runs("b", (0,)), run("a", threads=2)]

    few = [event["args"]["name"] for event in validate(trace.render(made))["M"] if event["name"] == "process_name"]
    everything = [event for event in validate(trace.render(made, all_repeats=True))["M"] if event["name"] == "process_name"]

    assert few == ["net.onnx, a, repeat 3, here", "net.onnx, b, repeat 1, here", "net.onnx, a, 2 threads, repeat 1, here"]
    assert len(everything) == 5


def test_runs_of_different_clocks_from_zero():
    later = run("b", where=machine("there"))
    later = msgspec.structs.replace(
        later,
        marks=tuple(msgspec.structs.replace(mark, begin_ns=mark.begin_ns + 10**15, end_ns=mark.end_ns + 10**15) for mark in later.marks),
    )
    later = msgspec.structs.replace(later, timeline=run(samples=[(10**15, 5, 1, 9)]).timeline)

    events = validate(trace.render([run(), later]))

    assert {event["pid"]: event["ts"] for event in reversed(events["X"])} == {1: 0, 2: 0}


def test_long_timeline_thinned_keeps_maximum():
    samples = [(index * 1000, 100 + index % 7, 10, 50) for index in range(20_000)]
    samples[11_415] = (11_415_000, 9_999, 10, 50)

    text = trace.render([run(samples=samples)])

    events = validate(text)
    assert max(event["args"]["anonymous"] for event in events["C"] if event["name"] == "RSS (bytes)") == 9_989
    assert len(text) < 2_000_000


@pytest.mark.parametrize("name", ["a|b", "</script>", 'quote " and \\', "a\nb", "ü漢字", "x" * 200, "half \ud800"])
def test_trace_hostile_names_stay_text(name):
    made = run(name, model=name)

    events = validate(trace.render([made]))

    title = next(event["args"]["name"] for event in events["M"] if event["name"] == "process_name")
    assert title.startswith(f"{name}, ".replace("\ud800", "?"))


def test_runs_without_phases_refused():
    nothing = msgspec.structs.replace(
        run(), marks=(), timeline=msgspec.structs.replace(run().timeline, samples=0), outcome=Outcome("start")
    )

    with pytest.raises(InputError, match="nothing to show"):
        trace.render([nothing])


def test_trace_never_overwrites_runs(memprof, tmp_path):
    data = b"".join(store.encode(made) for made in runs("a"))
    (tmp_path / "runs.jsonl").write_bytes(data)

    done = memprof("trace", "runs.jsonl", "-o", "trace.json")
    again = memprof("trace", "runs.jsonl", "-o", "trace.json", "--all-repeats")
    over = memprof("trace", "runs.jsonl", "-o", "runs.jsonl")
    nowhere = memprof("trace", "runs.jsonl", "-o", "no/trace.json")

    assert (done.returncode, again.returncode) == (0, 0), done.stderr + again.stderr
    assert "ui.perfetto.dev" in done.stderr
    assert len([1 for event in validate((tmp_path / "trace.json").read_text())["M"] if event["name"] == "process_name"]) == 5
    assert (over.returncode, nowhere.returncode) == (5, 5)
    assert over.stderr.count("\n") == nowhere.stderr.count("\n") == 1
    assert (tmp_path / "runs.jsonl").read_bytes() == data


def test_near_phases_peak_in_highest():
    memory = {"STARTUP": (40, 40), "PREPARE": (200, 200), "WARMUP": (264, 265.9), "EXECUTE": (264, 266.2), "RELEASE": (100, 300)}
    tied = run(memory=memory, samples=[(0, 40 * MIB, 0, 0), (2_200_000_000, 264 * MIB, 0, 0), (3_200_000_000, 264 * MIB, 0, 0)])
    apart = run(memory=memory, where=machine(peak_bound_bytes=4096))

    def told(single):
        drawn = timeline._drawn("a", [single], ()).peak
        explained = explanation(
            measured=engine.measured(single)[:-1], peak_bound_bytes=single.machine.peak_bound_bytes, looked_peak_bytes=None
        )
        assert drawn.bytes == int(266.2 * MIB) and drawn.t_ns >= 3 * 10**9
        names = [event["name"] for event in validate(trace.render([single]))["i"]]
        assert lead(explained).startswith("PEAK 266.2 MiB, in ")
        return {
            drawn.phase,
            next(name for name in names if name.startswith("PEAK: 266.2 MiB in ")).rpartition(" ")[2],
            summary.peak_phases([single]).highest,
        }

    assert told(tied) == told(apart) == {"EXECUTE"}
    assert summary.peak_phases([tied]).level == ("WARMUP", "EXECUTE") and summary.peak_phases([apart]).level == ("EXECUTE",)
