"""memprof as a library: measure, load, and hand over to pandas.

Everything here returns the types that the files hold; `Runs` is a tuple of Run with a few methods.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from msgspec.structs import replace

from ..base.errors import UsageError
from ..base.units import counted, parse_duration_ns
from ..campaign import campaign, resume
from ..campaign.progress import Progress, Silent
from ..campaign.runs_writer import keeping
from ..records import metrics, store, summary
from ..records.types import Cache, Run
from ..subjects import suite
from ..subjects.orders import plan
from ..subjects.suite import Suite, Variant

if TYPE_CHECKING:
    import pandas


class Runs(tuple[Run, ...]):
    """Runs that belong together. Shows itself as tables in Jupyter."""

    def summarise(self) -> Summary:
        """Statistics by variant, phase and metric."""
        return summarise(self)

    def to_frame(self) -> pandas.DataFrame:
        """One row per run and phase; columns as in docs/library.md, bytes and nanoseconds."""
        return _report("frame").runs_frame(self)  # type: ignore[no-any-return]

    def timeline(self) -> pandas.DataFrame:
        """One row per sample: model, variant, threads, repeat, phase, t_ns since the child's start, rss_bytes, file_bytes, vms_bytes."""
        return _report("frame").timeline_frame(self)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        models = len({run.job.model.name for run in self})
        return f"<{counted(len(self), 'run')} of {counted(models, 'model')}, {counted(len({summary.key(run) for run in self}), 'variant')}>"

    def _repr_html_(self) -> str:
        return str(_report("tables.table").render(self, format="html", brief=True)) if self else "no runs"

    def _repr_markdown_(self) -> str:
        return str(_report("tables.table").render(self, brief=True)) if self else "no runs"


class Summary(tuple[summary.Row, ...]):
    """Statistics of Runs by variant, phase and metric. Shows itself as a table in Jupyter."""

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'row')} of statistics>"

    def _repr_html_(self) -> str:
        return str(_report("tables.statistics").render(self, format="html"))

    def _repr_markdown_(self) -> str:
        return str(_report("tables.statistics").render(self))


def summarise(runs: Iterable[Run], names: Sequence[str] = metrics.DEFAULT_METRICS) -> Summary:
    """Statistics of these metrics, in every phase and for PEAK, of every group of repeats. Values that could not be had are left out."""
    return Summary(summary.summarise(runs, names))


def _report(name: str) -> Any:
    # By name: reports import records, and nothing here imports pandas until a caller needs it.
    return import_module(f"memprof.reports.{name}")


# -- arguments in the types that a suite has; a notebook has no type checker that would refuse others

_NOT_SEVERAL = (str, bytes, Mapping)


def _several(name: str, value: object, types: tuple[type, ...], example: str) -> tuple[Any, ...]:
    several = (value,) if isinstance(value, types) else value
    if isinstance(several, Iterable) and not isinstance(several, _NOT_SEVERAL):
        items = tuple(several)
        if all(isinstance(item, types) for item in items):
            return items
    raise _wrong(name, value, example)


def _numbers(name: str, value: object, example: str) -> tuple[int, ...]:
    several = value if isinstance(value, Iterable) and not isinstance(value, _NOT_SEVERAL) else (value,)
    try:
        return tuple(_index(number) for number in several)
    except TypeError:
        raise _wrong(name, value, example) from None


def _index(number: Any) -> int:
    """A whole number of any type, numpy's too. Raises TypeError."""
    if isinstance(number, bool):
        raise TypeError
    return operator.index(number)


def _variants(value: object) -> list[Variant]:
    several = _several("variants", value, (Variant,), "[Variant(runtime='onnxruntime', name='plain', set={'arena': 'off'})]")
    return [
        replace(
            variant, set=_settings(variant.set), threads=_numbers("threads", variant.threads, "2 or (1, 2)"), shapes=_shapes(variant.shapes)
        )
        for variant in several
    ]


def _settings(value: object) -> dict[str, str]:
    if isinstance(value, Mapping) and all(isinstance(word, str) for pair in value.items() for word in pair):
        return dict(value)
    raise _wrong("set", value, "{'arena': 'off'}, each knob and its value a text")


