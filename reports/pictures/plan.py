"""A plan drawn into a file: a picture as .png, .svg or .pdf, a page to hover over as .html."""

from __future__ import annotations

from pathlib import Path

from memprof.base import files
from memprof.base.errors import UsageError
from memprof.plan.analysis import Analysis, Planned

from .. import standalone
from . import plan_page, plan_picture, saving


def check(path: Path) -> None:
    """Check a picture's path before anything is planned. Raises UsageError or InputError."""
    if path.suffix.lower() == ".html":
        standalone.check(path)
    elif path.suffix.lower() not in saving.ENDINGS:
        raise UsageError(f"{path}: a plan's picture ends in {', '.join(saving.ENDINGS)} or .html")
    else:
        saving.check(path)


def save(plan: Planned, analysis: Analysis, path: Path) -> None:
    """Draw a plan into a file: .png, .svg, .pdf or .html. Raises InputError where there is nothing to draw or it cannot be written."""
    if path.suffix.lower() == ".html":
        files.write(path, plan_page.render(plan, analysis).encode())
    else:
        saving.save(plan_picture.render(plan, analysis), path)
