"""A runs file is data: what it names is measured again only where this user's own memprof wrote it here, or the user says so."""

from __future__ import annotations

import stat
from dataclasses import fields, replace

import pytest
from support.sample_runs import job, run

from memprof.records import signing, store
from memprof.records.types import Job


@pytest.fixture
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/memprof"


def signed(job: Job):
    return replace(run(), job=job, signature=signing.signature(job))


OTHER = {
    "model": job().model.__class__("other", "/other", (), 0, ""),
    "env": {"A": None},
    "threads": 7,
    "shapes": {"x": (1, 2)},
    "argv": ("true",),
    "deterministic": True,
    "hold": True,
    "cache": "cold",
    "program": None,
    "knobs": {"a": "b"},
    "phases": {"A": "b"},
    "phase_regexes": {"A": "b"},
}


@pytest.mark.parametrize("name", [field.name for field in fields(Job)])
def test_signature_covers_job_fields(own_state, name):
    before = signed(replace(job(), program=job().model.files[0] if job().model.files else None) if name == "program" else job())
    value = getattr(before.job, name)
    changed_value = OTHER.get(name, value + 1 if isinstance(value, int) else f"{value}x")
    if changed_value == value:
        pytest.skip("made without a program")

    changed = replace(before, job=replace(before.job, **{name: changed_value}))

    assert signing.is_own(before)
    assert signing.is_own(changed) == (name == "variant")


def test_signature_without_version_as_before(own_state):
    """Jobs of before the field are signed without it."""
    assert not {"version", "side"} & signing._signed(job()).keys()
    assert "version" in signing._signed(replace(job(), version="1.0"))


def test_signature_survives_file(own_state, tmp_path):
    made = signed(replace(job(), env={"A": None, "B": "c"}, shapes={"x": (1, 2)}))
    (tmp_path / "runs.jsonl").write_bytes(store.encode(made))
    (loaded,) = store.load([tmp_path / "runs.jsonl"]).runs
    assert loaded.signature == made.signature and signing.is_own(loaded)


def test_key_private_and_made_once(own_state):
    first = signed(job())
    key = own_state / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 and len(key.read_bytes()) == 32
    assert [entry.name for entry in own_state.iterdir()] == ["key"]
    assert signing.is_own(first) and signing.signature(job()) == first.signature


@pytest.mark.parametrize("damage", ["readable", "short"])
def test_unsafe_key_signs_nothing(own_state, damage):
    first = signed(job())
    key = own_state / "key"
    if damage == "readable":
        key.chmod(0o644)
    else:
        key.write_bytes(b"x")

    assert signing.signature(job()) is None
    assert not signing.is_own(first)
