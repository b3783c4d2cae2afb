"""The search for a version: right, certain and short on figures that are made up; then on real commits and with versions that cannot be had."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support import model_inputs
from support.checkout import ENGINE, RUNTIME, SUITE, Checkout
from support.sample_runs import MIB
from support.session_cache import own_cache

from memprof.base.errors import InputError, UsageError
from memprof.campaign.progress import Silent
from memprof.programs.commands import of_words
from memprof.programs.environments import Environment
from memprof.records.types import COMMAND
from memprof.regressions.bisect import bisect, search, version_range
from memprof.regressions.bisect.bisect_request import BisectRequest
from memprof.subjects.suite import Suite, Variant
from memprof.versions import installation, packages, worktrees
from memprof.versions.pip import Listed


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_cache(monkeypatch, tmp_path / "cache")


def test_search_facts_follow_inputs(checkout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    checkout.commit(bench__suite_dot_toml=SUITE, runtime_dot_py=RUNTIME, bench__net_dot_bin="1")
    checkout.commit(engine_dot_py="1")

    def facts() -> dict[str, str]:
        return dict(version_range.of_commits(checkout.folder / "bench/suite.toml", "HEAD~1", "HEAD", None, lambda sentence: None).facts)

    first = facts()
    assert facts() == first and f"interpreter {sys.executable}" in first
    checkout.write(bench__net_dot_bin="2", runtime_dot_py=RUNTIME + "# edited")
    assert {name for name, value in facts().items() if value != first[name]} == {"model bench/net.bin", "file runtime.py"}

    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path / "base"))
    before = facts()
    user = subprocess.run([sys.executable, "-m", "site", "--user-site"], capture_output=True, text=True, check=False).stdout.strip()
    (Path(user) / "thing-2.0.dist-info").mkdir(parents=True)
    assert {name for name, value in facts().items() if value != before[name]} == {f"interpreter {sys.executable}"}

    model = tmp_path / "net.tflite"
    model.write_bytes(Path(_suite().models[0]).read_bytes())
    monkeypatch.setattr(packages.pip, "versions", lambda python, name, pre: Listed(("1.9.0", "1.8.0")))
    asked = replace(_suite(), models=(str(model),))
    then = version_range.of_releases(asked, "onnxruntime", "1.8", "1.9", False, pytest.fail)
    model.write_bytes(b"another")
    now = version_range.of_releases(asked, "onnxruntime", "1.8", "1.9", False, pytest.fail)
    assert now.key == then.key and now.facts["model net.tflite"] != then.facts["model net.tflite"]


def test_releases_in_pip_order(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ["1.10.0", "1.9.2", "1.9.1", "1.9.0", "1.8.0"]
    monkeypatch.setattr(packages.pip, "versions", lambda python, name, pre: Listed(("1.11.0rc1", *known) if pre else tuple(known)))
    opened = []

    def ensure(package: installation.PipPackage, version: str, say: object, **words: object) -> Environment:
        opened.append((package.name, version))
        return Environment(package.name, version, "3.11.7", "/env/bin/python", 0, False, {})

    monkeypatch.setattr(packages.installation, "ensure", ensure)
    wanted = version_range.of_releases(_suite(), "onnxruntime", "1.8", "1.10", False, pytest.fail)
    assert wanted.labels == ("1.8.0", "1.9.0", "1.9.1", "1.9.2", "1.10.0")
    assert version_range.of_releases(_suite(), "onnxruntime", "1.9", "1.11.0rc1", True, pytest.fail).labels == (
        "1.9.2",
        "1.10.0",
        "1.11.0rc1",
    )
    with wanted.open(1, print) as suite:
        assert (suite.variants[0].python, opened) == ("/env/bin/python", [("onnxruntime", "1.9.0")])
    again = version_range.of_releases(_suite(), "onnxruntime", "1.8", "1.10", False, pytest.fail)
    assert again.key == wanted.key and " object at " not in wanted.key, "another process asks with the same key"
    asked = replace(_suite(), models=("nope.onnx",))
    with monkeypatch.context() as patch, pytest.raises(InputError, match=r"model nope\.onnx: no such file"):
        patch.setattr(packages.pip, "versions", None)  # before pip is asked
        version_range.of_releases(asked, "onnxruntime", "1.8", "1.10", False, pytest.fail)
    with pytest.raises(UsageError, match=r"--to 1\.12: pip knows no such version of onnxruntime .* the newest are 1.8.0"):
        version_range.of_releases(_suite(), "onnxruntime", "1.8", "1.12", False, pytest.fail)
    with pytest.raises(UsageError, match=r"--from 1\.9 must be an older version than --to 1.8"):
        version_range.of_releases(_suite(), "onnxruntime", "1.9", "1.8", False, pytest.fail)


def test_yanked_release_skipped_or_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "simple/onnxruntime"
    package.mkdir(parents=True)
    marks = {"1.8.0": "", "1.9.1": ' data-yanked="breaks &lt;numpy&gt;: see 12"', "1.10.0": "", "1.11.0": ' data-yanked=""'}
    rows = [f'<a href="onnxruntime-{version}-py3-none-any.whl#sha256={"0" * 64}"{mark}>x</a>' for version, mark in marks.items()]
    (package / "index.html").write_text("<!DOCTYPE html><html><body>" + "".join(rows))
    _pip_sees(monkeypatch, INDEX_URL=(tmp_path / "simple").as_uri())

    _pip_is_asked_once(monkeypatch)
    assert version_range.of_releases(_suite(), "onnxruntime", "1.8", "1.10", False, pytest.fail).labels == ("1.8.0", "1.10.0")
    with pytest.raises(
        UsageError, match=r"--from 1\.9: onnxruntime 1\.9\.1 was yanked \(breaks <numpy>: see 12\), and a search passes over"
    ):
        version_range.of_releases(_suite(), "onnxruntime", "1.9", "1.10", False, pytest.fail)
    with pytest.raises(
        UsageError, match=r"--to 1\.11\.0: onnxruntime 1\.11\.0 was yanked, and .*; the newest others are 1\.8\.0, 1\.10\.0$"
    ):
        version_range.of_releases(_suite(), "onnxruntime", "1.8", "1.11.0", False, pytest.fail)


@pytest.mark.parametrize(
    ("suite_words", "words", "says"),
    [
        ({"set": {"mem_patern": "off"}}, {}, "onnxruntime has no knob 'mem_patern'; did you mean mem_pattern"),
        ({"set": {"arena": "sometimes"}}, {}, "arena"),
        ({"shapes": {"nothing": (1, 3)}}, {}, "has no input 'nothing'"),
        ({"variants": (Variant("tflite"),)}, {}, "open.onnx: none of the named runtimes takes it (they take .tflite)"),
        ({}, {"variant": "onnx"}, "--variant onnx: there is no such variant; there is onnxruntime"),
        ({}, {"model": "net.onnx"}, "--model net.onnx: there is no such model"),
        ({}, {"metric": "law_bytes", "vary": ("batch=1-8",)}, "--vary 'batch=1-8': write NAME=LOW..HIGH"),
        ({}, {"metric": "law_bytes", "vary": ("batch=8",)}, "nothing varies"),
        ({}, {"metric": "growth_bytes", "per": "token"}, "--per token: growth is by iteration or by reload"),
        (
            {"variants": (Variant(COMMAND, "app", command=of_words(["true"])),), "models": ()},
            {"metric": "growth_bytes", "per": "x"},
            "--per x",
        ),
    ],
)
def test_wrong_word_refused_before_environments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, suite_words: dict[str, Any], words: dict[str, Any], says: str
) -> None:
    monkeypatch.setattr(packages.pip, "versions", lambda python, name, pre: Listed(("1.9.0", "1.8.0")))
    monkeypatch.setattr(packages.installation, "ensure", lambda *words, **others: pytest.fail("an environment was made"))
    suite = replace(_suite(), models=(str(model_inputs.model(tmp_path, (None, 3))),))
    asked = version_range.of_releases(replace(suite, **suite_words), "onnxruntime", "1.8", "1.9", False, pytest.fail)

    with pytest.raises(UsageError) as refused:
        bisect.bisect_versions(BisectRequest(asked, **words), Silent(), None, pytest.fail)

    assert says in str(refused.value)


def test_refusing_index_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for version in ("1.8.0", "1.10.0"):
        (tmp_path / f"onnxruntime-{version}-py3-none-any.whl").touch()
    _pip_sees(monkeypatch, INDEX_URL="http://127.0.0.1:9/simple", FIND_LINKS=str(tmp_path), RETRIES="0")
    index = "pip could not read http://127.0.0.1:9/simple (out of reach)"
    said: list[str] = []

    with (
        monkeypatch.context() as patch,
        pytest.raises(InputError, match=re.escape(f"pip cannot tell the versions of onnxruntime: {index}")),
    ):
        patch.delenv("PIP_FIND_LINKS")
        version_range.of_releases(_suite(), "onnxruntime", "1.8", "1.10", False, pytest.fail)
    _pip_is_asked_once(monkeypatch)
    assert version_range.of_releases(_suite(), "onnxruntime", "1.8", "1.10", False, said.append).labels == ("1.8.0", "1.10.0")
    assert said == [f"{index}: releases that are only there are not searched"]
    with pytest.raises(UsageError, match=re.escape(f"; the newest are 1.8.0, 1.10.0; {index}")):
        version_range.of_releases(_suite(), "onnxruntime", "1.8", "1.12", False, pytest.fail)


def _pip_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Because it takes half a second."""
    listed = packages.pip.listed(sys.executable, "onnxruntime")
    monkeypatch.setattr(packages.pip, "listed", lambda *words: listed)


