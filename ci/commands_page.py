"""Writes docs/commands.md for the site of `make docs`: the `--help` of every command. The commands are its source, so it is not in git."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

import click
from click.testing import CliRunner

from memprof.doors.cli import group

PAGE = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
_WIDTH = 100


def contexts(context: click.Context) -> Iterator[click.Context]:
    """The context of a command, and those of all commands below it."""
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            inner = context.command.get_command(context, name)
            assert inner is not None
            yield from contexts(click.Context(inner, context, name))


def full_help(context: click.Context) -> str:
    """The help with every option, as `--help-all` prints it where a command has that."""
    wanted = "--help-all" if any("--help-all" in parameter.opts for parameter in context.command.params) else "--help"
    words = [*context.command_path.split()[1:], wanted]
    done = CliRunner(env={"COLUMNS": str(_WIDTH)}).invoke(group, words, prog_name="memprof", terminal_width=_WIDTH)
    assert done.exit_code == 0, done.output
    return done.output.rstrip()


def main() -> None:
    index, sections = ["| command | |", "| --- | --- |"], []
    for context in contexts(click.Context(group, info_name="memprof")):
        name = context.command_path
        index.append(f"| [`{name}`](#{name.replace(' ', '-')}) | {cleandoc(context.command.help or '').splitlines()[0]} |")
        sections.append(f"## {name}\n\n```text\n{full_help(context)}\n```")
    title = "# Commands\n\nThe `--help` of each command, with every option (`--help-all`)."
    PAGE.write_text("\n\n".join((title, "\n".join(index), *sections)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
