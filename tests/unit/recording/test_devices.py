"""Memory outside of all resident sets: each buffer and client once, its peak and end by phase and kind, and what is said where it cannot be seen."""

from __future__ import annotations

import base64
import random
import zlib
from array import array
from itertools import accumulate

import pytest
from support.examples import tried

from memprof.recording.devices import ProcessDevices, sizes
from memprof.records.types import Run

from .written import MIB, ROOT, Recording, mark, ns

KIDS = (101, 102)


def figures(run: Run, phase: str) -> tuple[float | None, float | None]:
    """(peak, end) of all kinds in MiB."""
    found = mark(run, phase)
    return tuple(size if size is None else size / MIB for size in (found.device_peak_bytes, found.device_end_bytes))  # type: ignore[return-value]


def kinds(run: Run, phase: str) -> dict[str, tuple[float, ...]]:
    """(peak, end, resident at the end) in MiB by kind."""
    return {
        kind.kind: tuple((size or 0) / MIB for size in (kind.peak_bytes, kind.end_bytes, kind.resident_end_bytes))
        for kind in mark(run, phase).devices
    }


def in_phase(*lines: str, kids: int = 2) -> Run:
    """One phase; lines: `PID BUFFER...`, or `PID client CLIENT...`, as they are read in it."""
    recording = Recording()
    for pid in KIDS[:kids]:
        recording.spawn(pid)
    recording.begin("A")
    for line in lines:
        pid, *words = line.split()
        recording.poll()
        if words[:1] == ["client"]:
            recording.clients(int(pid), *words[1:])
        else:
            recording.buffers(int(pid), *words)
    recording.end("A")
    return recording.run()


@pytest.mark.parametrize(
    ("lines", "peak", "end"),
    [
        (["100 dmabuf:system:7:200:0:0"], 200, 200),  # a descriptor alone
        (["100 dmabuf:system:7:200:200:0"], 200, 200),  # mapped, and no resident set counts it
        (["100 dmabuf:udmabuf:7:200:200:50"], 150, 150),  # mapped, and a part is in the resident set
        (["100 dmabuf:system:7:8:0:0 dmabuf:vgem:8:1:0:0"], 9, 9),
        (["100 dmabuf:system:7:8:8:0", "101 dmabuf:system:7:8:0:0"], 8, 8),  # passed by a socket, never mapped there
        (["100 dmabuf:system:7:8:8:0", "101 dmabuf:system:7:8:8:0", "100"], 8, 8),  # one of two gives it back
        (["100 dmabuf:system:7:8:8:0", "101 dmabuf:system:7:8:8:0", "100", "101"], 8, 0),
        (["100 dmabuf:udmabuf:7:8:8:5", "101 dmabuf:udmabuf:7:8:8:5"], 3, 0),  # resident in both: at least nothing lies outside
        (["100 dmabuf:system:7:8:0:0 memfd::7:3:0:0"], 11, 11),  # inodes of two file systems
        (["100 memfd::9:40:40:30"], 10, 10),
        (["100 dmabuf:udmabuf:7:8:0:0 memfd::9:8:0:0"], 8, 8),  # of the pages of this memfd
        (["100 dmabuf:udmabuf:7:8:0:0 memfd::9:8:8:8"], 0, 0),  # the same, in the resident set by the memfd's mapping
        (["100 dmabuf:udmabuf:7:8:0:0 dmabuf:udmabuf:8:4:0:0", "101 memfd::9:2:0:0"], 12, 12),
        (["100 dmabuf:system:7:8:0:0 memfd::9:8:0:0"], 16, 16),
        (["100 dmabuf:system:7:8:0:0", "100 dmabuf:system:8:8:0:0"], 8, 8),  # one after the other
        (["100"], 0, 0),
    ],
)
def test_buffers_count_once(lines: list[str], peak: float, end: float) -> None:
    assert figures(in_phase(*lines), "A") == (peak, end)