def _pip_sees(monkeypatch: pytest.MonkeyPatch, **words: str) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name, value in {"CONFIG_FILE": os.devnull, **words}.items():
        monkeypatch.setenv(f"PIP_{name}", value)


def _suite() -> Suite:
    return Suite(models=(str(Path(__file__).parents[1] / "data" / "net.pt2"),), variants=(Variant("onnxruntime", "onnxruntime"),))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "a checkout")


@pytest.mark.long
def test_bisect_builds_commits(memprof, checkout, monkeypatch) -> None:
    """Four commits, one of which cannot be built; the suite is younger than the others."""
    monkeypatch.setattr(search, "ENDS", 6)
    suite = SUITE + f"[build]\npython = {str(checkout.folder / 'quick-python')!r}\ncommand = '! grep -q broken engine.py'\n"
    for number, mib in enumerate((6, 6, 11)):
        text = ENGINE.format(mib) + f"# {number}{' broken here' if number == 1 else ''}\n"
        checkout.commit(runtime_dot_py=RUNTIME, engine_dot_py=text, bench__net_dot_bin="1")
    checkout.git("tag", "v1", "HEAD~2")
    checkout.commit(bench__suite_dot_toml=suite)

    done = memprof("bisect", "--suite", "bench/suite.toml", "--good", "v1", "--no-explain", "--json", "-o", "b.jsonl", cwd=checkout.folder)

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    hashes = checkout.git("log", "--format=%h", "--abbrev=9", "--reverse").split()
    assert told["versions"] == hashes
    (step,) = told["steps"]
    assert (step["before"], step["at"], step["between"], step["phase"]) == (hashes[0], hashes[2], [hashes[1]], "MODEL_LOAD")
    assert step["difference"] == pytest.approx(10 * MIB, abs=MIB)  # the engine holds its weights twice for a moment
    assert "cannot be built" in told["skipped"][hashes[1]] and "ended with exit code 1" in told["skipped"][hashes[1]]
    assert checkout.is_clean() and (checkout.folder / "b.jsonl").exists()

    def refuse(*words: object) -> None:
        raise AssertionError("built before")

    again = version_range.of_commits(checkout.folder / "bench/suite.toml", "v1", "HEAD", None, pytest.fail)
    monkeypatch.setattr(worktrees, "built", refuse)
    for number in (0, 2, len(hashes) - 1):
        with again.open(number, pytest.fail) as kept:
            assert kept.python is not None


