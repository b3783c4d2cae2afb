"""Converted models in the cache: a folder each, named by what the model was made from, and the names of the files in it.

`built.json` is written by the measured side (runners/__main__.py) and says which file is to be loaded. Beside it stands the interpreter that
made the model: one that belongs to a side of a gate is gone soon, and so is what it made.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from ..cache import cache_folder

_SAYS_WHICH = "built.json"
_MADE_BY = "made_by.txt"


def folder(key: str) -> Path:
    """Where the model of this key lies, or would."""
    return cache_folder("built") / key


def made(work: Path, python: str) -> None:
    """Note which interpreter has made the model in this folder."""
    (work / _MADE_BY).write_text(python)


def loaded(folder: Path) -> str:
    """The path that is loaded of a folder's model."""
    return str(folder / json.loads((folder / _SAYS_WHICH).read_text())["path"])


def files(path: str) -> list[str]:
    """All files of the converted model that is loaded from this path."""
    built = cache_folder("built")
    folder = next((folder for folder in Path(path).parents if folder.parent == built), None)
    if folder is None:
        return [path]
    return sorted(str(file) for file in folder.rglob("*") if file.is_file() and file.name not in (_SAYS_WHICH, _MADE_BY))


def forget_made_below(environments: Path) -> None:
    """Remove the models that an interpreter below this folder has made: nobody will ask for them again."""
    for folder in cache_folder("built").iterdir():
        try:
            mine = Path((folder / _MADE_BY).read_text()).is_relative_to(environments)
        except OSError:
            continue
        if mine:
            shutil.rmtree(folder, ignore_errors=True)
