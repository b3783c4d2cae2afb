"""The CSV that onert's tools write with --write_report (benchmark/CsvWriter.cpp of Samsung's ONE): a row of names, and one of figures.

Times are in ms, memory in KiB. The columns are found by name (benchmark/CsvHeader.lst), because versions differ in them. Without --mem_poll the
tool writes zeros into the memory columns, which are taken as absent.
"""

from __future__ import annotations

import csv
import io

from ...records.types import EXECUTE, MODEL_LOAD, PREPARE, Value
from .measurement import KIB, MEAN_LATENCY, RSS_POLLED, Measurement, check_count, count, in_a_row, torn

TOOL = "onert_run --write_report"
_MS = 1_000_000
_PHASES = {"ModelLoad": MODEL_LOAD, "Prepare": PREPARE, "Execute": EXECUTE}
_KINDS = {"RSS": "rss_peak_bytes", "HWM": "hwm_bytes", "PSS": "pss_end_bytes"}


def knows(text: str) -> bool:
    """Whether the first row has the columns that every version has."""
    head = text.lstrip("\ufeff").split("\n", 1)[0]
    return "ModelLoad_Time" in head and "Prepare_Time" in head


def read(text: str, file: str) -> list[Measurement]:
    """A measurement a row."""
    lines = [line for line in text.lstrip("\ufeff").replace("\0", "").splitlines() if line.strip()]
    try:
        header, *rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO("\n".join(lines)), skipinitialspace=True)]
    except (csv.Error, ValueError):
        return []
    check_count(len(rows), TOOL)
    measurements = [
        _measurement(dict(zip(header, row, strict=False)), len(row) < len(header)) for row in rows if row[: len(header)] != header
    ]
    if measurements and not text.endswith(("\n", "\r")):
        measurements[-1] = measurements[-1].cut_off("its last row has no end, so its last figure may be longer")
    return measurements


def _measurement(row: dict[str, str], short: bool) -> Measurement:
    phases = []
    for word, phase in _PHASES.items():
        time = row.get(f"{word}_Time") or row.get(f"{word}_Time_Mean")
        fields = {field: count(row.get(f"{word}_{kind}"), KIB) or None for kind, field in _KINDS.items()}
        phases.append((phase, count(time, _MS), fields))
    values = [
        Value(f"execute_{name.lower()}_ns", 0, time_ns, EXECUTE)
        for name in ("Min", "Max", "Mean")
        if (time_ns := count(row.get(f"Execute_Time_{name}"), _MS)) is not None
    ]
    known = any(fields["rss_peak_bytes"] for _, _, fields in phases)
    notes = [
        MEAN_LATENCY,
        *([RSS_POLLED] if known else []),
        *([torn("this row has fewer figures than the first one has names")] if short else []),
    ]
    return Measurement(
        TOOL,
        "onert",
        in_a_row(phases),
        model=row.get("Model", ""),
        variant=row.get("Backend", ""),
        knobs={"backend": row["Backend"]} if row.get("Backend") else {},
        notes=notes,
        values=values,
    )
