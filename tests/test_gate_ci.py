"""The recipes for CI services: every script they run, and that what their YAML says is there and safe."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from conftest import need_tool
from failing import NEAR
from made import runs
from markdown_it import MarkdownIt

from memprof.judge import baseline, verdicts
from memprof.judge.verdicts import Report
from memprof.reports.tables import gate
from memprof.runs import store

CI = Path(__file__).parents[1] / "ci"
YAML = sorted(path for path in CI.rglob("*") if path.suffix in (".yml", ".yaml"))
ACTIONS = {path.parent.name: path for path in YAML if path.name == "action.yml"}
STEADY = (0, 0.1, 0.2, 0.3, 0.4)


def content(path):
    return yaml.safe_load(path.read_text())


def steps(path):
    """All steps of an action or a workflow."""
    action = content(path)
    if "runs" in action:
        return action["runs"]["steps"]
    return [step for job in action.get("jobs", {}).values() for step in job["steps"]]


# -- what the YAML says


def test_there_is_an_action_a_template_and_an_example_of_each():
    assert set(ACTIONS) == {"action", "comment"}
    assert {str(path.relative_to(CI)) for path in YAML} >= {
        "gitlab/memprof-gate.yml",
        "examples/github/memprof-gate.yml",
        "examples/github/memprof-comment.yml",
        "examples/gitlab/.gitlab-ci.yml",
    }
    assert os.access(CI / "examples/shell/gate.sh", os.X_OK)


@pytest.mark.parametrize("path", YAML, ids=lambda path: str(path.relative_to(CI)))
def test_yaml_is_whole_and_runs_nothing_with_a_strangers_words(path):
    text = path.read_text()
    assert isinstance(content(path), dict)
    assert "pull_request_target" not in text
    for step in steps(path) if "gitlab" not in str(path) else []:
        # An expression inside a script is put there before the shell reads it: a branch may be called "; rm -rf /".
        assert "${{" not in step.get("run", "")
        assert ("run" in step) != ("uses" in step)
        assert "shell" in step or "uses" in step


@pytest.mark.parametrize("path", YAML, ids=lambda path: str(path.relative_to(CI)))
def test_every_script_that_is_named_exists_and_can_be_run(path):
    text = path.read_text()
    named = re.findall(r"(?:GITHUB_ACTION_PATH/\.\.|\.memprof/ci|MEMPROF_HOME/ci)/((?:gate|history)/[\w-]+)", text)
    assert named or "examples" in str(path)
    for name in named:
        assert os.access(CI / name, os.X_OK), name
    if path in ACTIONS.values():
        for step in steps(path):
            assert "run" not in step or "GITHUB_ACTION_PATH/../gate/" in step["run"], step


def test_the_examples_use_inputs_that_the_actions_have():
    for path in (CI / "examples/github").glob("*.yml"):
        for step in steps(path):
            match = re.fullmatch(r"OWNER/memprof/ci/(\w+)@v[0-9.]+", step.get("uses", ""))
            if match:
                known = content(ACTIONS[match[1]])["inputs"]
                given = step.get("with", {})
                assert set(given) <= set(known)
                assert {name for name, described in known.items() if described.get("required")} <= set(given)


def test_the_actions_use_only_inputs_that_they_have():
    for path in ACTIONS.values():
        assert set(re.findall(r"inputs\.([\w-]+)", path.read_text())) <= set(content(path)["inputs"])


def test_the_workflow_that_may_write_takes_nothing_from_the_pull_request_but_a_text():
    path = CI / "examples/github/memprof-comment.yml"
    workflow = content(path)
    assert list(workflow[True]) == ["workflow_run"]  # YAML's `on`
    assert workflow["permissions"] == {"actions": "read", "pull-requests": "write"}
    assert [step.get("uses", "").split("@")[0] for step in steps(path)] == ["OWNER/memprof/ci/comment"]
    assert not any("checkout" in step.get("uses", "") for step in steps(ACTIONS["comment"]))
    # A run that was cancelled has no report, and GitHub calls one that nothing started "skipped".
    assert """contains(fromJSON('["success", "failure"]'), github.event.workflow_run.conclusion)""" in workflow["jobs"]["comment"]["if"]
    scripts = [step["run"] for step in steps(ACTIONS["comment"]) if "run" in step]
    assert scripts == ['"$GITHUB_ACTION_PATH/../gate/comment"']


def test_every_service_confirms_and_proves_unless_told_otherwise():
    words = {
        content(ACTIONS["action"])["inputs"]["args"]["default"],
        content(CI / "gitlab/memprof-gate.yml")[".memprof-gate"]["variables"]["MEMPROF_ARGS"],
        *re.findall(r'MEMPROF_ARGS="(.*?)"', (CI / "examples/shell/gate.sh").read_text()),
    }
    assert words == {"--confirm --prove"}


def test_the_environment_of_the_scripts_is_the_one_they_document():
    for path in (*ACTIONS.values(), CI / "gitlab/memprof-gate.yml", CI / "examples/gitlab/.gitlab-ci.yml"):
        documented = "".join((CI / "gate" / name).read_text() for name in ("install", "measure", "page", "summary", "verdict", "comment"))
        documented += "MEMPROF_URL MEMPROF_VERSION"  # the template's own
        names = set(re.findall(r"MEMPROF_\w+", path.read_text()))
        known = set(re.findall(r"MEMPROF_\w+", documented)) | {f"MEMPROF_HEAD_{name}" for name in ("OWNER", "BRANCH", "SHA")}
        assert names <= known


# -- the scripts


@pytest.fixture
def folder(tmp_path):
    """base.jsonl and base.json, head.jsonl (worse), same.jsonl, few.jsonl; and memprof as a command on the PATH."""
    for name, extra in (("base", STEADY), ("same", STEADY), ("head", [10 + extra for extra in STEADY]), ("few", STEADY[:3])):
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(map(store.encode, runs(extra_mib=extra))))
    baseline.update(tmp_path / "base.json", baseline.entries(runs()))
    command(tmp_path)
    return tmp_path


def command(folder, before=""):
    (folder / "bin").mkdir()
    (folder / "bin/memprof").write_text(f'#!/bin/sh\n{before}\nexec {sys.executable!r} -m memprof "$@"\n')
    (folder / "bin/memprof").chmod(0o755)


def script(name, folder, **variables):
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("MEMPROF", "GITHUB"))}
    environment = {**clean, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **{key: str(value) for key, value in variables.items()}}
    return subprocess.run([CI / name], cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("head", "more", "code", "title"),
    [
        ("same", {}, 0, "### memprof gate: fine"),
        ("head", {}, 1, "### memprof gate: worse"),
        ("few", {}, 3, "### memprof gate: undecided"),
        ("few", {"MEMPROF_UNDECIDED": "pass"}, 0, "### memprof gate: undecided"),
        ("none", {}, 5, "### memprof gate: could not be run"),
    ],
)
def test_the_shell_recipe_shows_the_report_and_ends_with_the_verdict(folder, head, more, code, title):
    done = script("gate/recipe", folder, MEMPROF_HEAD=f"{head}.jsonl", MEMPROF_BASELINE="base.json", **more)

    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines()[0] == title
    out = folder / "memprof-gate"
    assert (out / "exit-code").exists() and (out / "gate.md").read_text() == done.stdout
    if head != "none":
        assert json.loads((out / "gate.json").read_text())["exit_code"] == (3 if head == "few" else code)
        assert (out / "page.html").stat().st_size > 100_000
        assert (out / "gate.xml").exists()
    else:
        assert "none.jsonl: No such file or directory" in done.stdout


def test_on_github_the_report_goes_to_the_summary_and_annotations_to_the_log(folder):
    script("gate/measure", folder, MEMPROF_HEAD="head.jsonl", MEMPROF_BASELINE="base.json")
    done = script("gate/summary", folder, GITHUB_STEP_SUMMARY=folder / "summary.md")

    assert (folder / "summary.md").read_text().startswith("### memprof gate: worse")
    assert done.stdout.count("::error title=memprof%3A regressed::") == 1


def test_a_second_measurement_takes_the_place_of_the_first(folder):
    script("gate/measure", folder, MEMPROF_HEAD="head.jsonl", MEMPROF_BASELINE="base.json")
    done = script("gate/recipe", folder, MEMPROF_HEAD="none.jsonl", MEMPROF_BASELINE="base.json")

    assert done.returncode == 5
    assert not (folder / "memprof-gate/gate.json").exists()


def test_install_makes_an_environment_with_memprof(tmp_path):
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
    assert Path((tmp_path / "path.txt").read_text().strip()) == tmp_path / ".memprof-venv/bin"
    assert (tmp_path / ".memprof-venv/.gitignore").read_text() == "*\n"


def git(folder, *words):
    need_tool("git")
    identity = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


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
    for size in (20, 26):
        (folder / "bench/net.json").write_text(json.dumps({"load": [{"allocate": "w", "bytes": size << 20}]}))
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", "one")
    return folder


def test_a_shallow_clone_fetches_the_base_it_needs(folder, repository):
    clone = folder / "clone"
    subprocess.run(["git", "clone", "-q", "--depth", "1", repository.as_uri(), str(clone)], check=True)
    base = subprocess.run(["git", "-C", str(repository), "rev-parse", "HEAD~1"], capture_output=True, text=True, check=True).stdout.strip()

    done = script("gate/recipe", folder, MEMPROF_SUITE="clone/bench/suite.toml", MEMPROF_BASE_REF=base, MEMPROF_OUT="clone/out")

    assert done.returncode == 1, done.stderr
    status = subprocess.run(["git", "-C", str(clone), "status", "--porcelain"], capture_output=True, text=True, check=True).stdout
    assert status == ""  # what the recipe makes in the checkout is no new file of it
    assert re.search(r"\+(5\.9|6\.[01]) MiB", done.stdout), done.stdout
    assert {path.name for path in (clone / "out").iterdir()} >= {"head.jsonl", "head.base.jsonl", "page.html"}


def test_the_example_of_the_shell_recipe_is_complete(repository, tmp_path):
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/memprof").write_text(f'#!/bin/sh\nexec {sys.executable!r} -m memprof "$@"\n')
    (tmp_path / "venv/bin/memprof").chmod(0o755)
    variables = {"MEMPROF_HOME": str(CI.parent), "MEMPROF_VENV": str(tmp_path / "venv"), "MEMPROF_BASE_REF": "main"}

    done = subprocess.run(
        [CI / "examples/shell/gate.sh"], cwd=repository, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "were seen; the same build measured twice was silent" in done.stdout


# -- the comment


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

    def change(self, write):
        assert self.headers["Authorization"] == "Bearer secret"
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
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

        def call(report, denied=False, **variables):
            handler.denied = denied
            (tmp_path / "out").mkdir(exist_ok=True)
            (tmp_path / "out/gate.md").write_text(report)
            url = f"http://127.0.0.1:{server.server_port}"
            words = {"GITHUB_API_URL": url, "GITHUB_REPOSITORY": "o/r", "GITHUB_TOKEN": "secret", "MEMPROF_OUT": "out", **variables}
            done = script("gate/comment", tmp_path, **words)
            return done, handler.comments

        yield call
        server.shutdown()


def test_a_comment_is_written_once_and_then_updated(github):
    done, comments = github("first", MEMPROF_PR="7")
    assert (done.returncode, done.stdout) == (0, "wrote the comment on pull request 7\n"), done.stderr
    assert (len(comments), comments[-1]["body"]) == (121, "<!-- memprof-gate -->\nfirst")

    done, comments = github("second", MEMPROF_PR="7")
    assert done.stdout == "updated the comment on pull request 7\n"
    assert (len(comments), comments[-1]["body"]) == (121, "<!-- memprof-gate -->\nsecond")
    assert comments[0]["body"].endswith("mine!")  # a person's, with the same marker


def test_a_forks_pull_request_is_found_by_what_github_says_of_the_commit(github):
    of_a_fork = {"MEMPROF_HEAD_OWNER": "stranger", "MEMPROF_HEAD_BRANCH": "fix", "MEMPROF_HEAD_SHA": "abc"}
    done, comments = github("report", **of_a_fork)
    assert done.stdout == "wrote the comment on pull request 7\n"

    done, comments = github("report", **{**of_a_fork, "MEMPROF_HEAD_SHA": "closed"})
    assert (done.returncode, len(comments)) == (0, 121)
    done, comments = github("report", **{**of_a_fork, "MEMPROF_HEAD_BRANCH": "fix&state=all"})
    assert (done.returncode, done.stdout[:20], len(comments)) == (0, "no open pull request", 121)
    done, comments = github("report")
    assert (done.returncode, len(comments)) == (0, 121)


def test_a_token_that_may_not_write_is_no_failure(github):
    done, _ = github("report", denied=True, MEMPROF_PR="7")

    assert (done.returncode, "may not comment" in done.stdout) == (0, True)


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


def test_a_strangers_report_acts_on_nobody(github):
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


def test_a_report_of_memprof_is_shown_as_it_is(github):
    base, head = (baseline.entries(runs("a|b`c_[x]", extra_mib=[more + extra for extra in STEADY])) for more in (0, 10))
    report = gate.render(Report("head against base", verdicts.worst_first(verdicts.judge(base, head))))
    _, comments = github(report, MEMPROF_PR="7")

    render = MarkdownIt("commonmark").enable("table").render
    shown, wanted = (
        html.unescape(render(text)).replace("\u200b", "") for text in (comments[-1]["body"], "<!-- memprof-gate -->\n" + report)
    )
    assert shown == wanted


def test_each_job_of_a_matrix_has_its_own_comment(github):
    for name, text in (("arm", "1"), ("x86/64 -->", "2"), ("memprof-gate", "3"), ("arm", "4")):
        done, comments = github(text, MEMPROF_PR="7", MEMPROF_NAME=name)
        assert done.returncode == 0, done.stderr

    assert [comment["body"] for comment in comments[120:]] == [
        "<!-- memprof-gate arm -->\n`arm`\n\n4",
        "<!-- memprof-gate x86-64- -->\n`x86-64-`\n\n2",
        "<!-- memprof-gate -->\n3",
    ]


def test_a_pipe_in_the_reports_place_is_not_waited_for(github, tmp_path):
    github("x", MEMPROF_PR="7")
    (tmp_path / "out/gate.md").unlink()
    os.mkfifo(tmp_path / "out/gate.md")

    words = {
        "GITHUB_API_URL": "http://127.0.0.1:9",
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_TOKEN": "t",
        "MEMPROF_OUT": "out",
        "MEMPROF_PR": "7",
    }
    done = script("gate/comment", tmp_path, **words)

    assert (done.returncode, "is not a file" in done.stderr) == (5, True)


def test_a_report_that_is_too_long_is_cut_and_one_that_is_missing_is_said(github, tmp_path):
    _, comments = github("<details>\n" + "0123456789\n" * 10_000, MEMPROF_PR="7")
    assert len(comments[-1]["body"]) < 65_536
    assert comments[-1]["body"].endswith("</details>\n\nCut: the whole report is in the job's summary.\n")

    (tmp_path / "secret").write_text("x")
    (tmp_path / "out/gate.md").unlink()
    (tmp_path / "out/gate.md").symlink_to(tmp_path / "secret")
    words = {
        "GITHUB_API_URL": "http://127.0.0.1:9",
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_TOKEN": "t",
        "MEMPROF_OUT": "out",
        "MEMPROF_PR": "7",
    }
    assert script("gate/comment", tmp_path, **words).returncode == 5
    (tmp_path / "out/gate.md").unlink()
    assert script("gate/comment", tmp_path, **words).returncode == 5
    (tmp_path / "out/gate.md").write_text("x")
    unreachable = script("gate/comment", tmp_path, **words)
    assert (unreachable.returncode, unreachable.stderr.count("\n")) == (5, 1)


# -- this project's own gate


@pytest.mark.long
def test_a_deliberately_worse_build_of_memprof_fails_this_projects_own_gate(tmp_path):
    """The measured side made to hold 8 MiB more in every child: through the same recipe, suite and budgets that CI runs."""
    if find_spec("onnx") is None or find_spec("onnxruntime") is None:
        pytest.skip("onnx and onnxruntime are not installed")
    shutil.copytree(CI, tmp_path / "ci", ignore=shutil.ignore_patterns("bench"))
    command(tmp_path, 'export PYTHONPATH="$WORSE"')
    good, words = tmp_path / "nothing", {"MEMPROF_ARGS": "--threshold 3% --threshold 1MiB"}
    first = subprocess.run(
        [tmp_path / "ci/gate-self", "--update"],
        env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "WORSE": str(good)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert first.returncode == 0, first.stderr
    shutil.copytree(Path(baseline.__file__).parents[1], tmp_path / "worse/memprof")
    marks = tmp_path / "worse/memprof/runners/marks.py"
    marks.write_text(marks.read_text() + "\n\n_KEPT = b'x' * (8 << 20)\n")

    own = tmp_path / "ci/gate-self"
    same, worse = (script(own, tmp_path, WORSE=where, **words) for where in (good, tmp_path / "worse"))

    assert same.returncode == 0, same.stdout + same.stderr
    assert worse.returncode == 1, worse.stdout + worse.stderr
    rows = json.loads((tmp_path / "gate/out/gate.json").read_text())["rows"]
    startup = {row["model"]: row for row in rows if (row["phase"], row["metric"], row["budget"]) == ("STARTUP", "rss_peak_bytes", None)}
    assert {model: row["verdict"] for model, row in startup.items()} == {"scenario.json": "regressed", "mlp.onnx": "regressed"}
    assert startup["scenario.json"]["difference"] == pytest.approx(8 << 20, abs=2 * NEAR)


def test_this_projects_baseline_and_budgets_can_be_read():
    from memprof.judge import budgets

    assert {entry.model for entry in baseline.read(CI / "baseline.json")} == {"scenario.json", "mlp.onnx"}
    assert budgets.read(CI / "budgets.toml")


def test_words_on_several_lines_all_reach_the_gate(folder):
    words = "--threshold 20%\n  --threshold\n20MiB\n"
    done = script("gate/recipe", folder, MEMPROF_HEAD="head.jsonl", MEMPROF_BASELINE="base.json", MEMPROF_ARGS=words)

    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "### memprof gate: fine"), done.stderr


def test_no_runs_file_is_trusted_in_ci(folder):
    words = {"MEMPROF_HEAD": "head.jsonl", "MEMPROF_BASELINE": "base.json", "MEMPROF_ARGS": "--confirm\n--trust-runs"}
    done = script("gate/recipe", folder, **words)

    assert done.returncode == 2
    assert done.stdout.startswith("### memprof gate: could not be run\n\n    --trust-runs is refused in CI")


@pytest.mark.parametrize("name", ["MEMPROF_SUITE", "MEMPROF_HEAD", "MEMPROF_BASELINE", "MEMPROF_BUDGETS"])
def test_no_file_s_name_is_an_option_in_ci(tmp_path, name):
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


def test_a_folder_s_name_is_no_option_in_ci(tmp_path):
    done = script("gate/recipe", tmp_path, MEMPROF_HEAD="head.jsonl", MEMPROF_OUT="-rf")

    assert (done.returncode, done.stderr) == (2, "memprof: MEMPROF_OUT begins with -: it names a folder\n")
