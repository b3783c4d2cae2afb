"""ONNX Runtime's profile (SessionOptions.enable_profiling): a Chrome trace, a JSON array of events with "ts" and "dur" in us.

    {"cat": "Session", "name": "model_loading_uri", ...}        MODEL_LOAD; also model_loading_array, model_loading_from_saved_model
    {"cat": "Session", "name": "session_initialization", ...}   PREPARE
    {"cat": "Session", "name": "model_run", ...}                an iteration of EXECUTE
    {"cat": "Node", "name": "conv_1_kernel_time", "args": {"op_name", "mem_bytes_in_use", "mem_in_use_peak", "mem_arena_held", ...}}

A node's figures are those of the CPU arena when it has run, in bytes, as text. They do not hold the process's memory, so no RSS is made of them:
they become values, one each for every node of the first run, in which the arena grows. Seen with 1.31. A torn file is read up to its last
whole event.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...records.types import EXECUTE, MODEL_LOAD, PREPARE, Mark, Value
from .measurement import Measurement, count, torn

TOOL = "onnxruntime's profile"
_US = 1000
_PHASES = {"session_initialization": PREPARE, "model_run": EXECUTE}
_VALUES = {"mem_bytes_in_use": "arena_in_use_bytes", "mem_arena_held": "arena_held_bytes"}
_PEAKS = {"mem_in_use_peak": "arena_peak_bytes"}


def knows(text: str) -> bool:
    """Whether the text is an array of events of such a session."""
    head = text.lstrip()[:1]
    return head == "[" and any(word in text for word in ('"session_initialization"', '"model_loading_', '"model_run"'))


def read(text: str, file: str) -> list[Measurement]:
    """The session of a profile."""
    entries, whole = events(text)
    known = [event for event in entries if isinstance(event, dict)]
    sessions = [event for event in known if event.get("cat") == "Session" and isinstance(event.get("name"), str)]
    phases: dict[str, list[tuple[int, int]]] = {}
    for event in sessions:
        phase = MODEL_LOAD if event["name"].startswith("model_loading") else _PHASES.get(event["name"])
        begin_and_duration = span(event)
        if phase and begin_and_duration:
            phases.setdefault(phase, []).append(begin_and_duration)
    marks = []
    for phase in (MODEL_LOAD, PREPARE, EXECUTE):
        spans = sorted(phases.get(phase, ()))
        if spans:
            times = tuple(duration for _, duration in spans) if phase == EXECUTE else ()
            end_ns = max(begin + duration for begin, duration in spans)
            marks.append(Mark(phase, spans[0][0], end_ns, None, False, times))
    first_end = min((begin + duration for begin, duration in phases.get(EXECUTE, ())), default=None)
    values, notes = _nodes([event for event in known if event.get("cat") == "Node"], first_end)
    notes += [] if whole else [torn("it is read up to its last whole event")]
    return [Measurement(TOOL, "onnxruntime", marks, runs=len(phases.get(EXECUTE, ())), notes=notes, values=values)]


def _nodes(events: list[dict[str, Any]], first_end: int | None) -> tuple[list[Value], list[str]]:
    """The arena's figures at every node of the first run, its peaks over all runs, and sentences on the nodes that reach them."""
    values: list[Value] = []
    peaks: dict[str, tuple[int, str]] = {}
    for event in events:
        arguments, begin_and_duration = event.get("args"), span(event)
        if not isinstance(arguments, Mapping) or begin_and_duration is None:
            continue
        end_ns = sum(begin_and_duration)
        for key, name in _VALUES.items():
            figure = count(arguments.get(key))
            if figure is None:
                continue
            if first_end is None or end_ns <= first_end:
                values.append(Value(name, end_ns, figure, EXECUTE))
            if figure > peaks.get(name, (-1, ""))[0]:
                peaks[name] = figure, _node(event, arguments)
        for key, name in _PEAKS.items():
            figure = count(arguments.get(key))
            if figure is not None and figure > peaks.get(name, (-1, ""))[0]:
                peaks[name] = figure, _node(event, arguments)
    if "arena_peak_bytes" in peaks:
        values.append(Value("arena_peak_bytes", values[-1].t_ns if values else 0, peaks["arena_peak_bytes"][0], EXECUTE))
    notes = ["its memory figures are the CPU arena's, not the process's"] if peaks else []
    notes += [f"{name} is highest at node {node}: {figure}" for name, (figure, node) in sorted(peaks.items())]
    return values, notes


def _node(event: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    return f"{str(event.get('name', '')).removesuffix('_kernel_time')[:100]} ({str(arguments.get('op_name', '?'))[:50]})"


def events(text: str) -> tuple[list[Any], bool]:
    """The whole events of the array, and whether the array itself is whole."""
    try:
        array = json.loads(text)
    except ValueError:
        array = None
    if isinstance(array, list):
        return array, True
    decoder, place = json.JSONDecoder(), text.find("[") + 1
    whole: list[Any] = []
    while True:
        while place < len(text) and text[place] in " \t\r\n,":
            place += 1
        try:
            event, place = decoder.raw_decode(text, place)
        except ValueError:
            return whole, False
        whole.append(event)


def span(event: Mapping[str, Any]) -> tuple[int, int] | None:
    """The begin and the duration of an event in ns, None if either is missing."""
    begin, duration = count(event.get("ts"), _US), count(event.get("dur"), _US)
    return (begin, duration) if begin is not None and duration is not None else None
