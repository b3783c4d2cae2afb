"""The command that starts the recorder."""

from __future__ import annotations

from ..programs import recorder_build
from ..programs.source_zips import recorder_zip
from .place import HERE, Place, RecorderKind

# `python PROBE.zip` would go through runpy and its twenty modules. The interpreter's teardown has nothing to do. Either takes milliseconds of
# every job, so both are avoided.
_START = (
    "import os, sys; sys.path.insert(0, sys.argv[1]); from memprof.recorder.__main__ import main; "
    "code = main(); sys.stdout.flush(); sys.stderr.flush(); os._exit(code)"
)


def recorder_command(kind: RecorderKind = "python", place: Place = HERE) -> list[str]:
    """The words that start the recorder there: no site-packages, no PYTHON* variable and no module in the working folder can change it.

    Raises InputError if the recorder in C cannot be compiled, and if the place has no Python for the other.
    """
    if kind == "c":
        return [place.executable(str(recorder_build.built(place.machine().arch)))]
    sources = place.sources(recorder_zip())
    return [place.python or "", "-I", "-S", "-c", _START, sources]
