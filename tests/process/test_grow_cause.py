"""Why memory rose: what the process that is looked at does."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support import sample_runs, suites
from support.recorder_runs import Silent

from memprof.explain import growth as two_looks
from memprof.growth.grow import cause
from memprof.growth.grow.grow import GrowRequest, GrowthAnswer
from memprof.subjects.order import Order
from memprof.verdicts.growth import Verdict

GROWS = Verdict("grows", "iteration", slope=65536.0, warmup=7, tail=400)
BOUNDED = Verdict("bounded", "iteration", warmup=60, rise_bytes=1 << 20, tail=340)


@pytest.fixture
def looked_at(monkeypatch, tmp_path):
    """The order that is looked at for a verdict and a request's own words."""

    def order(verdict: Verdict, fresh: bool = True, **words: object) -> Order:
        orders: list[Order] = []

        def why(order: Order, progress: object, last: str) -> two_looks.GrowthParts:
            orders.append(order)
            raise StopIteration

        monkeypatch.setattr(two_looks, "why", why)
        (tmp_path / "m.json").write_text("{}")
        curve = sample_runs.worked(list(range(401)), [0] * 401, "EXECUTE")
        answer = GrowthAnswer("m", "r", "", "", verdict, (), runs=(replace(sample_runs.run(), work=(curve,)),), fresh=fresh)
        with pytest.raises(StopIteration):
            cause.explained(GrowRequest(suites.one(tmp_path / "m.json"), **words), answer, Silent())
        return orders[0]

    return order


def test_why_takes_inputs_of_verdict(looked_at, tmp_path):
    use = looked_at(GROWS, folder=str(tmp_path)).job.use
    assert use is not None and use.fresh and use.folder == str(tmp_path)
    use = looked_at(GROWS, feeder=("./feeder",)).job.use
    assert use is not None and use.feeder == ("./feeder",)
    use = looked_at(GROWS, fresh=False).job.use
    assert use is not None and not use.fresh


@pytest.mark.parametrize(("verdict", "units"), [(GROWS, (7, 256)), (BOUNDED, (0, 60))], ids=["grows", "bounded"])
def test_why_looks_where_memory_rose(looked_at, verdict, units):
    job = looked_at(verdict).job
    assert (job.warmup, job.runs) == units
    assert job.use is not None and job.use.iterations == units[1]
