"""The kinds of processes that `memprof grow` sets against each other: what iterations of each get as inputs, and where a user's own come from."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ...base.errors import InputError, UsageError
from ...models.inputs import array_shapes
from ...records.settings import inputs_in_words
from ...records.types import Use
from ...subjects.suite import Suite
from ...subjects.values import check_arrays

Wish = Literal["same", "fresh", "both"]


class Kind(Struct, frozen=True):
    """What the iterations of a process get. varied: inputs of several shapes, one after another; fresh: new content each time."""

    varied: bool = False
    fresh: bool = False

    @property
    def words(self) -> str:
        """What the inputs are, as a sentence has it after `with`."""
        return inputs_in_words(self.varied, self.fresh)


def kind_of(use: Use | None) -> Kind:
    """The kind of a process that did this work."""
    return Kind(bool(use.shapes), use.fresh) if use is not None else Kind()


def kinds_of(wish: Wish | None, varied: bool, fixed: str) -> tuple[Kind, ...]:
    """The kinds for this wish, the one with the same input first; without a wish it is alone.

    varied: whether shapes were named. They are then what differs between two kinds. fixed: why the work has inputs of one kind only, empty where
    it has not. Raises UsageError if fresh inputs were wished and cannot be.
    """
    if fixed:
        if wish == "fresh":
            raise UsageError(f"--fresh: {fixed}: memprof cannot make fresh inputs for it")
        return (Kind(varied),)
    if wish != "both":
        return (Kind(varied, wish == "fresh"),)
    return (Kind(), Kind(varied=True)) if varied else (Kind(), Kind(fresh=True))


def folder_of(suite: Suite) -> tuple[Suite, str | None]:
    """The suite, and the folder of .npz files that stands where it has a file of inputs, None for a file or none. Raises InputError."""
    if suite.inputs is None or not os.path.isdir(suite.inputs):
        return suite, None
    if not any(Path(suite.inputs).glob("*.npz")):
        raise InputError(f"--inputs {suite.inputs}: this folder has no .npz file")
    return replace(suite, inputs=None), os.path.abspath(suite.inputs)


def feeding_words(text: str) -> tuple[str, ...]:
    """The words of the program of --feed, with its path. Raises UsageError or InputError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--feed {text!r}: {error}") from None
    if not words:
        raise UsageError("--feed names no program")
    path = shutil.which(words[0])
    if path is None:
        raise InputError(f"--feed: {words[0]}: no such program")
    return os.path.abspath(path), *words[1:]


def check_stream(folder: str | None, feeder: tuple[str, ...], inputs: str | None, otherwise: bool) -> None:
    """Raises UsageError for a stream beside other inputs. otherwise: whether shapes, reloads or a program say what is fed."""
    if not folder and not feeder:
        return
    if feeder and (folder or inputs):
        raise UsageError("--feed or --inputs: iterations get the inputs of one stream")
    if otherwise:
        raise UsageError("--feed and a folder of --inputs are for iterations of a model: not for --shapes, --cycles or a program")


def check_shapes(suite: Suite, varied: Sequence[Mapping[str, tuple[int, ...]]], folder: str | None) -> None:
    """Raises UsageError for two shapes of one input, and for shapes beside a user's own arrays, which have others. varied: those of --shapes. folder:
    of .npz files."""
    given = {**suite.shapes, **suite.only.shapes}
    if twice := [name for shapes in varied[:1] for name in shapes if name in given]:
        raise UsageError(f"--shapes varies {twice[0]}, to which --shape gives one shape: leave one of them out")
    files = sorted(Path(folder).glob("*.npz")) if folder is not None else [Path(suite.inputs)] if suite.inputs is not None else []
    for file in files:
        arrays = array_shapes(str(file)) or {}
        check_arrays(given, arrays, str(file))
        for shapes in varied:
            check_arrays(shapes, arrays, str(file), "--shapes")
