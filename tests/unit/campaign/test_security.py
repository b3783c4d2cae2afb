"""Who may reach a scheduler: TLS by Dask's configuration where the address is not this machine's, or memprof's own configuration allows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.configurations import configure, folder  # noqa: F401  (the fixture)

from memprof.base.errors import InputError, UsageError
from memprof.campaign.fleet.security import security

distributed = pytest.importorskip("distributed")
import dask

TLS = "distributed.comm.tls"
LOCAL = ["tcp://127.0.0.1:8786", "tcp://localhost:8786", "tcp://[::1]:8786", "tcp://127.8.8.8:1"]
REMOTE = ["tcp://10.0.0.1:8786", "tcp://lab:8786", "tcp://0.0.0.0:8786", "tcp://[2001:db8::1]:8786"]


@contextmanager
def configured(**values: Any) -> Iterator[None]:
    """Dask's configuration of TLS, and nothing of what the user of this machine has there: keys such as client_cert."""
    roles = [f"{role}.{part}" for role in ("client", "worker", "scheduler") for part in ("cert", "key")]
    keys = {f"{TLS}.{key}": values.pop(key.replace(".", "_").replace("-", "_"), None) for key in ("ca-file", "min-version", *roles)}
    with dask.config.set({**keys, "distributed.comm.require-encryption": values.pop("require_encryption", None)}):
        assert not values
        yield


def files(folder: Path) -> list[str]:
    """Three files that are there."""
    paths = [folder / name for name in ("ca.pem", "cert.pem", "key.pem")]
    for path in paths:
        path.touch()
    return list(map(str, paths))


@pytest.mark.parametrize("address", LOCAL)
def test_local_address_without_certificates(folder: Path, address: str) -> None:
    with configured():
        assert security(address, "client", pytest.fail).require_encryption is False


@pytest.mark.parametrize("address", REMOTE)
def test_remote_address_refused_unencrypted(folder: Path, address: str) -> None:
    with configured(), pytest.raises(UsageError, match="is not encrypted, and who reaches it can run programs on every worker") as refused:
        security(address, "worker", pytest.fail)

    assert f"{TLS}.ca-file, {TLS}.worker.cert and {TLS}.worker.key in Dask's configuration" in str(refused.value)
    assert "insecure_fleet = true in memprof.toml or [tool.memprof] of pyproject.toml" in str(refused.value)


def test_certificates_do_not_allow_tcp(folder: Path) -> None:
    ca, cert, key = files(folder)
    with configured(ca_file=ca, client_cert=cert, client_key=key), pytest.raises(UsageError, match="is not encrypted"):
        security("tcp://lab:8786", "client", pytest.fail)


@pytest.mark.parametrize("address", REMOTE)
def test_insecure_fleet_allows_and_says(folder: Path, address: str) -> None:
    configure(folder, "insecure_fleet = true")
    told: list[str] = []

    with configured():
        made = security(address, "client", told.append)

    assert made.require_encryption is False
    assert told == [f"{address} is not encrypted, which insecure_fleet of {folder / 'memprof.toml'} allows"]


@pytest.mark.parametrize("address", [LOCAL[0], REMOTE[0]])
def test_required_encryption_refuses_tcp(folder: Path, address: str) -> None:
    configure(folder, "insecure_fleet = true")
    with configured(require_encryption=True), pytest.raises(UsageError, match=r"require-encryption .* write tls://"):
        security(address, "client", pytest.fail)


@pytest.mark.parametrize("address", ["lab:8786", "http://lab:8786", "tcp://lab", "tcp://:8786", "tcp://lab:port", "", "tcp://lab:1/x"])
def test_address_refusals(folder: Path, address: str) -> None:
    with configured(), pytest.raises(UsageError, match="write the scheduler's address"):
        security(address, "client", pytest.fail)


@pytest.mark.parametrize("role", ["client", "worker"])
def test_role_has_own_certificates(folder: Path, role: Any) -> None:
    ca, cert, key = files(folder)
    other = {"client": "worker", "worker": "client"}[role]
    with configured(ca_file=ca, **{f"{role}_cert": cert, f"{role}_key": key}):
        made = security("tls://lab:1", role, pytest.fail)
        assert made.require_encryption is True
        assert made.get_tls_config_for_role(role) == {"ca_file": ca, "ciphers": None, "cert": cert, "key": key}
        with pytest.raises(
            InputError, match=f"^tls://lab:1 needs certificates: {TLS}.ca-file, {TLS}.{other}.cert and {TLS}.{other}.key in "
        ):
            security("tls://lab:1", other, pytest.fail)  # type: ignore[arg-type]


def test_key_within_certificate_file(folder: Path) -> None:
    ca, cert, _ = files(folder)
    with configured(ca_file=ca, client_cert=cert):
        assert security("tls://lab:1", "client", pytest.fail).tls_client_cert == cert


def test_certificates_given_as_text(folder: Path) -> None:
    with configured(ca_file="-----BEGIN\n", client_cert="-----BEGIN\n"):
        assert security("tls://lab:1", "client", pytest.fail).tls_ca_file == "-----BEGIN\n"


@pytest.mark.parametrize("missing", ["ca-file", "client.cert", "client.key"])
def test_certificate_file_missing(folder: Path, missing: str) -> None:
    values = dict(zip(("ca_file", "client_cert", "client_key"), files(folder), strict=True))
    values[missing.replace("-", "_").replace(".", "_")] = "/nowhere.pem"
    with configured(**values), pytest.raises(InputError, match=f"{TLS}.{missing} of Dask's configuration is /nowhere.pem, and there is no"):
        security("tls://lab:1", "client", pytest.fail)


def test_unknown_tls_version_is_sentence(folder: Path) -> None:
    with configured(min_version="old"), pytest.raises(InputError, match=r"^Dask's configuration: distributed"):
        security("tls://lab:1", "client", pytest.fail)


def test_options_of_tls_are_gone(memprof: Any) -> None:
    for command in ("run", "bisect", "tune", "scale", "fleet", "worker"):
        shown = memprof(command, "--help").stdout
        assert "--tls" not in shown and "--insecure" not in shown
