"""Models converted before they are measured, and kept in the cache by what they were made from."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from ..base.leftovers import TOKEN, scratch
from ..base.runners import runners_path
from ..models import inputs
from ..programs import conversion_cache
from ..records import store
from ..records.recorder_order import Message, Start
from ..records.types import STARTUP, Outcome, Run
from ..subjects.order import Order
from .progress import Progress
from .recorder_client import ask, without_recorder

_BUILD_TIMEOUT_NS = 3600 * 10**9
_BUILD_INTERVAL_NS = 10**8


def converted(orders: Sequence[Order], token: str, progress: Progress) -> list[tuple[Order, tuple[Run, bytes] | None]]:
    """The orders with their converted models. An order whose model could not be converted, or that cannot be started, has a Run that says why."""
    results: dict[str, str | Run] = {}
    ready: list[tuple[Order, tuple[Run, bytes] | None]] = []
    for order in orders:
        if order.error is not None:
            ready.append((order, without_recorder(order.job, time.time_ns(), Outcome("start", STARTUP, str(order.error)), order.place)))
            continue
        if order.build is None:
            ready.append((order, None))
            continue
        key = _build_key(order)
        if key not in results:
            results[key] = _build(order, key, token, progress)
        result = results[key]
        if isinstance(result, Run):
            run = replace(result, job=order.job)
            ready.append((order, (run, store.encode(run))))
        else:
            path = result if result != order.job.model.path else None
            ready.append((replace(order, job=replace(order.job, built=path)), None))
    return ready


def _build_key(order: Order) -> str:
    """A hash of all that the converted file depends on: the model's content, the runtime, its version and interpreter, the knobs and shapes."""
    facts = [
        order.python,  # two builds of one version may convert differently
        order.job.model.sha256,
        order.runtime.name,
        str(order.runtime.version),
        json.dumps(order.build, sort_keys=True),
        json.dumps(_load_knobs(order), sort_keys=True),
        json.dumps(dict(order.job.shapes), sort_keys=True),
        json.dumps(_varied(order), sort_keys=True),
    ]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]


def _load_knobs(order: Order) -> dict[str, str]:
    # A conversion may depend on how the model will be loaded: onnxruntime's own format holds the optimised graph.
    return {key: value for key, value in order.job.knobs.items() if key in order.runtime.build_uses}


def _varied(order: Order) -> Sequence[Mapping[str, Sequence[int]]]:
    """The shapes that iterations take one after another. A converter that knows one shape alone may compute for it what depends on it."""
    return order.job.use.shapes if order.job.use is not None else ()


def _build(order: Order, key: str, token: str, progress: Progress) -> str | Run:
    """The path of the converted model, from the cache if it was converted before; the Run of the conversion if that failed."""
    folder = conversion_cache.folder(key)
    if not folder.exists():
        progress.say(f"{order.job.model.name}: converting for {order.job.heading}")
        work = folder.with_name(f"{key}.{token}")
        work.mkdir()
        try:
            with scratch("convert") as space:
                run, _ = ask(order.job, _message(order, work, space.folder, token), token, lambda phase, rss: None)
            if not run.outcome.ok:
                return run
            conversion_cache.note_interpreter(work, order.python)
            with suppress(OSError):  # another memprof may have been quicker, and may be measuring its model
                work.rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return conversion_cache.path_to_load(folder)


def _message(order: Order, work: Path, space: Path, token: str) -> Message:
    """space: for the temporary files of the converter, which may be as large as the model."""
    child = {
        "runtime": order.runtime.name,
        "model": order.job.model.path,
        "folder": str(work),
        "knobs": order.job.knobs,
        "shapes": order.job.shapes,
        "use": {"shapes": _varied(order)},
        "threads": order.job.threads,
        "declared": inputs.shapes_that_run(Path(order.job.model.path), order.job.shapes, None),
    }
    start = Start(
        argv=(order.python, str(runners_path()), "build"),
        env={"TMPDIR": str(space), **order.runtime.env, **order.job.env, TOKEN: token},
        stdin=json.dumps(child) + "\n",
    )
    return Message(order.job, start, _BUILD_TIMEOUT_NS, {"": _BUILD_INTERVAL_NS})
