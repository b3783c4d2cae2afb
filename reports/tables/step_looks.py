"""What the looks at both sides of a step show: the two that are compared, by how much slices moved between them, and what no slice has.

A step of a peak is compared near the peaks. A phase without a look there whose peak is its end, or nearly, is seen at its end. Where a transient had
no look, both ends are compared, and the answer has how far the peaks lie above them.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from memprof.explain.records import Explanation, PhaseLook

_LEAST = 256 << 10
_LEAST_SHARE = 0.1  # of a step


class LookDifference(Struct, frozen=True):
    """Two looks, one of each side, and how they differ. looks: none where the sides have none in common.

    moved: each slice that moved, the largest first. transients: how far each side's peak lies above the end of its phase, in bytes, 0 where that is
    nearly nothing; both 0 where the looks are near the peaks, or the ends differ as the peaks do. late: how far each look near a peak came and how
    high that peak is, in bytes, where it came much too early. missing_bytes: the part of the step that the slices lack, 0 for nearly nothing.
    """

    looks: tuple[PhaseLook, PhaseLook] | None = None
    moved: tuple[tuple[str, int], ...] = ()
    transients: tuple[int, int] = (0, 0)
    late: tuple[tuple[int, int] | None, tuple[int, int] | None] = (None, None)
    missing_bytes: int = 0

    @property
    def whole_bytes(self) -> int:
        """By how much all slices together moved."""
        return self.looks[1].rss_bytes - self.looks[0].rss_bytes if self.looks is not None else 0

    @property
    def explains(self) -> bool:
        """Whether the slices show the step."""
        return bool(self.moved) and not any(self.transients) and not self.missing_bytes


def difference(
    before: Explanation, after: Explanation, phases: tuple[str, str], of_peak: bool, size_bytes: int, is_sum: bool
) -> LookDifference:
    """How two sides differ. phases: where the figure is, of each. of_peak: the figure is a peak. size_bytes: of the step, 0 where it is no memory;
    is_sum: it is of the whole resident set, which the slices are parts of."""
    small = max(_LEAST, int(_LEAST_SHARE * abs(size_bytes)))
    sides = (before, after)
    near = [_near_peak(side, phase, small) for side, phase in zip(sides, phases, strict=True)] if of_peak else []
    ends = [side.phase(phase) for side, phase in zip(sides, phases, strict=True)]
    pairs = [(first, second) for first, second in (near or [None, None], ends) if first is not None and second is not None]
    common = [
        (first, look) for look in after.phases if (first := before.phase(look.name)) is not None and (of_peak or "/" not in look.name)
    ]
    pairs += sorted(common, key=lambda pair: -abs(pair[1].rss_bytes - pair[0].rss_bytes))
    looks = next((pair for pair in pairs if _moved(*pair)), next(iter(pairs), None))
    is_near = looks is not None and list(looks) == near
    heights = [_transient_bytes(side, phase) if of_peak and not is_near else 0 for side, phase in zip(sides, phases, strict=True)]
    hidden = abs(heights[1] - heights[0]) >= small
    low, high = (height if hidden and height >= small else 0 for height in heights)
    if looks is None:
        return LookDifference(transients=(low, high))
    earlier, later = (_late(side, phase, look, small) if is_near else None for side, phase, look in zip(sides, phases, looks, strict=True))
    found = LookDifference(looks, _moved(*looks), (low, high), (earlier, later))
    missing = size_bytes - found.whole_bytes
    return replace(found, missing_bytes=missing) if is_sum and abs(missing) >= small else found


def _near_peak(side: Explanation, phase: str, small: int) -> PhaseLook | None:
    """The look near the peak of a phase; that at its end where the peak is there."""
    look = side.phase(f"{phase}/peak")
    return look if look is not None or _transient_bytes(side, phase) >= small else side.phase(phase)


def _transient_bytes(side: Explanation, phase: str) -> int:
    return next((figures.transient_bytes for figures in side.measured if figures.name == phase), 0)


def _late(side: Explanation, phase: str, look: PhaseLook, small: int) -> tuple[int, int] | None:
    peak = next((figures.rss_peak_bytes for figures in side.measured if figures.name == phase), 0)
    return (look.rss_bytes, peak) if "/" in look.name and peak - look.rss_bytes >= small else None


def _moved(before: PhaseLook, after: PhaseLook) -> tuple[tuple[str, int], ...]:
    names = dict.fromkeys(part.name for part in (*before.slices, *after.slices))
    sizes = [(name, after.size(name) - before.size(name)) for name in names]
    return tuple(sorted((size for size in sizes if abs(size[1]) >= _LEAST), key=lambda size: -abs(size[1])))
