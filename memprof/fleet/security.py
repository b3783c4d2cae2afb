"""How desks and workers may reach a scheduler: over TLS with certificates, or in the clear on this machine alone.

Who reaches a scheduler can run any program on all of its workers. So an address of another machine is refused without TLS, unless the user says
that the network is trusted.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from ..base.errors import InputError, UsageError


@dataclass(frozen=True)
class Security:
    """The files of certificates, all three or none."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def dask(self, role: Literal["worker", "client"]) -> Any:
        """The same for Dask; None without certificates."""
        if self.ca is None:
            return None
        from distributed import Security as Dask

        files = {f"tls_{role}_cert": self.cert, f"tls_{role}_key": self.key}
        return Dask(tls_ca_file=self.ca, require_encryption=True, **files)


def secured(address: str, ca: str | None, cert: str | None, key: str | None, insecure: bool) -> Security:
    """The certificates for an address. Raises UsageError for an address that is none, or that would be reached in the clear; InputError."""
    split = urlsplit(address)
    try:
        host, port = split.hostname, split.port
    except ValueError:
        host, port = None, None
    if split.scheme not in ("tcp", "tls") or not host or port is None or split.path not in ("", "/"):
        raise UsageError(f"{address}: write the scheduler's address, such as tcp://127.0.0.1:8786 or tls://lab:8786")
    given = [ca, cert, key]
    if any(given) and not all(given):
        raise UsageError("--tls-ca, --tls-cert and --tls-key go together")
    if split.scheme == "tls" and not ca:
        raise UsageError(f"{address} needs certificates: --tls-ca, --tls-cert and --tls-key")
    if split.scheme == "tcp" and ca:
        raise UsageError(f"{address} is not encrypted, and the certificates would not be used: write tls://{split.netloc}")
    if split.scheme == "tcp" and not _is_loopback(host) and not insecure:
        raise UsageError(
            f"{address} is not encrypted, and who reaches it can run programs on every worker: use tls:// with --tls-ca, --tls-cert and "
            "--tls-key, or --insecure in a network where you trust everybody"
        )
    for path in given:
        if path is not None and not os.path.isfile(path):
            raise InputError(f"{path}: no such file")
    return Security(ca, cert, key)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def unreachable(address: str, error: BaseException) -> InputError:
    """The error for a scheduler that cannot be reached."""
    import ssl

    reason: BaseException | None = error
    while reason is not None:
        if isinstance(reason, ssl.SSLError):
            words = (getattr(reason, "reason", None) or str(reason)).replace("_", " ").lower()
            return InputError(f"{address}: the certificates do not fit ({words}); desk, workers and scheduler need those of one authority")
        reason = reason.__cause__ or reason.__context__
    return InputError(f"no scheduler answers at {address}; `dask scheduler` starts one")
