"""Converted models in the cache: a folder each, named by what the model was made from, and the names of the files in it.

The measured side (runners/__main__.py) writes `built.json`, which says which file is to be loaded. Beside it stands the interpreter that made the
model: an interpreter of a gate's side is gone soon, and its models are then removed.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from ..base.cache import cache_folder

_SAYS_WHICH = "built.json"
_MADE_BY = "made_by.txt"


def folder(key: str) -> Path:
    """The folder of the model of this key, whether it exists or not."""
    return cache_folder("built") / key


def note_interpreter(work: Path, python: str) -> None:
    """Note the interpreter that made the model in this folder."""
    (work / _MADE_BY).write_text(python)


def path_to_load(folder: Path) -> str:
    """The path to load of the model in a folder."""
    return str(folder / json.loads((folder / _SAYS_WHICH).read_text())["path"])


def files(path: str) -> list[str]:
    """All files of the converted model that is loaded from this path."""
    built = cache_folder("built")
    folder = next((folder for folder in Path(path).parents if folder.parent == built), None)
    if folder is None:
        return [path]
    return sorted(str(file) for file in folder.rglob("*") if file.is_file() and file.name not in (_SAYS_WHICH, _MADE_BY))


def forget_made_below(environments: Path) -> None:
    """Remove the models that an interpreter below this folder made: nobody will ask for them again."""
    for folder in cache_folder("built").iterdir():
        try:
            made_below = Path((folder / _MADE_BY).read_text()).is_relative_to(environments)
        except OSError:
            continue
        if made_below:
            shutil.rmtree(folder, ignore_errors=True)
