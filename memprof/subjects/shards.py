"""A suite in parts that can be measured apart: comparisons, and shards of several comparisons.

A comparison is all variants and repeats of one model: its figures are set side by side, so it is never divided. Commands without a model are one
comparison.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from ..base.errors import UsageError
from .suite import Suite


def comparisons(suite: Suite) -> tuple[Suite, ...]:
    """The suite as one suite a comparison, in the order of its models. Raises UsageError if two models have the same name."""
    if not suite.models:
        return (suite,)
    names = [model_name(suite, path) for path in suite.models]
    if len(set(names)) < len(names):
        raise same_name(next(name for place, name in enumerate(names) if name in names[:place]))
    return tuple(replace(suite.of_model(path), models=(path,), name=name) for path, name in zip(suite.models, names, strict=True))


def model_name(suite: Suite, path: str) -> str:
    """The name of a model in tables: its file's, unless it is the only model and has another."""
    own = suite.name if len(suite.models) == 1 else None
    return own or Path(os.path.expanduser(path)).name


def same_name(name: str) -> UsageError:
    """The error for two models of one name."""
    return UsageError(f"two models are called {name}: their rows would look the same; measure them one at a time, each with another name")


def parse_shard(text: str) -> tuple[int, int]:
    """`2/5` as (2, 5). Raises UsageError."""
    number, slash, count = text.partition("/")
    if not (slash and all(word.isascii() and word.isdecimal() for word in (number, count)) and 1 <= int(number) <= int(count)):
        raise UsageError(f"--shard {text!r}: write the shard and how many there are, such as 2/5")
    return int(number), int(count)


def shard(suite: Suite, number: int, count: int) -> Suite | None:
    """The comparisons of one shard of `count`, as a suite; None if the shard has none.

    The comparisons are dealt out like cards, so that the shards of one suite are alike in size and together are the suite.
    """
    parts = comparisons(suite)[number - 1 :: count]
    return _together(suite, parts) if parts else None


def _together(suite: Suite, parts: Sequence[Suite]) -> Suite:
    # The name of a suite is that of its only model, and another model must not inherit it.
    name = parts[0].name if len(parts) == 1 else None
    shapes = {key: shape for key, shape in suite.shapes.items() if any(key in part.shapes for part in parts)}
    values = {key: value for key, value in suite.values.items() if any(key in part.values for part in parts)}
    return replace(suite, models=tuple(path for part in parts for path in part.models), name=name, shapes=shapes, values=values)
