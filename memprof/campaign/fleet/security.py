"""How desks and workers may reach a scheduler: over TLS as Dask's own configuration says, or in the clear on this machine alone.

Who reaches a scheduler can run any program on all of its workers. So an address of another machine is refused without TLS, unless memprof's
configuration says that the network is trusted.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

from ...base import configuration_file
from ...base.errors import InputError, UsageError

Role = Literal["worker", "client"]
_TLS = "distributed.comm.tls"


def security(address: str, role: Role, say: Callable[[str], None]) -> Any:
    """Dask's Security for an address, from Dask's configuration. say: hears that an address in the clear is allowed.

    Raises UsageError for an address that is none, or that must not be reached in the clear, InputError for certificates that are not there.
    """
    from distributed import Security

    split = _split(address)
    try:
        made = Security(**({"require_encryption": True} if split.scheme == "tls" else {}))
    except (TypeError, ValueError) as error:
        raise InputError(f"Dask's configuration: {error}") from None
    if split.scheme == "tls":
        _check_certificates(address, role, made)
    elif made.require_encryption:
        raise UsageError(
            f"{address} is not encrypted, and distributed.comm.require-encryption of Dask's configuration forbids that: "
            f"write tls://{split.netloc}"
        )
    elif not _is_loopback(str(split.hostname)):
        file = configuration_file.read()
        if not file.insecure_fleet:
            raise UsageError(
                f"{address} is not encrypted, and who reaches it can run programs on every worker: use tls:// with {_keys(role)} in Dask's "
                f"configuration, or insecure_fleet = true in {configuration_file.NAMES} in a network where you trust everybody"
            )
        say(f"{address} is not encrypted, which insecure_fleet of {file.path} allows")
    return made


def _split(address: str) -> SplitResult:
    split = urlsplit(address)
    try:
        host, port = split.hostname, split.port
    except ValueError:
        host, port = None, None
    if split.scheme not in ("tcp", "tls") or not host or port is None or split.path not in ("", "/"):
        raise UsageError(f"{address}: write the scheduler's address, such as tcp://127.0.0.1:8786 or tls://lab:8786")
    return split


def _check_certificates(address: str, role: Role, made: Any) -> None:
    given = {
        "ca-file": made.tls_ca_file,
        f"{role}.cert": getattr(made, f"tls_{role}_cert"),
        f"{role}.key": getattr(made, f"tls_{role}_key"),
    }
    if not (given["ca-file"] and given[f"{role}.cert"]):  # the key may be in the certificate's file
        raise InputError(f"{address} needs certificates: {_keys(role)} in Dask's configuration, such as a YAML file in ~/.config/dask")
    for name, value in given.items():
        if value and not ("\n" in str(value) or os.path.isfile(str(value))):  # Dask also takes the text of a PEM file itself
            raise InputError(f"{_TLS}.{name} of Dask's configuration is {value}, and there is no such file")


def _keys(role: Role) -> str:
    return f"{_TLS}.ca-file, {_TLS}.{role}.cert and {_TLS}.{role}.key"


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
