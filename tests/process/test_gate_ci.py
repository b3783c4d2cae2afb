"""The recipes for CI services: every script they run, and that what their YAML says is there and safe."""

from __future__ import annotations

import html
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from contextlib import redirect_stderr, redirect_stdout
from http.server import BaseHTTPRequestHandler
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import need_tool
from markdown_it import MarkdownIt
from support.local_server import served
from support.recorder_runs import NEAR
from support.sample_runs import runs

from memprof.records import store
from memprof.reports.tables import gate
from memprof.verdicts import baseline, verdicts
from memprof.verdicts.verdicts import Report

CI = Path(__file__).parents[2] / "ci"

STEADY = (0, 0.1, 0.2, 0.3, 0.4)


@pytest.fixture
def folder(tmp_path):
    """base.jsonl and base.json, head.jsonl (worse), few.jsonl; and memprof as a command on the PATH."""
    for name, extra in (("base", STEADY), ("head", [10 + extra for extra in STEADY]), ("few", STEADY[:3])):
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(map(store.encode, runs(extra_mib=extra))))
    baseline.update(tmp_path / "base.json", baseline.entries(runs()))
    command(tmp_path)
    return tmp_path


def command(folder, before=""):
    (folder / "bin").mkdir()
    (folder / "bin/memprof").write_text(f'#!/bin/sh\n{before}\nexec {sys.executable!r} -m memprof "$@"\n')
    (folder / "bin/memprof").chmod(0o755)


def surroundings(folder, variables):
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("MEMPROF", "GITHUB"))}
    return {**clean, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **{key: str(value) for key, value in variables.items()}}


def script(name, folder, cwd=None, **variables):
    """cwd: where it runs, if that is not the folder with the command."""
    environment = surroundings(folder, variables)
    return subprocess.run([CI / name], cwd=cwd or folder, env=environment, capture_output=True, text=True, check=False)


