"""How good the searches of a history are: `make bench-history`, or PARTS="steps bisect site" for some of it.

steps: 500 synthetic series with known steps (see history_series.py) and as many without one. A step counts as found within two commits of its place.
OTHERS names an interpreter that has apache-otava, ruptures and asv; without it memprof's alone is measured. Processor time is counted.
Series without a step are also replayed commit by commit, as `check` sees them: a false alarm there may be gone when more commits have come.
bisect: 500 searches over 128 versions whose noise has two modes, with a step of 1, 2 or 5% at a place that is known.
site: the page of 5,000 commits with 50 lines each; the time is that of processors, which a busy machine does not change much. Then it is opened in a
headless Chromium, if there is one: that takes an idle machine.

500 series or searches (the default) and more go into the manual; the table of series only with the others beside memprof.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from memprof.bisect import search
from memprof.bisect.search import Question
from memprof.records.summary import Key
from memprof.records.types import Machine
from memprof.reports import history as page
from memprof.verdicts import steps
from memprof.verdicts.verdicts import Limits
from memprof.versions import history_file as lines
from memprof.versions import history_folder as folder_of
from memprof.versions import series as points
from memprof.versions.commits import Commit
from memprof.versions.series import Measured, Point, Row

from . import docs, opening
from .history_series import BOUND, COMMITS, NOISES, REPEATS, SIZES, Series, series
from .table import aligned

WITHIN = 2
_OPENINGS = 5
_FOR_THE_MANUAL = 500
VERSIONS = 128
PHASES = ("STARTUP", "MODEL_LOAD", "PREPARE", "EXECUTE", "PEAK")
METRICS = ("rss_peak_bytes", "anon_end_bytes")
MACHINE = Machine("here", "x86_64", "6.18", "glibc 2.36", "a CPU", 2, 2, 8 << 30, 0, 4096, "madvise", BOUND)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["steps", "bisect", "site"], choices=["steps", "bisect", "site"])
    parser.add_argument("--count", type=int, default=500, help="series with steps and series without, and searches")
    given = parser.parse_args()
    for part in given.parts:
        {"steps": _steps, "bisect": _bisect, "site": _site}[part](given.count)


def _steps(count: int) -> None:
    kinds = [(noise, size) for noise in NOISES for size in SIZES]
    stepped = [series(*kinds[number % len(kinds)], number) for number in range(count)]
    calm = [series(NOISES[number % len(NOISES)], 0.0, number, steps=0) for number in range(count)]
    began = time.process_time()
    places = {"memprof": [_memprof(made) for made in (*stepped, *calm)]}
    seconds = (time.process_time() - began) / (2 * count)
    places |= _others([*stepped, *calm])
    finders = list(places)
    lines = [["noise", "step", "steps", *(f"{name}: F1" for name in finders)]]
    overall = [["step", *finders]]
    for noise in (*NOISES, "all"):
        for size in SIZES:
            rows = [n for n, made in enumerate(stepped) if made.size == size and noise in (made.noise, "all")]
            scores = [f1([places[name][n] for n in rows], [stepped[n].steps for n in rows]) for name in finders]
            lines.append([noise, f"{size:.1%}", str(sum(len(stepped[n].steps) for n in rows)), *(f"{score:.3f}" for score in scores)])
            if noise == "all":
                overall.append([f"{size:.1%}", *(f"{score:.3f}" for score in scores)])
    print(aligned(lines), end="\n\n")
    lines = [["noise, no step", "commits", *(f"{name}: false alarms" for name in finders), "memprof: commits at which check tells one"]]
    told = [_told(made.points) for made in calm]
    for noise in (*NOISES, "all"):
        rows = [n for n, made in enumerate(calm) if noise in (made.noise, "all")]
        alarms = [sum(len(places[name][count + n]) for n in rows) for name in finders]
        by_check = sum(told[n] for n in rows)
        lines.append([noise, str(len(rows) * COMMITS), *map(str, alarms), str(by_check)])
        if noise == "all":
            overall.append([f"false alarms, {len(rows) * COMMITS:,} commits", *(f"{number:,}" for number in alarms)])
            overall.append(["the same, as `check` tells them commit by commit", f"{by_check:,}", *("-" for _ in finders[1:])])
    print(aligned(lines), end="\n\n")
    exact = [place in made.steps for made, places_found in zip(stepped, places["memprof"][:count], strict=True) for place in places_found]
    precise = f"{sum(exact)} of {len(exact)} steps of memprof are at the very commit; {1000 * seconds:.1f} ms a series of {COMMITS} commits"
    print(precise)
    if count >= _FOR_THE_MANUAL and len(finders) > 1:
        docs.write("history-steps", aligned(overall), [f"F1 of {count} series with steps; {precise}.", _command("steps", count)])


def _told(points: Sequence[tuple[float, ...]]) -> int:
    """At how many commits of a series `memprof history check` tells a step, if it is asked at each: a step that it did not see within two commits at
    the commit before."""
    known: tuple[steps.Step, ...] = ()
    told = 0
    for count in range(2, len(points) + 1):
        now = steps.find(points[:count], BOUND)
        told += any(not any(abs(step.at - old.at) <= WITHIN and step.size * old.size > 0 for old in known) for step in now)
        known = now
    return told


def f1(places: Sequence[Sequence[int]], known: Sequence[Sequence[int]]) -> float:
    """The harmonic mean of precision and recall over all series together."""
    hits = sum(matched(here, there) for here, there in zip(places, known, strict=True))
    total = sum(map(len, places)) + sum(map(len, known))
    return 2 * hits / total if total else 1.0


def matched(places: Sequence[int], known: Sequence[int]) -> int:
    """How many known steps have a found step near them, each its own."""
    left = list(places)
    for place in known:
        near = min(left, key=lambda other: abs(other - place), default=None)
        if near is not None and abs(near - place) <= WITHIN:
            left.remove(near)
    return len(places) - len(left)


def _bisect(count: int) -> None:
    lines = [["step", "searches", "the very version", "wrong", "not decided", "versions measured, at most", "runs, mean"]]
    for size in (0.01, 0.02, 0.05):
        answers = [_searched(number, size) for number in range(count)]
        right = sum(answered == at for answered, at, _, _ in answers)
        undecided = sum(answered is None for answered, _, _, _ in answers)
        most = max(versions for _, _, versions, _ in answers)
        runs = sum(runs for _, _, _, runs in answers) / count
        lines.append([f"{size:.0%}", str(count), str(right), str(count - right - undecided), str(undecided), str(most), f"{runs:.0f}"])
    print(aligned(lines), end="\n\n")
    if count >= _FOR_THE_MANUAL:
        docs.write("history-bisect", aligned(lines), [_command("bisect", count)])


def _command(part: str, count: int) -> str:
    return f'`make bench-history PARTS="{part} --count {count}"`'


def _searched(seed: int, size: float) -> tuple[int | None, int, int, int]:
    """Where a search says that the step is (None for no answer), where it is, and how many versions and runs it measured."""
    draw = random.Random(f"{seed} {size}")
    level, gap, often = draw.uniform(100, 800) * 2**20, draw.uniform(0.015, 0.04), draw.uniform(0.3, 0.7)
    at, sign = draw.randint(1, VERSIONS - 1), draw.choice((1, -1))
    runs = [0] * VERSIONS

    def look(place: int, repeats: int) -> tuple[float, ...]:
        runs[place] += repeats
        here = level * (1 + sign * size * (place >= at))
        return tuple(
            round((draw.gauss(here, 0.0003 * level) + gap * level * (draw.random() < often)) / 4096) * 4096 for _ in range(repeats)
        )

    limits = Limits(share=min(0.01, size / 2))
    question = Question(Key("net.onnx", "a", None, "here"), "PEAK", "rss_peak_bytes", BOUND, limits)
    try:
        steps_found = search.search(VERSIONS, look, question).steps
    except search.Unanswered:
        steps_found = ()
    very = steps_found[0].at if steps_found and not steps_found[0].between else None
    return very, at, sum(count > 0 for count in runs), sum(runs)


def _site(count: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, file = Path(name) / "history", Path(name) / "index.html"
        write(folder, commits=5000)
        began = time.process_time()
        history = lines.read(folder_of.load(folder), None)
        html = page.render(history, "a project", "https://example.org/{commit}")
        made = time.process_time() - began
        file.write_text(html, encoding="utf-8")
        opened = opening.seconds(file, _OPENINGS)
    size = len(html.encode()) / 2**20
    table = [
        ["commits", "lines", "steps", "made in, of processor", "size", f"opens in, median of {_OPENINGS}"],
        [
            f"{len(history.commits):,}",
            str(len(history.lines)),
            str(sum(len(line.steps) for line in history.lines)),
            f"{made:.1f} s",
            f"{size:.1f} MiB",
            f"{opened:.1f} s" if opened is not None else "no Chromium here",
        ],
    ]
    print(aligned(table), end="\n\n")
    if count >= _FOR_THE_MANUAL and opened is not None:
        docs.write("history-site", aligned(table), ["`make bench-history PARTS=site`"])


def write(folder: Path, commits: int) -> None:
    """A history of as many commits: five variants, five phases, two metrics, with every noise."""
    folder.mkdir()
    rows = [(variant, metric, phase) for variant in range(5) for metric in METRICS for phase in PHASES]
    figures = {row: series(NOISES[number % len(NOISES)], 0.02, number, commits, 4).points for number, row in enumerate(rows)}
    draw = random.Random(1)
    for place in range(commits):
        entries = tuple(
            Measured(
                "net.onnx",
                f"variant {variant}",
                None,
                "00" * 32,
                {"runtime": "onnxruntime"},
                REPEATS,
                0,
                None,
                tuple(Row(phase, metric, figures[variant, metric, phase][place]) for metric in METRICS for phase in PHASES),
            )
            for variant in range(5)
        )
        tags = (f"v1.{place // 400}",) if place % 400 == 0 else ()
        commit = Commit(f"{draw.getrandbits(160):040x}", 1_600_000_000 + place * 7200, (), f"change number {place} of the allocator", tags)
        name, content = points.encoded(Point(commit, MACHINE, entries))
        (folder / name).write_bytes(content)


def _memprof(made: Series) -> list[int]:
    return [step.at for step in steps.find(made.points, BOUND)]


def _others(all_series: Sequence[Series]) -> dict[str, list[list[int]]]:
    python = os.environ.get("OTHERS")
    if not python:
        return {}
    script = Path(__file__).with_name("history_others.py")
    given = json.dumps([made.points for made in all_series])
    done = subprocess.run([python, str(script)], input=given, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
