"""The recipe that adds each commit of main to a history on a branch, as CI calls it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from made import runs
from test_history import commit, git

from memprof.history import commits, folder
from memprof.runs import store

CI = Path(__file__).resolve().parents[1] / "ci"


def recipe(project: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = project.parent / "memprof"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m memprof "$@"\n')
    command.chmod(0o755)
    who = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b.c", "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b.c"}
    environment = {**os.environ, **who, "MEMPROF": str(command), "MEMPROF_RUNS": "../runs.jsonl", **variables}
    return subprocess.run([CI / "history/recipe"], cwd=project, env=environment, capture_output=True, text=True, check=False)


def measured(project: Path, more: float) -> None:
    extra = [more + 0.01 * number for number in range(5)]
    (project.parent / "runs.jsonl").write_bytes(b"".join(map(store.encode, runs(extra_mib=extra))))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "origin.git")], check=True)
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "-q", "-b", "main")
    git(project, "remote", "add", "origin", str(tmp_path / "origin.git"))
    return project


@pytest.mark.long
def test_commits_are_added_on_a_branch_and_a_step_is_told_once(project, tmp_path):
    alert = tmp_path / "alert"
    alert.write_text('#!/bin/sh\necho "$1" >>../alerts\ncat "$2" >>../alerts\n')
    alert.chmod(0o755)
    hashes = [commit(project, number) for number in range(3)]
    kept = tmp_path / "kept"
    kept.mkdir()
    git(kept, "init", "-q", "-b", "memprof-history")
    for name in hashes:
        measured(project, 0)
        folder.add(kept, commits.named(project, name, kept), [str(tmp_path / "runs.jsonl")])
    git(kept, "add", "-A")
    git(kept, "commit", "-qm", "so far")
    git(kept, "push", "-q", str(tmp_path / "origin.git"), "memprof-history")
    for number in (3, 4):
        hashes.append(commit(project, number))
        measured(project, 7)
        done = recipe(project, MEMPROF_ALERT=str(alert))
        assert done.returncode == 0, done.stderr
        if number == 3:
            assert recipe(project, MEMPROF_ALERT=str(alert)).returncode == 0, "the job runs again"
    names = {name[:12] for name in git(tmp_path / "origin.git", "ls-tree", "--name-only", "memprof-history").splitlines()}
    assert sorted(names) == sorted(name[:12] for name in hashes)
    told = (tmp_path / "alerts").read_text().splitlines()
    assert told[0] == f"memprof: memory rose at {hashes[2][:9]}..{hashes[3][:9]}"
    assert len(told) == 2 and "RSS peak +7.0 MiB" in told[1]
    assert "memprof history" in (project / "site/index.html").read_text()
    assert git(project, "status", "--porcelain") == "?? site/"
    assert len(git(project, "worktree", "list").splitlines()) == 1


def test_the_first_history_begins_the_branch_and_one_that_cannot_be_pushed_fails_the_job(project, tmp_path):
    """What memprof does is not looked at here: a stand-in adds an empty file."""
    name = commit(project, 0)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sleep").write_text("#!/bin/sh\n")
    stand_in = tmp_path / "bin/memprof"
    stand_in.write_text('#!/bin/sh\n[ "$2" != add ] || touch "$7/$5.json"\n')
    for path in (tmp_path / "bin").iterdir():
        path.chmod(0o755)
    words = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "MEMPROF": str(stand_in)}
    assert recipe(project, **words).returncode == 0
    assert git(tmp_path / "origin.git", "ls-tree", "--name-only", "memprof-history") == f"{name}.json"
    assert int(git(tmp_path / "origin.git", "rev-list", "--count", "memprof-history")) == 2, "it shares no commit with the project"

    git(project, "remote", "set-url", "origin", str(tmp_path / "nowhere.git"))
    done = recipe(project, **words)
    assert (done.returncode, "the history could not be pushed" in done.stderr) == (5, True), done.stderr
    assert len(git(project, "worktree", "list").splitlines()) == 1


def test_an_issue_mentions_nobody_and_links_nowhere(tmp_path):
    (tmp_path / "gh").write_text('#!/bin/sh\n[ "$2" = list ] || { shift 2; printf "%s\\n" "$@" >title; cat >body; }\n')
    (tmp_path / "gh").chmod(0o755)
    (tmp_path / "news.md").write_text("- a..b (by @someone, [x](https://e.org), fixes #1, <img>): RSS peak +7.0 MiB\n/merge\n")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run([CI / "history/github-issue", "memory rose", "news.md"], cwd=tmp_path, env=environment, check=True)

    body = (tmp_path / "body").read_text()
    assert (tmp_path / "title").read_text().splitlines() == ["--title", "memory rose", "--body-file", "-"]
    assert "RSS peak +7.0 MiB" in body
    assert not any(word in body for word in ("@someone", "[x]", "https://", "#1", "<img", "\n/merge"))
