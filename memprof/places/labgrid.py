"""`labgrid:PLACE`: a place of a labgrid coordinator, by the system's `labgrid-client`; it is reached by ssh at its NetworkService.

labgrid's settings (LG_COORDINATOR and others) hold as for labgrid-client itself. That is a program beside memprof, not a library inside it: it brings
gRPC, and has its own environment.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..base.errors import InputError, UsageError
from .ssh import Ssh

_PROGRAM = "labgrid-client"
_TIMEOUT_S = 60
_NAME = re.compile(r"[^\s-]\S*")

# Words of labgrid-client.
_ACQUIRED = re.compile(r"^acquired place (\S+)", re.MULTILINE)
_HELD_HERE = re.compile(r"You have already acquired place (\S+)\.$", re.MULTILINE)
_HELD = re.compile(r"already acquired (?:by|place \S+ on) (\S+)\. ")
_BEFORE = re.compile(r"(labgrid-client: |Server error: )?(Error: )?")
_NONE = "matches nothing"
_RESOURCE = re.compile(r"^Acquired resource '.*' \(.*/NetworkService/.*\):\n((?: .*\n)+)", re.MULTILINE)


@contextmanager
def acquired(name: str, socket: Path) -> Iterator[Ssh]:
    """The log-in of a name such as `labgrid:tv-3`, whose place is acquired meanwhile. A place that this user holds already stays acquired.

    socket: see Ssh. Raises UsageError for another form, InputError if the place cannot be had.
    """
    pattern = name.partition(":")[2]
    if not _NAME.fullmatch(pattern):
        raise UsageError(f"--on {name}: write labgrid:PLACE, a place of `labgrid-client places`")
    done = _client(name, pattern, "acquire")
    by_us, by_user = _ACQUIRED.search(done.stdout), _HELD_HERE.search(done.stderr)
    held = by_us or by_user
    if held is None:
        raise InputError(f"{name}: {_refused(done)}")
    place = held[1]
    try:
        yield _login(name, _client(name, place, "show"), socket)
    except BaseException:
        if by_us:
            with suppress(InputError):  # the first error is the one to tell
                _client(name, place, "release")
        raise
    if by_us:
        released = _client(name, place, "release")
        if released.returncode != 0:
            raise InputError(f"{name}: the place could not be released: {_said(released)}")


def _login(name: str, done: subprocess.CompletedProcess[str], socket: Path) -> Ssh:
    """From what `labgrid-client show` prints: each resource is a dictionary in Python's words."""
    services = _RESOURCE.findall(done.stdout)
    if not services:
        raise InputError(f"{name}: the place has no NetworkService, which says where its ssh is")
    if len(services) > 1:
        raise InputError(f"{name}: the place has {len(services)} NetworkServices, and memprof cannot know which to take")
    try:
        service = ast.literal_eval(services[0].strip())["params"]
        extra = service.get("extra", {})
        jump = extra["proxy"] if extra.get("proxy_required") else None
        return Ssh(name, f"{service['username']}@{service['address']}", str(service.get("port", 22)), socket, jump)
    except (ValueError, SyntaxError, TypeError, KeyError):
        raise InputError(f"{name}: what labgrid-client show prints of its NetworkService cannot be read") from None


def _refused(done: subprocess.CompletedProcess[str]) -> str:
    if _NONE in done.stderr:
        return "the coordinator has no place of that name; labgrid-client places lists them"
    held = _HELD.search(done.stderr)
    return f"the place is acquired by {held[1]}; labgrid gives it to one user at a time" if held else _said(done)


def _said(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return f"labgrid says: {_BEFORE.sub('', lines[-1], count=1)}" if lines else f"labgrid-client ended with exit code {done.returncode}"


def _client(name: str, place: str, command: str) -> subprocess.CompletedProcess[str]:
    if shutil.which(_PROGRAM) is None:
        raise InputError(f"{name}: {_PROGRAM} is not installed here (pip install labgrid)")
    words = [_PROGRAM, "-p", place, command]
    try:
        return subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C is memprof's to answer
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"{name}: labgrid's coordinator did not answer within {_TIMEOUT_S} s") from None
