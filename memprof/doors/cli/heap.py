"""`memprof heap`: allocation profiles of many tools, recorded with three of them, looked at, compared and exported."""

from __future__ import annotations

import click

from . import Lazy

_COMMANDS = {
    "Commands": {
        "record": ("heap_record", "Run a model, or any program, under massif, heaptrack or memray."),
        "show": ("heap_look", "Show who allocated the peak, in the terminal."),
        "plot": ("heap_look", "Draw who held the heap over time."),
        "view": ("heap_look", "Make an interactive page of one or several profiles."),
        "diff": ("heap_look", "Compare two profiles: growth and shrinkage."),
        "export": ("heap_export", "Write a profile as collapsed stacks, speedscope or massif."),
    }
}

_EPILOG = """\b
Examples:
  memprof heap record model.onnx -r onnxruntime --tool massif --phases load,prepare -o profiles
  memprof heap show profiles/massif.out.4711
  memprof heap view before.massif after.massif -o heap.html
"""


@click.group(cls=Lazy, sections=_COMMANDS, epilog=_EPILOG)
def command() -> None:
    """Show who allocated the peak, from a file of massif, heaptrack, memray, pprof, tcmalloc, jemalloc, Go or torch."""
