"""Who may reach a fleet: TLS where the address is not this machine's, certificates that fit, and sentences where they do not."""

from __future__ import annotations

import os
import shutil
import subprocess
from types import SimpleNamespace

import pytest
from conftest import need_tool
from msgspec.structs import replace
from support.fleet_messages import OFFERED, Lab
from support.fleets import fleet
from support.manual import ROOT, blocks
from support.recorder_runs import sentence
from support.sample_runs import run
from support.suites import one

from memprof.campaign.fleet import scheduler, scheduler_client, search_client
from memprof.growth.laws import design
from memprof.growth.scale import runs as scale_runs
from memprof.growth.scale import scale
from memprof.growth.scale.answer import ScaleRequest
from memprof.records.types import Attempt
from memprof.subjects import dimensions


def test_search_survives_abandoned_point(tmp_path, monkeypatch):
    path = tmp_path / "law.json"
    path.write_text('{"weights": ["4MiB"], "activations": ["1MiB"]}')

    class GivesUp(scheduler_client.SchedulerClient):
        def runs(self):
            for number, item in enumerate(self.comparisons):
                if number == 1:
                    self.failed[item.key] = "law.json, b failed 3 times, on 2 machines and is given up: x: full"
                else:
                    yield replace(run(), attempt=Attempt(item.key, 1, 1))

    monkeypatch.setattr(search_client, "SchedulerClient", GivesUp)
    fleet = search_client.Machines(Lab(OFFERED), frozenset())
    request = ScaleRequest(one(path), (dimensions.parse("threads=1..4"),), fleet=fleet)
    places = scale_runs.Places(request, SimpleNamespace(say=print), print)

    points = list(places.measure_at_once([{"threads": 1}, {"threads": 2}, {"threads": 4}], 0))

    assert [bool(point.sizes) for point in points] == [True, False, True]
    assert points[1].at == {"threads": 2} and points[1].ended.endswith("is given up: x: full") and not points[1].least


def test_points_kept_before_interruption(tmp_path, monkeypatch):
    path = tmp_path / "law.json"
    path.write_text('{"weights": ["4MiB"], "activations": ["1MiB"]}')

    class Interrupted(scheduler_client.SchedulerClient):
        def runs(self):
            yield replace(run(), attempt=Attempt(self.comparisons[1].key, 1, 1))
            raise KeyboardInterrupt

    monkeypatch.setattr(search_client, "SchedulerClient", Interrupted)
    request = ScaleRequest(one(path), (dimensions.parse("threads=1..4"),), fleet=search_client.Machines(Lab(OFFERED), frozenset()))
    points = scale_runs.Places(request, SimpleNamespace(say=print), print).measure_at_once([{"threads": 1}, {"threads": 4}], 0)

    assert next(points).at == {"threads": 4}
    with pytest.raises(KeyboardInterrupt):
        next(points)


def test_scale_interrupted_has_law(tmp_path, monkeypatch):
    path = tmp_path / "law.json"
    path.write_text('{"weights": ["4MiB"], "activations": ["1MiB"]}')

    class Interrupted(scheduler_client.SchedulerClient):
        def runs(self):
            for item in self.comparisons[1:]:
                yield replace(run(), attempt=Attempt(item.key, 1, 1))
            raise KeyboardInterrupt

    monkeypatch.setattr(search_client, "SchedulerClient", Interrupted)
    fleet = search_client.Machines(Lab(OFFERED), frozenset())
    request = ScaleRequest(one(path), (dimensions.parse("threads=1..64"), dimensions.parse("sessions=1..8")), fleet=fleet)

    answer = scale.scale(request, SimpleNamespace(say=print), print)

    assert answer.interrupted
    first, *rest = design.first_places({"threads": (1, 64, 1), "sessions": (1, 8, 1)})
    assert [point.at for point in answer.points] == rest and first not in rest
    assert all(point.sizes["PEAK"] for point in answer.points)


ROLES = ("scheduler", "worker", "client")


def certificates(folder):
    """An authority, a certificate of it for each role, and the manual's file of Dask's configuration that names them."""
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1")
    words = [need_tool("openssl"), "req", "-x509", *kind]
    folder.mkdir()
    subprocess.run([*words, "-keyout", str(folder / "key"), "-out", str(folder / "ca.pem")], check=True, capture_output=True)
    for role in ROLES:
        shutil.copy(folder / "ca.pem", folder / f"{role}.pem")
        shutil.copy(folder / "key", folder / f"{role}.key")
    (text,) = blocks(ROOT / "docs/fleet.md", "yaml")
    path = folder / "tls.yaml"
    path.write_text(text.replace("/home/me/lab", str(folder)))
    return path


def tls(path):
    """What a file of Dask's configuration says of encryption, for this process."""
    config = pytest.importorskip("dask").config
    (said,) = config.collect_yaml([str(path)])
    return config.set({"distributed.comm": config.merge(config.get("distributed.comm"), said["distributed"]["comm"])})


@pytest.mark.long
def test_fleet_tls_by_dask_configuration(memprof, tmp_path, monkeypatch):
    pytest.importorskip("distributed")

    own, strange = certificates(tmp_path / "own"), certificates(tmp_path / "strange")
    (tmp_path / "fleet").mkdir()
    with fleet(tmp_path / "fleet", own) as made:
        made.worker("w", "--labels", "kind=encrypted")
        with tls(own):
            shown = memprof("fleet", made.address)
            clear = memprof("fleet", made.address.replace("tls:", "tcp:"))
        with tls(strange):
            monkeypatch.setattr(scheduler, "_CONNECT_S", 60)  # it is refused at once, but a busy machine needs a while to get there
            refused = memprof("fleet", made.address)

    assert made.address.startswith("tls://")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"{made.address}: " in shown.stdout and "kind=encrypted" in shown.stdout
    assert (refused.returncode, clear.returncode) == (5, 2)
    assert "the certificates do not fit" in refused.stderr
    assert "distributed.comm.require-encryption of Dask's configuration forbids that" in clear.stderr


def test_fleet_refuses_broken_dask_configuration(memprof, tmp_path):
    pytest.importorskip("distributed")
    path = tmp_path / "broken.yaml"
    path.write_text("distributed: [")

    done = memprof("fleet", "tls://127.0.0.1:1", env={**os.environ, "DASK_CONFIG": str(path)})

    assert done.returncode == 5
    assert f"A dask config file at '{path}' is malformed" in sentence(done)


def test_fleet_needs_certificates_by_variables(memprof, tmp_path):
    pytest.importorskip("distributed")
    words = {f"DASK_DISTRIBUTED__COMM__TLS__{name}": str(tmp_path / name) for name in ("CA_FILE", "CLIENT__CERT")}

    done = memprof("fleet", "tls://127.0.0.1:1", env={**os.environ, **words})

    assert done.returncode == 5
    assert f"distributed.comm.tls.ca-file of Dask's configuration is {tmp_path}/CA_FILE, and there is no such file" in sentence(done)
