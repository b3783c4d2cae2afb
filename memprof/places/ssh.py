"""`ssh:[user@]host[:port]`: the way to a machine by the system's OpenSSH client, with its configuration, keys and agent.

The first process is the connection's master; all others go through its socket, and so need no log-in. Nobody is asked: BatchMode refuses
passwords and unknown hosts.
"""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from ..base.errors import UsageError

_NAME = re.compile(r"(?:(?P<user>[^@:\s-][^@:\s]*)@)?(?P<host>[A-Za-z0-9_.][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.%a-z]+\])(?::(?P<port>\d{1,5}))?")
_OPTIONS = (
    "BatchMode=yes",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "LogLevel=ERROR",
    "RequestTTY=no",
    "RemoteCommand=none",
    "PermitLocalCommand=no",
    "EscapeChar=none",
)
# A connection that is dead is noticed within 8 s.
_MASTER = ("ControlMaster=yes", "ControlPersist=no", "ConnectTimeout=10", "ServerAliveInterval=2", "ServerAliveCountMax=3")
# Without a master a client would log in by itself, unseen.
_CLIENT = ("ControlMaster=no", "ProxyJump=none", "ProxyCommand=false")

# Words of OpenSSH's client, and their meaning for the user; {host} is as ssh takes it.
_REASONS = (
    (
        "HOST IDENTIFICATION HAS CHANGED",
        "the host's key has changed since it was last seen; if that is right: ssh-keygen -R {known}",
    ),
    ("Host key verification failed", "the host's key is not known yet; log in once by hand to see and accept it: ssh {host}"),
    ("Could not resolve hostname", "there is no host of that name"),
    (
        "Permission denied",
        "the host refuses the log-in; ssh {host} must work without a password (a key in an agent, or ssh-copy-id {host})",
    ),
    ("Too many authentication failures", "the host refuses the log-in: the agent has too many keys; name the right one in ~/.ssh/config"),
    ("Connection refused", "the host takes no connection there: no ssh server answers"),
    ("timed out", "the host does not answer"),
    ("No route to host", "the host cannot be reached from here"),
    ("Network is unreachable", "the host cannot be reached from here"),
)


class Ssh(Struct, frozen=True):
    """An ssh log-in. socket: the path of the connection's socket, which must be short. jump: the host through which it goes, None for no such."""

    name: str
    target: str
    port: str | None
    socket: Path
    jump: str | None = None
    folder: str = ""

    def words(self, text: str, first: bool = False) -> list[str]:
        jump = (f"ProxyJump={self.jump}",) if self.jump and first else ()
        options = [word for option in (*_OPTIONS, *(_MASTER if first else _CLIENT), *jump) for word in ("-o", option)]
        return ["ssh", *options, "-S", str(self.socket), *(("-p", self.port) if self.port else ()), "--", self.target, text]

    def refused(self, said: str) -> str:
        host = f"-p {self.port} {self.target}" if self.port else self.target
        bare = self.target.rpartition("@")[2]
        known = f"'[{bare}]:{self.port}'" if self.port else bare
        for words, reason in _REASONS:
            if words in said:
                return reason.format(host=host, known=known)
        if not said:
            return "the log-in gives no shell"
        return f"the log-in gives no shell; it says: {' '.join(said.splitlines()[-1].split())}"


def parse(name: str, socket: Path) -> Ssh:
    """The log-in of a name such as `ssh:pi@board:2222`. Raises UsageError."""
    match = _NAME.fullmatch(name.partition(":")[2])
    if match is None or int(match["port"] or 1) not in range(1, 65536):
        raise UsageError(f"--on {name}: write ssh:[USER@]HOST[:PORT], such as ssh:pi@board or ssh:root@192.168.1.7:2222")
    host = match["host"].strip("[]")
    return Ssh(name, f"{match['user']}@{host}" if match["user"] else host, match["port"], socket)
