"""The recipes for CI services: every script they run, and that what their YAML says is there and safe."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from memprof.verdicts import baseline

ROOT = Path(__file__).parents[3]
CI = ROOT / "ci"
EXAMPLES = ROOT / "docs" / "examples"
YAML = sorted(path for folder in (CI, EXAMPLES) for path in folder.rglob("*") if path.suffix in (".yml", ".yaml"))
ACTIONS = {path.parent.name: path for path in YAML if path.name == "action.yml"}


def content(path):
    return yaml.safe_load(path.read_text())


def steps(path):
    """All steps of an action or a workflow."""
    action = content(path)
    if "runs" in action:
        return action["runs"]["steps"]
    return [step for job in action.get("jobs", {}).values() for step in job["steps"]]


def test_integration_files_present():
    assert set(ACTIONS) == {"action", "comment"}
    assert {str(path.relative_to(ROOT)) for path in YAML} >= {
        "ci/gitlab/memprof-gate.yml",
        "docs/examples/github/memprof-gate.yml",
        "docs/examples/github/memprof-comment.yml",
        "docs/examples/gitlab/memprof-gate.yml",
    }
    assert os.access(EXAMPLES / "shell/gate.sh", os.X_OK)


@pytest.mark.parametrize("path", YAML, ids=lambda path: str(path.relative_to(ROOT)))
def test_yaml_scripts_without_expressions(path):
    text = path.read_text()
    assert isinstance(content(path), dict)
    assert "pull_request_target" not in text
    for step in steps(path) if "gitlab" not in str(path) else []:
        # An expression inside a script is put there before the shell reads it: a branch may be called "; rm -rf /".
        assert "${{" not in step.get("run", "")
        assert ("run" in step) != ("uses" in step)
        assert "shell" in step or "uses" in step


@pytest.mark.parametrize("path", YAML, ids=lambda path: str(path.relative_to(ROOT)))
def test_scripts_named_are_executable(path):
    text = path.read_text()
    named = re.findall(r"(?:GITHUB_ACTION_PATH/\.\.|\.memprof/ci|MEMPROF_HOME/ci)/((?:gate|history)/[\w-]+)", text)
    assert named or "examples" in str(path)
    for name in named:
        assert os.access(CI / name, os.X_OK), name
    if path in ACTIONS.values():
        for step in steps(path):
            assert "run" not in step or "GITHUB_ACTION_PATH/../gate/" in step["run"], step


def test_examples_use_declared_inputs():
    for path in (EXAMPLES / "github").glob("*.yml"):
        for step in steps(path):
            match = re.fullmatch(r"OWNER/memprof/ci/(\w+)@v[0-9.]+", step.get("uses", ""))
            if match:
                known = content(ACTIONS[match[1]])["inputs"]
                given = step.get("with", {})
                assert set(given) <= set(known)
                assert {name for name, described in known.items() if described.get("required")} <= set(given)


def test_actions_use_declared_inputs():
    for path in ACTIONS.values():
        assert set(re.findall(r"inputs\.([\w-]+)", path.read_text())) <= set(content(path)["inputs"])


def test_comment_workflow_runs_no_foreign_code():
    path = EXAMPLES / "github/memprof-comment.yml"
    workflow = content(path)
    assert list(workflow[True]) == ["workflow_run"]  # YAML's `on`
    assert workflow["permissions"] == {"actions": "read", "pull-requests": "write"}
    assert [step.get("uses", "").split("@")[0] for step in steps(path)] == ["OWNER/memprof/ci/comment"]
    assert not any("checkout" in step.get("uses", "") for step in steps(ACTIONS["comment"]))
    # A run that was cancelled has no report, and GitHub calls one that nothing started "skipped".
    assert """contains(fromJSON('["success", "failure"]'), github.event.workflow_run.conclusion)""" in workflow["jobs"]["comment"]["if"]
    scripts = [step["run"] for step in steps(ACTIONS["comment"]) if "run" in step]
    assert scripts == ['"$GITHUB_ACTION_PATH/../gate/comment"']


def test_services_confirm_and_prove_by_default():
    words = {
        *re.findall(r"inputs.args \|\| \(inputs.run == '' && '(.*?)' \|\| ''\)", ACTIONS["action"].read_text()),
        content(CI / "gitlab/memprof-gate.yml")[".memprof-gate"]["variables"]["MEMPROF_ARGS"],
        *re.findall(r'MEMPROF_ARGS="(.*?)"', (EXAMPLES / "shell/gate.sh").read_text()),
    }
    assert words == {"--confirm --prove"}


def test_script_environment_documented():
    for path in (*ACTIONS.values(), CI / "gitlab/memprof-gate.yml", *(EXAMPLES / "gitlab").glob("memprof-[cg]*.yml")):
        documented = "".join((CI / "gate" / name).read_text() for name in ("install", "measure", "page", "summary", "verdict", "comment"))
        documented += "MEMPROF_URL MEMPROF_VERSION"  # the template's own
        names = set(re.findall(r"MEMPROF_\w+", path.read_text()))
        known = set(re.findall(r"MEMPROF_\w+", documented)) | {f"MEMPROF_HEAD_{name}" for name in ("OWNER", "BRANCH", "SHA")}
        assert names <= known


def test_baseline_and_budgets_of_project_readable():
    from memprof.verdicts import budgets

    assert {entry.model for entry in baseline.read(CI / "baseline.json")} == {"scenario.json", "mlp.onnx"}
    assert budgets.read(CI / "budgets.toml")