def _shapes(value: object) -> dict[str, tuple[int, ...]]:
    example = "{'x': (1, 3, 224, 224)}, the sizes by the input's name"
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise _wrong("shapes", value, example)
    shapes = {name: _numbers("shapes", shape, example) for name, shape in value.items()}
    if any(size < 0 for shape in shapes.values() for size in shape):
        raise _wrong("shapes", value, example)
    return shapes


def _whole(name: str, value: object) -> int:
    try:
        return _index(value)
    except TypeError:
        raise _wrong(name, value, "a whole number") from None


def _nanoseconds(value: object) -> int:
    if isinstance(value, str):
        return parse_duration_ns(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**63 / 1e9:
        return int(value * 1e9)
    raise _wrong("timeout", value, "'30s' or a number of seconds")


def _wrong(name: str, value: object, example: str) -> UsageError:
    return UsageError(f"{name}={repr(value)[:40]}: give {example}")


def measure(
    models: str | Path | Sequence[str | Path] = (),
    runtimes: str | Sequence[str] = (),
    variants: Variant | Sequence[Variant] = (),
    *,
    cmds: str | Sequence[str] = (),
    set: Mapping[str, str] | None = None,
    threads: int | Sequence[int] = (),
    warmup: int = 5,
    runs: int = 5,
    repeats: int = 5,
    shapes: Mapping[str, int | Sequence[int]] | None = None,
    inputs: str | Path | None = None,
    timeout: str | float = "10min",
    cache: Cache = "warm",
    deterministic: bool = False,
    output: str | Path | None = None,
    append: bool = False,
    release: bool = True,
    progress: Progress | None = None,
) -> Runs:
    """Measure models in runtimes and variants, each repeat in a fresh process, and return the Runs.

    models, runtimes, variants, cmds, threads: several, or one by itself. shapes: of inputs, by their names, a number for one dimension; a Variant
    may have its own. inputs: an .npz file with inputs by name; those that it lacks are made. timeout: the longest time that a run may take, such
    as `30s` or a number of seconds. cache: the model's page cache before each run.
    deterministic: no address randomisation, a fixed hash seed, one malloc arena, and one thread unless `threads` says otherwise.
    cmds: programs, each as `NAME=PROGRAM WORD...` (see memprof.programs.commands). output: a runs file to write each Run to as soon as it exists.
    append: add to that file. If it holds a part of these runs already, only the others are measured, and all are returned.
    release: end the runs of runtimes with the phase RELEASE, in which the runtime is deleted.
    Raises UsageError or InputError for wrong arguments before anything is measured. A child that fails is a Run with that outcome, not an
    exception.
    """
    if cache not in get_args(Cache):
        raise UsageError(f"cache {cache!r}: write {', '.join(get_args(Cache))}")
    wanted_suite = Suite(
        models=tuple(map(str, _several("models", models, (str, Path), "'m.onnx' or ['a.onnx', 'b.onnx']"))),
        runtimes=_several("runtimes", runtimes, (str,), "'onnxruntime' or ['onnxruntime', 'litert']"),
        variants=(
            *_variants(variants),
            *map(suite.parse_cmd, _several("cmds", cmds, (str,), "'name=./program' or ['a=./one', 'b=./other']")),
        ),
        set=_settings(set or {}),
        threads=_numbers("threads", threads, "2 or [1, 2, 4]"),
        warmup=_whole("warmup", warmup),
        runs=_whole("runs", runs),
        repeats=_whole("repeats", repeats),
        shapes=_shapes(shapes or {}),
        inputs=str(inputs) if inputs is not None else None,
        timeout_ns=_nanoseconds(timeout),
        cache=cache,
        deterministic=deterministic,
        release=release,
    )
    planned, listener = plan(wanted_suite), progress or Silent()
    with keeping(Path(output) if output is not None else None, listener.say, append=append, option="append=True") as keep:
        for remark in planned.remarks:
            listener.say(remark)
        orders, there = planned.orders, list[Run]()
        if output is not None and append:
            orders, there = resume.unfinished(orders, Path(output), listener.say)
        return Runs([*there, *campaign.measure(orders, listener, keep)])


def load(paths: str | Path | Iterable[str | Path]) -> Runs:
    """The Runs in one or several runs files. Raises InputError."""
    return Runs(store.load([paths] if isinstance(paths, str | Path) else paths).runs)
