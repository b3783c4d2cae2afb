"""The sentences under the answer of `memprof scale`: what a law is held against, and what it leaves open.

A law stands beside the planner's own peak at the same places, the size of the weights, the arithmetic of the KV cache, and the pages that
processes share.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...base.units import counted, format_bytes, format_number
from ...models.gguf import kv_cache
from ...records.types import EXECUTE, PREPARE
from ...subjects.dimensions import PROCESSES, SESSIONS, Dimension
from ..laws import laws
from ..laws.laws import Coefficient
from .answer import ANONYMOUS, CHARGED, PlaceRun, Scaled, fall, words_of

_CONTEXT = "context"
_DIFFERENT = 0.1  # a growth that differs by this share from the plan's is a finding
_TOO_FEW_VALUES = 4
_WIDE = 4  # a range whose end is so many times its beginning is wide
_SHARED = 0.5  # of the weights: what costs less does not have them again
# What llama.cpp keeps for each cell of a KV cache beside it: its position and shift of 4 bytes each, a place in a picture with its token of 12, and
# a set of 256 sequences of 32. They are the allocations of xllamacpp 2026.10 that grow with the context.
TABLE_OF_CELLS_BYTES = 52
_LEAST_AGAIN_BYTES = 1 << 20  # less are pages of libraries
_MOST_NOISE = 4  # a difference of no more than so many times the noise is none


def findings(answer: Scaled, weight_bytes: int, token_costs: list[str], noise_bytes: float) -> tuple[str, ...]:
    """The sentences about an answer. token_costs: see `of_token`. noise_bytes: what two runs at the same place differ by."""
    return (
        *_flat(answer),
        *_sessions(answer, weight_bytes),
        *_processes(answer),
        *token_costs,
        *_growth(answer, noise_bytes),
        *_modes(answer, noise_bytes),
    )


def _modes(answer: Scaled, noise_bytes: float) -> Iterator[str]:
    """By how much runs of one place differ, where that is more than noise."""
    spread = _spread(answer)
    if spread <= _MOST_NOISE * noise_bytes:
        return
    yield f"Runs of one place differ by up to {format_bytes(spread)}, and a limit needs the largest."
    if answer.threads != 1:
        yield (
            "With several threads memory is freed in another order in each run while a model is loaded, and an arena finds other free memory: "
            "--threads 1 usually has one size."
        )


def _spread(answer: Scaled) -> int:
    """The most by which runs of one place differ, in bytes."""
    return max((max(point.again) - min(point.again) for point in answer.points if point.again), default=0)


def _flat(answer: Scaled) -> Iterator[str]:
    """The dimensions that the law does not depend on."""
    law = answer.law
    if law is None or answer.undecided:
        return
    for dimension in answer.varying:
        if not law.depends_on(dimension.label):
            yield f"{dimension.label} has no effect beyond noise between {dimension.low} and {dimension.high}."


def _slope(answer: Scaled, label: str, name: str | None = None) -> Coefficient | None:
    law = answer.named(name or answer.main)
    return law.coefficient(label) if law is not None else None


def _sessions(answer: Scaled, weight_bytes: int) -> list[str]:
    """Whether sessions share their weights, from the measured ends of the range: that needs no law."""
    ends = _ends(answer, SESSIONS)
    if ends is None or not weight_bytes:
        return []
    low, high = ends
    more = high.at[SESSIONS] - low.at[SESSIONS]
    grown, loaded = (
        (high.sizes[name] - low.sizes[name]) / more for name in (answer.main, PREPARE if PREPARE in low.sizes else answer.main)
    )
    costs = (
        f"From {words_of(low.at)} to {words_of(high.at)} each further session costs {format_bytes(grown)} of {answer.main}; the model's weights "
        f"are {format_bytes(weight_bytes)}"
    )
    if loaded < _SHARED * weight_bytes:
        return [f"{costs}: sessions share them."]
    if not answer.mapped_again_bytes:
        return [f"{costs}: sessions do not share them."]
    again, takes = (format_bytes(size) for size in (answer.mapped_again_bytes, grown - answer.mapped_again_bytes))
    return [f"{costs}: sessions map {again} of files again, which lie in memory once. What a session takes for itself is {takes}."]


def mapped_again(answer: Scaled) -> float:
    """The bytes that each further session adds to the resident set and not to memory: pages that are there already, mapped once more."""
    ends = _ends(answer, SESSIONS)
    if ends is None or any(point.elsewhere_bytes is None for point in ends):
        return 0.0
    low, high = ends
    again = ((high.elsewhere_bytes or 0) - (low.elsewhere_bytes or 0)) / (high.at[SESSIONS] - low.at[SESSIONS])
    return again if again > _LEAST_AGAIN_BYTES else 0.0


def _ends(answer: Scaled, label: str) -> tuple[PlaceRun, PlaceRun] | None:
    """The points at the least and the most of a dimension, the others at their lowest; None where it does not vary or they were not measured."""
    if label not in {dimension.label for dimension in answer.varying}:
        return None
    lowest = {dimension.label: dimension.low for dimension in answer.varying}
    points = [
        point
        for point in answer.points
        if not point.ended and not point.held_out and {**point.at, label: 0} == {**lowest, label: 0} and answer.main in point.sizes
    ]
    points.sort(key=lambda point: point.at[label])
    return (points[0], points[-1]) if len(points) > 1 else None


def _processes(answer: Scaled) -> list[str]:
    """What the next process costs, by the sum of their memory and by the control group."""
    slope = _slope(answer, PROCESSES)
    if slope is None:
        return []
    text = f"The next process costs {format_bytes(slope.bytes)} ({format_bytes(slope.low_bytes)} to {format_bytes(slope.high_bytes)})"
    charged = _slope(answer, PROCESSES, CHARGED)
    if charged is not None:
        text += f"; the control group is charged {format_bytes(charged.bytes)} for it"
    findings = [f"{text}."]
    if answer.shared:
        files = ", ".join(f"{Path(entry.path).name} {format_bytes(entry.bytes)}" for entry in answer.shared)
        findings.append(f"The processes share pages of {files}.")
    return findings


def of_token(answer: Scaled, path: Path, kv_type: str) -> list[str]:
    """The KV cache of a .gguf model, by its file's arithmetic, beside what a token of context costs. Raises InputError."""
    law = answer.named(ANONYMOUS)
    if path.suffix != ".gguf" or law is None or answer.undecided:
        return []
    arithmetic = kv_cache(path).bytes_per_token(kv_type)
    if _CONTEXT not in {dimension.label for dimension in answer.varying}:
        return []
    cost = next((entry for entry in law.coefficients if len(entry.term.powers) == 1 and dict(entry.term.powers).get(_CONTEXT) == 1), None)
    if cost is None:
        return [
            f"A token of KV cache is {format_bytes(arithmetic)} by the file, and no such term was found: memory does not grow with context so."
        ]
    said = f"A token of context costs {cost.bytes / 1024:.2f} KiB of anonymous memory, of which {arithmetic / 1024:.2f} KiB is the KV cache"
    if cost.bytes < (1 - _DIFFERENT) * arithmetic:
        return [f"{said} by the file: it is not kept whole."]
    if arithmetic < cost.bytes and cost.low_bytes <= arithmetic + TABLE_OF_CELLS_BYTES <= cost.high_bytes:
        return [f"{said} and {TABLE_OF_CELLS_BYTES} B llama.cpp's table of its cells."]
    return [f"{said}."]


