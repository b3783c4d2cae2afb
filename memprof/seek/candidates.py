"""The values of a runtime's knobs that are worth trying on this machine."""

from __future__ import annotations

import glob

from ..measuring.places.place import HERE
from ..programs import runtimes
from ..programs.runtimes import Knob, Runtime
from .tuned import THREADS, TuneRequest

# Where distributions put other allocators.
_ALLOCATORS = ("libjemalloc.so*", "libtcmalloc_minimal.so*", "libmimalloc.so*")
_FOLDERS = ("/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")


def candidates_of(runtime: Runtime, request: TuneRequest) -> dict[str, tuple[str, ...]]:
    """The values to search over: each knob's but the default's, and the allocators that this machine has."""
    known = {knob.name: knob for knob in runtime.knobs}
    for name in (*request.fixed, *request.tries):
        if name not in known:
            raise runtimes.unknown_knob(name, [runtime])
    # A knob that converts the model, or takes a file, acts on this machine only.
    local = {name for name, knob in known.items() if knob.acts == "build" or knob.values in ("file", "path")}
    left_out = set() if request.place is HERE else local
    candidates = {name: _values(knob, request) for name, knob in known.items() if name not in {*request.fixed, *left_out}}
    candidates[THREADS] = tuple(str(count) for count in dict.fromkeys(request.threads[1:]) if count != request.threads[0])
    return {name: values for name, values in candidates.items() if values}


def _values(knob: Knob, request: TuneRequest) -> tuple[str, ...]:
    if knob.name in request.tries:
        for value in request.tries[knob.name]:
            knob.check(value)
        return tuple(dict.fromkeys(value for value in request.tries[knob.name] if value != knob.default))
    return values(knob)


def values(knob: Knob) -> tuple[str, ...]:
    """The values of a knob to try beside its default."""
    return allocators() if knob.name == "preload" else knob.candidates()


def allocators() -> tuple[str, ...]:
    """Shared libraries of other allocators on this machine, the first of each kind."""
    libraries = []
    for pattern in _ALLOCATORS:
        paths = sorted(path for folder in _FOLDERS for path in glob.glob(f"{folder}/{pattern}"))
        libraries += paths[:1]
    return tuple(libraries)