def comment(folder, **variables):
    """The script that comments, called inside this process: the start of an interpreter would take most of its time."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
        patch.setattr(os, "environ", surroundings(folder, variables))
        patch.chdir(folder)
        runpy.run_path(str(CI / "gate/comment"), run_name="__main__")
    return subprocess.CompletedProcess("comment", end.value.code, out.getvalue(), err.getvalue())


@pytest.mark.parametrize(
    ("head", "code", "title"),
    [
        ("head", 1, "### memprof gate: worse"),
        ("few", 3, "### memprof gate: undecided"),
        ("none", 5, "### memprof gate: could not be run"),
    ],
)
def test_shell_recipe_report_and_exit_code(folder, head, code, title):
    done = script("gate/recipe", folder, MEMPROF_HEAD=f"{head}.jsonl", MEMPROF_BASELINE="base.json")

    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines()[0] == title
    out = folder / "memprof-gate"
    assert (out / "exit-code").exists() and (out / "gate.md").read_text() == done.stdout
    if head != "none":
        assert json.loads((out / "gate.json").read_text())["exit_code"] == code
        assert (out / "page.html").stat().st_size > 100_000
        assert (out / "gate.xml").exists()
    else:
        assert "none.jsonl: No such file or directory" in done.stdout


@pytest.mark.parametrize(("code", "ends"), [("3", 0), ("1", 1)])
def test_undecided_job_may_pass(tmp_path, code, ends):
    (tmp_path / "memprof-gate").mkdir()
    (tmp_path / "memprof-gate/exit-code").write_text(f"{code}\n")
    (tmp_path / "bin").mkdir()

    assert script("gate/verdict", tmp_path, MEMPROF_UNDECIDED="pass").returncode == ends


def test_github_summary_and_annotations(folder):
    script("gate/measure", folder, MEMPROF_HEAD="head.jsonl", MEMPROF_BASELINE="base.json")
    done = script("gate/summary", folder, GITHUB_STEP_SUMMARY=folder / "summary.md")

    assert (folder / "summary.md").read_text().startswith("### memprof gate: worse")
    assert done.stdout.count("::error title=memprof%3A regressed::") == 1


def test_recipe_replaces_earlier_measurement(folder):
    script("gate/measure", folder, MEMPROF_HEAD="head.jsonl", MEMPROF_BASELINE="base.json")
    done = script("gate/recipe", folder, MEMPROF_HEAD="none.jsonl", MEMPROF_BASELINE="base.json")

    assert done.returncode == 5
    assert not (folder / "memprof-gate/gate.json").exists()


def test_install_makes_environment(tmp_path):
    """With a package of that name made here: what pip does with a real one, the wheel's own test shows."""
    wheel = tmp_path / "memprof-9.9-py3-none-any.whl"
    facts = {
        "memprof_cli.py": "def main():\n    print('memprof 9.9')\n",
        "memprof-9.9.dist-info/METADATA": "Metadata-Version: 2.1\nName: memprof\nVersion: 9.9\n",
        "memprof-9.9.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "memprof-9.9.dist-info/entry_points.txt": "[console_scripts]\nmemprof = memprof_cli:main\n",
        "memprof-9.9.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in facts.items():
            archive.writestr(name, text)

    # An environment whose pip is this one's: to unpack another takes seconds.
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/pip").symlink_to(Path(find_spec("pip").origin).parent)
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\n{sys.executable!r} "$@" --without-pip\necho {str(tmp_path)!r}/tools >"$(echo "$3"/lib/python*/site-packages)/pip.pth"\n'
    )
    python.chmod(0o755)
    words = {"MEMPROF_INSTALL": "--no-index --no-deps ./memprof-9.9-py3-none-any.whl", "PYTHON": python}
    done = script("gate/install", tmp_path, **words, GITHUB_PATH=tmp_path / "path.txt")

    assert (done.returncode, done.stdout) == (0, "memprof 9.9\n"), done.stderr
    assert Path((tmp_path / "path.txt").read_text().strip()) == tmp_path / ".memprof-venv/command"
    assert [path.name for path in (tmp_path / ".memprof-venv/command").iterdir()] == ["memprof"]  # and no python
    assert (tmp_path / ".memprof-venv/.gitignore").read_text() == "*\n"


def git(folder, *words):
    need_tool("git")
    identity = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    return subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """A repository whose second commit holds 6 MiB more, with the suite where the examples have it."""
    folder = tmp_path / "engine"
    (folder / "bench").mkdir(parents=True)
    (folder / "python").write_text(f'#!/bin/sh\nmkdir -p "$3/bin"\nln -s "{sys.executable}" "$3/bin/python"\n')
    (folder / "python").chmod(0o755)
    (folder / "bench/suite.toml").write_text(
        f'models = ["net.json"]\nwarmup = 0\nruns = 1\n[[variant]]\nname = "engine"\nruntime = "synthetic"\n'
        f'[build]\npython = "{folder / "python"}"\ncommand = "true"\n'
    )
    git(folder, "init", "-q", "-b", "main")
    for size in (4, 10):
        (folder / "bench/net.json").write_text(json.dumps({"load": [{"allocate": "w", "bytes": size << 20}]}))
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", "one")
    return folder


@pytest.fixture
def shallow(folder, repository):
    """A clone of the newest commit alone, and the hash of the one before."""
    subprocess.run(["git", "clone", "-q", "--depth", "1", repository.as_uri(), str(folder / "clone")], check=True)
    return folder / "clone", git(repository, "rev-parse", "HEAD~1")


def test_recipe_fetches_base_in_shallow_clone(folder, shallow):
    clone, base = shallow

    done = script("gate/recipe", folder, MEMPROF_SUITE="clone/bench/suite.toml", MEMPROF_BASE_REF=base, MEMPROF_OUT="clone/out")

    assert done.returncode == 1, done.stderr
    assert git(clone, "status", "--porcelain") == ""  # what the recipe makes in the checkout is no new file of it
    assert re.search(r"\+(5\.9|6\.[01]) MiB", done.stdout), done.stdout
    assert {path.name for path in (clone / "out").iterdir()} >= {"head.jsonl", "head.base.jsonl", "page.html"}


