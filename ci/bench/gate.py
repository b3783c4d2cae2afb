"""How often the gate is wrong: false alarms where nothing changed, misses of a known increase, on runs of real processes:
`python ci/bench/gate.py [PART...]`.

A series is a long interleaved campaign of one setting: A, then A with a known increase (the larger of 2% and 2 MiB, held from MODEL_LOAD on
by the ballast knob), A again, alternating. It is cut into disjoint groups of five runs. Two groups of A make an independent pair of runs files
that differ in nothing; a group of A and a group with the increase make a pair that differs by it. A pair is judged as a user's gate judges, with
all rows of its default metrics. A false alarm is a regression in any row, a miss is a pair whose gate does not end with exit code 1.

The series are kept in bench/gate-NAME.jsonl and continued where they were left; `table` alone prints their results so far. Intervals are Clopper and
Pearson's (1934) at 95%, two-sided; "at most" is its one-sided upper bound. Beside the gate, on the PEAK of the same runs: the rule of most
projects (one sample per side, +5%) and Welch's t test at 0.05, one-sided.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

# bench is a package of scripts beside this one's folder; it is never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import docs, tools
from bench.table import aligned
from memprof.campaign import campaign
from memprof.campaign.progress import Silent
from memprof.records import modes, store
from memprof.records.types import Run
from memprof.subjects.order import Order
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite, Variant
from memprof.verdicts import baseline, verdicts

FOLDER = Path(__file__).resolve().parents[2] / "bench"
GROUP = 5
PLAIN, MORE = "plain", "more"
SHARE, LEAST_BYTES = 0.02, 2 << 20
# A load with which a run takes about 0.3 s and peaks where small real models do.
SCENARIO = {"load": [{"allocate": "weights", "bytes": 48 << 20}], "prepare": [{"spike": 16 << 20}], "execute": [{"spike": 8 << 20}]}


@dataclass(frozen=True)
class Setting:
    """A series: a runtime and how it is run. pairs: how many A/A pairs it is to have, and as many with the increase."""

    name: str
    runtime: str
    pairs: int
    subject: str
    threads: int | None = None
    knobs: tuple[tuple[str, str], ...] = ()

    @property
    def path(self) -> Path:
        """Its runs file."""
        return FOLDER / f"gate-{self.name}.jsonl"


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("synthetic", "synthetic", 320, "synthetic runtime"),
        Setting("onnxruntime", "onnxruntime", 320, "onnxruntime, mlp of 16 MiB, every CPU"),
        Setting("one-thread", "onnxruntime", 100, "onnxruntime, mlp of 16 MiB, 1 thread", threads=1),
        Setting("one-arena", "onnxruntime", 60, "onnxruntime, mlp of 16 MiB, one malloc arena", knobs=(("malloc_arenas", "1"),)),
    )
}


def main() -> None:
    """Measure the parts that are named, or all of them, and print the table."""
    parser = argparse.ArgumentParser(description="Measure how often the gate is wrong.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(SETTINGS)}, or table for what is there; all by default")
    parser.add_argument("--pairs", type=int, metavar="N", help="A/A pairs a part has in the end, in place of its own number")
    words = parser.parse_args()
    unknown = set(words.parts) - {*SETTINGS, "table"}
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    FOLDER.mkdir(exist_ok=True)
    begin_s = time.monotonic()
    for name in words.parts or SETTINGS:
        if name != "table":
            _measure(dataclasses.replace(SETTINGS[name], pairs=words.pairs or SETTINGS[name].pairs), begin_s)
    warnings.simplefilter("ignore", RuntimeWarning)  # Welch's t test of samples that do not vary
    series = [_Pairs.of(setting) for setting in SETTINGS.values() if setting.path.exists()]
    print(table(series))
    if len(series) == len(SETTINGS):
        docs.write("gate", table(series))


# -- measuring


def _measure(setting: Setting, begin_s: float) -> None:
    """Bring a series to its length: for every two groups of A, which are an A/A pair, one with the increase."""
    runs = _runs(setting)
    plain = _orders(setting, PLAIN, 0)
    if not runs:
        runs = _keep(setting, plain[:GROUP])
    more = _orders(setting, MORE, _increase(runs))
    groups = 2 * setting.pairs
    while (left := groups * GROUP - _count(runs, PLAIN)) > 0:
        # A M A at a time, for four groups of A: what makes a pair was measured in one stretch, as a gate's two sides are.
        many = min(left, 4 * GROUP)
        orders = [order for number in range(many) for order in ([plain[0], more[0]] if number % 2 else [plain[0]])]
        runs += _keep(setting, orders)
        done = _count(runs, PLAIN)
        print(f"[{time.monotonic() - begin_s:5.0f} s] {setting.name}: {done} of {groups * GROUP} runs", file=sys.stderr, flush=True)


def _count(runs: Sequence[Run], variant: str) -> int:
    return sum(run.job.variant == variant for run in runs)


def _runs(setting: Setting) -> list[Run]:
    return [run for run in store.load([setting.path]).runs if run.outcome.ok] if setting.path.exists() else []


def _keep(setting: Setting, orders: Sequence[Order]) -> list[Run]:
    writer = store.RunsWriter(setting.path, append=True)
    return [run for run in campaign.measure(orders, Silent(), writer.write) if run.outcome.ok]


def _increase(runs: Sequence[Run]) -> int:
    """The larger of 2% and 2 MiB of the median PEAK."""
    peak = statistics.median(_peak(run) for run in runs if run.job.variant == PLAIN)
    return max(int(SHARE * peak), LEAST_BYTES)


def _peak(run: Run) -> int:
    return max(mark.rss_peak_bytes for mark in run.marks)


def _orders(setting: Setting, name: str, ballast: int) -> tuple[Order, ...]:
    knobs = {**dict(setting.knobs), "ballast": str(ballast)}
    variant = Variant(setting.runtime, name, knobs, (setting.threads,) if setting.threads else ())
    wanted = Suite(models=(str(_model(setting)),), variants=(variant,), warmup=1, runs=2, repeats=GROUP)
    return plan(wanted).orders


def _model(setting: Setting) -> Path:
    if setting.runtime == "synthetic":
        path = FOLDER / "gate.json"
        path.write_text(json.dumps(SCENARIO))
        return path
    return tools.zoo("mlp", FOLDER / "gate-mlp.onnx", "--size", "16MiB")


# -- judging


@dataclass(frozen=True)
class _Pairs:
    """The verdicts of the gate and of the two other rules on a series' pairs.

    equal, increased: the gate's exit codes on pairs of A, and on pairs with the increase; increased_one_mode: those of the latter where both sides
    have a single mode. moded: the share of the groups of A with two or more modes in PEAK. rules: by name, whether the rule alarmed on each pair.
    """

    setting: Setting
    equal: list[int]
    increased: list[int]
    increased_one_mode: list[int]
    moded: float
    increase_bytes: int
    rules: dict[str, tuple[list[bool], list[bool]]]

    @classmethod
    def of(cls, setting: Setting) -> _Pairs:
        runs = _runs(setting)
        plain, more = (_groups([run for run in runs if run.job.variant.split(" (")[0] == name]) for name in (PLAIN, MORE))
        equal_pairs = list(zip(plain[::2], plain[1::2], strict=False))
        # Groups that were measured in the same stretch: a group with the increase for every two of A.
        raised = list(zip(plain[::2], more, strict=False))
        codes = [_code(base, head) for base, head in raised]
        single = [len(_modes(base)) == 1 and len(_modes(head)) == 1 for base, head in raised]
        rules = {name: ([rule(*pair) for pair in equal_pairs], [rule(*pair) for pair in raised]) for name, rule in RULES.items()}
        return cls(
            setting,
            [_code(base, head) for base, head in equal_pairs],
            codes,
            [code for code, is_single in zip(codes, single, strict=True) if is_single],
            statistics.fmean([len(_modes(group)) > 1 for group in plain] or [0]),
            _increase(runs),
            rules,
        )


def _groups(runs: Sequence[Run]) -> list[list[Run]]:
    return [list(runs[begin : begin + GROUP]) for begin in range(0, len(runs) - GROUP + 1, GROUP)]


def _code(base: Sequence[Run], head: Sequence[Run]) -> int:
    """The gate's exit code on a pair of runs files, at its defaults."""
    sides = (baseline.entries([replace(run, job=replace(run.job, variant=PLAIN)) for run in side]) for side in (base, head))
    return verdicts.Report("", tuple(verdicts.judge(*sides))).exit_code