def test_bisect_ignores_build_location(memprof, checkout, monkeypatch) -> None:
    monkeypatch.setattr(search, "ENDS", 6)
    python = f"python = {str(checkout.folder / 'quick-python')!r}"
    suite = f"[build]\n{python}\ncommand = 'cp hold.sh hold && chmod +x hold'\n[[variant]]\ncmd = './hold'\n"
    for mib in (4, 8):
        code = f"import time; held = b'x' * ({mib} << 20); time.sleep(0.05)"
        checkout.commit(suite_dot_toml=suite, hold_dot_sh=f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -SEc {shlex.quote(code)}\n")

    done = memprof("bisect", "--suite", "suite.toml", "--good", "HEAD~1", cwd=checkout.folder)

    assert done.returncode == 0, done.stderr
    assert "2 of 2 commits measured" in done.stdout and "differ" not in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "say what to search: --suite SUITE.toml --good REF, or --package NAME --from VERSION"),
        (["--suite", "bench/suite.toml"], 2, "--suite takes --good REF"),
        (["--suite", "bench/suite.toml", "--good", "v9"], 2, "--good v9: git knows no such commit"),
        (["--suite", "bench/suite.toml", "--good", "HEAD"], 2, "--good HEAD and --bad HEAD are the same commit"),
        (
            ["--suite", "bench/suite.toml", "--good", "HEAD", "--bad", "HEAD~1"],
            2,
            "is no ancestor of --bad HEAD~1; HEAD~1 comes before HEAD",
        ),
        (
            ["--suite", "bench/suite.toml", "--good", "HEAD~1", "--path", "docs"],
            2,
            "--path docs: no commit between HEAD~1 and HEAD touches it",
        ),
        (["--suite", "bench/suite.toml", "--good", "HEAD~1", "--path", "../x"], 2, "--path ../x lies outside of the repository /"),
        (["--suite", "bench/suite.toml", "--good", "HEAD~1", "--threads", "2"], 2, "--threads does not go with --suite"),
        (["--suite", "nowhere.toml", "--good", "HEAD~1"], 5, "suite nowhere.toml: no such file"),
        (
            ["--suite", "bench/suite.toml", "--good", "HEAD~1", "--per", "batch"],
            2,
            "--vary and --per are for --metric growth_bytes and law_bytes",
        ),
        (
            ["--suite", "bench/suite.toml", "--good", "HEAD~1", "--metric", "growth_bytes", "--at-phase", "PEAK"],
            2,
            "--at-phase does not go with",
        ),
        (["--suite", "bench/suite.toml", "--good", "HEAD~1", "--phase", "PREPARE"], 2, "it changed is --at-phase PREPARE"),
        (["--suite", "bench/suite.toml", "--good", "HEAD~1", "--", "true"], 2, "-- PROGRAM does not go with --suite: the suite says it"),
        (["--suite", "bench/suite.toml", "--good", "HEAD~1", "--with", "x"], 2, "--with does not go with --suite"),
        (["m.onnx", "--package", "onnxruntime"], 2, "--package takes --from VERSION and --to VERSION, and a MODEL or -- PROGRAM"),
        (["--package", "numpy", "--from", "1", "--to", "2"], 2, "--package numpy is measured by a MODEL"),
        (
            ["--package", "numpy", "--from", "1", "--to", "2", "--with", "numpy<2", "--", "true"],
            2,
            "that is the package whose versions are",
        ),
        (["m.onnx", "--package", "npm:x", "--from", "1", "--to", "2", "-r", "onnxruntime"], 2, "npm:x is measured by a program"),
        (["--package", "npm:../x", "--from", "1", "--to", "2", "--", "true"], 2, "write npm:NAME"),
        (["--package", "a b", "--from", "1", "--to", "2", "--", "true"], 2, "write NAME or npm:NAME"),
        (["m.onnx", "--package", "onnxrumtime", "--from", "1", "--to", "2"], 2, "did you mean onnxruntime"),
        (["m.onnx", "--package", "onnxruntime", "--from", "1", "--to", "2", "--path", "x"], 2, "--path does not go with --package"),
    ],
)
def test_bisect_refusals(memprof, checkout, words, code, says) -> None:
    checkout.commit(bench__suite_dot_toml=SUITE)
    checkout.commit(engine_dot_py="1")
    done = memprof("bisect", *words, cwd=checkout.folder)
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr


