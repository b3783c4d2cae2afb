"""How often the sum of a tree of processes is wrong, and how wide its interval: `python ci/attack/trees.py [--repeats N] [--busy N] [CASE...]`.

Each case of trees.c is measured by `memprof exec` so often, idle and beside so many busy loops. Its memory is known but for what every small
process has. Right is a sum whose interval holds that; narrow is an interval under 5% of its upper end. Exits 1 where a sum was wrong, or
where fewer than 95% of at least 20 were narrow; the cases in WIDE need not be narrow. All cases with at least 20 repeats also write their table into
docs/reliability.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# bench is a package of scripts beside this one's folder; it is never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import docs, table

REPEATS = 200
FOR_DOCS = 20  # so many repeats of each case are a campaign, whose counts the manual keeps
MIB = 1 << 20
# The most MiB that are held at once, and the number of processes that share them.
CASES = {
    "fork": (100, 7),
    "fork-short": (100, 7),
    "killed": (100, 7),
    "storm": (100, 9),
    "own": (96, 5),
    "copy-100ms": (1000, 2),
    "copy-300ms": (1000, 2),
    "file": (200, 4),
    "shmem": (200, 5),
    "vfork": (300, 4),
    "vfork-short": (300, 4),
    "threads": (128, 5),
    "daemon": (100, 3),
    "leader": (164, 2),
}
SMALL_MIB = 2.0  # of the first process besides, libraries included
EACH_MIB = 0.8  # of each further process besides, at most: its tables, stack and copies of a few pages
NARROW = 0.05
WIDE = ("storm",)  # processes come and go faster than shares can be read: the bounds hold, but nothing brings them together
ENOUGH = 0.95


def main() -> int:
    """Repeat, print the counts, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--busy", type=int, default=2, help="busy loops in the second half")
    parser.add_argument("--verbose", action="store_true", help="print each interval that is wrong or wide")
    parser.add_argument("cases", nargs="*", metavar="CASE", choices=[*CASES, []])
    asked = parser.parse_args()
    good, rows = True, [_HEADINGS]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "trees"
        source = Path(__file__).with_name("trees.c")
        subprocess.run(["cc", "-O1", "-pthread", "-o", str(program), str(source)], check=True)
        for busy in (0, asked.busy):
            for case in asked.cases or CASES:
                with loops(busy):
                    sums = [measured(program, case, folder) for _ in range(asked.repeats)]
                row, is_good = judged(case, busy, sums, asked.verbose)
                rows.append(row)
                good &= is_good
    text = table.aligned(rows)
    print(text)
    if not asked.cases and asked.repeats >= FOR_DOCS:
        docs.write("attack-trees", text, [f"`python ci/attack/trees.py --repeats {asked.repeats} --busy {asked.busy}`; sizes in MiB."])
    return 0 if good else 1


_HEADINGS = ("case", "beside", "tried", "right", "narrow", "lowest", "highest", "truth")


def judged(case: str, busy: int, sums: list[tuple[float, float]], verbose: bool) -> tuple[tuple[str, ...], bool]:
    """A case's row, and whether it is as it must be."""
    held, count = CASES[case]
    most = held + SMALL_MIB + EACH_MIB * (count - 1)
    right = [low <= most and high >= held for low, high in sums]
    narrow = [high - low < NARROW * high for low, high in sums]
    beside = f"{busy} busy loops" if busy else "nothing"
    least, highest = min(low for low, _ in sums), max(high for _, high in sums)
    counts = (str(len(sums)), str(sum(right)), str(sum(narrow)))
    row = (case, beside, *counts, f"{least:.1f}", f"{highest:.1f}", f"{held} to {most:.0f}")
    print(", ".join(f"{name} {cell}" for name, cell in zip(_HEADINGS, row, strict=True)), file=sys.stderr, flush=True)
    if verbose:
        for (low, high), is_right, is_narrow in zip(sums, right, narrow, strict=True):
            if not (is_right and is_narrow):
                print(f"    {'wide' if is_right else 'wrong'}: {low:.1f} to {high:.1f}", file=sys.stderr)
    few = len(sums) < FOR_DOCS  # a single wide sum of a few says nothing
    return row, all(right) and (case in WIDE or few or sum(narrow) >= ENOUGH * len(sums))


def measured(program: Path, case: str, folder: Path) -> tuple[float, float]:
    """The bounds of the sum's peak, in MiB."""
    runs = folder / "runs.jsonl"
    runs.unlink(missing_ok=True)
    command = [sys.executable, "-m", "memprof", "exec", "--repeats", "1", "-o", str(runs), "--", str(program), case]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode != 0:
        raise SystemExit(f"{case}: exit code {done.returncode}: {done.stderr}")
    (mark,) = json.loads(runs.read_text())["marks"]
    return mark["rss_peak_bytes"] / MIB, (mark.get("rss_peak_high_bytes") or mark["rss_peak_bytes"]) / MIB


@contextmanager
def loops(count: int) -> Iterator[None]:
    """So many processes that do nothing but turn."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