def _modes(group: Sequence[Run]) -> tuple[tuple[float, ...], ...]:
    peaks = [_peak(run) for run in group]
    return modes.split_modes(peaks, max(0.01 * statistics.median(peaks), 512 << 10))


def _one_sample(base: Sequence[Run], head: Sequence[Run]) -> bool:
    return _peak(head[0]) > 1.05 * _peak(base[0])


def _t_test(base: Sequence[Run], head: Sequence[Run]) -> bool:
    from scipy import stats

    test = stats.ttest_ind([_peak(run) for run in head], [_peak(run) for run in base], equal_var=False, alternative="greater")
    return bool(test.pvalue <= 0.05)


RULES: dict[str, Callable[[Sequence[Run], Sequence[Run]], bool]] = {"+5% of one sample": _one_sample, "t test at 0.05": _t_test}


# -- the table


def table(series: Sequence[_Pairs]) -> str:
    """The rates in percent with their intervals, as Markdown."""
    header = ("series", "what", "pairs", "memprof gate", "at most", "undecided", *RULES)
    rows = [header, *(row for pairs in series for row in _rows(pairs)), *_all(series)]
    notes = [
        f"- {pairs.setting.subject}: the increase is {pairs.increase_bytes / 2**20:.1f} MiB; "
        f"{pairs.moded:.0%} of the groups of five are in several modes"
        for pairs in series
    ]
    return "\n".join([aligned(rows), "", *notes])