@pytest.mark.parametrize(
    ("lines", "peak", "end"),
    [
        (["100 client msm,-,3,memory/9437184/8388608/-/-/-"], 8, 8),
        (["100 client msm,-,3,memory/8388608/-/0/-/-"], 8, 8),  # only a total is told
        (["100 client amdgpu,0000:03:00.0,3,gtt/-/-/-/-/1048576,vram/-/-/-/-/8388608"], 9, 9),
        (
            ["100 client msm,-,3,memory/8/8388608/0/-/-", "101 client msm,-,3,memory/8/8388608/0/-/-"],
            8,
            8,
        ),  # one descriptor in two processes
        (["100 client msm,-,3,memory/8/8388608/0/-/-", "101 client msm,-,4,memory/8/8388608/0/-/-"], 16, 16),
        (
            ["100 client msm,-,3,memory/8/8388608/4194304/-/-", "101 client msm,-,4,memory/8/8388608/4194304/-/-"],
            12,
            12,
        ),  # 4 MiB of each are shared
        (["100 client msm,-,3,memory/8/8388608/4194304/-/-", "100 dmabuf:msm:7:4:0:0"], 8, 8),  # exported
        (["100 client msm,-,3,memory/8/8388608/4194304/-/-", "100 dmabuf:msm:7:6:0:0"], 10, 10),
        (["100 client xe,a,3,gtt/8/8388608/0/-/-", "100 client xe,a,3,gtt/8/1048576/0/-/-"], 8, 1),
        (["100 client xe,a,3,gtt/8/8388608/0/-/-", "100 client", "101 client xe,a,3,gtt/8/1048576/0/-/-"], 8, 1),  # the id is used again
        # Without an id two descriptors may be of one client: the larger one is certain, in whatever order they come.
        (["100 client odd,-,-,vram/8/8388608/0/-/- odd,-,-,vram/8/1048576/0/-/-"], 8, 8),
        (["100 client odd,-,-,vram/8/1048576/0/-/- odd,-,-,vram/8/8388608/0/-/-"], 8, 8),
        (["100 client odd,-,-,vram/8/8388608/0/-/-", "101 client odd,-,-,vram/8/1048576/0/-/-"], 8, 8),
        (["100 client odd,-,-,vram/8/8388608/0/-/- odd,-,-,gtt/8/1048576/0/-/-"], 9, 9),
        (["100 client odd,a,-,vram/8/8388608/0/-/- odd,b,-,vram/8/1048576/0/-/-"], 9, 9),  # of two devices
        (["100 client odd,-,-,vram/8/8388608/0/-/- odd,-,3,vram/8/1048576/0/-/-"], 9, 9),
        (["100 client odd,-,-,vram/8/8388608/0/-/-", "100 client odd,-,-,vram/8/1048576/0/-/-"], 8, 1),  # the newest reading counts
    ],
)
def test_clients_count_once(lines: list[str], peak: float, end: float) -> None:
    assert figures(in_phase(*lines), "A") == (peak, end)


def test_kinds_by_exporter_region_and_source() -> None:
    recording = Recording()
    recording.begin("A")
    recording.buffers(ROOT, "dmabuf:system:7:8:8:2", "dmabuf:vgem:8:1:0:0", "memfd::9:3:0:0")
    recording.clients(ROOT, "xe,a,3,vram0/-/2097152/0/-/-")
    recording.tables(ROOT, 0.5, huge=6, shared=2)
    recording.end("A")
    run = recording.run()
    assert kinds(run, "A") == {
        "dma-buf system": (6, 6, 2),
        "dma-buf vgem": (1, 1, 0),
        "memfd": (3, 3, 0),
        "drm vram0": (2, 2, 0),
        "hugetlb": (6, 6, 0),
        "page tables": (0.5, 0.5, 0),
    }
    assert figures(run, "A") == (18, 18)  # page tables are told apart


def test_shared_huge_pages_count_once() -> None:
    recording = Recording()
    recording.spawn(101)
    recording.begin("A")
    recording.tables(ROOT, 1, huge=6, shared=4)
    recording.tables(101, 1, huge=4, shared=4)
    recording.end("A")
    assert kinds(recording.run(), "A") == {"hugetlb": (6, 6, 0), "page tables": (2, 2, 0)}


def test_phase_has_its_own_devices_alone() -> None:
    recording = Recording()
    recording.tables(ROOT, 1)
    recording.begin("A")
    recording.at(10).buffers(ROOT, "dmabuf:system:7:200:0:0")
    recording.at(20).buffers(ROOT, "dmabuf:system:8:1:0:0")
    recording.end("A")
    recording.at(21).buffers(ROOT)
    recording.begin("B")
    recording.at(40).end("B")
    run = recording.run()
    assert figures(run, "A") == (200, 1)
    assert figures(run, "B") == (0, 0)


def test_level_lasts_without_further_readings() -> None:
    recording = Recording()
    recording.buffers(ROOT, "dmabuf:system:7:8:0:0")
    for phase in "AB":
        recording.begin(phase)
        recording.poll()
        recording.end(phase)
    run = recording.run()
    assert figures(run, "A") == figures(run, "B") == (8, 8)


