"""Memory of devices, which no resident set counts, in tables, frames, pages, pictures, budgets and the waterfall."""

from __future__ import annotations

import base64
import json

import numpy
import pytest
from msgspec.structs import replace
from support import explanations
from support.picture_text import drawn_texts
from support.sample_runs import MIB, packed, run, runs
from support.tables import cells

from memprof.base.errors import InputError
from memprof.records import metrics
from memprof.records.summary import summarise
from memprof.records.types import PEAK, Charged, DeviceKind, Run, Value
from memprof.reports import columns, frame, page, trace
from memprof.reports.page import drawn
from memprof.reports.pictures import timeline, waterfall
from memprof.reports.tables import explain, table
from memprof.verdicts import budgets


def with_devices(made: Run, peak: int = 300, end: int = 200, resident: int = 5) -> Run:
    """The run with this many MiB of a dma-buf in EXECUTE, and none before; all read."""
    tables = DeviceKind("page tables", MIB, MIB, 0)
    buffer = DeviceKind("dma-buf system", peak * MIB, end * MIB, resident * MIB)

    def change(mark):
        if mark.phase == "EXECUTE":
            return replace(mark, device_peak_bytes=peak * MIB, device_end_bytes=end * MIB, devices=(tables, buffer))
        return replace(mark, device_peak_bytes=0, device_end_bytes=0, devices=(tables,))

    last = made.mark("EXECUTE")
    times = [last.begin_ns, last.begin_ns + 10**6, last.begin_ns + 2 * 10**6]
    line = replace(made.timeline, device_t_ns=packed(times), device=packed([0, peak * MIB, end * MIB]))
    return replace(made, marks=tuple(map(change, made.marks)), timeline=line)


def test_table_by_kind_and_phase():
    text = table.render([with_devices(each) for each in runs()], brief=True, unit="MiB")

    peaks = {line.split("|")[2].strip(): line for line in text.split("Device memory by kind, peak (MiB)")[1].split("\n\n")[1].splitlines()}
    assert [cell.strip() for cell in peaks["dma-buf system"].split("|")[3:-1]][-1].startswith("300")
    assert "1.0" in peaks["page tables"]
    assert "up to 5.0 MiB of such memory is in RSS, and not in these figures" in text


def test_table_without_devices_unchanged():
    text = table.render(runs(), brief=True)
    assert "evice" not in text and "page tables" not in text


def test_table_and_json_with_counts_of_torch():
    """What no driver told stands there by torch's own count."""
    made = replace(
        run(), values=tuple(Value("torch_reserved_peak_bytes", at, size * MIB, "EXECUTE") for at, size in ((1, 40), (2, 64), (3, 8)))
    )
    text = table.render([made], brief=True, unit="MiB")
    line = next(line for line in text.splitlines() if "torch's allocator, by torch" in line)
    assert line.rstrip(" |").endswith("64.0")
    assert "torch's tensors" not in text
    assert "torch's" not in text.partition("at the end (MiB)")[2]
    (row,) = [row for row in json.loads(table.render([made], format="json")) if row["phase"] == "EXECUTE"]
    assert row["device_counts"] == {"torch_reserved_peak_bytes": 64 * MIB}


def test_table_of_named_metrics():
    text = table.render([with_devices(run())], ["device_peak_bytes", "device_end_bytes"], unit="MiB")
    peaks, ends = cells(text, "Device memory peak (MiB)")["a"], cells(text, "Device memory at the end (MiB)")["a"]
    assert (peaks["EXECUTE"], peaks["PEAK"]) == ("~300.0", "~300.0")  # only readings every 8 ms saw it
    assert ends["EXECUTE"] == "200.0"


def test_json_has_kinds_of_a_phase():
    rows = json.loads(table.render([with_devices(run())], format="json"))
    (row,) = [row for row in rows if row["phase"] == "EXECUTE"]
    assert row["device_peak_bytes"] == 300 * MIB
    assert row["devices"][1] == {
        "kind": "dma-buf system",
        "peak_bytes": 300 * MIB,
        "end_bytes": 200 * MIB,
        "resident_end_bytes": 5 * MIB,
    }


