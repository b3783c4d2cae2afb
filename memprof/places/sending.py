"""Sending a file into memprof's folder on another machine: once, from where an earlier transfer stopped, checked by the hash of its content."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from ..base.errors import InputError, os_reason
from ..base.files import sha256_of
from ..base.units import format_bytes
from .channel import ended, errors_of

_CHUNK = 1 << 18
_LOOK = """
mkdir -p "${1%/*}" || exit
[ ! -f "$1" ] || [ $(wc -c < "$1") -eq "$2" ] || rm -f "$1" # a program there has written to it
if [ -f "$1" ]; then echo there; elif [ -f "$1.part" ]; then wc -c < "$1.part"; else echo 0; fi
df -Pk "${1%/*}" | tail -n 1
"""
HASH = 'if command -v sha256sum > /dev/null; then sha256sum < "$1"; else echo none; fi'


class Sending(Struct, frozen=True):
    """A file on its way: sent of total bytes after this time, over once the last were sent."""

    name: str
    place: str
    sent: int
    total: int
    time_s: float


class SendTarget(Protocol):
    """As much of a Remote as sending needs. sent: the bytes of files that were sent."""

    sent: int

    @property
    def tell(self) -> Callable[[Sending], None]: ...

    @property
    def name(self) -> str: ...

    def path(self, *parts: str) -> str:
        """A path in memprof's folder there."""

    def sh(self, script: str, *words: str) -> str:
        """The output of a shell script there. Raises InputError if it fails."""

    def run(self, words: Sequence[str], timeout_s: float = ...) -> subprocess.CompletedProcess[bytes]:
        """See Place."""

    def session(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a program there that ends with its input: it has a log-in shell for itself."""


def put(there: SendTarget, path: str, sha256: str, size: int, target: str, again: bool = True) -> str:
    """Send a file whose content has this hash; the rest of it if a part is there already."""
    state, free = [*there.sh(_LOOK, target, str(size)).splitlines(), ""][:2]
    if state == "there":
        return target
    offset = int(state)
    _check_room(there, path, size - offset, free)
    began = time.monotonic()
    digest, errors = _stream(there, path, size, offset, target, began)
    if digest != sha256:
        there.sh('rm -f "$1.part"', target)
        raise InputError(f"{path} changed while it was sent to {there.name}")
    if errors or _hash_there(there, f"{target}.part") != sha256:
        if errors:
            raise _not_written(there, path, errors)
        there.sh('rm -f "$1.part"', target)
        if not again:
            raise InputError(f"{path} was damaged on its way to {there.name}")
        return put(there, path, sha256, size, target, again=False)
    there.sh('mv "$1.part" "$1"', target)
    there.tell(Sending(os.path.basename(path), there.name, size, size, time.monotonic() - began))
    return target


def _stream(there: SendTarget, path: str, size: int, offset: int, target: str, began: float) -> tuple[str, str]:
    """Send a file from `offset` on: the hash of all of it as it was read, and the reason if it could not be written there."""
    digest, sha256, name = hashlib.sha256(), None, os.path.basename(path)
    process = there.session(["sh", "-c", 'exec cat >> "$1"', "memprof", f"{target}.part"])
    assert process.stdin is not None and process.stderr is not None
    try:
        with open(path, "rb") as file:
            sent = 0
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                rest = chunk[max(0, offset - sent) :]
                sent += len(chunk)
                if rest:
                    process.stdin.write(rest)
                    there.sent += len(rest)
                    if sent < size:
                        there.tell(Sending(name, there.name, sent, size, time.monotonic() - began))
        process.stdin.close()
    except BrokenPipeError:
        sha256, _ = sha256_of(Path(path))
    except OSError as error:
        raise InputError(f"{path}: {os_reason(error)}") from None
    finally:
        errors = errors_of(process)
        ended(process)
    return sha256 or digest.hexdigest(), errors or ("the connection broke" if process.returncode else "")


def _hash_there(there: SendTarget, path: str) -> str:
    answer = there.sh(HASH, path).split()[0]
    if answer != "none":
        return answer
    return hashlib.sha256(there.run(["cat", path], 3600).stdout).hexdigest()  # no sha256sum: it is read back


def _check_room(there: SendTarget, path: str, needed: int, df: str) -> None:
    """df: a line of `df -Pk`: device, blocks, used, available, share, mount."""
    words = df.split()
    free = int(words[3]) * 1024 if len(words) > 5 and words[3].isdigit() else None
    if free is not None and free < needed:
        raise InputError(
            f"{there.name}: there is no room for {os.path.basename(path)} in {there.path()}: {format_bytes(needed)} are to be sent and "
            f"{format_bytes(free)} are free, so {format_bytes(needed - free)} are missing; --remote-dir names another folder"
        )


def _not_written(there: SendTarget, path: str, errors: str) -> InputError:
    reason = errors.splitlines()[-1].rpartition(": ")[2]
    return InputError(f"{path} could not be sent to {there.name}, into {there.path()}: {reason}")


def check_executable(there: SendTarget) -> None:
    """Raises InputError if no program can be started from memprof's folder there."""
    script = 'printf "#!/bin/sh\\nexit 0\\n" > "$1" && chmod 700 "$1" && { "$1"; code=$?; rm -f "$1"; exit $code; }'
    if there.run(["sh", "-c", script, "memprof", there.path(".try")]).returncode == 126:
        raise InputError(
            f"{there.name}: no program can be started from {there.path()}, which is mounted noexec; --remote-dir names another folder"
        )
