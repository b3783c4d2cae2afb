"""The files that a model's name or content leads to: they lie in the model's folder, or they are not read.

A model is often an archive from somebody else, and archives hold links as well as names: either could make memprof read, hash, copy or send any
file of its reader. So a name that leads out of the folder is refused, and so is a link. Some links are the reader's own will. The model may be one
itself, for the reader named it: its folder is then where it points. And some programs keep the content of files apart, by its hash, with a link in
each file's place:

    huggingface_hub     snapshots/REVISION/NAME -> blobs/HASH, its guide "Understand caching"
    git-annex           NAME -> .git/annex/objects/XX/YY/KEY/KEY, git-annex.branchable.com/internals
    DVC                 NAME -> .dvc/cache/files/md5/XX/REST, with `cache.type symlink`; without files/md5 before DVC 3

Such a link is followed from a folder of the repository into the store of the same repository, and nowhere else: an archive could only lead to what
it brings along, or to content whose hash it knows. ONNX Runtime from 1.24 on refuses other links than those of huggingface_hub.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from ..base.errors import InputError

_MOST_LINKS = 40  # the kernel's own limit
# A path of content in a store. git-annex's folders have two levels, or one (annex.tune.objecthash1), of two letters or three.
_STORED = re.compile(
    r"(?P<repository>/(?:.*/)?)"
    r"(?:\.git/annex/objects/(?:[^/]{2,3}/){1,2}(?P<key>[^/]+)/(?P=key)|\.dvc/cache/(?:files/md5/)?[0-9a-f]{2}/[0-9a-f]{30})",
    re.DOTALL,
)


def place(model: Path) -> Path:
    """The place of a model, links followed. A link to a name with another ending is not followed: the ending tells the format, and a cache has none.
    A link into the store of its repository is not followed either: nothing of the model lies beside its target."""
    if os.path.isdir(model):
        return Path(os.path.realpath(model))
    for _ in range(_MOST_LINKS):
        target = model.parent / os.readlink(model) if os.path.islink(model) else model
        into_store = not os.path.islink(target) and _is_stored(target, Path(os.path.realpath(model.parent)))
        if target == model or target.suffix != model.suffix or into_store:
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
    if target.is_relative_to(folder) or target.parent == _blobs(folder) or _is_stored(target, folder):
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


def _is_stored(target: Path, folder: Path) -> bool:
    """Whether a path, links followed, is content in the store of a repository that this folder lies in."""
    content = _STORED.fullmatch(os.path.realpath(target))
    return content is not None and folder.is_relative_to(content["repository"])