def test_frame_has_peak_of_the_run():
    rows = frame.runs_frame([with_devices(run())]).set_index("phase")
    assert rows.loc[PEAK, "device_peak_bytes"] == 300 * MIB
    assert rows.loc["EXECUTE", "page_tables_end_bytes"] == MIB


@pytest.mark.parametrize(("limit", "over"), [("250 MiB", True), ("300 MiB", False)])
def test_budget_of_device_memory(tmp_path, limit, over):
    (tmp_path / "b.toml").write_text(f'device_peak_bytes = "{limit}"\n')
    (budget,) = budgets.read(tmp_path / "b.toml")
    (row,) = [row for row in summarise([with_devices(run())], ("device_peak_bytes",)) if row.phase == PEAK]
    assert budget.matches(row)
    assert (row.max > budget.limit) == over


def test_run_that_could_not_see_them_has_no_figure():
    assert summarise([run()], ("device_peak_bytes", "device_end_bytes")) == ()
    assert metrics.value(run(), PEAK, metrics.METRICS["device_peak_bytes"]) is None


def test_steps_keep_their_maximum_between_rows():
    rows = columns.ColumnArrays(*(numpy.array(column) for column in ([0, 10, 20, 30], [1, 1, 1, 1], [0] * 4, [0] * 4)))
    device = numpy.array([5, 6, 25]), numpy.array([9, 2, 4])
    assert columns.device_over(rows, device).tolist() == [0, 9, 2, 4]


def test_page_draws_and_tells_them():
    made = with_devices(run())
    (model,) = drawn.page([[made]]).models
    (trace,) = model.groups[0].traces
    assert numpy.frombuffer(base64.b64decode(trace.device), "<u4").max() == 300 * 1024
    assert "Device memory, which RSS does not count" in page.render([made])
    (plain,) = drawn.page([[run()]]).models
    assert plain.groups[0].traces[0].device == ""
    assert "Device memory, which" not in page.render([run()])


def test_trace_names_their_kinds():
    made = with_devices(run())
    slices = [event for event in json.loads(trace.render([made]))["traceEvents"] if event["ph"] == "X" and event["cat"] == "phase"]
    assert [[kind["kind"] for kind in event["args"]["devices"]] for event in slices] == [
        [kind.kind for kind in mark.devices] for mark in made.marks
    ]


def test_no_picture_names_what_nobody_sees():
    """A page of a memfd, in one sample of one run, made a legend of device memory."""
    made = run()
    times = made.marks[0].begin_ns, made.marks[1].begin_ns
    made = replace(made, timeline=replace(made.timeline, device_t_ns=packed(times), device=packed([4096, 0])))
    assert not [text for text, _ in drawn_texts(timeline.render([made])) if "device memory" in text]
    assert "– – of devices" not in page.render([made]) and "– – of devices" in page.render([with_devices(made)])


def test_timeline_draws_them_to_scale():
    figure = timeline.render([with_devices(run(), peak=900)])
    (axes,) = figure.axes[1:] or figure.axes
    assert max(max(line.get_ydata()) for line in axes.lines) >= 900
    assert axes.get_ylim()[1] > 900


def test_damaged_column_refused():
    made = with_devices(run())
    with pytest.raises(InputError, match="damaged"):
        timeline.render([replace(made, timeline=replace(made.timeline, device="###"))])


def test_waterfall_has_them_beside_the_resident_set():
    made = explanations.explanation()
    made = replace(made, phases=(*made.phases[:-1], replace(made.phases[-1], device_bytes=300 * MIB)))
    text = explain.render(made)
    assert "device buffers, beside RSS" in text
    assert explain.visible(made)[-1] == "device buffers, beside RSS"
    assert "device buffers, beside RSS" not in explain.render(explanations.explanation())
    figure = waterfall.draw(made)
    assert max(axes.get_xlim()[1] for axes in figure.axes) > 491


def charged(made: Run, mib: float, **kernel: float) -> Run:
    """The run with this charge of its control group, and these peaks of the kernel's memory in it, all in MiB."""
    sizes = {f"{name}_peak_bytes": int(size * MIB) for name, size in kernel.items()}
    return replace(made, charged=Charged(peak_bytes=int(mib * MIB), **sizes))