def _rows(pairs: _Pairs) -> list[tuple[str, ...]]:
    alarms, misses = ([flags for flags, _ in pairs.rules.values()], [flags for _, flags in pairs.rules.values()])
    rows = [
        _row(pairs.setting.subject, "false alarms", [code == 1 for code in pairs.equal], pairs.equal, [sum(flags) for flags in alarms]),
        _row(
            "",
            "misses",
            [code != 1 for code in pairs.increased],
            pairs.increased,
            [len(flags) - sum(flags) for flags in misses],
        ),
    ]
    if len(pairs.increased_one_mode) != len(pairs.increased):
        codes = pairs.increased_one_mode
        rows.append(_row("", "misses, both sides of one mode", [code != 1 for code in codes], codes, None))
    return rows


def _all(series: Sequence[_Pairs]) -> list[tuple[str, ...]]:
    """The two rates that the gate promises, over all series."""
    codes = [code for pairs in series for code in pairs.equal]
    single = [code for pairs in series for code in pairs.increased_one_mode]
    return [
        _row("all series", "false alarms", [code == 1 for code in codes], codes, None),
        _row("", "misses, both sides of one mode", [code != 1 for code in single], single, None),
    ]


def _row(series: str, subject: str, wrong: Sequence[bool], codes: Sequence[int], others: Sequence[int] | None) -> tuple[str, ...]:
    count, total = sum(wrong), len(wrong)
    if not total:
        return (series, subject, "0", "-", "-", "-", *("-" for _ in RULES))
    low, high = interval(count, total)
    cells = [_percent(other, total) for other in others] if others else ["-" for _ in RULES]
    undecided = _percent(sum(code == 3 for code in codes), total)
    rate = f"{_percent(count, total)} ({100 * low:.2f} to {100 * high:.2f})"
    return (series, subject, str(total), rate, f"{100 * upper(count, total):.2f}%", undecided, *cells)


def _percent(count: int, total: int) -> str:
    return f"{100 * count / total:.1f}%"


def interval(count: int, total: int) -> tuple[float, float]:
    """Clopper and Pearson's two-sided 95% interval of a rate."""
    from scipy.stats import beta

    low = float(beta.ppf(0.025, count, total - count + 1)) if count else 0.0
    high = float(beta.ppf(0.975, count + 1, total - count)) if count < total else 1.0
    return low, high


def upper(count: int, total: int) -> float:
    """The one-sided upper 95% bound of a rate."""
    from scipy.stats import beta

    return float(beta.ppf(0.95, count + 1, total - count)) if count < total else 1.0


if __name__ == "__main__":
    main()
