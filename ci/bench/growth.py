"""How good `memprof grow` is: `python ci/bench/growth.py [real] [series] [meter]`, all by default.

    real       processes of known growth (growth.c and growth_runtime.py), --cases of each kind: false alarms, misses, the unit and the memory
               that are named, and what three usual tests say of the same curves
    series     curves of known growth without a process (growth_curves.py), --cases of each kind: the verdict, and the size and rate that it names;
               they take no time of their own, so that a busy machine does not change them
    meter      what following memory adds to a process in 100,000 iterations, in C and in Python, and its CPU time beside an iteration of 1 ms

Tables go to standard output, progress to standard error. `--docs` writes them into docs/growth.md.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

# bench is a package of scripts beside this one's folder; it is never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import docs, growth_curves
from memprof import zoo
from memprof.campaign import campaign
from memprof.campaign.progress import Silent
from memprof.grow.grow import FACTOR, FIRST_UNITS, GrowRequest, GrowthAnswer, UnitBudget, grow, within_budget
from memprof.programs import commands
from memprof.programs.runtimes import runners_path
from memprof.records import work
from memprof.records.types import COMMAND, Run
from memprof.reports.tables import growth as tables
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite, Variant
from memprof.verdicts.growth import Verdict, judge
from memprof.verdicts.growth_limits import RELOAD

# kind: (units a process, what it grows with, which memory rises); no unit: it does not grow
_KINDS: dict[str, tuple[int, str | None, str | None]] = {
    "steady": (2000, None, None),
    "warm-up": (2000, None, None),
    "cache": (2000, None, None),
    "saw-tooth": (2000, None, None),
    "bounded-3000": (8000, None, None),
    "bounded-10000": (20000, None, None),
    "bounded-bytes": (32000, None, None),
    "bursts": (20000, None, None),
    "fragments": (32000, None, None),
    "leak-4096": (2000, "iteration", "in use"),
    "leak-65536": (2000, "iteration", "in use"),
    "leak-256": (20000, "iteration", "in use"),
    "leak-16": (20000, "iteration", "in use"),
    "each-100th": (2000, "iteration", "in use"),
    "token": (2000, "token", "in use"),
    "request": (2000, "request", "in use"),
    "shape": (2000, "shape", "in use"),
    "file": (2000, "iteration", "file-backed"),
    "pool": (2000, "iteration", "in use"),
    "python-cache": (2000, None, None),
    "python": (2000, "iteration", "in use"),
    "reload-freed": (200, None, None),
    "reload": (200, "reload", "in use"),
    "wrapped": (2000, None, None),
    "wrapper": (2000, "iteration", "in use"),
}
_IN_PYTHON = ("python-cache", "python", "reload-freed", "reload", "wrapped", "wrapper")  # of growth_runtime.py
_SURE = 0.95
_CLOSE = 0.1  # how far a size, a unit or a rate may be from the truth, as a share


def main() -> None:
    """Measure the parts that are named, and print their tables."""
    parts = {"real": _real, "series": _series, "meter": _meter}
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument(
        "--kinds", nargs="*", choices=[*_KINDS, *growth_curves.CURVES], metavar="KIND", help="those of the parts that have kinds"
    )
    parser.add_argument("--docs", action="store_true")
    words = parser.parse_args()
    for name in words.parts or parts:
        lines, note = parts[name](words)
        text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        print(f"{text}\n\n{note}\n")
        if words.docs:
            docs.write(f"growth-{name}", text, [note])


def _program(folder: Path) -> Path:
    source, program = Path(__file__).with_name("growth.c"), folder / "growth"
    include = f"-I{runners_path() / 'native'}"
    subprocess.run(["cc", "-O1", "-fno-builtin-malloc", include, "-o", str(program), str(source)], check=True)
    return program


# -- processes of known growth


def _real(words: argparse.Namespace) -> tuple[list[tuple[str, ...]], str]:
    header = ("kind", "units", "cases", "grows", "flat", "undecided", "wrong (95%: at most)", "unit right", "memory right", *_RIVALS)
    lines = [header, ("---", *["---:"] * (len(header) - 1)), *_kinds(words)]
    note = (
        "Rounds of three processes a case, as memprof grow makes them, up to so many units. Wrong: an alarm where nothing grows, or growth that "
        "was not called so. Unit right: the sentence names it first. The last three columns: how "
        "often usual tests call the curve of the first process growth: its last value 1% above its first, the slope of a line, and Mann and "
        "Kendall's, both with p < 0.05."
    )
    return lines, note


_RIVALS = ("last above first", "line", "Mann-Kendall")


def _kinds(words: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    with tempfile.TemporaryDirectory() as folder:
        program = _program(Path(folder))
        zoo.make("mnist", Path(folder) / "mnist.onnx", format="onnx")
        for kind in _chosen(words, _KINDS):
            units, cause, where = _KINDS[kind]
            seen: Counter[str] = Counter()
            rivals: Counter[str] = Counter()
            for case in range(words.cases):
                grown = _grown(program, kind, units, case)
                seen[grown.verdict.word] += 1
                seen["unit"] += grown.verdict.word == "grows" and grown.verdict.unit == cause
                seen["where"] += grown.verdict.word == "grows" and grown.verdict.where == where
                rivals.update(_rivals(grown.runs[0]))
                print(f"{kind} {case + 1}: {tables.words(grown.verdict)}", file=sys.stderr)
            wrong = words.cases - seen["grows"] if cause else seen["grows"]
            calm = seen["bounded"] + seen["steady"]
            named = [f"{seen[name] / seen['grows']:.1%}" if cause and seen["grows"] else "-" for name in ("unit", "where")]
            counts = (str(units), str(words.cases), str(seen["grows"]), str(calm), str(seen["undecided"]))
            yield (kind, *counts, f"{wrong} ({_most(wrong, words.cases):.1%})", *named, *(str(rivals[name]) for name in _RIVALS))


def _chosen(words: argparse.Namespace, kinds: Iterable[str]) -> list[str]:
    return [kind for kind in kinds if words.kinds is None or kind in words.kinds]


def _grown(program: Path, kind: str, units: int, seed: int) -> GrowthAnswer:
    if kind in _IN_PYTHON:
        model = program.with_name(kind)
        model.write_text(f"{kind} {seed}")
        cycles = RELOAD if kind.startswith(RELOAD) else None
        runtime = str(Path(__file__).with_name("growth_runtime.py"))
        request = GrowRequest(
            Suite(models=(str(model),), variants=(Variant(runtime),), threads=(1,)), cycles=cycles, budget=UnitBudget(units=units)
        )
        return grow(request, Silent(), lambda line: None)
    command = commands.of_words([str(program), kind, "{runs}", str(seed)])
    return grow(
        GrowRequest(Suite(variants=(Variant(COMMAND, command.name, command=command),)), budget=UnitBudget(units=units)),
        Silent(),
        lambda line: None,
    )


def _most(wrong: int, cases: int) -> float:
    """The upper end of the one-sided interval of a share (Clopper and Pearson 1934)."""
    from scipy.stats import beta

    return 1.0 if wrong == cases else float(beta.ppf(_SURE, wrong + 1, cases - wrong))


def _rivals(run: Run) -> dict[str, int]:
    """Whether usual tests call a curve growth: its last value 1% above its first, a line's slope, and Kendall's rank correlation."""
    from scipy.stats import kendalltau, linregress

    rss = np.asarray(work.curve_of(run).rss, dtype=float)
    rss = rss[:: max(1, len(rss) // 500)]
    line, tau = linregress(range(len(rss)), rss), kendalltau(range(len(rss)), rss)
    return {
        _RIVALS[0]: int(rss[-1] > 1.01 * rss[0]),
        _RIVALS[1]: int(line.slope > 0 and line.pvalue < 0.05),
        _RIVALS[2]: int(tau.statistic > 0 and tau.pvalue < 0.05),
    }


# -- curves of known growth


def _series(words: argparse.Namespace) -> tuple[list[tuple[str, ...]], str]:
    header = ("kind", "units", "cases", "grows", "bounded", "steady", "undecided", "verdict right", "wrong (95%: at most)", "figures right")
    lines = [header, ("---", *["---:"] * (len(header) - 1))]
    for kind in _chosen(words, growth_curves.CURVES):
        units, case = growth_curves.CURVES[kind]
        seen: Counter[str] = Counter()
        for seed in range(words.cases):
            random = np.random.default_rng(seed)
            truth = case(random)
            verdict = _by_rounds(truth, units, random)
            seen[verdict.word] += 1
            right = verdict.word == truth.word
            seen["right"] += right
            seen["wrong"] += not right and verdict.word in (("steady", "bounded") if truth.word == "grows" else ("grows",))
            seen["figures"] += right and _figures_right(verdict, truth)
            print(f"{kind} {seed + 1}: {tables.words(verdict)}", file=sys.stderr)
        counts = (str(seen[word]) for word in ("grows", "bounded", "steady", "undecided"))
        wrong = f"{seen['wrong']} ({_most(seen['wrong'], words.cases):.1%})"
        figures = f"{seen['figures'] / seen['right']:.1%}" if seen["right"] else "-"
        lines.append((kind, str(units), str(words.cases), *counts, f"{seen['right'] / words.cases:.1%}", wrong, figures))
    note = (
        "Rounds of three curves a case, up to so many units. Wrong: a bounded cache that was called a leak, or a leak that was called steady or "
        f"bounded. Figures right: within {_CLOSE:.0%}, the size of a cache and the unit at which it was full, or the rate of a leak."
    )
    return lines, note


def _by_rounds(truth: growth_curves.Truth, most: int, random: np.random.Generator) -> Verdict:
    """The verdict on the last round, as memprof grow makes them for a budget in units."""
    units = within_budget(FIRST_UNITS, most)
    while True:
        verdict = judge(growth_curves.processes(truth, units, random))
        if units == most or (verdict.word in ("steady", "bounded") and not verdict.late):
            return verdict
        units = within_budget(FACTOR * units, most)


def _figures_right(verdict: Verdict, truth: growth_curves.Truth) -> bool:
    pairs = [(verdict.slope, truth.rate)] if truth.word == "grows" else [(verdict.rise_bytes, truth.size), (verdict.warmup, truth.reached)]
    return all(abs(found - true) <= _CLOSE * true for found, true in pairs)


# -- the meter


def _meter(words: argparse.Namespace) -> tuple[list[tuple[str, ...]], str]:
    script = (
        "from memprof_marks import iteration, phase\nwith phase('EXECUTE'):\n    for _ in range(100000):\n        iteration(tokens=1)\n"
    )
    lines: list[tuple[str, ...]] = [("what", "wanted", "measured"), ("---", "---", "---")]
    with tempfile.TemporaryDirectory() as folder:
        program = _program(Path(folder))
        shutil.copy(runners_path() / "memprof_marks.py", folder)
        (Path(folder) / "script.py").write_text(script)
        for name, argv in (("C", [program, "none", "100000", "1"]), ("Python", [sys.executable, f"{folder}/script.py"])):
            rss = work.curve_of(_run(argv, followed=True)).rss
            lines.append((f"growth of the meter in {name}, 100,000 iterations", "0 B", f"{rss[-1] - rss[1]} B"))
        costs = []
        for _ in range(5):
            plain_cpu, followed_cpu = (
                _run([program, "none", "4000", "1"], followed=follow).marks[-1].cpu_ns or 0 for follow in (False, True)
            )
            costs.append((followed_cpu - plain_cpu) / 4000 / 1e6)
        lines.append(("CPU time that it adds to an iteration of 1 ms, in C", "at most 1%", f"{statistics.median(costs):.2%}"))
    return (
        lines,
        "Growth is counted from the first iteration on. CPU time is the median of 5 pairs of 4,000 iterations, all of them followed.",
    )


def _run(argv: Sequence[object], *, followed: bool) -> Run:
    command = commands.of_words([str(word) for word in argv])
    variant = Variant(runtime=COMMAND, name="meter", command=command, env={"MEMPROF_WORK": "1"} if followed else {})
    (run,) = campaign.measure(plan(Suite(variants=(variant,), repeats=1)).orders, Silent(), lambda line: None)
    return run


if __name__ == "__main__":
    main()
