"""Puts what a bench measured into the manual, between the markers of its name, with the machine and the date.

A page of docs/evidence/, or another of docs/, holds `<!-- bench:NAME -->` and `<!-- /bench:NAME -->` on lines that hold nothing else; the text
between them is replaced.
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Iterable
from pathlib import Path

from memprof.places.machine import this_machine

PAGES = Path(__file__).resolve().parents[2] / "docs"


def write(name: str, table: str, notes: Iterable[str] = (), pages: Path = PAGES) -> Path:
    """Replace the block of that name in the one page that has it, and return the page. Raises LookupError where none or several have it."""
    block = re.compile(rf"^<!-- bench:{re.escape(name)} -->$.*?^<!-- /bench:{re.escape(name)} -->$", re.MULTILINE | re.DOTALL)
    having = [page for page in sorted(pages.rglob("*.md")) if block.search(page.read_text(encoding="utf-8"))]
    if len(having) != 1:
        raise LookupError(f"{len(having)} pages of {pages} have a block bench:{name}, there must be 1")
    listed = "\n".join(f"- {note}" for note in notes)
    content = "\n\n".join(part for part in (stamp(), table.strip(), listed) if part)
    (page,) = having
    text = block.sub(lambda _: f"<!-- bench:{name} -->\n{content}\n<!-- /bench:{name} -->", page.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")
    return page


def stamp() -> str:
    """When and on which machine."""
    machine = this_machine()
    where = [
        machine.cpu or machine.arch,
        f"{machine.cpus_usable} of {machine.cpus} CPUs",
        f"Linux {machine.kernel}",
        machine.libc,
        f"Python {platform.python_version()}",
    ]
    return f"Measured on {time.strftime('%Y-%m-%d')}: {', '.join(part for part in where if part)}."