@pytest.mark.parametrize(
    ("words", "code", "title", "row"),
    [
        ({"MEMPROF_RUN": "false | cat", "MEMPROF_BUDGET": "1GiB"}, 4, "not measured", "cat"),
        (
            {"MEMPROF_RUN": "sleep 0.1", "MEMPROF_BUDGET": "1KiB", "MEMPROF_REPORT_ONLY": "true", "MEMPROF_BASE_REF": "x"},
            0,
            "worse",
            "sleep",
        ),
    ],
)
def test_recipe_runs_command_without_file(folder, words, code, title, row):
    """In a runner's surroundings, in a folder that is no repository."""
    runner = {"GITHUB_ACTIONS": "true", "CI": "true", "GITHUB_STEP_SUMMARY": folder / "summary.md", "MEMPROF_ARGS": "--repeats 1"}
    done = script("gate/recipe", folder, **words, **runner)

    assert done.returncode == code, done.stderr
    summary = (folder / "summary.md").read_text()
    assert summary.startswith(f"### memprof gate: {title}\n\n{row}: ") and f"\n\n{row}, measured now" in summary


def test_recipe_keeps_baseline_that_it_made(folder):
    """A runner finds no baseline: the job is undecided, and its artefact has the file to commit."""
    words = {"MEMPROF_RUN": "sleep 0.1", "MEMPROF_BASELINE": "memprof.json", "CI": "true", "MEMPROF_ARGS": "--repeats 1"}
    first = script("gate/recipe", folder, **words)

    assert first.returncode == 3, first.stderr
    assert "memprof.json is not in this checkout, so nothing judges this run" in first.stdout
    made = (folder / "memprof-gate/baseline.json").read_bytes()
    assert made == (folder / "memprof.json").read_bytes()

    script("gate/measure", folder, **words)
    assert not (folder / "memprof-gate/baseline.json").exists()
    assert (folder / "memprof.json").read_bytes() == made