def test_level_of_the_begin_is_in_a_long_phase() -> None:
    """Its begin is a moment after the mark that tells of it, and nothing has changed for a while then."""
    recording = Recording()
    recording.buffers(ROOT, "dmabuf:system:7:8:0:0")
    for phase, ms in (("LONG", 200), ("SHORT", 50)):
        recording.at(recording.now_ms + 10).buffers(ROOT, "dmabuf:system:7:8:0:0")
        begin = recording.now_ms + 1
        recording.begin(phase)
        recording.at(begin + ms).buffers(ROOT)
        recording.mark("end", phase=phase, begin_ns=ns(begin), end_ns=ns(begin + ms + 1))
    run = recording.run()
    assert figures(run, "LONG") == (8, 0)
    assert figures(run, "SHORT") == (0, 0)  # nobody is sure to have read in it


def test_repeats_of_a_phase_have_one_peak() -> None:
    recording = Recording()
    for size, kind in ((30, "system"), (10, "vgem")):
        recording.begin("A")
        recording.poll()
        recording.buffers(ROOT, f"dmabuf:{kind}:7:{size}:0:0")
        recording.end("A")
        recording.poll()
        recording.buffers(ROOT)
    run = recording.run()
    assert figures(run, "A") == (30, 10)
    assert kinds(run, "A") == {"dma-buf system": (30, 0, 0), "dma-buf vgem": (10, 10, 0)}


@pytest.mark.parametrize(("late_ms", "end"), [(5, 1), (130, 8)])
def test_reading_that_comes_late_is_none_of_the_end(late_ms: float, end: float) -> None:
    """The recorder was held up: what it found by then may be of the next phase."""
    recording = Recording()
    recording.at(10).begin("A")
    recording.at(20).buffers(ROOT, "dmabuf:system:7:8:0:0")
    recording.at(50 + late_ms).buffers(ROOT, "dmabuf:system:7:1:0:0")
    recording.end("A", ms=50)
    assert figures(recording.run(), "A") == (8, end)


def test_buffer_of_an_orphan_counts() -> None:
    """Its parent had ended before anybody saw it."""
    recording = Recording()
    recording.begin("A")
    recording.orphan(101)
    recording.buffers(101, "dmabuf:system:7:8:0:0")
    recording.poll()
    recording.end("A")
    run = recording.run()
    assert figures(run, "A") == (8, 8)
    assert not mark(run, "A").rss_peak_exact  # the high-water mark is of one of two


def test_buffer_goes_with_its_process() -> None:
    recording = Recording()
    recording.spawn(101)
    recording.begin("A")
    recording.buffers(101, "dmabuf:system:7:8:0:0")
    recording.poll()
    recording.gone(101)
    recording.poll()
    recording.end("A")
    assert figures(recording.run(), "A") == (8, 0)


def test_program_without_phases_has_a_peak() -> None:
    recording = Recording()
    recording.at(10).buffers(ROOT, "dmabuf:system:7:8:0:0")
    recording.at(30).buffers(ROOT)
    recording.poll()
    assert figures(recording.run(largest=10), "RUN") == (8, None)


def test_attached_process_has_both_figures() -> None:
    recording = Recording(attach=ROOT)
    recording.buffers(ROOT, "dmabuf:system:7:8:0:0")
    recording.look("begin", reset=False, rss=10, hwm=10)
    recording.at(50).buffers(ROOT, "dmabuf:system:7:8:0:0", "dmabuf:system:8:2:0:0")
    recording.at(90).buffers(ROOT, "dmabuf:system:7:8:0:0")
    recording.look("end", reset=False, rss=10, hwm=10)
    assert figures(recording.finish(), "RUN") == (10, 8)


def test_timeline_has_a_column_of_devices() -> None:
    recording = Recording()
    recording.tables(ROOT, 1)
    assert recording.so_far().timeline.device is None
    for ms, sizes_ in ((20, ["dmabuf:system:7:60:0:0"]), (30, [])):
        recording.at(ms).buffers(ROOT, *sizes_)
    column = recording.run().timeline.device
    assert column is not None
    assert list(accumulate(array("q", zlib.decompress(base64.b64decode(column)))))[:3] == [0, 60 * MIB, 0]


# -- what cannot be seen


def test_recording_of_older_recorder_has_none() -> None:
    recording = Recording()
    recording.phase("A")
    assert figures(recording.run(), "A") == (None, None)


def test_hidden_descriptors_leave_no_figure() -> None:
    recording = Recording()
    recording.begin("A")
    recording.buffers(ROOT, "-")
    recording.tables(ROOT, 1)
    recording.end("A")
    run = recording.run()
    assert figures(run, "A") == (None, None)
    assert "memory of devices is in no figure: the descriptors of a process may not be read" in run.warnings


