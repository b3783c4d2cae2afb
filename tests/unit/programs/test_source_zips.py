"""The recorder's zip in the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from memprof.programs.source_zips import recorder_zip


def test_zip_written_where_cache_lacks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = []
    for name in ("one", "other"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        paths.append(recorder_zip())
    before = paths[0].read_bytes()
    paths[1].unlink()

    assert recorder_zip().read_bytes() == before
    assert [path.is_relative_to(tmp_path / name) for path, name in zip(paths, ("one", "other"), strict=True)] == [True, True]