def test_recipe_builds_command(folder, repository):
    (repository / ".gitignore").write_text("out.txt\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "two")
    words = {
        "MEMPROF_BUILD": "touch made.txt\nmv made.txt out.txt",
        "MEMPROF_RUN": "sh -c 'ls out.txt; sleep 0.1'",
        "MEMPROF_AGAINST": "main",
    }
    out = {"cwd": repository, "MEMPROF_OUT": folder / "o"}
    script("gate/measure", folder, **out, **words, MEMPROF_ARGS="--repeats 1")
    assert (folder / "o/exit-code").read_text() == "3\n"  # one repeat never decides, and none has failed
    assert [run.outcome.status for name in ("head", "head.base") for run in store.load([folder / f"o/{name}.jsonl"]).runs] == ["ok", "ok"]

    script("gate/measure", folder, **out, **{**words, "MEMPROF_BUILD": "false\ntrue", "MEMPROF_AGAINST": ""})
    assert (folder / "o/exit-code").read_text() == "5\n"
    assert "cannot be built" in (folder / "o/gate.md").read_text()


def test_recipe_fetches_ref_of_command_in_shallow_clone(folder, shallow):
    clone, older = shallow

    words = {"MEMPROF_RUN": "sleep 0.2", "MEMPROF_AGAINST": older, "MEMPROF_ARGS": "--repeats 1"}
    done = script("gate/measure", folder, cwd=clone, **words)

    assert done.returncode == 0, done.stderr
    assert (clone / "memprof-gate/exit-code").read_text() == "3\n"  # one repeat never decides
    assert f"head (this checkout) against base ({older[:9]})" in (clone / "memprof-gate/gate.md").read_text()


def test_shell_recipe_example_complete(repository, tmp_path):
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/memprof").write_text(f'#!/bin/sh\nexec {sys.executable!r} -m memprof "$@"\n')
    (tmp_path / "venv/bin/memprof").chmod(0o755)
    variables = {"MEMPROF_HOME": str(CI.parent), "MEMPROF_VENV": str(tmp_path / "venv"), "MEMPROF_BASE_REF": "main"}

    done = subprocess.run(
        [CI.parent / "docs/examples/shell/gate.sh"],
        cwd=repository,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "were seen; the same build measured twice was silent" in done.stdout


class Fake(BaseHTTPRequestHandler):
    """What the comment needs of GitHub's API: one open pull request, number 7, and its comments."""

    comments: list  # type: ignore[type-arg]
    denied = False

    def do_GET(self):
        if self.path.startswith("/repos/o/r/pulls?state=open&head=stranger%3Afix&"):
            return self.say([{"number": 6, "head": {"sha": "old"}}, {"number": 7, "head": {"sha": "abc"}}])
        if self.path.startswith("/repos/o/r/pulls?"):
            return self.say([])
        page = int(self.path.rsplit("page=", 1)[1])
        assert self.path.startswith("/repos/o/r/issues/7/comments?per_page=100&")
        return self.say(self.comments[100 * (page - 1) : 100 * page])

    def do_POST(self):
        assert self.path == "/repos/o/r/issues/7/comments"
        self.change(lambda body: self.comments.append({"id": len(self.comments), "body": body, "user": {"type": "Bot"}}))

    def do_PATCH(self):
        number = int(self.path.removeprefix("/repos/o/r/issues/comments/"))
        self.change(lambda body: self.comments[number].update(body=body))

    def is_known(self):
        return self.headers["Authorization"] == "Bearer secret"

    def change(self, write):
        assert self.is_known()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
        if self.denied:
            return self.say({}, 403)
        write(body)
        return self.say({})

    def say(self, answer, code=200):
        data = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words):
        pass


@pytest.fixture
def github(tmp_path):
    """A fake GitHub, and the comment script talking to it: github(report, **variables) -> its end, and the comments."""
    handler = type("Handler", (Fake,), {"comments": [{"id": 0, "body": "<!-- memprof-gate -->\nmine!", "user": {"type": "User"}}]})
    handler.comments += [{"id": number, "body": "talk", "user": {"type": "User"}} for number in range(1, 120)]
    with served(handler) as url:

        def call(report, denied=False, **variables):
            handler.denied = denied
            (tmp_path / "out").mkdir(exist_ok=True)
            (tmp_path / "out/gate.md").write_text(report)
            words = {"GITHUB_API_URL": url, "GITHUB_REPOSITORY": "o/r", "GITHUB_TOKEN": "secret", "MEMPROF_OUT": "out", **variables}
            done = comment(tmp_path, **words)
            return done, handler.comments

        yield call


def test_comment_written_once_then_updated(github):
    done, comments = github("first", MEMPROF_PR="7")
    assert (done.returncode, done.stdout) == (0, "wrote the comment on pull request 7\n"), done.stderr
    assert (len(comments), comments[-1]["body"]) == (121, "<!-- memprof-gate -->\nfirst")

    done, comments = github("second", MEMPROF_PR="7")
    assert done.stdout == "updated the comment on pull request 7\n"
    assert (len(comments), comments[-1]["body"]) == (121, "<!-- memprof-gate -->\nsecond")
    assert comments[0]["body"].endswith("mine!")  # a person's, with the same marker


def test_comment_only_for_bad_or_changed_verdict(github):
    said = []
    for word in ("measured", "worse", "worse", "fine", "fine"):
        report = f"### memprof gate: {word}\n\nfigures {len(said)}"
        done, comments = github(report, MEMPROF_PR="7")
        assert done.returncode == 0, done.stderr
        said.append((len(comments) - 120, comments[-1]["body"].endswith(report)))

    assert said == [(0, False), (1, True), (1, True), (1, True), (1, False)]


def test_comment_finds_fork_pull_request(github):
    of_a_fork = {"MEMPROF_HEAD_OWNER": "stranger", "MEMPROF_HEAD_BRANCH": "fix", "MEMPROF_HEAD_SHA": "abc"}
    done, comments = github("report", **of_a_fork)
    assert done.stdout == "wrote the comment on pull request 7\n"

    done, comments = github("report", **{**of_a_fork, "MEMPROF_HEAD_SHA": "closed"})
    assert (done.returncode, len(comments)) == (0, 121)
    done, comments = github("report", **{**of_a_fork, "MEMPROF_HEAD_BRANCH": "fix&state=all"})
    assert (done.returncode, done.stdout[:20], len(comments)) == (0, "no open pull request", 121)
    done, comments = github("report")
    assert (done.returncode, len(comments)) == (0, 121)


def test_comment_with_read_only_token(github):
    done, _ = github("report", denied=True, MEMPROF_PR="7")

    assert (done.returncode, "may not comment" in done.stdout) == (0, True)


class FakeGitLab(Fake):
    """What the comment needs of GitLab's API: a project, its merge request 7, and its notes."""

    def do_GET(self):
        if self.path == "/user":
            return self.say({"id": 9})
        assert self.path.startswith("/projects/12/merge_requests/7/notes?per_page=100&page=1")
        return self.say(self.comments)

    def do_POST(self):
        assert self.path == "/projects/12/merge_requests/7/notes"
        self.change(lambda body: self.comments.append({"id": len(self.comments), "body": body, "author": {"id": 9}}))

    def do_PUT(self):
        number = int(self.path.removeprefix("/projects/12/merge_requests/7/notes/"))
        self.change(lambda body: self.comments[number].update(body=body))

    def is_known(self):
        return self.headers["PRIVATE-TOKEN"] == "secret"


def test_comment_on_gitlab_written_once_then_updated(tmp_path):
    (tmp_path / "out").mkdir()
    notes = [{"id": 0, "body": "<!-- memprof-gate -->\nmine!", "author": {"id": 1}}]
    handler = type("Handler", (FakeGitLab,), {"comments": notes})
    said = []
    with served(handler) as url:
        words = {"CI_API_V4_URL": url, "CI_PROJECT_ID": "12", "MEMPROF_OUT": "out"}
        words["MEMPROF_COMMENT_TOKEN"] = "secret"
        for word, number in (("fine", "7"), ("worse", ""), ("worse", "7"), ("fine", "7")):
            (tmp_path / "out/gate.md").write_text(f"### memprof gate: {word}\n")
            said.append(comment(tmp_path, **words, CI_MERGE_REQUEST_IID=number))
        handler.denied = True
        said.append(comment(tmp_path, **{**words, "CI_MERGE_REQUEST_IID": "7", "MEMPROF_NAME": "other"}))
        (tmp_path / "out/gate.md").write_text("### memprof gate: worse\n")
        said.append(comment(tmp_path, **words, CI_MERGE_REQUEST_IID="7"))

    assert [done.returncode for done in said] == [0] * 6, [done.stderr for done in said]
    assert [done.stdout.split(":")[0].strip() for done in said] == [
        "the verdict is fine, as before",
        "no open merge request has this commit",
        "wrote the comment on merge request 7",
        "updated the comment on merge request 7",
        "the verdict is fine, as before",
        "this token may not comment (a fork's may not)",
    ]
    assert [note["body"] for note in notes[1:]] == ["<!-- memprof-gate -->\n### memprof gate: fine\n"]


EVIL = """@everyone <!-- memprof-gate --> ![x](http://e/x.png) [y](http://e) <img src=x> <details><summary>s</summary>kept</details>
[a link][1] and [1] and \\[z](http://e)

[1]: http://e "t"
see https://e.org/x and www.e.org and HTTP://e and <http://e> and me@e.org
#1 o/r#2 GH-3 gh-4 &#64;everyone &#x40;everyone &commat;everyone \\@everyone \uff20x
/merge
  /lgtm
- /close
> /approve
```mermaid
graph
```
~~~
/merge
~~~
`@everyone` \\`#5\\`
"""


def test_comment_neutralizes_hostile_report(github):
    _, comments = github(EVIL, MEMPROF_PR="7")

    body = comments[-1]["body"]
    shown = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(body)
    assert body.count("<!--") == 1
    assert set(re.findall(r"</?(\w+)", shown)) <= {"p", "details", "summary", "ul", "li", "blockquote"}
    text = html.unescape(re.sub(r"<[^>]*>", "", shown))  # what GitHub looks for mentions and references in
    for acts in (r"@\w", r"#\d", r"(?i)gh-\d", r"(?i)https?://", r"www\.", r"(?m)^[\s>*+-]*/\w"):
        assert not re.search(acts, text), acts
        assert not re.search(acts, body), acts
    assert "<details><summary>s</summary>kept</details>" in body


def test_comment_shows_own_report_unchanged(github):
    base, head = (baseline.entries(runs("a|b`c_[x]", extra_mib=[more + extra for extra in STEADY])) for more in (0, 10))
    report = gate.render(Report("head against base", verdicts.worst_first(verdicts.judge(base, head))))
    _, comments = github(report, MEMPROF_PR="7")

    render = MarkdownIt("commonmark").enable("table").render
    shown, wanted = (
        html.unescape(render(text)).replace("\u200b", "") for text in (comments[-1]["body"], "<!-- memprof-gate -->\n" + report)
    )
    assert shown == wanted


def test_comment_per_matrix_job(github):
    for name, text in (("arm", "1"), ("x86/64 -->", "2"), ("memprof-gate", "3"), ("arm", "4")):
        done, comments = github(text, MEMPROF_PR="7", MEMPROF_NAME=name)
        assert done.returncode == 0, done.stderr

    assert [comment["body"] for comment in comments[120:]] == [
        "<!-- memprof-gate arm -->\n`arm`\n\n4",
        "<!-- memprof-gate x86-64- -->\n`x86-64-`\n\n2",
        "<!-- memprof-gate -->\n3",
    ]


NOWHERE = {
    "GITHUB_API_URL": "http://127.0.0.1:9",
    "GITHUB_REPOSITORY": "o/r",
    "GITHUB_TOKEN": "t",
    "MEMPROF_OUT": "out",
    "MEMPROF_PR": "7",
}


def test_comment_refuses_pipe_as_report(github, tmp_path):
    github("x", MEMPROF_PR="7")
    (tmp_path / "out/gate.md").unlink()
    os.mkfifo(tmp_path / "out/gate.md")

    done = comment(tmp_path, **NOWHERE)

    assert (done.returncode, "is not a file" in done.stderr) == (5, True)


def test_comment_report_too_long_or_missing(github, tmp_path):
    _, comments = github("<details>\n" + "0123456789\n" * 10_000, MEMPROF_PR="7")
    assert len(comments[-1]["body"]) < 65_536
    assert comments[-1]["body"].endswith("</details>\n\nCut: the whole report is in the job's summary.\n")

    (tmp_path / "secret").write_text("x")
    (tmp_path / "out/gate.md").unlink()
    (tmp_path / "out/gate.md").symlink_to(tmp_path / "secret")
    assert comment(tmp_path, **NOWHERE).stderr == "memprof gate: out/gate.md: Too many levels of symbolic links\n"
    (tmp_path / "out/gate.md").unlink()
    assert comment(tmp_path, **NOWHERE).returncode == 5
    (tmp_path / "out/gate.md").write_text("x")
    unreachable = comment(tmp_path, **NOWHERE)
    assert (unreachable.returncode, unreachable.stderr.count("\n")) == (5, 1)


@pytest.mark.long
def test_own_gate_fails_worse_build(tmp_path):
    """The measured side made to hold 8 MiB more in every child: through the same recipe, suite and budgets that CI runs."""
    if find_spec("onnx") is None or find_spec("onnxruntime") is None:
        pytest.skip("onnx and onnxruntime are not installed")
    shutil.copytree(CI, tmp_path / "ci", ignore=shutil.ignore_patterns("bench"))
    command(tmp_path, 'export PYTHONPATH="$WORSE"')
    first = subprocess.run(
        [tmp_path / "ci/gate-self", "--update"],
        env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "WORSE": str(tmp_path / "nothing")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert first.returncode == 0, first.stderr
    shutil.copytree(Path(baseline.__file__).parents[1], tmp_path / "worse/memprof")
    # A small file: what its source takes while Python compiles it is part of the difference.
    part = tmp_path / "worse/memprof/runners/constant_path.py"
    part.write_text(part.read_text() + "\n\n_KEPT = b'x' * (8 << 20)\n")

    own = tmp_path / "ci/gate-self"
    worse = script(own, tmp_path, WORSE=tmp_path / "worse", MEMPROF_ARGS="--threshold 3% --threshold 1MiB")

    assert worse.returncode == 1, worse.stdout + worse.stderr
    rows = json.loads((tmp_path / "gate/out/gate.json").read_text())["rows"]
    startup = {row["model"]: row for row in rows if (row["phase"], row["metric"], row["budget"]) == ("STARTUP", "rss_peak_bytes", None)}
    assert {model: row["verdict"] for model, row in startup.items()} == {"scenario.json": "regressed", "mlp.onnx": "regressed"}
    assert startup["scenario.json"]["difference"] == pytest.approx(8 << 20, abs=2 * NEAR)


def test_recipe_arguments_on_several_lines(folder):
    words = "--threshold 20%\n  --threshold\n20MiB\n"
    done = script("gate/recipe", folder, MEMPROF_HEAD="head.jsonl", MEMPROF_BASELINE="base.json", MEMPROF_ARGS=words)

    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "### memprof gate: fine"), done.stderr


def test_recipe_refuses_trust_runs(folder):
    words = {"MEMPROF_HEAD": "head.jsonl", "MEMPROF_BASELINE": "base.json", "MEMPROF_ARGS": "--confirm\n--trust-runs"}
    done = script("gate/recipe", folder, **words)

    assert done.returncode == 2
    assert done.stdout.startswith("### memprof gate: could not be run\n\n    --trust-runs is refused in CI")


@pytest.mark.parametrize("name", ["MEMPROF_SUITE", "MEMPROF_HEAD", "MEMPROF_BASELINE", "MEMPROF_BUDGETS"])
def test_recipe_file_name_like_option(tmp_path, name):
    """A memprof that would be called leaves a file."""
    called = tmp_path / "called"
    command = tmp_path / "command"
    command.write_text(f"#!/bin/sh\ntouch '{called}'\n")
    command.chmod(0o755)
    words = {"MEMPROF_HEAD": "head.jsonl", "MEMPROF_ARGS": "--confirm", "MEMPROF": str(command), name: "--trust-runs"}
    done = script("gate/measure", tmp_path, **words)

    assert done.returncode == 0, done.stderr
    out = tmp_path / "memprof-gate"
    assert (out / "exit-code").read_text() == "2\n" and not called.exists()
    assert (out / "gate.md").read_text() == f"### memprof gate: could not be run\n\n    {name} begins with -: it names a file\n"


def test_recipe_folder_name_like_option(tmp_path):
    done = script("gate/recipe", tmp_path, MEMPROF_HEAD="head.jsonl", MEMPROF_OUT="-rf")

    assert (done.returncode, done.stderr) == (2, "memprof: MEMPROF_OUT begins with -: it names a folder\n")
