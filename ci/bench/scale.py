"""A file of 500 runs with 20,000 samples each, and one of 10 runs: how long a frame, the page and every picture take, and in how much memory.

The runs are one real run of the synthetic runtime, its timeline replaced by 20,000 rows that climb and fall at random, so that neither zlib nor
thinning finds them easier than a real one. Each figure is a whole process, its start and imports included.
"""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
import time
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from statistics import median

from memprof.base.units import format_bytes
from memprof.records import store
from memprof.records.types import Run, Timeline

from . import opening, tools
from .table import Row, Section, Setting

_MIB, _GIB = 1 << 20, 1 << 30
_SAMPLES = 20_000
_VARIANTS = 5
_FRAME_S, _PAGE_S, _PLOT_S, _SMALL_PAGE_S, _OPEN_S = 3.0, 10.0, 5.0, 3.0, 2.0
_FRAME_BYTES, _PAGE_BYTES = _GIB, 5 * _MIB
_PLOTS = ("peaks", "timeline", "threads", "tradeoff", "spread")
# The process's high-water mark; unlike ru_maxrss, it holds nothing of the parent's.
_REPORT = "print([row for row in open('/proc/self/status') if row.startswith('VmHWM')][0].split()[1], file=sys.stderr)"
_COMMAND = "import sys; from memprof.cli import group; group.main(sys.argv[1:], standalone_mode=False); " + _REPORT
_FRAME = "import sys, memprof; print(len(memprof.load(sys.argv[1]).to_frame())); " + _REPORT
_TIMELINE = "import sys, memprof; print(len(memprof.load(sys.argv[1]).timeline())); " + _REPORT


@dataclass(frozen=True)
class Taken:
    """Medians over the repeats of one process: seconds from start to end, and its high-water mark."""

    seconds: float
    hwm_bytes: int


def measure(setting: Setting) -> Section:
    """Frame, page and pictures of the large file, page of the small one."""
    counted = setting.count(500, 20)
    large, small = setting.folder / "large.jsonl", setting.folder / "small.jsonl"
    setting.say(f"scale: writing {counted} runs")
    template = _template(setting)
    _write(large, template, counted)
    _write(small, template, 10)
    repeats = setting.count(5, 1)
    page = setting.folder / "page.html"

    def taken(subject: str, program: str, *arguments: str) -> Taken:
        setting.say(f"scale: {subject}")
        return _taken(program, arguments, repeats)

    frame = taken("frame", _FRAME, str(large))
    rows = [
        _row(f"{counted} runs: load to frame", frame, _FRAME_S, _FRAME_BYTES),
        _row(f"{counted} runs: load to frame of all samples", taken("samples", _TIMELINE, str(large)), None, None),
        _row(f"{counted} runs: `page`", taken("page", _COMMAND, "page", str(large), "-o", str(page)), _PAGE_S, None),
    ]
    size = page.stat().st_size
    rows.append(Row(f"{counted} runs: size of the page", f"<= {format_bytes(_PAGE_BYTES)}", format_bytes(size), met=size <= _PAGE_BYTES))
    rows.append(_opening(f"{counted} runs: the page opens in headless Chromium", page, repeats))
    for name in _PLOTS:
        picture = str(setting.folder / f"{name}.png")
        rows.append(_row(f"{counted} runs: `plot {name}`", taken(name, _COMMAND, "plot", name, str(large), "-o", picture), _PLOT_S, None))
    rows.append(_row("10 runs: `page`", taken("small page", _COMMAND, "page", str(small), "-o", str(page)), _SMALL_PAGE_S, None))
    note = (
        f"Reports: a file of {counted} runs in {_VARIANTS} variants with {_SAMPLES:,} samples each, {format_bytes(large.stat().st_size)}; whole "
        f"processes, imports included, medians of {repeats}; beside the time the process's high-water mark."
    )
    return Section(tuple(rows), (note,), {row.subject: row.memprof for row in rows})


def _row(subject: str, taken: Taken, most_s: float | None, most_bytes: int | None) -> Row:
    limits = [*([f"{most_s:g} s"] if most_s else []), *([format_bytes(most_bytes)] if most_bytes else [])]
    met = (most_s is None or taken.seconds <= most_s) and (most_bytes is None or taken.hwm_bytes <= most_bytes)
    shown = f"{taken.seconds:.1f} s, {format_bytes(taken.hwm_bytes)}"
    return Row(subject, f"<= {', '.join(limits)}" if limits else "", shown, met=met if limits else None)


def _taken(program: str, arguments: Sequence[str], repeats: int) -> Taken:
    seconds, peaks = [], []
    for _ in range(repeats):
        begin_s = time.monotonic()
        done = subprocess.run([sys.executable, "-I", "-c", program, *arguments], check=True, capture_output=True, text=True)
        seconds.append(time.monotonic() - begin_s)
        peaks.append(int(done.stderr.split()[-1]) * 1024)
    return Taken(median(seconds), int(median(peaks)))


def _opening(subject: str, page: Path, repeats: int) -> Row:
    target = f"<= {_OPEN_S:g} s"
    seconds = opening.seconds(page, repeats)
    if seconds is None:
        return Row(subject, target, "no Chromium here", met=None)
    return Row(subject, target, f"{seconds:.2f} s", met=seconds <= _OPEN_S)


def _template(setting: Setting) -> Run:
    """A real run with every phase."""
    scenario = setting.folder / "scale.json"
    scenario.write_text(json.dumps({"load": [{"allocate": "weights", "bytes": 20 * _MIB}], "execute": [{"sleep_s": 0.01}]}))
    (order,) = tools.orders([scenario], "synthetic", threads=(1,), warmup=1, runs=20, repeats=1)
    run = tools.recorded(order).run
    if not run.outcome.ok:
        sys.exit(f"the run to copy failed: {run.outcome.sentence}")
    return run


def _write(path: Path, template: Run, count: int) -> None:
    with path.open("wb") as file:
        for line in _lines(template, count):
            file.write(line)


def _lines(template: Run, count: int) -> Iterator[bytes]:
    for index in range(count):
        dice = random.Random(index)
        variant = index % _VARIANTS
        job = replace(template.job, variant=f"variant {variant}", repeat=index // _VARIANTS // 2 + 1, threads=1 + index // _VARIANTS % 2)
        marks = tuple(replace(mark, rss_peak_bytes=mark.rss_peak_bytes + dice.randrange(_MIB)) for mark in template.marks)
        yield store.encode(replace(template, job=job, marks=marks, timeline=_timeline(template, dice)))


def _timeline(run: Run, dice: random.Random) -> Timeline:
    begin_ns, end_ns = run.marks[0].begin_ns, run.marks[-1].end_ns
    t_ns = sorted(dice.sample(range(begin_ns, end_ns), _SAMPLES))
    ground = run.marks[0].rss_end_bytes or 40 * _MIB
    rss = [max(value, ground) for value in accumulate((dice.randrange(-64, 66) * 4096 for _ in range(_SAMPLES - 1)), initial=ground)]
    file = [ground // 2 + dice.randrange(8) * 4096 for _ in range(_SAMPLES)]
    vms = [value * 3 for value in rss]
    return Timeline(*(_packed(column) for column in (t_ns, rss, file, vms)), _SAMPLES, min(rss), sum(rss) // _SAMPLES, max(rss))


def _packed(column: Sequence[int]) -> str:
    steps = array("q", [now - before for before, now in zip([0, *column], column, strict=False)])
    return base64.b64encode(zlib.compress(steps.tobytes())).decode()
