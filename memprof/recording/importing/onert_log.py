"""What onert_run, nnpackage_run and tflite_run print (runtime/libs/benchmark of Samsung's ONE):

    ... run 0 takes 1283.27 ms
    MODEL_LOAD takes 419.034 ms          PREPARE, EXECUTE likewise; older ones print EXECUTE's figures only as the list below it
    - Min:  1283.27 ms                   Max, Mean, GeoMean, with spaces anywhere around the colon
    RSS                                  HWM, PSS likewise, where --mem_poll was given
    - MODEL_LOAD takes 191704 kb         PREPARE, EXECUTE, PEAK; kb means KiB

RSS and PSS were polled within the phase; HWM is never reset. A file may hold several logs, one after another.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec.structs import replace

from ...records.types import EXECUTE, MODEL_LOAD, PREPARE, Value
from .measurement import KIB, NUMBER, RSS_POLLED, Measurement, check_count, count, in_a_row, torn

TOOL = "onert_run"
_MS = 1_000_000
_TIME = re.compile(rf"^(MODEL_LOAD|PREPARE|EXECUTE)\s+takes\s+{NUMBER}\s*ms\s*$", re.I)
_RUN = re.compile(rf"^\.\.\.\s*run\s+[0-9]+\s+takes\s+{NUMBER}\s*ms", re.I)
_WARMUP = re.compile(r"^\.\.\.\s*warmup\s+[0-9]+\s+takes\s+", re.I)
_FIGURE = re.compile(rf"^-\s*(MIN|MAX|MEAN|GEOMEAN)\s*:\s*{NUMBER}\s*ms\s*$", re.I)
_KIND = re.compile(r"^(RSS|HWM|PSS)\s*$")
_MEMORY = re.compile(rf"^-\s*(MODEL_LOAD|PREPARE|EXECUTE|PEAK)\s+takes\s+{NUMBER}\s*kb\s*$", re.I)
_COMMAND = re.compile(r"^\s*(?:\$|#)\s+(\S.*(?:onert_run|nnpackage_run|tflite_run)\b.*)$")
_FIRST = re.compile(r"^MODEL_LOAD\s+takes\b", re.I | re.M)
_ARCH = re.compile(r"/([a-z0-9_]+)-(?:linux|android|tizen)\.")
_LONGEST_COMMAND = 1 << 16  # shlex takes the square of the longest word
_MODEL_OPTIONS = ("--nnpackage", "--modelfile", "--tflite", "--path", "--model")


def knows(text: str) -> bool:
    """Whether this is such a log: it has a time of MODEL_LOAD, or its memory."""
    return bool(_FIRST.search(text)) or any(_MEMORY.match(line.strip()) for line in text.splitlines()[:2000])


def read(text: str, file: str) -> list[Measurement]:
    """The measurements in a log."""
    parts = _parts(text)
    check_count(len(parts), TOOL)
    return [_measurement(lines) for lines in parts]


def _parts(text: str) -> list[list[str]]:
    """The lines of each measurement. After the time of loading, a line that stands before it in a log begins another measurement."""
    parts: list[list[str]] = [[]]
    loaded = False
    for line in text.splitlines():
        plain = line.strip()
        time = _TIME.match(plain)
        loads = time is not None and time[1].upper() == MODEL_LOAD
        if loaded and (loads or _RUN.match(plain) or _WARMUP.match(plain) or _COMMAND.match(line)):
            parts.append([])
            loaded = False
        loaded |= loads
        parts[-1].append(line)
    return parts


def _measurement(lines: list[str]) -> Measurement:
    times: dict[str, int | None] = {}
    runs: list[int] = []
    figures: dict[str, int] = {}
    memory: dict[str, dict[str, int | None]] = {"RSS": {}, "HWM": {}, "PSS": {}}
    kind, warmup, command = "", 0, ""
    kinds: list[str] = []
    for line in (line.strip() for line in lines):
        if match := _COMMAND.match(line):
            command = match[1]
        elif match := _TIME.match(line):
            times.setdefault(match[1].upper(), count(match[2], _MS))
        elif (match := _RUN.match(line)) and (time_ns := count(match[1], _MS)) is not None:
            runs.append(time_ns)
        elif _WARMUP.match(line):
            warmup += 1
        elif (match := _FIGURE.match(line)) and (time_ns := count(match[2], _MS)) is not None:
            figures.setdefault(match[1].lower(), time_ns)
        elif match := _KIND.match(line):
            kind = match[1]
            kinds.append(kind)
        elif (match := _MEMORY.match(line)) and kind:
            memory[kind].setdefault(match[1].upper(), count(match[2], KIB))
    execute_ns = times.get(EXECUTE, figures.get("mean"))
    if execute_ns is None and runs:
        execute_ns = sum(runs) // len(runs)
    fields = {
        phase: {
            "rss_peak_bytes": memory["RSS"].get(phase),
            "hwm_bytes": memory["HWM"].get(phase),
            "pss_end_bytes": memory["PSS"].get(phase),
        }
        for phase in (MODEL_LOAD, PREPARE, EXECUTE)
    }
    total_ns = sum(runs) if runs else execute_ns
    marks = in_a_row(
        [
            (MODEL_LOAD, times.get(MODEL_LOAD), fields[MODEL_LOAD]),
            (PREPARE, times.get(PREPARE), fields[PREPARE]),
            (EXECUTE, total_ns, {**fields[EXECUTE], "times_ns": tuple(runs)}),
        ]
    )
    notes = [RSS_POLLED] if memory["RSS"] else []
    notes += _torn(times, figures, kinds, memory)
    values = [] if runs else [Value(f"execute_{name}_ns", 0, value, EXECUTE) for name, value in figures.items()]
    return _about(command, Measurement(TOOL, "onert", marks, runs=len(runs), warmup=warmup, notes=notes, values=values))


def _torn(
    times: Mapping[str, object], figures: Mapping[str, object], kinds: Sequence[str], memory: Mapping[str, Mapping[str, object]]
) -> list[str]:
    """A note if the end is missing. A whole log has times of three phases, GEOMEAN as EXECUTE's last figure, PEAK as the last of each kind of
    memory, and never RSS as the only kind."""
    missing = [phase for phase in (PREPARE, EXECUTE) if times and phase not in times and not (phase == EXECUTE and figures)]
    if missing:
        return [torn(f"it ends before the time of {missing[0]}")]
    if figures and "geomean" not in figures:
        return [torn("it ends within the figures of EXECUTE")]
    short = [kind for kind in kinds if "PEAK" not in memory[kind]]
    if short:
        return [torn(f"it ends within the figures of {short[0]}")]
    return [torn("it ends after the figures of RSS")] if set(kinds) == {"RSS"} else []


def _about(command: str, measurement: Measurement) -> Measurement:
    """The measurement with the facts of the command line, if the log begins with one."""
    if not command:
        return measurement
    try:
        words = shlex.split(command) if len(command) <= _LONGEST_COMMAND else command.split()
    except ValueError:
        words = command.split()
    program = next((place for place, word in enumerate(words) if word.endswith(("onert_run", "nnpackage_run", "tflite_run"))), 0)
    env = {name: value for name, equals, value in (word.partition("=") for word in words[:program]) if equals}
    argv = tuple(words[program:])
    path = next((word.partition("=")[2] for word in argv for option in _MODEL_OPTIONS if word.startswith(option + "=")), "")
    path = path or next((after for word, after in pairwise(argv) if word in _MODEL_OPTIONS), "")
    arch = _ARCH.search(argv[0]) if argv else None
    return replace(
        measurement,
        tool=os.path.basename(argv[0]) if argv else measurement.tool,
        argv=argv,
        model=os.path.basename(path.rstrip("/")),
        model_path=path,
        arch=arch[1] if arch else "",
        threads=int(env["NUM_THREADS"]) if env.get("NUM_THREADS", "").isdecimal() and len(env["NUM_THREADS"]) < 6 else None,
        env=env,
    )