def swapped(made: Run, mib: float) -> Run:
    """The run with this peak of resident and swapped pages together in EXECUTE."""
    sizes = {"swap_peak_bytes": 90 * MIB, "rss_swap_peak_bytes": int(mib * MIB)}
    return replace(made, marks=tuple(replace(mark, **sizes) if mark.phase == "EXECUTE" else mark for mark in made.marks))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda made: made, None),
        (lambda made: charged(made, 272), None),  # less than 5% from the RSS peak, 270.0 MiB
        (lambda made: charged(made, 400), "is on the charge of its control group, 400.0 MiB at most here (RSS peak 270.0 MiB)"),
        (
            lambda made: charged(with_devices(made), 400),
            "400.0 MiB at most here (RSS peak 270.0 MiB, device memory up to 300.0 MiB, page tables up to 1.0 MiB)",
        ),
        (
            lambda made: charged(with_devices(made), 400, kernel=20, slab=12, page_tables=3, kernel_stacks=2, percpu=0.5, sockets=6),
            # page tables once, as the kernel has them of the group
            "device memory up to 300.0 MiB, kernel memory up to 20.0 MiB with slab up to 12.0 MiB and page tables up to 3.0 MiB and "
            "stacks up to 2.0 MiB and per-CPU data up to 512.0 KiB, sockets up to 6.0 MiB)",
        ),
        (  # version 1 tells of no parts, and the processes of their page tables
            lambda made: charged(with_devices(made), 400, kernel=20, sockets=0),
            "device memory up to 300.0 MiB, kernel memory up to 20.0 MiB with page tables up to 1.0 MiB)",
        ),
        (lambda made: charged(made, 400, kernel=20), "(RSS peak 270.0 MiB, kernel memory up to 20.0 MiB)"),
        (lambda made: charged(swapped(made, 350), 400, kernel=20), "kernel memory up to 20.0 MiB, 90.0 MiB swapped out beside it)"),
        (with_devices, "here a peak of 270.0 MiB in RSS, and of 300.0 MiB beside it"),
        (lambda made: with_devices(made, peak=13, end=1), None),
        (lambda made: swapped(made, 350), "together: here a peak of 270.0 MiB in RSS, 350.0 MiB with swapped pages"),
        (lambda made: swapped(made, 280), None),
        (
            lambda made: swapped(with_devices(made), 350),
            "here a peak of 270.0 MiB in RSS, 350.0 MiB with swapped pages, and of 300.0 MiB beside it",
        ),
    ],
)
def test_sentence_on_the_figure_of_a_limit(change, words):
    text = table.render([change(run())], brief=True)
    assert (words in text) if words else ("a limit of a container" not in text and "a device is full" not in text)


def test_kernel_memory_in_tables_and_csv():
    made = charged(run(), 400, kernel=20, slab=12)
    made = replace(
        made, marks=tuple(replace(mark, charged_slab_peak_bytes=9 * MIB) if mark.phase == "PREPARE" else mark for mark in made.marks)
    )
    cell = cells(table.render([made], ["charged_slab_peak_bytes"], unit="MiB"), "Slab of the control group, peak (MiB)")["a"]
    assert (cell["PREPARE"], cell["PEAK"], cell["EXECUTE"]) == ("9.00", "12.0", "-")
    rows = frame.runs_frame([made]).set_index("phase")
    assert rows.loc[PEAK, "charged_kernel_peak_bytes"] == 20 * MIB
    assert rows.loc["PREPARE", "charged_slab_peak_bytes"] == 9 * MIB
    (row,) = [row for row in json.loads(table.render([made], format="json")) if row["phase"] == PEAK]
    assert (row["charged_kernel_peak_bytes"], row["charged_slab_peak_bytes"]) == (20 * MIB, 12 * MIB)
    assert "charged_sockets_peak_bytes" not in row or row["charged_sockets_peak_bytes"] is None


def test_charge_of_the_run_and_of_a_phase():
    made = charged(run(), 400)
    made = replace(
        made, marks=tuple(replace(mark, charged_peak_bytes=99 * MIB) if mark.phase == "PREPARE" else mark for mark in made.marks)
    )
    cell = cells(table.render([made], ["charged_peak_bytes"], unit="MiB"), "Charge of the control group, peak (MiB)")["a"]
    assert (cell["PREPARE"], cell["PEAK"], cell["EXECUTE"]) == ("99.0", "400.0", "-")
