"""The answer to `plan pack`: offsets for the buffers of a file, beside TFLite's greedy rule, and whether a capacity is met."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from . import arena, minimalloc
from .arena import Verdict


class Packed(Struct, frozen=True):
    """A packing of a file's buffers. verdict: whether the capacity was met, is proven impossible or is undecided; None without a capacity.

    offsets: by the name that the file has for a buffer. No arena is below lower_bound_bytes; proven: this arena has that size.
    """

    file: str
    buffers: int
    capacity_bytes: int | None
    verdict: Verdict | None
    size_bytes: int
    lower_bound_bytes: int
    proven: bool
    greedy_bytes: int
    how: str
    offsets: dict[str, int]
    csv: str

    @property
    def refusal(self) -> str | None:
        """Why the capacity is not met, as a sentence; None where it is."""
        if self.verdict == "impossible":
            return f"{self.file} cannot be packed into {self.capacity_bytes:,} bytes: proven, no arena is smaller than {self.lower_bound_bytes:,}"
        if self.verdict == "undecided":
            return (
                f"{self.file} was not packed into {self.capacity_bytes:,} bytes within the time limit, and it is not proven that it cannot be: "
                f"the smallest arena found has {self.size_bytes:,}, and none is smaller than {self.lower_bound_bytes:,}"
            )
        return None


def pack(path: Path, capacity: int | None, time_limit_s: float) -> Packed:
    """Pack a file's buffers. Raises InputError for a file that is not understood."""
    instance = minimalloc.read(path)
    greedy = arena.greedy(instance.buffers)
    packing = arena.pack(instance.buffers, time_limit_s, capacity, first=greedy)
    return Packed(
        file=str(path),
        buffers=len(instance.buffers),
        capacity_bytes=capacity,
        verdict=None if capacity is None else packing.verdict(capacity),
        size_bytes=packing.size_bytes,
        lower_bound_bytes=packing.lower_bound_bytes,
        proven=packing.proven,
        greedy_bytes=greedy.size_bytes,
        how=packing.how,
        offsets=dict(zip(instance.names, packing.offsets, strict=True)),
        csv=minimalloc.write(instance, packing.offsets),
    )
