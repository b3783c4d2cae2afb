"""What the tests of fit share."""

import pytest

from memprof.base.errors import InputError
from memprof.footprint import fit
from memprof.footprint.fit import Fitted, LimitPoint, PartLimit
from memprof.places import limits

MIB = 1 << 20


def grouped():
    """Where control groups are made here; without them the test is skipped, or fails where CI promises to have them."""
    try:
        return limits.find("cgroup")
    except InputError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """As near as the tests need, which is 1 MiB, and believed at once."""
    for name, value in (("_NEAREST", MIB), ("CONFIRMATIONS", 1), ("_PLAIN_RUNS", 1), ("_CURVE", ())):
        monkeypatch.setattr(fit, name, value)
    # On a busy machine a run near its limit takes seconds, and would count as failed.
    monkeypatch.setattr(fit, "_LEAST_PATIENCE_NS", 60 * 10**9)


def made(**changes):
    parts = (PartLimit("whole run", 52 * MIB, 60 * MIB, None, 12, 6),)
    curve = (LimitPoint(50 * MIB, None, None, None, "SIGKILL"), LimitPoint(52 * MIB, 2e7, 100.0, 3.0), LimitPoint(None, 1e7, 0.0, 0.0))
    facts = {"model": "a|b.onnx", "runtime": "x", "settings": "", "limiter": "control group", "exact": True, "parts": parts, "curve": curve}
    return Fitted(**{**facts, "charged_bytes": None, "max_time": None, "remarks": ("slow",), **changes})