@pytest.mark.parametrize(("client", "who"), [("-,-,-", "one without a name"), ("panfrost,-,3", "panfrost"), ("mali,-,-", "mali")])
def test_silent_driver_is_named(client: str, who: str) -> None:
    run = in_phase(f"100 client {client}")
    assert f"drivers that tell of no memory here, so that it is in no figure: {who}" in run.warnings


@pytest.mark.parametrize(
    ("client", "who"),
    [
        ("odd,-,-,vram/8/8/0/-/-", "odd"),
        ("-,-,-,vram/8/8/0/-/-", "one without a name"),
        ("odd,-,3,vram/8/8/0/-/-", None),
        ("odd,-,-", None),
    ],
)
def test_driver_without_client_ids_is_named(client: str, who: str | None) -> None:
    warnings = in_phase(f"100 client {client}").warnings
    sentence = f"drivers that give their clients no id here, so that of these the largest alone counts: {who}"
    assert [warning for warning in warnings if "no id here" in warning] == ([sentence] if who else [])


@pytest.mark.parametrize(("asks", "remarks"), [(False, 1), (True, 0)])
def test_nvidia_that_is_used_and_not_asked_is_said(asks: bool, remarks: int) -> None:
    recording = Recording()
    if asks:
        recording.tell("nvidia %d 9000")
    recording.begin("A")
    recording.tell(f"clients %d 9000 {ROOT} nvidia,-,-")
    recording.end("A")
    assert sum("NVML was not asked" in warning for warning in recording.run().warnings) == remarks
    assert not any("tell of no memory" in warning for warning in recording.run().warnings)


def test_readings_left_out_are_said() -> None:
    recording = Recording()
    recording.phase("A")
    recording.tell("fault %d devices 12")
    assert any("a peak of devices may be missed (12 readings left out)" in warning for warning in recording.run().warnings)


# -- trees of processes, by chance


def test_no_tree_counts_a_buffer_twice() -> None:
    for seed in tried(range(200)):
        draw = random.Random(seed)
        there = {inode: draw.randrange(1, 200) * 4096 for inode in range(draw.randrange(1, 12))}
        processes = []
        for _ in range(draw.randrange(1, 8)):
            process = ProcessDevices()
            held = draw.sample(sorted(there), draw.randrange(len(there) + 1))
            process.see_buffers([b"dmabuf:system:%d:%d:%d:0" % (inode, there[inode], draw.choice((0, there[inode]))) for inode in held])
            processes.append(process)
        seen = {buffer.inode for process in processes for buffer in process.buffers}
        found = sizes(processes).get("dma-buf system", (0, 0))
        assert found == (sum(there[inode] for inode in seen), 0), seed


# -- NVIDIA


def test_nvidia_by_process_of_the_tree() -> None:
    recording = Recording()
    recording.spawn(101)
    recording.begin("A")
    recording.tell(f"nvidia %d 9000 {ROOT}:{8 * MIB} 101:{2 * MIB} 4711:{64 * MIB}")  # the last is a stranger
    recording.poll()
    recording.tell(f"nvidia %d 9000 101:{2 * MIB} 4711:{64 * MIB}")
    recording.end("A")
    run = recording.run()
    assert kinds(run, "A") == {"nvidia, approximate": (10, 2, 0)}
    assert figures(run, "A") == (10, 2)


def test_nvidia_that_does_not_tell_is_said() -> None:
    recording = Recording()
    recording.begin("A")
    recording.tell(f"nvidia %d 9000 {ROOT}:-")
    recording.end("A")
    assert any(warning.endswith("so that it is in no figure: nvidia") for warning in recording.run().warnings)


# -- the charge of the run's own control group


def test_charge_of_each_phase_where_it_can_be_reset() -> None:
    recording = Recording()
    for phase, peak in (("A", 80), ("B", 30)):
        recording.group(5, 0, 0)  # between the phases
        recording.begin(phase)
        recording.group(peak, 0, 0)
        recording.end(phase)
    run = recording.run()
    assert [(mark(run, phase).charged_peak_bytes or 0) / MIB for phase in "AB"] == [80, 30]
    assert run.charged is not None
    assert run.charged.peak_bytes == 80 * MIB


def test_charge_that_cannot_be_reset_is_of_no_phase() -> None:
    recording = Recording()
    recording.tell(f"group %d {5 * MIB} - 0 0 0")
    recording.begin("A")
    recording.tell(f"group %d {80 * MIB} - 0 0 0")
    recording.end("A")
    assert mark(recording.run(), "A").charged_peak_bytes is None
