"""What every report to the maintainers of a runtime has, in Markdown as issue trackers take it: the picture, the command, the versions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import version
from urllib.parse import quote

from memprof.base.units import counted, format_bytes
from memprof.records.types import Model

from . import grid


def laid_out(title: str, sentence: str, picture: tuple[str, str], again: Iterable[str], found: str, versions: str, how: str) -> str:
    """The report from its parts. picture: its file, as it lies beside the report, and what it shows."""
    file, shows = picture
    parts = [
        f"# {title}",
        sentence,
        f"![{shows}]({quote(file)})",
        "## To repeat it",
        *again,
        "## What was found",
        found,
        "## Versions",
        versions,
        f"Measured by memprof {version('ml-memprof')}. {how}",
    ]
    return "\n\n".join(parts)


def to_repeat(command: str, model: Model, picture: str, inputs: str | None = None) -> list[str]:
    """The command, and which files go with the report: what the command reads, unless it is public, and the picture."""
    files = f", {counted(len(model.files), 'file')}" if len(model.files) > 1 else ""
    named = f"{grid.escaped(model.name)} ({format_bytes(model.bytes)}{files})"
    reads = [named] if model.files else ["the program, and the files that it reads"]
    reads += [grid.escaped(inputs)] if inputs else []
    return [
        code(command),
        f"To be attached: {grid.escaped(picture)}, the picture; and what the command reads, unless the maintainers can get it: {', '.join(reads)}.",
    ]


def described(model: Model) -> str:
    """A model's name, size and hash."""
    size = f"{model.name}, {format_bytes(model.bytes)}" if model.bytes else model.name
    files = f" in {counted(len(model.files), 'file')}" if len(model.files) > 1 else ""
    return f"{size}{files}, SHA-256 {model.sha256}" if model.sha256 else f"{size}{files}"


def listed(facts: Iterable[tuple[str, str]]) -> str:
    """Facts as a list, those without a text left out."""
    return "\n".join(f"- {name}: {grid.escaped(text)}" for name, text in facts if text)


def code(text: str) -> str:
    """A block of code, whose fence is longer than any in the text."""
    fence = "`" * (1 + max([2, *map(len, re.findall("`+", text))]))
    return f"{fence}sh\n{text}\n{fence}"
