"""`memprof heap`: the group of its commands."""

from __future__ import annotations

from importlib import import_module

import click

_COMMANDS = {"record": "heap_record"}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        found: click.Command = import_module(f".{_COMMANDS[cmd_name]}", __package__).command
        return found


@click.group(cls=_Lazy, epilog="Example: memprof heap record model.onnx -r onnxruntime -o profile")
def command() -> None:
    """Who allocated the peak: profiles of massif, heaptrack and memray."""
