"""The bench from its words to its tables: which sections run, what surrounds them, and how they are shown.

The tables and the meaning of their cells go to standard output as Markdown, progress to standard error. Each section also goes into its place in the
manual (docs.py), unless this was only a quick try. On a busy machine everything is measured all the same; the first lines and the manual
say how busy it was.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from memprof.base.units import format_bytes
from memprof.places.machine import this_machine

from . import docs, heap, heap_page, ladder, native, poller, scale, slowdown, startup, symbols, tools
from .table import Section, Setting, markdown

MODEL = Path(__file__).resolve().parents[2] / "bench" / "inception_v3.onnx"
SECTIONS: Mapping[str, Callable[[Setting], Section]] = {
    "ladder": ladder.measure,
    "slowdown": slowdown.measure,
    "poller": poller.measure,
    "help": startup.measure_help,
    "job": startup.measure_job,
    "scale": scale.measure,
    "native-ladder": native.measure_ladder,
    "tree": native.measure_tree,
    "symbols-ladder": symbols.measure_ladder,
    "symbols-calls": symbols.measure_calls,
    "heap-page": heap_page.measure,
    "heap": heap.measure,
}
_BUSY_PERCENT = 10


def main() -> None:
    """Measure, print, and leave with exit code 0, whatever targets were missed."""
    words = _arguments()
    say = _Talk()
    surroundings = _surroundings()
    busy: dict[str, float] = surroundings["busy_percent"]
    with tempfile.TemporaryDirectory(prefix="memprof-bench-") as folder:
        setting = Setting(words.quick, Path(folder), lambda: _model(say), say)
        sections: dict[str, Section] = {}
        for name in words.only or SECTIONS:
            busy[name] = psutil.cpu_percent(interval=1)
            sections[name] = SECTIONS[name](setting)
    say(f"done in {time.monotonic() - say.begin_s:.0f} s")
    print("\n".join(f"- {line}" for line in _shown(surroundings, words.quick)))
    print()
    print("\n\n".join(map(markdown, sections.values())))
    print()
    print("\n".join(f"- {note}" for section in sections.values() for note in section.notes))
    if not words.quick:
        for name, section in sections.items():
            notes = [note for note in (_busy(surroundings), *section.notes) if note]
            say(f"{docs.write(name, markdown(section), notes)} has the section {name}")
    if words.json:
        content = {"surroundings": surroundings, "quick": words.quick, "sections": sections}
        words.json.write_text(json.dumps(content, default=_plain, indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the claims of the manual, beside mprof and psrecord.")
    parser.add_argument("--quick", action="store_true", help="few repeats: to try the bench itself, not for figures and not for the manual")
    parser.add_argument(
        "--only", action="append", choices=list(SECTIONS), metavar="NAME", help=f"one of {', '.join(SECTIONS)} (repeatable)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to this file")
    return parser.parse_args()


class _Talk:
    """Says on standard error where it is, with the seconds since it began."""

    def __init__(self) -> None:
        self.begin_s = time.monotonic()

    def __call__(self, sentence: str) -> None:
        print(f"[{time.monotonic() - self.begin_s:5.0f} s] {sentence}", file=sys.stderr, flush=True)


def _model(say: Callable[[str], None]) -> Path:
    """inception_v3.onnx, made where it is not there yet."""
    if not MODEL.exists():
        say(f"making {MODEL}")
    return tools.zoo("inception_v3", MODEL)


def _surroundings() -> dict[str, Any]:
    packages = ("ml-memprof", "memory-profiler", "psrecord", "psutil", "onnxruntime")
    return {
        "machine": asdict(this_machine()),
        "python": sys.version.split()[0],
        "versions": {name: _version(name) for name in packages},
        "busy_percent": {},
        "load": os.getloadavg(),
        "available_bytes": psutil.virtual_memory().available,
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _shown(facts: Mapping[str, Any], quick: bool) -> list[str]:
    machine, busy = facts["machine"], max(facts["busy_percent"].values())
    lines = [note for note in (_busy(facts),) if note]
    if quick:
        lines.append("**--quick: few repeats, no figures to quote**")
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items() if version)
    lines += [
        f"{machine['cpu']}, {machine['cpus_usable']} of {machine['cpus']} CPUs, {format_bytes(machine['memory_bytes'])}, "
        f"Linux {machine['kernel']}, {machine['libc']}, at most {busy:.0f}% of the CPUs busy before a section began",
        f"Python {facts['python']}, {versions}",
        f"the kernel's bound on a peak here: {format_bytes(machine['peak_bound_bytes'])}",
    ]
    return lines


def _busy(facts: Mapping[str, Any]) -> str | None:
    busy = max(facts["busy_percent"].values())
    if busy <= _BUSY_PERCENT:
        return None
    return f"**the machine was busy with other things ({busy:.0f}% of its CPUs, load {facts['load'][0]:.1f}): expect misses**"


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"no JSON for {value!r}")
