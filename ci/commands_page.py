"""Writes docs/commands.md for the site of `make docs`: the `--help` of every command. The commands are its source, so it is not in git."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

import click

from memprof.cli import group

PAGE = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
_WIDTH = 100


def every(command: click.Command, context: click.Context) -> Iterator[tuple[str, str, str]]:
    """Each command below this one: its words, its first sentence and its whole help."""
    yield context.command_path, cleandoc(command.help or "").partition("\n")[0], full_help(command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from every(inner, click.Context(inner, context, name))


def full_help(command: click.Command, context: click.Context) -> str:
    """The help with every option, as `--help-all` prints it where a command has that."""
    from click.testing import CliRunner

    wanted = "--help-all" if any("--help-all" in parameter.opts for parameter in command.params) else "--help"
    words = [*context.command_path.split()[1:], wanted]
    done = CliRunner(env={"COLUMNS": str(_WIDTH)}).invoke(group, words, prog_name="memprof", terminal_width=_WIDTH)
    assert done.exit_code == 0, done.output
    return done.output


def main() -> None:
    commands = list(every(group, click.Context(group, info_name="memprof")))
    parts = ["# Commands", "What `--help` prints of each command, with every option (`--help-all`)."]
    parts += [
        "| command | |\n| --- | --- |\n"
        + "\n".join(f"| [`{words}`](#{words.replace(' ', '-')}) | {first} |" for words, first, _ in commands)
    ]
    parts += [f"## {words}\n\n```text\n{text.rstrip()}\n```" for words, _, text in commands]
    PAGE.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
