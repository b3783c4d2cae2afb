"""People's units at the edge: bytes, nanoseconds, counts, and the words a user types for them.

Everything inside memprof is bytes and nanoseconds. 1 KiB is 1024 bytes; kB and MB are powers of ten.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from .errors import UsageError

BYTE_UNITS = {
    "B": 1,
    "kB": 10**3,
    "KiB": 2**10,
    "MB": 10**6,
    "MiB": 2**20,
    "GB": 10**9,
    "GiB": 2**30,
}
_SHORT_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}  # as in dd(1), systemd.resource-control(5) and `docker run --memory`
_NS_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*")


def parse_bytes(text: str) -> int:
    """Bytes in `64KiB`, `1.5 GiB`, `100MB`, `50M` or a bare number of bytes.

    Raises UsageError for anything else, a negative size included.
    """
    match = _QUANTITY.fullmatch(text)
    units = {name.lower(): size for name, size in (BYTE_UNITS | _SHORT_UNITS).items()}
    if match is None or match[2].lower() not in {"", *units}:
        raise UsageError(f"{text[:40]!r} is not a size: write a number and B, kB, KiB, MB, MiB, GB or GiB (K, M, G: KiB, MiB, GiB)")
    return _whole(text, float(match[1]) * units[match[2].lower() or "b"], "size")


def exact_bytes(count: int) -> str:
    """A size as `parse_bytes` reads it, in the largest binary unit that divides it: 65536 is `64KiB`, 65537 is `65537`."""
    for name in ("GiB", "MiB", "KiB"):
        if count and count % BYTE_UNITS[name] == 0:
            return f"{count // BYTE_UNITS[name]}{name}"
    return str(count)


def parse_duration_ns(text: str) -> int:
    """Nanoseconds in `1ms`, `30s`, `2min`, or a bare number of seconds.

    Raises UsageError for anything else.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in {"", *_NS_UNITS}:
        raise UsageError(f"{text[:40]!r} is not a duration: write a number and ns, us, ms, s, min or h")
    return _whole(text, float(match[1]) * _NS_UNITS[match[2] or "s"], "duration")


def _whole(text: str, value: float, what: str) -> int:
    if value >= 2**63:
        raise UsageError(f"{text[:40]!r} is not a {what}: it is larger than any")
    return int(value)


def parse_ratio(text: str) -> float:
    """How many times as much: 1.05 for `+5%`, 1.5 for `1.5x`.

    Raises UsageError for anything else.
    """
    match = re.fullmatch(r"\+([0-9]+(?:\.[0-9]*)?)%|([0-9]+(?:\.[0-9]*)?)x", text.strip())
    ratio = 0.0 if match is None else 1 + float(match[1]) / 100 if match[1] else float(match[2])
    if not ratio:
        raise UsageError(f"{text!r} is not a ratio: write +5% or 1.5x")
    return ratio


def parse_bandwidth(text: str) -> int:
    """Bytes a second in `900 MB/s`, `1.5GiB/s` or a bare number of bytes a second.

    Raises UsageError for anything else, and for a bandwidth below 1 B/s.
    """
    try:
        bandwidth = parse_bytes(text.removesuffix("/s"))
    except UsageError:
        raise UsageError(f"{text!r} is not a bandwidth: write a size per second, such as 900MB/s or 1.5GiB/s") from None
    if bandwidth < 1:
        raise UsageError(f"{text!r} moves nothing: a bandwidth is at least 1 B/s")
    return bandwidth


def parse_celsius(text: str) -> float:
    """Degrees Celsius in `45C`, `45°C` or `45`. Raises UsageError."""
    match = re.fullmatch(r"(\d{1,3}(?:\.\d+)?)\s*°?C?", text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a temperature: write 45C")
    return float(match[1])


def format_bytes(count: float) -> str:
    """A size as people read it, in the binary unit that leaves one to four digits: `137.2 MiB`."""
    sign, size = ("-" if count < 0 else ""), abs(count)
    for name in ("B", "KiB", "MiB"):
        limit, digits = (1000, 0) if name == "B" else (1024, 1)
        if round(size, digits) < limit:  # as it is written: 1,023.96 KiB are 1.0 MiB
            return f"{sign}{size:.{digits}f} {name}"
        size /= 1024
    return f"{sign}{size:.2f} GiB"


def format_change(share: float) -> str:
    """A change as a share of what it is a change of: 0.045 is `+4.5%`. From ten times as much on it is the ratio, `1,600 times`."""
    return f"{1 + share:,.0f} times" if share >= 9 else f"{share:+.1%}"


def format_bound(count: float) -> str:
    """The bound of a peak as people read it, never less than it is: in MiB with two digits, rounded up."""
    return f"{math.ceil(count / (1 << 20) * 100) / 100:.2f} MiB"


def format_number(value: float, digits: int = 6) -> str:
    """A number as people read it, in so many significant digits, and in all those before its point: `0.25`, `1048576`.

    `:g` alone would write 1.04858e+06.
    """
    return f"{value:.{digits}g}" if abs(value) < 10**digits - 0.5 else f"{value:.0f}"


def format_duration(nanoseconds: float) -> str:
    """A duration as people read it, in the unit that leaves one to three digits before its point: `1.25 ms`, `3.1 s`."""
    for name, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if abs(nanoseconds) >= 0.9995 * size:  # what three digits round up to 1
            return f"{format_number(nanoseconds / size, 3)} {name}"
    return f"{nanoseconds:.0f} ns"


def counted(number: int, noun: str) -> str:
    """`1 thread`, `1,200 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], most: int, comma: str = ", ") -> str:
    """The first names, and how many more there are: `a, b and 3 more`."""
    text = comma.join(names[:most])
    return text if len(names) <= most else f"{text} and {len(names) - most} more"


def either(names: Sequence[str]) -> str:
    """`PREPARE`, `MODEL_LOAD or PREPARE`, `MODEL_LOAD, PREPARE or EXECUTE`."""
    return _enumerated(names, "or")


def together(names: Sequence[str]) -> str:
    """`PREPARE`, `MODEL_LOAD and PREPARE`, `MODEL_LOAD, PREPARE and EXECUTE`."""
    return _enumerated(names, "and")


def _enumerated(names: Sequence[str], last: str) -> str:
    return f" {last} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


_OF_NAMES = re.compile(r"[./@=\d_\\]")  # what names of files, versions and options have, and words have not


def capitalised(sentence: str, *names: str) -> str:
    """A sentence with a large first letter, unless it begins with a name: one of these, or a word as those of files (`labels.onnx`, `./a`, `v2`)."""
    first = sentence.partition(" ")[0].rstrip(".,;:")
    if _OF_NAMES.search(first) or any(name and sentence.startswith(name) for name in names):
        return sentence
    return sentence[:1].upper() + sentence[1:]
