"""The load that memprof puts on a server: where it listens, and which requests it gets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from msgspec import Struct

from ..base.errors import InputError, UsageError, os_reason
from ..base.pairs import by_name
from ..base.units import counted

_LOOPBACK = "127.0.0.1"
_WRITE = f"write openai:PORT or http:PORT/PATH, with HOST: before PORT for a server that does not listen on {_LOOPBACK}"
_NUMBERS = ("prompts", "generate", "parallel", "distinct")
_OF_OPENAI = ("prompts", "generate", "distinct")


class Drive(Struct, frozen=True):
    """A load: where the server listens, and how many requests are open at once.

    kind: openai, for a server of its completions API, or http for any other. Of openai: tokens of a prompt, tokens generated. Of http: the path that
    is requested, and the file that each request posts as its body (None: a GET); a folder, or a file of JSON lines, has bodies that requests post one
    after another. distinct: how many prompts or bodies differ (None: all).
    """

    host: str
    port: int
    prompts: int = 128
    generate: int = 32
    parallel: int = 1
    distinct: int | None = None
    kind: Literal["openai", "http"] = "openai"
    path: str = "/"
    body: str | None = None

    @property
    def words(self) -> str:
        """The load as a table's title has it."""
        if self.kind == "http":
            in_turn = ", one body after another" if self.varies and self.distinct != 1 else ""
            return f"{'POST' if self.body is not None else 'GET'} {self.path}{in_turn}, {self.parallel} at once"
        differing = "all different" if self.distinct is None else f"{self.distinct} different"
        return f"prompts of {counted(self.prompts, 'token')}, {differing}, {self.generate} generated, {self.parallel} at once"

    @property
    def option(self) -> str:
        """The word that `parse` reads."""
        place = f"{self.host}:{self.port}{self.path if self.kind == 'http' else ''}"
        numbers = [(name, getattr(self, name)) for name in _NUMBERS if self.kind == "openai" or name not in _OF_OPENAI]
        words = [f"{name}={number}" for name, number in numbers if number is not None]
        return ",".join([f"{self.kind}:{place}", *words, *([f"body={self.body}"] if self.body is not None else [])])

    @property
    def varies(self) -> bool:
        """Whether requests differ unless `distinct` says otherwise."""
        return self.kind == "openai" or (self.body is not None and (_is_lines(self.body) or os.path.isdir(self.body)))

    @property
    def is_json(self) -> bool:
        """Whether a body is JSON; requests without a body say that it is."""
        if self.body is not None and os.path.isdir(self.body):
            return all(name.endswith(".json") for name in os.listdir(self.body))
        return self.body is None or self.body.endswith(".json") or _is_lines(self.body)

    def bodies(self) -> tuple[bytes, ...]:
        """The bodies that requests post one after another, none for nothing. Raises InputError if it cannot be read, or is empty where bodies
        differ."""
        if self.body is None:
            return ()
        path = Path(self.body)
        try:
            if path.is_dir():
                bodies = tuple(file.read_bytes() for file in sorted(path.iterdir()) if file.is_file())
            elif _is_lines(self.body):
                bodies = tuple(line for line in path.read_bytes().splitlines() if line.strip())
            else:
                return (path.read_bytes(),)
        except OSError as error:
            raise InputError(f"--drive: {self.body}: {os_reason(error)}") from None
        if not bodies:
            raise InputError(f"--drive: {self.body} has no bodies for requests")
        return bodies[: self.distinct]


def _is_lines(body: str) -> bool:
    return body.endswith(".jsonl")


def parse(text: str) -> Drive:
    """`openai:[HOST:]PORT` or `http:[HOST:]PORT[/PATH]`, then words such as `,parallel=4`. Raises UsageError."""
    address, *words = text.split(",")
    kind, _, place = address.partition(":")
    place, slash, path = place.partition("/")
    host, _, port = place.rpartition(":")
    if (
        kind not in ("openai", "http")
        or not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536)
        or (slash and kind == "openai")
    ):
        raise UsageError(f"--drive {text!r}: {_WRITE}")
    numbers: dict[str, int] = {}
    body: str | None = None
    for name, word in by_name(((word.partition("=")[0], word) for word in words), f"--drive {text!r}:").items():
        value = word.partition("=")[2]
        if name == "body" and value and kind == "http":
            body = value
        elif name not in _NUMBERS or (kind == "http" and name in _OF_OPENAI):
            known = ["parallel", "body"] if kind == "http" else list(_NUMBERS)
            raise UsageError(f"--drive {text!r}: {kind} has no {word!r}; it has {', '.join(f'{each}=' for each in known)}")
        elif not (value.isascii() and value.isdecimal() and int(value) > 0):
            raise UsageError(f"--drive {text!r}: {name} is a number from 1 on")
        else:
            numbers[name] = int(value)
    return Drive(host or _LOOPBACK, int(port), kind=kind, path=f"/{path}", body=body, **numbers)  # type: ignore[arg-type]
