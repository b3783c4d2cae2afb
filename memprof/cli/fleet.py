"""`memprof run` on a fleet, and `memprof fleet`, which shows one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import MeasurementError
from . import heed_sigterm

_SHOWN = 2000  # runs whose tables are printed; the file has those of a larger campaign


@dataclass(frozen=True)
class Fleet:
    """The options for a fleet, as they were written."""

    address: str
    machines: str | None = None
    each: str | None = None
    spread: bool = False
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure: bool = False


def load_distributed() -> None:
    """Raises InputError if Dask is not installed."""
    from ..errors import InputError

    try:
        import distributed  # noqa: F401
    except ImportError:
        raise InputError("a fleet needs Dask: pip install 'ml-memprof[fleet]'") from None


def measure_on_fleet(
    suite: Any, fleet: Fleet, output: str | None, append: bool, above_baseline: bool, as_json: bool, verbose: bool, brief: bool
) -> int:
    """Measure a suite on a fleet, write its runs as they come and print their tables; the exit code."""
    from ..measuring.fleet import desk, packing
    from ..measuring.fleet.security import secured
    from . import talk
    from .measuring import keep_runs
    from .progress import showing_output

    heed_sigterm()
    load_distributed()
    security = secured(fleet.address, fleet.tls_ca, fleet.tls_cert, fleet.tls_key, fleet.insecure)
    labels = frozenset(packing.parse_labels(fleet.machines, "--machines").items()) if fleet.machines else frozenset()
    wanted = packing.Wanted(labels, fleet.each, fleet.spread)
    earlier = desk.resumed(Path(output), talk) if output and append and Path(output).exists() else {}
    failed: list[str] = []
    with desk.connected(fleet.address, security) as client:
        there, sentences = desk.places(client)
        for sentence in sentences:
            talk(sentence)
        packed = packing.packed(suite, wanted, [dict(place.offered.labels) for place in there])

        def measure(progress: Any, keep: Any) -> Any:
            campaign = desk.Desk(client, packed, progress, showing_output(keep, progress) if verbose else keep, earlier)
            yield from campaign.runs()
            failed.extend(campaign.failed)

        code = keep_runs(measure, output, append, as_json, above_baseline, brief)
    if failed and code == 0:
        raise MeasurementError(f"{len(failed)} of {len(packed)} comparisons were given up: {failed[0]}")
    return code
