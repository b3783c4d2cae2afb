"""The recipe that adds each commit of main to a history on a branch, as CI calls it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from conftest import need_tool
from support.histories import commit, git
from support.local_server import served
from support.sample_runs import runs

from memprof.records import store
from memprof.versions import commits, history_folder

CI = Path(__file__).resolve().parents[2] / "ci"


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
    git(project, "remote", "add", "origin", "../origin.git")
    return project


@pytest.mark.long
def test_history_adds_commits_alerts_once(project, tmp_path):
    alert = tmp_path / "alert"
    alert.write_text('#!/bin/sh\necho "$1" >>../alerts\ncat "$2" >>../alerts\n')
    alert.chmod(0o755)
    hashes = [commit(project, number) for number in range(3)]
    kept = tmp_path / "kept"
    kept.mkdir()
    git(kept, "init", "-q", "-b", "memprof-history")
    for name in hashes:
        measured(project, 0)
        history_folder.add(kept, commits.named(project, name, kept), [str(tmp_path / "runs.jsonl")])
    (kept / f"runs/{hashes[2]}").mkdir(parents=True)
    for name in (f"{hashes[2]}/x.jsonl", f"{hashes[2]}.html"):
        (kept / "runs" / name).touch()
    git(kept, "add", "-A")
    git(kept, "commit", "-qm", "so far")
    git(kept, "push", "-q", str(tmp_path / "origin.git"), "memprof-history")
    for number, more, words in ((3, 7, {}), (3, 8, {}), (4, 7, {"MEMPROF_PAGES": "2"})):
        if number == len(hashes):
            hashes.append(commit(project, number))
        measured(project, more)  # the second of commit 3 by another job
        done = recipe(project, MEMPROF_ALERT=str(alert), **words)
        assert done.returncode == 0, done.stderr
    names = {
        name[:12]
        for name in git(tmp_path / "origin.git", "ls-tree", "--name-only", "memprof-history").splitlines()
        if name.endswith(".json")
    }
    assert sorted(names) == sorted(name[:12] for name in hashes)
    told = (tmp_path / "alerts").read_text().splitlines()
    assert told[0] == f"memprof: memory rose at {hashes[2][:9]}..{hashes[3][:9]}"
    assert len(told) == 2 and "RSS peak +7.0 MiB" in told[1]
    assert "memprof history" in (project / "site/index.html").read_text()
    assert '"runs/{commit}.html"' in (project / "site/index.html").read_text(), "a click opens the run's page"
    assert "net.onnx" in (project / f"site/runs/{hashes[4]}.html").read_text()
    assert "10 runs" in (project / f"site/runs/{hashes[3]}.html").read_text(), "the page of an earlier commit is kept"
    kept = git(tmp_path / "origin.git", "ls-tree", "-r", "--name-only", "memprof-history", "runs").splitlines()
    assert [[path.count("/") for path in kept if name in path] for name in hashes] == [[], [], [], [1, 2, 2], [1, 2]]
    assert git(project, "status", "--porcelain") == "?? site/"
    assert len(git(project, "worktree", "list").splitlines()) == 1


def test_history_first_branch_and_failed_push(project, tmp_path):
    """What memprof does is not looked at here: a stand-in adds an empty file."""
    name = commit(project, 0)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sleep").write_text("#!/bin/sh\n")
    stand_in = tmp_path / "bin/memprof"
    stand_in.write_text('#!/bin/sh\n[ "$2" != add ] || touch "$7/$5.json"\n[ "$1" != page ] || touch "$3"\n')
    for path in (tmp_path / "bin").iterdir():
        path.chmod(0o755)
    (tmp_path / "runs.jsonl").touch()
    words = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "MEMPROF": str(stand_in)}
    for _ in range(2):  # the job runs again, and has nothing new to commit
        assert recipe(project, **words).returncode == 0
    assert git(tmp_path / "origin.git", "ls-tree", "--name-only", "memprof-history").splitlines() == [f"{name}.json", "runs"]
    assert int(git(tmp_path / "origin.git", "rev-list", "--count", "memprof-history")) == 2, "it shares no commit with the project"

    git(project, "remote", "set-url", "origin", str(tmp_path / "nowhere.git"))
    done = recipe(project, **words)
    assert (done.returncode, "the history could not be pushed" in done.stderr) == (5, True), done.stderr
    assert len(git(project, "worktree", "list").splitlines()) == 1


def test_github_issue_without_mentions_or_links(tmp_path):
    (tmp_path / "gh").write_text('#!/bin/sh\n[ "$2" = list ] || { shift 2; printf "%s\\n" "$@" >title; cat >body; }\n')
    (tmp_path / "gh").chmod(0o755)
    (tmp_path / "news.md").write_text("- a..b (by @someone, [x](https://e.org), fixes #1, <img>): RSS peak +7.0 MiB\n/merge\n")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run([CI / "history/github-issue", "memory rose", "news.md"], cwd=tmp_path, env=environment, check=True)

    body = (tmp_path / "body").read_text()
    assert (tmp_path / "title").read_text().splitlines() == ["--title", "memory rose", "--body-file", "-"]
    assert "RSS peak +7.0 MiB" in body
    assert not any(word in body for word in ("@someone", "[x]", "https://", "#1", "<img", "\n/merge"))


def test_gitlab_issue_once_per_step(tmp_path):
    (tmp_path / "news.md").write_text("- a..b (by @someone): RSS peak +7.0 MiB\n/close\n")
    asked: list[tuple[str, str, dict[str, list[str]]]] = []
    titles: list[str] = []

    class GitLab(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(parse_qs(urlsplit(self.path).query))

        def do_POST(self) -> None:
            words = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            titles.extend(words["title"])
            self.answer(words)

        def answer(self, words: dict[str, list[str]]) -> None:
            asked.append((f"{self.command} {urlsplit(self.path).path}", self.headers["PRIVATE-TOKEN"], words))
            body = json.dumps([{"title": title} for title in ["another", *titles]]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None: ...

    need_tool("curl")
    with served(GitLab) as url:
        variables = {"CI_API_V4_URL": f"{url}/api/v4", "CI_PROJECT_ID": "7", "MEMPROF_PUSH": "secret"}
        for _ in range(2):
            words = [CI / "history/gitlab-issue", "memory rose at a..b", "news.md"]
            subprocess.run(words, cwd=tmp_path, env={**os.environ, "NO_PROXY": "*", **variables}, check=True)

    assert [what for what, _, _ in asked] == [f"{way} /api/v4/projects/7/issues" for way in ("GET", "POST", "GET")]
    assert {token for _, token, _ in asked} == {"secret"}
    assert titles == ["memory rose at a..b"]
    (text,) = asked[1][2]["description"]
    assert "RSS peak +7.0 MiB" in text and "@someone" not in text and "\n/close" not in text


def test_services_publish_page_and_alert():
    template = yaml.safe_load((CI / "gitlab/memprof-history.yml").read_text())[".memprof-history"]
    example = yaml.safe_load((CI.parent / "docs/examples/gitlab/memprof-history.yml").read_text())
    assert example["pages"]["extends"] == ".memprof-history" and "MEMPROF_SUITE" in example["pages"]["variables"]
    assert template["artifacts"]["paths"] == [f"{template['variables']['MEMPROF_SITE']}/"]
    github = (CI.parent / "docs/examples/github/memprof-history.yml").read_text()
    for alert in (template["variables"]["MEMPROF_ALERT"], *re.findall("MEMPROF_ALERT: (.*)", github)):
        assert os.access(CI.parent / alert.removeprefix(".memprof/"), os.X_OK)
