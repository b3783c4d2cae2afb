#!/usr/bin/env python3
"""`make bench-plan`: how good the planner is. Each part prints its Markdown table as soon as it is done; progress goes to standard error.

    models   the graphs that the onnx package ships, against figures known beforehand
    random   random graphs: share proven, gap where not, and what plain depth first and greedy orders need beside it
    pack     offset problems that are known to fit exactly: share packed at capacity, beside greedy by size

One process with one thread. Times are of this machine, everything else is the same on every machine on which no time limit is reached.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

# bench is a package of scripts beside this one's folder; it is never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import docs
from bench.plan_graphs import cut_rectangle, windowed
from memprof.plan import Problem, best_order, greedy, load, overlapping, pack, peak
from memprof.plan.orders import heuristics
from memprof.plan.orders.bits import bits

# Peaks in bytes, float32, activations only, nothing in place: the model's own order and the best one.
KNOWN = {
    "light_shufflenet": (3_110_912, 2_885_120),
    "light_densenet121": (8_429_568, 8_429_568),
    "light_resnet50": (9_633_792, 9_633_792),
    "light_inception_v2": (6_422_528, 6_422_528),
    "light_inception_v1": (6_422_528, 6_422_528),
    "light_squeezenet": (6_308_352, 6_308_352),
    "light_vgg19": (25_690_112, 25_690_112),
}


@dataclass(frozen=True)
class Setting:
    """How many random problems of a kind, and how many seconds for each: 0 for each part's own."""

    count: int
    seconds: float


def main() -> None:
    """Run the parts that are named, all of them where none is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--count", type=int, default=0, help="random problems of each kind")
    parser.add_argument("--seconds", type=float, default=0, help="time limit of each problem")
    words = parser.parse_args()
    print(
        f"- {platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, {_version('ortools')}"
    )
    for name in words.parts or PARTS:
        print(f"\n### {name}\n", flush=True)
        lines = []
        for line in PARTS[name](Setting(words.count, words.seconds)):
            print(line, flush=True)
            lines.append(line)
        options = f"{f' --count {words.count}' if words.count else ''}{f' --seconds {words.seconds:g}' if words.seconds else ''}"
        docs.write(f"plan-{name}", "\n".join(lines), [f"`python ci/bench/plan.py {name}{options}`, {_version('ortools')}"])


def models(setting: Setting) -> Iterator[str]:
    """The onnx package's own graphs."""
    import onnx

    from memprof.plan.graphs import read, reduced

    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    problems = {path.stem: reduced.problem(read.read(path)).problem for path in sorted(folder.glob("*.onnx"))}
    yield from _orders(problems, setting.seconds or 10, KNOWN)


def _orders(problems: dict[str, Problem], seconds: float, known: dict[str, tuple[int, int]]) -> Iterator[str]:
    yield from _head("graph", "operators", "its own order", "best order", "lower bound", "proven", "seconds", "as known")
    for name, problem in problems.items():
        begin = time.perf_counter()
        best = best_order(problem, seconds)
        taken = time.perf_counter() - begin
        own = peak(problem, problem.model_order)
        assert peak(problem, best.order) == best.peak_bytes
        expected = "-" if name not in known else "yes" if known[name] == (own, best.peak_bytes) else f"**no: {known[name]}**"
        yield _row(
            name,
            problem.count,
            f"{own:,}",
            f"{best.peak_bytes:,}",
            f"{best.lower_bound_bytes:,}",
            _yes(best.proven),
            f"{taken:.2f}",
            expected,
        )


def random_graphs(setting: Setting) -> Iterator[str]:
    """Random graphs, by how far back they read and how many operators they have."""
    count, seconds = setting.count or 20, setting.seconds or 10
    yield from _head(
        "window",
        "operators",
        "graphs",
        f"proven in {seconds:g} s",
        "mean gap of the others",
        "median s",
        "model order",
        "depth first",
        "greedy",
    )
    for window in (8, 16, 32):
        for nodes in (50, 100, 150):
            gaps, times = [], []
            beside: tuple[list[float], list[float], list[float]] = ([], [], [])
            for seed in range(count):
                _say(f"random: window {window}, {nodes} operators, graph {seed + 1} of {count}")
                problem = windowed(seed, nodes, window)
                begin = time.perf_counter()
                best = best_order(problem, seconds)
                times.append(time.perf_counter() - begin)
                if not best.proven:
                    gaps.append(best.peak_bytes / best.lower_bound_bytes - 1)
                plain = (problem.model_order, plain_depth_first(problem), heuristics.greedy(bits(problem)) or ())
                for ratios, order in zip(beside, plain, strict=True):
                    ratios.append(peak(problem, order) / best.peak_bytes - 1)
            gap = f"{statistics.fmean(gaps):.1%}" if gaps else "-"
            above = [f"+{statistics.fmean(ratios):.0%}" for ratios in beside]
            yield _row(window, nodes, count, f"{1 - len(gaps) / count:.0%}", gap, f"{statistics.median(times):.2f}", *above)
    yield "\nThe last three: how much more their orders need than the best one found, on average."


def plain_depth_first(problem: Problem) -> tuple[int, ...]:
    """Post-order with producers in the order of the inputs, as most converters write a graph."""
    writer = problem.writer
    return heuristics.post_order(problem, lambda op: [source for tensor in problem.reads[op] if (source := writer[tensor]) is not None])


def packing(setting: Setting) -> Iterator[str]:
    """Offset problems at full load, by how they were made."""
    count, seconds = setting.count or 10, setting.seconds or 60
    yield from _head(
        "instances",
        "buffers",
        "number",
        f"packed in {seconds:g} s",
        "greedy by size packs",
        "median s where packed",
        "arena / capacity where not",
        "greedy / capacity",
    )
    kinds: dict[str, dict[str, float]] = {
        "cut from a rectangle": {},
        "sizes in 64ths of it": {"grain": 1 << 14},
        "a tenth taken out": {"dropped": 0.1},
    }
    for kind, options in kinds.items():
        for buffers in (150, 300, 450):
            taken, over, plain = [], [], []
            for seed in range(count):
                _say(f"pack: {kind}, {buffers} buffers, instance {seed + 1} of {count}")
                instance = cut_rectangle(seed, buffers, grain=int(options.get("grain", 1)), dropped=options.get("dropped", 0.0))
                capacity = load(instance)
                begin = time.perf_counter()
                arena = pack(instance, seconds, capacity)
                if arena.verdict(capacity) == "met":
                    taken.append(time.perf_counter() - begin)
                else:
                    over.append(arena.size_bytes / capacity)
                assert overlapping(instance, arena.offsets) is None
                plain.append(greedy(instance).size_bytes / capacity)
            yield _row(
                kind,
                buffers,
                count,
                f"{len(taken) / count:.0%}",
                f"{sum(ratio <= 1 for ratio in plain) / count:.0%}",
                f"{statistics.median(taken):.1f}" if taken else "-",
                f"{statistics.fmean(over):.3f}" if over else "-",
                f"{statistics.fmean(plain):.3f}",
            )


PARTS: dict[str, Callable[[Setting], Iterator[str]]] = {
    "models": models,
    "random": random_graphs,
    "pack": packing,
}


def _head(*cells: str) -> Sequence[str]:
    return (_row(*cells), _row(*("---" for _ in cells)))


def _row(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _yes(proven: bool) -> str:
    return "yes" if proven else "no"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _version(package: str) -> str:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return f"no {package}"


if __name__ == "__main__":
    main()