def test_path_filter_and_uncommitted_changes(checkout, monkeypatch) -> None:
    checkout.commit(bench__suite_dot_toml=SUITE)
    (checkout.folder / "src").mkdir()
    hashes = []
    for number in (1, 2, 3):
        checkout.commit(engine_dot_py=str(number), src__a_dot_py=str(number // 2))
        hashes.append(checkout.git("rev-parse", "HEAD").strip())
    said: list[str] = []

    def searched(path: str) -> tuple[str, ...]:
        return version_range.of_commits(checkout.folder / "bench/suite.toml", hashes[0], "HEAD", path, said.append).labels

    all_three, those_of_src = tuple(name[:9] for name in hashes), (hashes[0][:9], hashes[1][:9])
    for folder, path in ((".", "src"), ("bench", "../src"), ("src", "."), ("/", "src"), ("bench", str(checkout.folder / "src"))):
        monkeypatch.chdir(checkout.folder / folder)
        assert searched(path) == those_of_src, (folder, path)
    assert searched(str(checkout.folder)) == all_three
    assert not said

    checkout.write(bench__suite_dot_toml=SUITE + "# edited")
    searched("../src")
    assert not said, "the suite is taken as it is"
    checkout.write(engine_dot_py="9")
    searched("../src")
    assert said == [
        f"the checkout has changes that are in no commit: they are not measured; only {checkout.folder / 'bench/suite.toml'} is taken as it is"
    ]
