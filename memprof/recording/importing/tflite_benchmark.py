"""What TFLite's benchmark_model prints (tensorflow/lite/tools/benchmark), on a terminal or in logcat:

    Graph: [mobilenet.tflite]
    #threads used for CPU inference: [4]            or: Num threads: [4]
    count=337 first=2881 curr=2703 min=2605 max=20356 avg=2942.27 std=1190       of the warm-up, then of the timed runs; us
    Inference timings in us: Init: 6395, First inference: 2761, Warmup (avg): 3243.58, Inference (avg): 2942.27
    Memory footprint delta from the start of the tool (MB): init=39.4531 overall=40.8281
    Overall peak memory footprint (MB) via periodic monitoring: 54.7188

The runs of a log that holds several differ by their backend, which these lines name:

    Use gpu: [1]                                    a delegate that its flag turned on, or [0] turned off
    Created TensorFlow Lite XNNPACK delegate for CPU.

The tool is described at https://github.com/tensorflow/tensorflow/tree/master/tensorflow/lite/tools/benchmark. MB means MiB here. The footprints
are differences of ru_maxrss, so a baseline is subtracted already; from the monitored peak it is not. Init makes and allocates the interpreter, which
is MODEL_LOAD and PREPARE at once.
"""

from __future__ import annotations

import os
import re

from msgspec.structs import replace

from ...records.types import EXECUTE, MODEL_LOAD, WARMUP, Value
from .measurement import MEAN_LATENCY, MIB, NUMBER, Measurement, check_count, count, in_a_row, torn

TOOL = "benchmark_model"
_US = 1000
_TIMINGS = re.compile(
    rf"Inference timings in us: Init: {NUMBER}, First inference: {NUMBER}, Warmup \(avg\): {NUMBER}, (?:no stats|Inference \(avg\)): {NUMBER}"
)
_FOOTPRINT = re.compile(rf"[Mm]emory footprint delta from the start of the tool \(MB\): init={NUMBER} overall={NUMBER}")
_OLD_FOOTPRINT = re.compile(rf"Peak memory footprint \(MB\): init={NUMBER} overall={NUMBER}")
_MONITORED = re.compile(rf"Overall peak memory footprint \(MB\) via periodic monitoring: {NUMBER}")
# Both parts end before the beginning of another: a line that repeats the beginning would be read from each one to the end.
_GRAPH = re.compile(r"Graph: \[([^\[\]\n]{1,4096})\]|Loaded model (\S[^\n]{0,4096})")
_SIZE = re.compile(rf"input model file size \(MB\): {NUMBER}")
_THREADS = re.compile(r"(?:#threads used for CPU inference|Num threads): \[([0-9]{1,5})\]")
_COUNT = re.compile(r"\bcount=([0-9]{1,9})\b((?: [a-z0-9]+=[0-9.e+-]+)+)")
_DELEGATE = re.compile(r"\bUse (cpu|gpu|npu|nnapi|hexagon|coreml|xnnpack): \[(\w{1,5})\]", re.IGNORECASE)
_CPU = "XNNPACK delegate for CPU"
_STATISTIC = re.compile(rf"\b(first|min|max|avg|std|median|p5|p95)={NUMBER}")


def knows(text: str) -> bool:
    """Whether one of the lines that end such a log is there, or the line before the timed runs."""
    return bool(_TIMINGS.search(text) or _FOOTPRINT.search(text) or _OLD_FOOTPRINT.search(text)) or (
        "Initialized session in" in text and bool(_COUNT.search(text))
    )


def read(text: str, file: str) -> list[Measurement]:
    """The measurements in a log: each ends with its footprint, or with the file."""
    sections = re.split(r"(?=STARTING!)", text)
    parts = [part for part in sections if knows(part)] or [text]
    check_count(len(parts), TOOL)
    measurements = [_measurement(part) for part in parts]
    if len(parts) > 1:
        measurements = [replace(each, variant=_backend(part)) for each, part in zip(measurements, parts, strict=True)]
    if not knows(sections[-1]):
        measurements[-1] = measurements[-1].cut_off("one more measurement begins in it and has no figures")
    elif not text.endswith(("\n", "\r")):
        measurements[-1] = measurements[-1].cut_off("its last line has no end, so its last figure may be longer")
    return measurements


def _measurement(text: str) -> Measurement:
    timings, counts = _TIMINGS.search(text), _COUNT.findall(text)
    init, warmup, execute = (count(timings[place], _US) for place in (1, 3, 4)) if timings else (None, None, None)
    footprint = _FOOTPRINT.search(text) or _OLD_FOOTPRINT.search(text)
    first, overall = (count(footprint[place], MIB) for place in (1, 2)) if footprint else (None, None)
    if init is None and (initialized := re.search(rf"Initialized session in {NUMBER}ms", text)):
        init = count(initialized[1], 1000 * _US)
    values = [Value("execute_" + name + "_ns", 0, value, EXECUTE) for name, value in _statistics(counts[-1][1] if counts else "")]
    if monitored := _MONITORED.search(text):
        values += [Value("monitored_peak_bytes", 0, peak, EXECUTE) for peak in (count(monitored[1], MIB),) if peak is not None]
    marks = in_a_row(
        [
            (MODEL_LOAD, init, {"rss_peak_bytes": first}),
            (WARMUP, warmup, {}),
            (EXECUTE, execute, {"rss_peak_bytes": overall}),
        ]
    )
    graph, size, threads = _GRAPH.search(text), _SIZE.search(text), _THREADS.search(text)
    path = (graph[1] or graph[2]).strip() if graph else ""
    notes = ["Init makes and allocates the interpreter: MODEL_LOAD includes PREPARE", MEAN_LATENCY]
    if footprint:
        notes.append("memory is counted from the tool's start, so it lies above the tool's baseline")
    elif timings:
        notes.append(torn("no memory footprint follows its timings (or it comes from a system on which the tool has none)"))
    else:
        notes.append(torn("it ends before its timings"))
    return Measurement(
        TOOL,
        "tflite",
        marks,
        model=os.path.basename(path),
        model_path=path,
        model_bytes=count(size[1], MIB) or 0 if size else 0,
        warmup=int(counts[0][0]) if len(counts) > 1 else 0,
        runs=int(counts[-1][0]) if counts else 0,
        threads=int(threads[1]) or None if threads else None,
        notes=notes,
        values=values,
    )


def _backend(text: str) -> str:
    """The delegates that a run's flags turned on, cpu if they turned all off or named none, and "" if the log does not say."""
    flags = _DELEGATE.findall(text)
    delegates = dict.fromkeys(name.lower() for name, state in flags if state.lower() in ("1", "true"))
    return "+".join(delegates) or ("cpu" if flags or _CPU in text else "")


def _statistics(text: str) -> list[tuple[str, int]]:
    statistics = [(name, count(number, _US)) for name, number in _STATISTIC.findall(text)]
    return [({"avg": "mean", "std": "stdev"}.get(name, name), value) for name, value in statistics if value is not None]