def _growth(answer: Scaled, noise_bytes: float) -> list[str]:
    """EXECUTE's growth beside the plan's, where they differ."""
    whole = [point for point in answer.points if not point.ended and not point.held_out]
    low, high = whole[0], max(whole, key=lambda point: point.planned_bytes or 0)
    if not low.planned_bytes or not high.planned_bytes or EXECUTE not in low.sizes or high.planned_bytes <= low.planned_bytes:
        return []
    grown, planned = high.sizes[EXECUTE] - low.sizes[EXECUTE], high.planned_bytes - low.planned_bytes
    more = grown - planned
    if abs(more) <= max(_DIFFERENT * planned, _MOST_NOISE * noise_bytes):
        return []
    reason = "kernels' scratch memory, an arena's rounding, or a copy" if more > 0 else "operators are fused, or run in another order"
    return [
        f"From {words_of(low.at)} to {words_of(high.at)} the peak of EXECUTE grows by {format_bytes(grown)}, the planner's own peak by "
        f"{format_bytes(planned)}: {format_bytes(abs(more))} {'more' if more > 0 else 'less'} than the activations of the graph ({reason})."
    ]


def undecided(answer: Scaled, noise: tuple[float, float]) -> str:
    """What the law lacks, and what to add. noise: what two runs differ by, in bytes and as a share."""
    law = answer.law
    whole = [point for point in answer.points if not point.ended and not point.held_out]
    for dimension in answer.varying:
        values = sorted({point.at[dimension.label] for point in whole})
        possible = (dimension.high - dimension.low) // dimension.step + 1
        if len(values) < 3 and possible < _TOO_FEW_VALUES:
            return f"{_range(dimension)} has {counted(possible, 'value')}, and a line goes through any two: {_wider(dimension)}"
        if law is None and possible < _TOO_FEW_VALUES:
            return f"{_range(dimension)} has {counted(possible, 'value')}, and no line goes through them: {_wider(dimension)}"
        if len(values) < 3 and any(point.ended for point in answer.points):
            known = " and ".join(map(str, values))
            return (
                f"{dimension.label} was measured at {known} only, for other runs failed, and a line goes through any two: choose ranges that can be "
                "measured"
            )
    if law is not None and law.error is None:
        fewest = len(law.coefficients) + 2
        return f"{counted(law.points, 'run')} are as many as the law has terms, so that nothing tests it: give --points {fewest} or more"
    narrow = [dimension for dimension in answer.varying if dimension.high < _WIDE * dimension.low]
    for dimension in narrow if len(answer.varying) > 1 else answer.varying:
        unsimulated = [law for law in answer.sources.values() if not law.simulated and law.depends_on(dimension.label)]
        step = next((step for law in unsimulated if (step := laws.single_step(law, dimension.label)) is not None), None)
        falling = fall(answer.points, answer.main)
        wider = f"{'' if answer.threads == 1 else 'try --threads 1, or '}{_wider(dimension)}"
        if step is not None and _spread(answer) > _MOST_NOISE * max(noise):
            return f"runs of one place differ by up to {format_bytes(_spread(answer))}, and no law of {dimension.label} tells that: {wider}"
        if step is not None and falling is not None and _fallen(falling, answer.main) > _MOST_NOISE * max(noise):
            low, high = falling
            return (
                f"{answer.main} falls from {format_bytes(low.sizes[answer.main])} at {words_of(low.at)} to "
                f"{format_bytes(high.sizes[answer.main])} at {words_of(high.at)}, which no law of growth does: {wider}"
            )
        if step is not None:
            return (
                f"over {_range(dimension)} {answer.main} makes a single step, between {format_number(step[0])} and "
                f"{format_number(step[1])}, and a step tells no slope: "
                f"{_wider(dimension)}"
            )
    sizes = [point.sizes[answer.main] for point in whole if answer.main in point.sizes]
    change = max(sizes) - min(sizes)
    if law is not None and narrow and change < _MOST_NOISE * max(noise[0], noise[1] * max(sizes)) and len(law.coefficients) == 1:
        ranges = ", ".join(map(_range, answer.varying))
        return f"over {ranges} {answer.main} changes by {format_bytes(change)}, which is within the noise: {_wider(narrow[0])}"
    return ""


def _fallen(pair: tuple[PlaceRun, PlaceRun], main: str) -> int:
    """By how many bytes a figure falls between two points."""
    return pair[0].sizes[main] - pair[1].sizes[main]


def _range(dimension: Dimension) -> str:
    return f"{dimension.label}={dimension.low}..{dimension.high}"


def _wider(dimension: Dimension) -> str:
    high = max(_WIDE * dimension.low, 2 * dimension.high)
    return f"widen the range, such as --vary {','.join(dimension.names)}={dimension.low}..{high}"
