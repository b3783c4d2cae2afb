"""How often the sum of a tree of processes is wrong, and how wide its interval:
`python ci/attack/trees.py [CASE...] [--repeats N] [--beside N...] [--keep FILE]`.

Each case of trees.c is measured by `memprof exec` so often, idle and beside so many busy loops. Its memory is known but for what every small
process has. A campaign of 200 repeats takes over an hour; `--keep` lets it go on after an interruption. Right is a sum whose interval holds the
memory; narrow is an interval under 5% of its upper end. Exits 1 where a sum was wrong, or where fewer than 95% of at least 20 were narrow; the
cases in WIDE need not be narrow. All cases with at least 20 repeats also write their table into docs/reliability.md.
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
AT_ONCE = 20  # repeats of one memprof, each with a recorder of its own; what it measured is kept before the next starts
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
    parser.add_argument(
        "--beside", type=int, nargs="+", default=[0, 2], metavar="N", help="busy loops that turn beside; for each number anew"
    )
    parser.add_argument("--keep", metavar="FILE", type=Path, help="keep each case's sums here, and measure only what it lacks")
    parser.add_argument("--verbose", action="store_true", help="print each interval that is wrong or wide")
    parser.add_argument("cases", nargs="*", metavar="CASE", choices=[*CASES, []])
    asked = parser.parse_args()
    good, rows = True, [_HEADINGS]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "trees"
        source = Path(__file__).with_name("trees.c")
        subprocess.run(["cc", "-O1", "-pthread", "-o", str(program), str(source)], check=True)
        for busy in asked.beside:
            for case in asked.cases or CASES:
                sums = kept(asked.keep, case, busy)[: asked.repeats]
                with loops(busy):
                    while len(sums) < asked.repeats:
                        new = measured(program, case, folder, min(AT_ONCE, asked.repeats - len(sums)))
                        keep(asked.keep, case, busy, new)
                        sums += new
                row, is_good = judged(case, busy, sums, asked.verbose)
                rows.append(row)
                good &= is_good
    text = table.aligned(rows)
    print(text)
    if not asked.cases and len(asked.beside) > 1 and asked.repeats >= FOR_DOCS:
        beside = " ".join(map(str, asked.beside))
        docs.write("attack-trees", text, [f"`python ci/attack/trees.py --repeats {asked.repeats} --beside {beside}`; sizes in MiB."])
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


def measured(program: Path, case: str, folder: Path, repeats: int) -> list[tuple[float, float]]:
    """The bounds of each sum's peak, in MiB."""
    runs = folder / "runs.jsonl"
    runs.unlink(missing_ok=True)
    command = [sys.executable, "-m", "memprof", "exec", "--repeats", str(repeats), "-o", str(runs), "--", str(program), case]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode != 0:
        raise SystemExit(f"{case}: exit code {done.returncode}: {done.stderr}")
    marks = [mark for line in runs.read_text().splitlines() for mark in json.loads(line)["marks"]]
    if len(marks) != repeats:
        raise SystemExit(f"{case}: {len(marks)} sums of {repeats} repeats")
    return [(mark["rss_peak_bytes"] / MIB, (mark.get("rss_peak_high_bytes") or mark["rss_peak_bytes"]) / MIB) for mark in marks]


def kept(file: Path | None, case: str, busy: int) -> list[tuple[float, float]]:
    """The sums of this case that an earlier campaign left."""
    if file is None or not file.exists():
        return []
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [(low, high) for line in lines if (line["case"], line["busy"]) == (case, busy) for low, high in line["sums"]]


def keep(file: Path | None, case: str, busy: int, sums: list[tuple[float, float]]) -> None:
    """Append them, so that an interrupted campaign loses none."""
    if file is not None:
        with file.open("a") as out:
            out.write(json.dumps({"case": case, "busy": busy, "sums": sums}) + "\n")


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
