"""The shapes and the versions that ran, and what failed, in headings of tables, pictures and the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from memprof.base.units import counted
from memprof.records import summary
from memprof.records.types import COMMAND, Run

from .rows import by_model

_MOST = 4  # inputs, different shapes, or versions, in a heading


def shaped(shapes: Mapping[str, tuple[int, ...]], assumed: Mapping[str, tuple[int, ...]]) -> str:
    """`, x=1x3x224x224` for each input, as `--shape` takes it, with a remark if dimensions were taken as 1; empty if nothing is known."""
    texts = [
        f", {name}{'=' if shape else ' '}{'x'.join(map(str, shape)) or 'scalar'}{' (open dimensions taken as 1: --shape)' if name in assumed else ''}"
        for name, shape in sorted({**shapes, **assumed}.items(), key=lambda pair: pair[0] not in assumed)
    ]
    more = f", {len(texts) - _MOST} more inputs" if len(texts) > _MOST + 1 else ""
    return "".join(texts[:_MOST] if more else texts) + more


def shapes(run: Run) -> str:
    """`x=1x3x640x640` for each input whose shape is known, the inputs that were given a value, and the file of inputs whose shapes are not."""
    job = run.job
    file = f", inputs from {Path(job.inputs).name}" if job.inputs and not job.given else ""
    values = "".join(f", {name} holds {value}" for name, value in job.values.items())
    ran = {**job.fixed, **job.shapes, **job.given}
    wide = {name: shape for name, shape in ran.items() if shape or name not in job.values}  # the value of a scalar says enough
    return (shaped(wide, job.assumed) + values + file).removeprefix(", ")


def heading(runs: Sequence[Run]) -> list[str]:
    """The shapes of several runs: a text if all ran with the same shapes, else a text a model."""
    texts = {}
    for model, of_model in by_model(runs).items():
        variants: dict[str, dict[str, None]] = {}
        for run in of_model:
            variants.setdefault(shapes(run), {})[run.job.heading] = None
        texts[model] = next(iter(variants)) if len(variants) == 1 else _differing(variants)
    if len(set(texts.values())) == 1:
        return [text for text in list(texts.values())[:1] if text]
    return [f"{model}: {text}" for model, text in texts.items() if text]


def _differing(variants: Mapping[str, Iterable[str]]) -> str:
    """`x=1x3x640x640 (a; b), x=1x3x320x320 (c)`, of the variants of each text."""
    if len(variants) > _MOST:
        return "shapes that differ between variants"
    return ", ".join(f"{text or 'the shapes of the file'} ({'; '.join(names)})" for text, names in variants.items())


def repeats(runs: Sequence[Run]) -> str:
    """`5 repeats`, or `1 to 3 repeats` where variants have different numbers of them."""
    counts = sorted({len(group) for group in summary.groups(runs).values()})
    return f"{counts[0]} to {counts[-1]} repeats" if len(counts) > 1 else counted(counts[0], "repeat")


def failures(group: Sequence[Run]) -> list[str]:
    """`failed in 2 of 5 repeats: killed by SIGKILL in EXECUTE`, for each way in which repeats of a variant failed."""
    counts = Counter(run.outcome.sentence for run in group if not run.outcome.ok)
    return [f"failed{f' in {count} of {len(group)} repeats' if len(group) > 1 else ''}: {how}" for how, count in counts.items()]


def versions(runs: Sequence[Run]) -> list[str]:
    """The runtimes with their versions, in a text; none where no run says a version."""
    named = [f"{run.job.runtime} {run.about.runtime_version}" for run in runs if run.job.runtime != COMMAND and run.about]
    different = list(dict.fromkeys(named))
    if len(different) > _MOST:
        return [f"{len(different)} versions of runtimes"]
    return [", ".join(different)] if different else []
