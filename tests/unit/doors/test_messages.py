"""Advice names options that exist where it is given."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from support.manual import ROOT

from memprof.doors.cli import group

# Whose sentences they are: rooms, or parts of them, by the commands that can say them.
SPEAKERS = {
    "explain": ("explain",),
    "footprint/fit.py": ("fit",),
    "footprint/tune": ("tune",),
    "growth/grow": ("grow",),
    "growth/scale": ("scale",),
    "plan": ("plan",),
    "regressions/bisect": ("bisect",),
    "regressions/gate": ("gate",),
    "verdicts": ("gate",),
}
# Options of other programs, in sentences that name these programs.
FOREIGN = {"--security-opt", "--cap-add", "--unshallow", "--raw", "--native", "--no-deps", "--alloc-fns", "--batch-check", "--write"}
FOREIGN |= {"--fp", "--weight", "--save"}  # of mnnconvert, as far as the pattern below reads them
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")


def options_of(*names: str) -> set[str]:
    """The options of these commands and of those below them; of all commands if none is named."""

    def below(command: click.Command) -> Iterator[click.Command]:
        yield command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from below(inner)

    tops = [group.get_command(click.Context(group), name) for name in names] or [group]
    commands = [command for top in tops if top is not None for command in below(top)]
    return {word for command in commands for parameter in command.params for word in (*parameter.opts, *parameter.secondary_opts)}


def sentences(code: Path) -> Iterator[tuple[str, str]]:
    """The strings of several words of a file or below a folder, each with its place; no docstrings, and no examples of a command's help."""
    paths = [code] if code.is_file() else sorted(code.rglob("*.py"))
    assert paths, f"{code} holds no code"
    for path in paths:
        yield from _sentences_of(path)


@cache
def _sentences_of(path: Path) -> list[tuple[str, str]]:
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree))
    bodies = (node.body for node in nodes if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)))
    docstrings = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno}", node.value)
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        if " " in node.value.strip() and "Examples:" not in node.value
    ]


@pytest.mark.parametrize("folder", ["memprof", "reports", "runners"])
def test_sentences_name_options_that_exist(folder: str) -> None:
    known = options_of() | FOREIGN
    wrong = [(place, option) for place, text in sentences(ROOT / folder) for option in OPTION.findall(text) if option not in known]
    assert not wrong


def test_advice_on_places_fits_every_command_that_reaches_one() -> None:
    reaching = [name for name in group.list_commands(click.Context(group)) if {"--on", "--remote-dir"} <= options_of(name)]
    lacking = {name: {option for option in ("--python", "--remote-dir") if option not in options_of(name)} for name in reaching}
    assert "gate" in reaching and lacking["gate"] == {"--python"}
    wrong = [
        (place, option, name)
        for place, text in sentences(ROOT / "memprof" / "places")
        for option in OPTION.findall(text)
        for name in reaching
        if option in lacking[name] and name != "clean" and " in a suite, or " not in text  # clean starts no interpreter
    ]
    assert not wrong


@pytest.mark.parametrize("room", SPEAKERS)
def test_advice_names_options_of_its_command(room: str) -> None:
    known = options_of(*SPEAKERS[room]) | FOREIGN
    wrong = [
        (place, option)
        for place, text in sentences(ROOT / "memprof" / room)
        for option in OPTION.findall(text)
        if option not in known
        # A sentence may name the other command, or the word of a suite beside the option.
        if "memprof " not in text and " in a suite, or " not in text
    ]
    assert not wrong
