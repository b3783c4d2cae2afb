"""Which Runs were measured by this user's own memprof on this machine, and may therefore be measured again.

A runs file is data. To measure again what a Run names is to execute it: its interpreter, its environment, its runtime's file. So the campaign
signs the Job of each Run that it makes (HMAC-SHA256) with a key that only this user can read, and a command that measures a Run again checks
the signature first. The key lies in memprof's state folder and is made on first use.
"""

from __future__ import annotations

import hmac
import os
import secrets
import shlex
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path

import msgspec

from ..base.cache import state_folder
from ..base.errors import InputError
from .types import Job, Run

_KEY_BYTES = 32
# A file's loader completes a variant's name where two ways of measuring share it; the name executes nothing.
_UNSIGNED = frozenset({"variant"})


def signature(job: Job) -> str | None:
    """This user's signature of a Job; None if no key can be kept, which is no reason not to measure."""
    with suppress(InputError, OSError):
        return _signature(job, _key())
    return None


def is_own(run: Run) -> bool:
    """Whether this user's memprof measured the Run on this machine."""
    if run.signature is None:
        return False
    with suppress(InputError, OSError):
        return hmac.compare_digest(_signature(run.job, _key()).encode(), run.signature.encode("utf-8", "replace"))
    return False


def refuse_strangers(runs: Iterable[Run], option: str) -> None:
    """Raises InputError if a Run is not this user's. option: it would execute what the Runs name, `--confirm`."""
    stranger = next((run for run in runs if not is_own(run)), None)
    if stranger is not None:
        raise InputError(
            f"{option} would execute what the runs file names for {stranger.job.model.name}, {stranger.job.heading}, and memprof did not write "
            f"that run here: {described(stranger.job)}; --trust-runs allows it"
        )


def described(job: Job) -> str:
    """The program or the runtime, interpreter, variables and knobs that a Job would be measured with again, for people; no letter of it can act on
    a terminal."""
    if job.argv:
        words = [f"program {shlex.join(job.argv)}", f"folder {job.cwd or 'the current one'}"]
    else:
        words = [f"runtime {job.runtime}", f"interpreter {job.python or 'none'}"]
    words += [f"{name}={value}" if value is not None else f"{name} unset" for name, value in job.env.items()] or ["no variables"]
    words += [f"knob {name}={value}" for name, value in job.knobs.items()]
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in ", ".join(words))


def _signature(job: Job, key: bytes) -> str:
    return hmac.new(key, msgspec.json.encode(_signed(job), order="deterministic"), "sha256").hexdigest()


def _signed(job: Job) -> dict[str, object]:
    """A Job's fields that differ from their defaults, so that a field added later leaves older signatures as they are."""
    signed: dict[str, object] = {}
    for field in fields(Job):
        value = getattr(job, field.name)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if field.name not in _UNSIGNED and value != default:
            signed[field.name] = value
    return signed


def _key() -> bytes:
    """The key, made now if there is none that only this user can read. Raises InputError or OSError."""
    path = state_folder() / "key"
    key = _read(path)
    if key is not None:
        return key
    draft = path.with_name(f".key.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        with suppress(FileExistsError):  # another memprof was quicker: its key it is
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    key = _read(path)
    if key is None:
        raise InputError(f"{path} can be read by others, or is not a key that memprof wrote; remove it, and memprof makes a new key")
    return key


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            key = file.read(_KEY_BYTES + 1)
    except FileNotFoundError:
        return None
    private = facts.st_uid == os.geteuid() and not stat.S_IMODE(facts.st_mode) & 0o077
    return key if private and len(key) == _KEY_BYTES else None
