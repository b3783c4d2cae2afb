"""The files that a model's name or content leads to: they lie in the model's folder, or they are not read.

A model is often an archive from somebody else, and archives hold links as well as names: either could make memprof read, hash, copy or send any
file of its reader. So a name that leads out of the folder is refused, and so is a link. Two links are the reader's own will. The model may be one
itself, for the reader named it: its folder is then where it points. And the cache of huggingface_hub (its guide "Understand caching") keeps a model
as snapshots/REVISION/NAME -> blobs/HASH: a link from below `snapshots` into the `blobs` beside it stays in one tree. ONNX Runtime from 1.24 on
refuses other links too.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from ..errors import InputError

_MOST_LINKS = 40  # the kernel's own limit


def place(model: Path) -> Path:
    """Where a model lies, links followed. A link to a name with another ending is not followed: the ending tells the format, and a cache has none."""
    if os.path.isdir(model):
        return Path(os.path.realpath(model))
    for _ in range(_MOST_LINKS):
        target = model.parent / os.readlink(model) if os.path.islink(model) else model
        if target == model or target.suffix != model.suffix:
            break
        model = target
    return Path(os.path.realpath(model.parent), model.name)


def named(model: Path, name: str, what: str) -> Path:
    """The file that a model names, by a path relative to the model's folder; a folder is its own. what: `its external data`.

    Raises InputError for a path, or a link, that leads out of the folder.
    """
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or not parts.parts or "\0" in name:
        raise InputError(f"model {model}: {what} is {name!r}, which is not a file in the model's folder: it is not read")
    return inside(model, _folder(model) / name)


def inside(model: Path, file: Path) -> Path:
    """The file, if its content lies in the model's folder. Raises InputError for a link that leads out of it."""
    folder = _folder(model)
    target = Path(os.path.realpath(file))
    if target.is_relative_to(folder) or target.parent == _blobs(folder):
        return file
    raise InputError(
        f"model {model}: {file.name} is a link to {target}, which is not a file in the model's folder: it is not read; a copy in its place is"
    )


def _folder(model: Path) -> Path:
    lies = place(model)
    return lies if os.path.isdir(lies) else lies.parent


def _blobs(folder: Path) -> Path | None:
    """The folder in which the cache of huggingface_hub keeps the content of the files in this folder, None for a folder elsewhere."""
    return next((above.parent / "blobs" for above in (folder, *folder.parents) if above.name == "snapshots"), None)
