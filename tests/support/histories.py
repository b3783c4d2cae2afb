"""What the tests of history share."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from memprof.records.types import Machine
from memprof.verdicts import baseline
from memprof.versions import history_folder, series
from memprof.versions.commits import Commit
from support.sample_runs import runs


def git(where: Path, *words: str, date: int | None = None) -> str:
    stamp = {} if date is None else {"GIT_AUTHOR_DATE": f"{date} +0000", "GIT_COMMITTER_DATE": f"{date} +0000"}
    who = ["-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", "-C", str(where), *who, *words], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin", **stamp}
    )
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    return tmp_path


def commit(project: Path, number: int) -> str:
    (project / "code").write_text(str(number))
    git(project, "add", "code")
    git(project, "commit", "-q", "-m", f"change {number}", date=1_700_000_000 + number)
    return git(project, "rev-parse", "HEAD")


def made(levels: list[float], where: list[Machine] | None = None, variant: str = "a") -> history_folder.FolderPoints:
    """A history that was never on a disk."""
    loaded = {}
    for number, level in enumerate(levels):
        extra = [level + 0.01 * repeat for repeat in range(5)]
        repeats = runs(variant, extra_mib=extra, where=where[number] if where else None)
        point = series.of(Commit(f"{number:040x}", number, (), f"change {number}"), baseline.entries(repeats))
        loaded[Path(series.encoded(point)[0])] = point
    return history_folder.FolderPoints(loaded)
