"""How good `memprof grow` is: `python ci/bench/growth.py [real] [series] [meter]`, all by default.

    real       processes of known growth (growth.c, growth_runtime.py and growth_fed.py), --cases of each kind: false alarms, misses, the unit, the
               memory and the rate that are named, and what three usual tests say of the same curves
    series     curves of known growth without a process (growth_curves.py), --cases of each kind: the verdict, and the size and rate that it names;
               they take no time of their own, so that a busy machine does not change them
    meter      what following memory adds to a process in 100,000 iterations, in C and in Python, and its CPU time beside an iteration of 1 ms

Tables go to standard output, progress to standard error. `--docs` writes them into docs/evidence/claims.md.
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
from dataclasses import dataclass
from pathlib import Path

import numpy as np

# bench is a package of scripts beside this one's folder; it is never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import docs, growth_curves, growth_runtime
from memprof import zoo
from memprof.base.runners import runners_path
from memprof.campaign import campaign
from memprof.campaign.progress import Silent
from memprof.growth.grow.grow import FACTOR, FIRST_UNITS, GrowRequest, GrowthAnswer, UnitBudget, grow, parse_shapes, within_budget
from memprof.programs import commands
from memprof.records import work
from memprof.records.types import COMMAND, RELOAD, Run
from memprof.reports.tables import growth as tables
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite, Variant
from memprof.verdicts.growth import Verdict, judge


@dataclass(frozen=True)
class _Kind:
    """A kind of case: units per process; what it grows with, which memory rises, and bytes per unit. No unit: it does not grow."""

    units: int
    unit: str | None = None
    where: str | None = None
    rate: float | None = None


_KINDS = {
    "steady": _Kind(2000),
    "warm-up": _Kind(2000),
    "cache": _Kind(2000),
    "saw-tooth": _Kind(2000),
    "bounded-3000": _Kind(8000),
    "bounded-10000": _Kind(20000),
    "bounded-bytes": _Kind(32000),
    "bursts": _Kind(20000),
    "fragments": _Kind(32000),
    "leak-4096": _Kind(2000, "iteration", "in use", 4096),
    "leak-65536": _Kind(2000, "iteration", "in use", 65536),
    "leak-256": _Kind(20000, "iteration", "in use", 256),
    "leak-16": _Kind(20000, "iteration", "in use", 32),  # glibc's least block
    "each-100th": _Kind(2000, "iteration", "in use", 4096),
    "token": _Kind(2000, "token", "in use", 80),
    "request": _Kind(2000, "request", "in use", 12288),
    "shape": _Kind(2000, "shape", "in use", 40960),
    "file": _Kind(2000, "iteration", "file-backed", 4096),
    "pool": _Kind(2000, "iteration", "in use", 4096),
    "python-cache": _Kind(2000),
    "python": _Kind(2000, "iteration", "in use", 4096),
    "reload-freed": _Kind(200),
    "reload": _Kind(200, "reload", "in use"),  # its rate is drawn for each case
    "wrapped": _Kind(2000),
    "wrapper": _Kind(2000, "iteration", "in use", 4096),
}
# The same input against inputs that vary: what they grow with is what the two kinds of processes tell together.
_FED = {
    "content": _Kind(2000, "new input", "in use", 8192),
    "content-bounded": _Kind(8000),
    "content-beside-leak": _Kind(2000, "iteration", "in use", 16384),
    "shape-cache": _Kind(2000),
    "shape-change": _Kind(2000, "new shape", "in use", 8192),
}
_IN_PYTHON = ("python-cache", "python", "reload-freed", "reload", "wrapped", "wrapper")  # of growth_runtime.py
_SHAPES = "x=1,N; N in " + ",".join(map(str, range(20, 60)))
_SURE = 0.95
_CLOSE = 0.1  # how far a size, a unit or a rate may be from the truth, as a share


def main() -> None:
    """Measure the parts that are named, and print their tables."""
    parts = {"real": _real, "series": _series, "meter": _meter}
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument(
        "--kinds", nargs="*", choices=[*_ALL, *growth_curves.CURVES], metavar="KIND", help="those of the parts that have kinds"
    )
    parser.add_argument("--docs", action="store_true")
    words = parser.parse_args()
    for name in words.parts or parts:
        lines, note = parts[name](words)
        print(f"{_markdown(lines)}\n\n{note}\n")
        if words.docs:
            docs.write(f"growth-{name}", _markdown(_joined(lines)), [note])


def _markdown(lines: Iterable[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _joined(lines: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Lines with the same figures as one line, with all of their names: what the manual shows."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, *figures in lines:
        names.setdefault(tuple(figures), []).append(name)
    return ((", ".join(alike), *figures) for figures, alike in names.items())


def _program(folder: Path) -> Path:
    source, program = Path(__file__).with_name("growth.c"), folder / "growth"
    include = f"-I{runners_path() / 'native'}"
    subprocess.run(["cc", "-O1", "-fno-builtin-malloc", include, "-o", str(program), str(source)], check=True)
    return program


# -- processes of known growth


def _real(words: argparse.Namespace) -> tuple[list[tuple[str, ...]], str]:
    header = (
        "kind",
        "units",
        "cases",
        "grows",
        "flat",
        "undecided",
        "wrong (95%: at most)",
        "unit right",
        "memory right",
        "rate right",
        *_RIVALS,
    )
    lines = [header, ("---", *["---:"] * (len(header) - 1)), *_kinds(words)]
    note = (
        "Rounds of three processes a case, as memprof grow makes them, up to so many units. Wrong: an alarm where nothing grows, or growth that "
        "was not called so. Unit right: the sentence names it first. Rate right: within 10%, or in the interval. The last three columns: how "
        "often usual tests call the curve of the first process growth: its last value 1% above its first, the slope of a line, and Mann and "
        "Kendall's, both with p < 0.05."
    )
    return lines, note


_ALL = {**_KINDS, **_FED}
_RIVALS = ("last above first", "line", "Mann-Kendall")


def _kinds(words: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    with tempfile.TemporaryDirectory() as folder:
        program = _program(Path(folder))
        zoo.make("mnist", Path(folder) / "mnist.onnx", format="onnx")
        for name in _chosen(words, _ALL):
            kind = _ALL[name]
            seen: Counter[str] = Counter()
            rivals: Counter[str] = Counter()
            for case in range(words.cases):
                grown = _grown(program, name, kind.units, case)
                seen[grown.verdict.word] += 1
                seen.update(_right(name, grown, case))
                rivals.update(_rivals(grown.runs[0]))
                print(f"{name} {case + 1}: {tables.words(grown.verdict)}", file=sys.stderr)
            wrong = words.cases - seen["grows"] if kind.unit else seen["grows"]
            calm = seen["bounded"] + seen["steady"]
            named = [f"{seen[fact] / seen['grows']:.1%}" if kind.unit and seen["grows"] else "-" for fact in ("unit", "where", "rate")]
            counts = (str(kind.units), str(words.cases), str(seen["grows"]), str(calm), str(seen["undecided"]))
            yield (name, *counts, f"{wrong} ({_most(wrong, words.cases):.1%})", *named, *(str(rivals[rival]) for rival in _RIVALS))


def _right(name: str, grown: GrowthAnswer, case: int) -> dict[str, int]:
    """Which facts of a verdict of growth are those of this case."""
    verdict, kind = grown.verdict, _ALL[name]
    if verdict.word != "grows" or kind.unit is None:
        return {}
    unit = grown.inputs.by if grown.inputs is not None else verdict.unit
    rate = kind.rate or growth_runtime.reload_bytes(case)
    close = abs(verdict.slope - rate) <= _CLOSE * rate or verdict.low <= rate <= verdict.high
    return {"unit": unit == kind.unit, "where": verdict.where == kind.where, "rate": close}


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
    if kind in _FED:
        return _fed(program.with_name(kind), kind, units, seed)
    command = commands.of_words([str(program), kind, "{runs}", str(seed)])
    return grow(
        GrowRequest(Suite(variants=(Variant(COMMAND, command.name, command=command),)), budget=UnitBudget(units=units)),
        Silent(),
        lambda line: None,
    )


def _fed(model: Path, kind: str, units: int, seed: int) -> GrowthAnswer:
    """The same input against fresh ones, or against several shapes."""
    model.write_text(f"{kind} {seed}")
    suite = Suite(models=(str(model),), variants=(Variant(str(Path(__file__).with_name("growth_fed.py"))),), threads=(1,))
    shapes, order = parse_shapes(_SHAPES) if kind.startswith("shape") else ((), None)
    request = GrowRequest(suite, shapes, order, budget=UnitBudget(units=units), wish="both")
    return grow(request, Silent(), lambda line: None)


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
