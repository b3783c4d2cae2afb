"""Captures of other memray releases, through environments with those releases, beside what those releases themselves say of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.session_cache import once, own_cache

from memprof.base.errors import InputError
from memprof.heap import load

pytestmark = pytest.mark.xdist_group("environments")

DATA = Path(__file__).parents[1] / "data" / "heap"
# FileReader(...).metadata.peak_memory of the release that made the capture, which is also its high-water mark by records.
RELEASE, PEAK = "1.10.0", 8429816


def capture(release: str) -> Path:
    return DATA / f"capture_memray_{release}.bin"


def with_release(folder: Path) -> None:
    """An environment, as --yes makes it, and what was said."""
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        own_cache(patch, folder / "cache")
        load(capture(RELEASE), install=said.append)
    (folder / "said.json").write_text(json.dumps(said))


@pytest.fixture(scope="module")
def installed() -> Path:
    try:
        return once("environment of a memray release", with_release)
    except InputError as error:
        pytest.skip(f"pip gets no memray here: {error}")


@pytest.mark.long
def test_other_release_read_through_its_environment(installed, memprof, monkeypatch):
    said = json.loads((installed / "said.json").read_text())
    assert any(sentence.startswith(f"memray {RELEASE}: ") and "to download" in sentence for sentence in said)
    assert any(sentence.startswith(f"memray {RELEASE} is installed in ") for sentence in said)
    own_cache(monkeypatch, installed / "cache")
    shown = memprof("heap", "show", str(capture(RELEASE)), "--json")  # the environment is there: nothing is asked
    facts = json.loads(shown.stdout)
    assert (shown.returncode, facts["tool"], facts["peak"]["total_bytes"]) == (0, "memray", PEAK)
    assert {"load", "prepare"} <= {row["name"].split(" ")[0] for row in (*facts["sites"], *facts["tree"])}


def test_other_release_named_without_yes(memprof, monkeypatch, tmp_path):
    own_cache(monkeypatch, tmp_path)
    refused = memprof("heap", "show", str(capture("1.18.0")))

    assert refused.returncode == 5
    assert "is a capture of memray 1.11 to 1.18 (format 11), which memray 1.18.0 reads; " in refused.stderr
    assert refused.stderr.count("\n") == 1 and refused.stderr.endswith(": --yes makes an environment with it\n")


def test_damaged_capture_is_sentence(memprof, monkeypatch, tmp_path):
    own_cache(monkeypatch, tmp_path)
    content = capture("1.20.0").read_bytes()
    for end in (5, 12, 40, len(content) // 2):
        (tmp_path / "torn.bin").write_bytes(content[:end])
        refused = memprof("heap", "show", str(tmp_path / "torn.bin"), "--yes")
        assert refused.returncode in (0, 5)
        assert "Traceback" not in refused.stderr and (refused.returncode == 0 or refused.stderr.count("\n") == 1)
