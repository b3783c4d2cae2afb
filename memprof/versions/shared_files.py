"""Files that lie outside of a checkout and that a command names by a relative path: the tree of another commit lies elsewhere, and has no such path.

A plain file, such as a model beside the checkout, is the same for both sides, and its path is written in full. A folder, a program or a library is
refused: it may be what a build made of one side, and measured on both it would hide each difference.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from ..base.errors import UsageError
from ..programs import commands
from ..programs.commands import Command

_ELF = b"\x7fELF"


def in_full(command: Command, here: Path, root: Path, place: Path) -> Command:
    """A command that runs in the folder `here` of the checkout `root`, with the paths of plain files outside of it in full. place: the same folder in
    the other tree, whose files stay as they are.

    The program itself is left out. Raises UsageError for what both sides must not share by accident, and for a path inside a shell's line.
    """
    launched = commands.launched(command.argv)
    program = len(command.argv) - len(launched)
    words = [word if number == program else _word(word, here, root, place) for number, word in enumerate(command.argv)]
    scripts = [one for one in commands.programs(command.argv) if one != launched]
    for word in (word for script in scripts for word in script):
        path = _outside(word, here, root, place)
        if path is not None:
            raise UsageError(_refusal(word, path))
    return replace(command, argv=tuple(words), env=variables_in_full(command.env, here, root, place))


def variables_in_full(env: Mapping[str, str], here: Path, root: Path, place: Path) -> dict[str, str]:
    """The same for the values of variables."""
    return {name: _word(value, here, root, place) for name, value in env.items()}


def _word(word: str, here: Path, root: Path, place: Path) -> str:
    name, equals, value = word.rpartition("=")  # --model=PATH too
    path = _outside(value, here, root, place)
    if path is None:
        return word
    if os.path.isdir(path) or os.access(path, os.X_OK) or _is_elf(path):
        raise UsageError(_refusal(value, path))
    return f"{name}{equals}{path}"


def _outside(word: str, here: Path, root: Path, place: Path) -> str | None:
    """The full path of what a relative path names outside of the checkout, None for any other word. A link in the checkout may lead there too."""
    path = Path(os.path.normpath(here / word))
    if not word or os.path.isabs(word) or not path.exists() or path.resolve().is_relative_to(root.resolve()):
        return None
    return str(path) if not path.is_relative_to(root) or not (place / word).exists() else None


def _is_elf(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(_ELF)) == _ELF
    except OSError:
        return False


def _refusal(word: str, path: str) -> str:
    return f"{word} lies outside of this checkout, and the tree of another commit has no such path: write {path} if both sides may share it"
