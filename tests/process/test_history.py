"""A history: files that are only added, lines and their steps, and what can be wrong with either."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from array import array
from pathlib import Path

import pytest
from support.histories import commit, git, project  # noqa: F401  (the fixtures)
from support.sample_runs import machine, run, runs

from memprof.records import store
from memprof.records.types import Machine, Outcome
from memprof.versions import commits, history_file, history_folder

MIB = 1 << 20


def measured(
    project: Path, more: float = 0.0, where: Machine | None = None, repeats: int = 5, name: str = "runs.jsonl", **rest: object
) -> Path:
    path = project / name
    extra = [more + 0.01 * number for number in range(repeats)]
    path.write_bytes(b"".join(map(store.encode, runs(extra_mib=extra, where=where, **rest))))
    return path


def added(memprof, project: Path, number: int, more: float = 0.0) -> str:
    """A commit with its figures in the history; its hash."""
    name = commit(project, number)
    measured(project, more)
    assert memprof("history", "add", "runs.jsonl").returncode == 0
    return name


def grown(memprof, project: Path, *levels: tuple[float, int]) -> list[str]:
    """A history of as many commits at each level; their hashes."""
    every = [level for level, count in levels for _ in range(count)]
    return [added(memprof, project, number, level) for number, level in enumerate(every)]


def test_history_finds_commit_of_step(memprof, project):
    hashes = grown(memprof, project, (0, 6), (8, 3))

    shown = memprof("history", "show")
    assert shown.returncode == 0, shown.stderr
    assert f"{hashes[5][:9]}..{hashes[6][:9]} (change 6): RSS peak +8.0 MiB, +3.0%" in shown.stdout
    assert "in PEAK, first in MODEL_LOAD; net.onnx, a (" in shown.stdout
    assert shown.stdout.count("change 6") == 1, "one cause, one line"
    (marked,) = [line for line in shown.stdout.splitlines() if "▲" in line]
    assert marked.startswith(f"| {hashes[6][:9]}") and "▲ +3.0% 278" in marked

    told = json.loads(memprof("history", "show", "--json").stdout)
    assert [entry["hash"] for entry in told["commits"]] == hashes
    (step,) = told["steps"]
    assert (step["after"], step["commit"], step["phase"]) == (hashes[5], hashes[6], "MODEL_LOAD")
    assert step["rows"][0]["size"] == pytest.approx(8 * MIB, abs=0.05 * MIB)

    assert len(memprof("history", "show", "--last", "2").stdout.split("\n\n")[1].splitlines()) == 4
    assert "MODEL_LOAD (MiB)" in memprof("history", "show", "--phase", "MODEL_LOAD").stdout


def test_history_names_commit_by_tag(memprof, project):
    grown(memprof, project, (0, 3))
    commit(project, 3)
    git(project, "tag", "v1.2")
    measured(project, 9)
    assert memprof("history", "add", "runs.jsonl", "--commit", "v1.2").returncode == 0
    assert "..v1.2 (change 3): RSS peak +9.0 MiB" in memprof("history", "show").stdout


def test_check_reports_step_once(memprof, project):
    grown(memprof, project, (0, 5))
    calm = memprof("history", "check")
    assert (calm.returncode, calm.stdout.split(" ", 1)[1]) == (0, "shows no step.\n")
    added(memprof, project, 5, 8)
    worse = memprof("history", "check")
    assert (worse.returncode, "+8.0 MiB" in worse.stdout) == (1, True), worse.stdout
    assert json.loads(memprof("history", "check", "--json").stdout)["news"][0]["rows"][0]["size"] == pytest.approx(8 * MIB, abs=0.1 * MIB)
    added(memprof, project, 6, 8)
    assert memprof("history", "check").returncode == 0, "it was told when it was new"
    added(memprof, project, 7)
    better = memprof("history", "check")
    assert (better.returncode, "it undoes the step before" in better.stdout) == (0, True)
    assert "it went away again at" in memprof("history", "show").stdout


def test_check_of_first_commit(memprof, project):
    grown(memprof, project, (0, 1))
    done = memprof("history", "check")
    assert (done.returncode, "there is nothing to compare it with" in done.stdout) == (3, True)


def test_check_names_failing_variant(memprof, project):
    grown(memprof, project, (0, 3))
    commit(project, 3)
    both = [*runs("a"), *(run("b", number, outcome=Outcome("signal", "PREPARE", signal="SIGSEGV")) for number in (1, 2))]
    (project / "runs.jsonl").write_bytes(b"".join(map(store.encode, both)))
    memprof("history", "add", "runs.jsonl")
    done = memprof("history", "check")
    assert (done.returncode, "net.onnx, b: 2 of 2 runs failed: ended by SIGSEGV in PREPARE" in done.stdout) == (4, True), done.stdout


def test_add_later_repeats_to_commit(memprof, project):
    commit(project, 0)
    measured(project, repeats=2)
    memprof("history", "add", "runs.jsonl")
    measured(project, more=0.3, repeats=3)
    memprof("history", "add", "runs.jsonl")
    assert len(list((project / "memprof-history").iterdir())) == 2
    history = history_file.read(history_folder.load(project / "memprof-history"), project)
    assert {len(samples) for line in history.lines for samples in line.samples} == {5}


def test_history_files_merge_across_branches(memprof, project):
    commit(project, 0)
    git(project, "checkout", "-q", "-b", "other")
    for branch, more, where in (("other", 1, machine("a")), ("main", 2, machine("b", cpus=4))):
        git(project, "checkout", "-q", branch)
        commit(project, 10 + more)
        measured(project, more, where=where)
        memprof("history", "add", "runs.jsonl", "--commit", "main~0" if branch == "main" else "HEAD")
        git(project, "add", "memprof-history")
        git(project, "commit", "-q", "-m", "figures")
    git(project, "merge", "-q", "-s", "recursive", "-X", "ours", "other")
    assert len(list((project / "memprof-history").iterdir())) == 2
    assert len(history_file.read(history_folder.load(project / "memprof-history"), project).commits) == 2


def test_add_same_runs_twice(memprof, project):
    commit(project, 0)
    measured(project)
    assert json.loads(memprof("history", "add", "runs.jsonl", "--json").stdout)["known"] == []
    git(project, "add", "memprof-history")
    again = memprof("history", "add", "runs.jsonl")
    assert (again.returncode, "is there already" in again.stderr) == (0, True), again.stderr
    assert len(list((project / "memprof-history").iterdir())) == 1


def test_add_file_per_machine(memprof, project):
    commit(project, 0)
    both = [*runs("a"), *runs("a", where=machine("there", cpus=8))]
    (project / "runs.jsonl").write_bytes(b"".join(map(store.encode, both)))
    assert memprof("history", "add", "runs.jsonl").returncode == 0
    assert len(list((project / "memprof-history").iterdir())) == 2


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda data: b"", "is empty: it was not written to its end"),
        (lambda data: data[: len(data) // 2], "is torn"),
        (
            lambda data: data.replace(b'"memprof_history":1', b'"memprof_history":9'),
            "was written by a newer memprof (schema 9; this one reads up to 1)",
        ),
        (lambda data: data.replace(b'{"memprof_history":1', b'{"memprof_history":9,"more":{}'), "was written by a newer memprof (schema 9"),
        (lambda data: b"<<<<<<< HEAD\n" + data, "has the marks of a merge conflict"),
        (lambda data: b'{"some": "json"}', "is not a file of a memprof history"),
        (lambda data: data.replace(b'"rss_peak_bytes"', b'"rss_peek_bytes"'), "rss_peek_bytes is no metric of this memprof"),
        (lambda data: data.replace(b'"hash":"', b'"hash":"--upload-pack='), "is no commit's hash"),
        (lambda data: data.replace(b'"values":[', b'"values":[-1,'), "a value is below 0"),
        (lambda data: re.sub(rb'"time_s":\d+', b'"time_s":1000000000000000', data), "1000000000000000 s is no commit's time"),
    ],
)
def test_history_file_damaged(memprof, project, harm, says):
    grown(memprof, project, (0, 1))
    (path,) = (project / "memprof-history").iterdir()
    path.write_bytes(harm(path.read_bytes()))
    done = memprof("history", "show")
    assert (done.returncode, says in done.stderr and path.name in done.stderr) == (5, True), done.stderr


def test_history_file_without_end(memprof, project):
    (project / "memprof-history").mkdir()
    (project / "memprof-history/x.json").symlink_to("/dev/zero")
    done = memprof("history", "check")
    assert (done.returncode, "x.json: it is not a file, and it goes on after 128 MiB" in done.stderr) == (5, True), done.stderr
    commit(project, 0)
    measured(project)
    (path,) = json.loads(memprof("history", "add", "runs.jsonl", "--folder", "new", "--json").stdout)["added"]
    (project / path).unlink()
    (project / path).symlink_to("/dev/zero")
    done = memprof("history", "add", "runs.jsonl", "--folder", "new")
    assert (done.returncode, "it is not a file, and it goes on after 128 MiB" in done.stderr) == (5, True), done.stderr


@pytest.mark.parametrize("emptied", ["entries", "rows"])
def test_history_without_figures(memprof, project, emptied):
    grown(memprof, project, (0, 1))
    (path,) = (project / "memprof-history").iterdir()
    content = json.loads(path.read_bytes())
    if emptied == "entries":
        content["entries"] = []
    else:
        content["entries"][0]["rows"] = []
    path.write_text(json.dumps(content))
    done = memprof("history", "show")
    assert (done.returncode, done.stderr) == (5, "memprof: no run of this history ended well: there is nothing to show\n")


def test_add_over_torn_file(memprof, project):
    grown(memprof, project, (0, 1))
    (path,) = (project / "memprof-history").iterdir()
    path.write_bytes(path.read_bytes()[:-40])
    done = memprof("history", "add", "runs.jsonl")
    assert (done.returncode, "is torn" in done.stderr) == (5, True)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["show"], 5, "memprof-history: No such file or directory; memprof history add RUNS.jsonl makes it"),
        (["add", "runs.jsonl", "--commit", "v9"], 2, "--commit v9: git knows no such commit"),
        (["add", "runs.jsonl", "--metric", "peek"], 2, "there is no metric 'peek'"),
        (["prune"], 2, "say what to remove: --gone, --keep N, or both"),
        (["show", "--metric", "time_ns", "--folder", "h"], 2, "--metric time_ns: no commit of this history has it"),
        (["show", "--phase", "PREPAER", "--folder", "h"], 2, "--phase PREPAER: rss_peak_bytes has no such phase; did you mean PREPARE?"),
    ],
)
def test_history_refuses_bad_words(memprof, project, words, code, says):
    commit(project, 0)
    measured(project)
    memprof("history", "add", "runs.jsonl", "--folder", "h")
    done = memprof("history", *words)
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr


def test_add_refusals(memprof, tmp_path):
    measured(tmp_path)
    done = memprof("history", "add", "runs.jsonl")
    assert (done.returncode, "this folder lies in no git repository" in done.stderr) == (5, True), done.stderr
    git(tmp_path, "init", "-q")
    commit(tmp_path, 0)
    (tmp_path / "runs.jsonl").write_bytes(store.encode(run(outcome=Outcome("error", "PREPARE", "no such op"))))
    done = memprof("history", "add", "runs.jsonl")
    assert (done.returncode, "every run failed (net.onnx, a: in PREPARE: no such op)" in done.stderr) == (5, True), done.stderr


def test_add_from_dirty_tree(memprof, project):
    name = commit(project, 0)
    measured(project)
    (project / "code").write_text("unfinished")
    done = memprof("history", "add", "runs.jsonl")
    assert (done.returncode, "the checkout has changes that are in no commit" in done.stderr) == (2, True), done.stderr
    assert memprof("history", "add", "runs.jsonl", "--commit", name).returncode == 0


def test_history_commits_lost_by_rebase(memprof, project):
    grown(memprof, project, (0, 3))
    git(project, "reset", "-q", "--hard", "HEAD~1")
    added(memprof, project, 7)
    beside = memprof("history", "show")
    assert "1 of the commits is not in HEAD's history and left out" in beside.stdout
    git(project, "reflog", "expire", "--expire=now", "--all")
    git(project, "gc", "-q", "--prune=now")
    shown = memprof("history", "show")
    assert "git has no such commits any more, so they are left out" in shown.stdout
    assert "2023-11-14" in shown.stdout and len([line for line in shown.stdout.splitlines() if "2023-11-14" in line]) == 3
    assert memprof("history", "prune", "--gone").stdout == "1 file of 4 removed\n"
    assert memprof("history", "prune", "--keep", "1").stdout == "2 files of 3 removed\n"
    assert len(list((project / "memprof-history").iterdir())) == 1
    git(project, "init", "-q", "elsewhere")
    git(project / "elsewhere", "commit", "-q", "--allow-empty", "-m", "another project")
    (project / "memprof-history").rename(project / "elsewhere" / "memprof-history")
    done = memprof("history", "prune", "--gone", cwd=project / "elsewhere")
    assert done.returncode == 5, done.stderr
    assert "git knows none of these commits here, so this may be another repository; nothing is removed" in done.stderr


def test_history_in_shallow_clone(memprof, project, tmp_path):
    hashes = grown(memprof, project, (0, 3))
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{project}", str(clone)], check=True, capture_output=True)
    (project / "memprof-history").rename(clone / "memprof-history")
    told = json.loads(memprof("history", "show", "--json", cwd=clone).stdout)
    assert [entry["hash"] for entry in told["commits"]] == hashes
    assert told["remarks"] == ["this clone is shallow, so the commits stand in the order of their dates"]
    done = memprof("history", "prune", "--gone", cwd=clone)
    assert (done.returncode, "this clone is shallow" in done.stderr) == (5, True)
    done = memprof("history", "add", str(project / "runs.jsonl"), "--commit", hashes[0], cwd=clone)
    assert (done.returncode, "this clone is shallow: git fetch --unshallow" in done.stderr) == (2, True), done.stderr


def test_commit_order_with_merges(project):
    commit(project, 0)
    git(project, "checkout", "-q", "-b", "side")
    old = commit(project, 1)
    git(project, "checkout", "-q", "main")
    new = commit(project, 2)
    git(project, "merge", "-q", "-s", "ours", "side", "-m", "merge")
    merge = git(project, "rev-parse", "HEAD")
    known = [commits.named(project, ref, project / "h") for ref in (merge, old, new)]
    order = commits.ordered(known, project).order
    assert order[-1] == merge and set(order) == {merge, old, new}
    assert known[0].parents == (new, old) and known[0].subject == "merge"
    assert commits.first_parents(project, new, merge) == (new, merge)


def test_page_standalone_with_every_line(memprof, project):
    hashes = grown(memprof, project, (0, 5), (8, 4))
    git(project, "remote", "add", "origin", "git@github.com:people/engine.git")
    done = memprof("history", "page", "-o", "site")
    assert done.returncode == 0, done.stderr
    html = (project / "site/index.html").read_text()
    assert not re.search(r"<(script|img|iframe)[^>]* src=|<link[^>]* href=\"(?!data:,)", html) and "default-src &#39;none&#39;" in html
    assert f'<a href="https://github.com/people/engine/commit/{hashes[5]}"' in html
    assert f'<li class="worse">{hashes[4][:9]}..{hashes[5][:9]} (change 5): RSS peak +8.0 MiB, +3.0%' in html
    data = json.loads(html.partition('<script type="application/json" id="data">')[2].partition("</script>")[0])
    assert [entry[0] for entry in data["commits"]] == hashes
    assert {(line["phase"], line["metric"]) for line in data["lines"]} >= {("PEAK", "rss_peak_bytes"), ("PREPARE", "anon_end_bytes")}
    peak = next(line for line in data["lines"] if (line["phase"], line["metric"]) == ("PEAK", "rss_peak_bytes"))
    middles = array("f", base64.b64decode(peak["middles"]))
    assert [round(value / MIB) for value in middles] == [270] * 5 + [278] * 4
    assert peak["steps"] == [[0, 5, "▲ +3.0%"]] and peak["places"] is None

    badge = (project / "site/badge.svg").read_text()
    assert badge.startswith("<svg ") and ">278.0 MiB</text>" in badge and 'fill="#0a5ea8"' in badge

    (project / "site/runs").mkdir()
    (project / f"site/runs/{hashes[3]}.html").touch()
    for url, count in (("runs/{commit}.html", 1), ("https://example.org/{commit}", len(hashes))):
        assert memprof("history", "page", "-o", "site", "--run-url", url).returncode == 0, "an earlier page is replaced"
        html = (project / "site/index.html").read_text()
        data = json.loads(html.partition('<script type="application/json" id="data">')[2].partition("</script>")[0])
        assert sum(entry[-1] for entry in data["commits"]) == count


def test_page_hostile_subject_and_red_badge(memprof, project):
    grown(memprof, project, (0, 4))
    (project / "code").write_text("x")
    git(project, "commit", "-qam", "</script><script>alert(1)</script><img src=x>")
    measured(project, 9)
    memprof("history", "add", "runs.jsonl")
    memprof("history", "page", "-o", "site")
    html = (project / "site/index.html").read_text()
    assert "<script>alert(1)" not in html and "<img" not in html
    assert 'fill="#a93b00"' in (project / "site/badge.svg").read_text()


@pytest.mark.parametrize(
    ("before", "words", "code", "says"),
    [
        (
            None,
            ["--run-url", "javascript:alert(1)//{commit}"],
            2,
            "--run-url 'javascript:alert(1)//{commit}': write an address with {commit}",
        ),
        (None, ["--commit-url", "https://example.org/"], 2, "write an address with {commit} in it"),
        (("site/index.html", "mine"), [], 5, "is not a page of memprof's; it was left as it is"),
        (("site/badge.svg", "<svg/>"), [], 5, "is not a badge of memprof's; it was left as it is"),
        (("site", "a file"), [], 5, "site/index.html"),
    ],
)
def test_page_refuses_foreign_files_and_addresses(memprof, project, before, words, code, says):
    grown(memprof, project, (0, 2))
    if before is not None:
        (project / before[0]).parent.mkdir(exist_ok=True)
        (project / before[0]).write_text(before[1])
    done = memprof("history", "page", "-o", "site", *words)
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr
    assert before is None or (project / before[0]).read_text() == before[1]


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/a/b.git", "https://github.com/a/b/commit/{commit}"),
        ("https://token@github.example.org/a/b", "https://github.example.org/a/b/commit/{commit}"),
        ("ssh://git@gitlab.com:22/a/b/c.git", "https://gitlab.com/a/b/c/-/commit/{commit}"),
        ("git@gitlab.com:a/b.git", "https://gitlab.com/a/b/-/commit/{commit}"),
        ("https://example.org/a/b.git", ""),
        ("/srv/git/a.git", ""),
    ],
)
def test_commit_address_without_secrets(project, remote, address):
    git(project, "remote", "add", "origin", remote)
    assert commits.web_address(project) == address
