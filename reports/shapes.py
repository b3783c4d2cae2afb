"""The shapes of a model's inputs in a heading."""

from __future__ import annotations

from collections.abc import Mapping

_MOST = 4


def shaped(shapes: Mapping[str, tuple[int, ...]], assumed: Mapping[str, tuple[int, ...]]) -> str:
    """`, x 1x3x224x224` for each input, with a remark if dimensions were taken as 1; empty if nothing is known."""
    texts = [
        f", {name} {'x'.join(map(str, shape)) or 'scalar'}{' (open dimensions taken as 1: --shape)' if name in assumed else ''}"
        for name, shape in sorted({**shapes, **assumed}.items(), key=lambda pair: pair[0] not in assumed)
    ]
    more = f", {len(texts) - _MOST} more inputs" if len(texts) > _MOST + 1 else ""
    return "".join(texts[:_MOST] if more else texts) + more
