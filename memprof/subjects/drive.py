"""The load that memprof puts on a server: where it listens, and which requests it gets."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.errors import UsageError
from ..base.units import counted

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Drive:
    """A load: where the server listens, tokens of a prompt, tokens generated, requests open at once, and how many prompts differ (None: all)."""

    host: str
    port: int
    prompts: int = 128
    generate: int = 32
    parallel: int = 1
    distinct: int | None = None

    @property
    def words(self) -> str:
        """The load as a table's title has it."""
        differing = "all different" if self.distinct is None else f"{self.distinct} different"
        return f"prompts of {counted(self.prompts, 'token')}, {differing}, {self.generate} generated, {self.parallel} at once"


def parse(text: str, prompts: int | None, generate: int | None, parallel: int | None, distinct: int | None) -> Drive:
    """`openai:PORT` or `openai:HOST:PORT`, with the numbers of the load; None for the default. Raises UsageError."""
    kind, colon, place = text.partition(":")
    host, _, port = place.rpartition(":")
    if kind != "openai" or not colon or not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise UsageError(f"--drive {text!r}: write openai:PORT, or openai:HOST:PORT for a server that does not listen on {_LOOPBACK}")
    given = {"prompts": prompts, "generate": generate, "parallel": parallel, "distinct": distinct}
    for name, number in given.items():
        if number is not None and number < 1:
            raise UsageError(f"--{name} {number}: it is at least 1")
    return Drive(host or _LOOPBACK, int(port), **{name: number for name, number in given.items() if number is not None})
