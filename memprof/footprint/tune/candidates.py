"""The values that are worth trying on this machine: of a runtime's or a program's knobs, of variables, and of a program's words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ...base.errors import UsageError
from ...places.place import HERE
from ...programs import runtimes
from ...programs.runtimes import Knob, Runtime
from .answer import ENV, THREADS, TuneRequest
from .search import Needs

# The values that a search tries before others, for it may lack the time for all: the best of each knob that saves. Behind each is PEAK with it alone,
# as a share of the default's, in the mean of five (ONNX Runtime 1.32, 2 threads, 2026-11-27): inception_v3, mobilenet_v2, resnet50 and encoder of the
# zoo at batch 1 or 2, and inception_v3 at batch 8. mem_pattern is first, for its saving grows with the batch (0.81 at 8), as do iterations; with the
# threshold it was 0.59 at batch 8.
FIRST = (
    ("mem_pattern", "off"),  # 0.95
    ("malloc_mmap_threshold", "64KiB"),  # 0.82
    ("optimization", "basic"),  # 0.79
    ("weights", "separate"),  # 0.78
    ("prepacking", "off"),  # 0.92
    ("malloc_trim", "on"),  # 0.95
    ("arena", "off"),  # 0.97
    ("format", "ort"),  # 0.99
)


def candidates_of(runtime: Runtime, request: TuneRequest) -> dict[str, tuple[str, ...]]:
    """The values to search over: each knob's but the default's, the allocators that this machine has, and those of variables and words. Values that
    lack what they need beside those that are fixed are left out.

    Raises UsageError for an unknown knob, for a variable that is none, and for a value that the user wants tried and that lacks what it needs.
    """
    defaults = request.defaults
    known = {knob.name: knob for knob in runtime.knobs if knob.name not in defaults}
    for name in (*request.fixed, *request.tries):
        if name.startswith(ENV):
            _check_variable(name, request)
        elif name not in known and name not in defaults:
            raise runtimes.unknown_knob(name, [runtime])
    left_out = _left_out(known, request)
    searched = {name: knob for name, knob in known.items() if name not in {*request.fixed, *left_out}}
    candidates = {
        name: tuple(value for value in _values(knob, request) if not _excluded(runtime, searched, request, name, value))
        for name, knob in searched.items()
    }
    for name, values in candidates.items():
        candidates[name] = tuple(value for value in values if _reachable(known, candidates, searched[name].needed(value)))
    for name, first in defaults.items():
        candidates[name] = tuple(dict.fromkeys(value for value in request.tries[name] if value != first))
    candidates[THREADS] = tuple(str(count) for count in dict.fromkeys(request.threads[1:]) if count != request.threads[0])
    return {name: values for name, values in candidates.items() if values}


def _check_variable(name: str, request: TuneRequest) -> None:
    variable, own = name.removeprefix(ENV), request.suite.only
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
        raise UsageError(f"--try {name}: {variable!r} is no name of a variable")
    given = {**request.suite.env, **(own.command.env if own.command is not None else {}), **own.env}
    if variable in given:
        raise UsageError(f"--try {name}: {variable}={given[variable]} gives it a value too; leave one of the two out")


def _left_out(known: Mapping[str, Knob], request: TuneRequest) -> set[str]:
    """Knobs that cannot be searched. A model is converted by a memprof on the machine that measures, which may be a worker's; a file's path means
    another file on any other machine."""
    fleet = request.fleet
    boards = request.suite.place is not HERE or (fleet is not None and not fleet.are_hosts)
    elsewhere = boards or fleet is not None
    return {name for name, knob in known.items() if (knob.acts == "build" and boards) or (knob.values in ("file", "path") and elsewhere)}


def needs_of(runtime: Runtime, candidates: Mapping[str, Sequence[str]]) -> Needs:
    """For each of the values to search over, those that it needs of knobs that are searched too."""
    known = {knob.name: knob for knob in runtime.knobs}
    return {
        (name, value): {
            other: wanted if wanted != known[other].default else None
            for other, wanted in known[name].needed(value).items()
            if other in candidates
        }
        for name, values in candidates.items()
        if name in known
        for value in values
    }


def _reachable(known: Mapping[str, Knob], candidates: Mapping[str, Sequence[str]], needed: Mapping[str, str]) -> bool:
    """Whether the search may give other knobs the values that one value needs."""
    return all(wanted == known[other].default or wanted in candidates[other] for other, wanted in needed.items() if other in candidates)


def _excluded(runtime: Runtime, searched: Mapping[str, Knob], request: TuneRequest, name: str, value: str) -> bool:
    """Whether a value and those that stay as they are exclude each other."""
    settings = {**request.fixed, name: value}
    lacks = [sentence for key, other, sentence in runtime.lacks(settings) if other not in searched or (key != name and other == name)]
    if lacks and value in request.tries.get(name, ()):
        raise UsageError(lacks[0])
    return bool(lacks)


def _values(knob: Knob, request: TuneRequest) -> tuple[str, ...]:
    if knob.name in request.tries:
        for value in request.tries[knob.name]:
            knob.check(value)
        return tuple(dict.fromkeys(value for value in request.tries[knob.name] if value != knob.default))
    return runtimes.values_to_try(knob)
