"""memprof as a library: measure, load, and hand over to pandas.

Everything here returns the types that the files hold; `Runs` is a tuple of Run with a few methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from .errors import UsageError
from .measuring import campaign, resuming, suite
from .measuring.keeping import keeping
from .measuring.orders import plan
from .measuring.progress import Progress, Silent
from .measuring.suite import Suite, Variant
from .runs import metrics, store, summary
from .runs.records import Cache, Run
from .units import counted, parse_duration_ns

if TYPE_CHECKING:
    import pandas


class Runs(tuple[Run, ...]):
    """Runs that belong together. Shows itself as tables in Jupyter."""

    def summarise(self) -> Summary:
        """Statistics by variant, phase and metric."""
        return summarise(self)

    def to_frame(self) -> pandas.DataFrame:
        """One row a run and phase; columns as in docs/library.md, bytes and nanoseconds."""
        return _report("frame").runs_frame(self)  # type: ignore[no-any-return]

    def timeline(self) -> pandas.DataFrame:
        """One row a sample: model, variant, threads, repeat, phase, t_ns since the child's start, rss_bytes, file_bytes, vms_bytes."""
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
    # By name: reports import records, and nothing here imports pandas until it is asked for.
    return import_module(f"memprof.reports.{name}")


def measure(
    models: str | Path | Sequence[str | Path] = (),
    runtimes: str | Sequence[str] = (),
    variants: Sequence[Variant] = (),
    *,
    cmds: Sequence[str] = (),
    set: Mapping[str, str] | None = None,
    threads: Sequence[int] = (),
    warmup: int = 5,
    runs: int = 5,
    repeats: int = 5,
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: str | Path | None = None,
    timeout: str = "10min",
    cache: Cache = "warm",
    deterministic: bool = False,
    output: str | Path | None = None,
    append: bool = False,
    release: bool = True,
    progress: Progress | None = None,
) -> Runs:
    """Measure models in runtimes and variants, each repeat in a fresh process, and return the Runs.

    models, runtimes: several, or one by itself. shapes: of inputs, by their names; a Variant may have its own. inputs: an .npz file with inputs by
    name; those that it lacks are made. timeout: the longest time that a run may take, such as `30s`. cache: the model's page cache before each run.
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
        models=tuple(str(model) for model in ([models] if isinstance(models, str | Path) else models)),
        runtimes=(runtimes,) if isinstance(runtimes, str) else tuple(runtimes),
        variants=(*variants, *map(suite.parse_cmd, cmds)),
        set=dict(set or {}),
        threads=tuple(threads),
        warmup=warmup,
        runs=runs,
        repeats=repeats,
        shapes={name: tuple(shape) for name, shape in (shapes or {}).items()},
        inputs=str(inputs) if inputs is not None else None,
        timeout_ns=parse_duration_ns(timeout),
        cache=cache,
        deterministic=deterministic,
        release=release,
    )
    planned, listener = plan(wanted_suite), progress or Silent()
    with keeping(Path(output) if output is not None else None, listener.say, append=append) as keep:
        for remark in planned.remarks:
            listener.say(remark)
        orders, there = planned.orders, list[Run]()
        if output is not None and append:
            orders, there = resuming.unfinished(orders, Path(output), listener.say)
        return Runs([*there, *campaign.measure(orders, listener, keep)])


def load(paths: str | Path | Iterable[str | Path]) -> Runs:
    """The Runs in one or several runs files. Raises InputError."""
    return Runs(store.load([paths] if isinstance(paths, str | Path) else paths).runs)
