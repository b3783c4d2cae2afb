"""`memprof bisect --package` of any package: each release in an environment of its own, which a model's runtime or a program is measured in."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from support import wheels
from support.recorder_runs import Silent
from support.session_cache import once

from memprof.base.errors import InputError, UsageError
from memprof.campaign import campaign
from memprof.growth.grow import grow
from memprof.programs import environments
from memprof.programs.commands import of_words
from memprof.records.types import COMMAND
from memprof.regressions.bisect import search, version_range
from memprof.regressions.bisect.version_range import Versions
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite, Variant
from memprof.versions import installation, packages
from memprof.versions.measurement import Selection

_BALLAST = """
held = b"x" * ({mib} << 20)
lists = []
def work(kept=b"x" * 4096):
    if {mib} > 20:
        lists.append(bytearray(kept))
"""
_NPM = """#!/bin/sh
case "$1 $2" in
"view lost") echo 'npm error code E404' >&2; echo 'npm error 404 Not Found - GET https://x/lost' >&2; exit 1 ;;
view*) echo '["1.0.0", "1.1.0-beta.1", "1.1.0", "1.2.0"]' ;;
install*)
    version=${7#*@}
    test "$version" != 1.1.0 || { echo 'npm error notarget No matching version found.' >&2; exit 1; }
    mkdir -p "$3/node_modules/.bin" "$3/node_modules/thing"
    echo "{\\"name\\": \\"thing\\", \\"version\\": \\"$version\\"}" > "$3/node_modules/thing/package.json"
    printf '#!/bin/sh\\necho of the package' > "$3/node_modules/.bin/thing" && chmod +x "$3/node_modules/.bin/thing" ;;
esac
"""


def some_wheels(folder: Path) -> None:
    """A package that holds 20 MiB, from 1.1 on 30 and a page more with each call, and its command; what it needs; a runtime."""
    for version, mib, needed in (("1.0", 20, "1.0"), ("1.1", 30, "2.0"), ("1.1.1", 30, "2.0")):
        wheels.wheel(folder, "Ballast-Box", version, {"ballast.py": _BALLAST.format(mib=mib)}, (f"needed=={needed}",))
        wheels.wheel(folder, "needed", needed, {"needed.py": ""})
    wheels.wheel(folder, "beside", "1", {"beside.py": ""})
    wheels.onnxruntime(folder, "1.30.0")
    for version in ("2.1.0", "2.2.0"):
        wheels.numpy(folder, version)


def three_environments(folder: Path) -> None:
    """The cache of a memprof that has installed the first two releases, and the first with another package beside it."""
    some_wheels(folder)
    with pytest.MonkeyPatch.context() as patch:
        wheels.only(patch, folder, folder / "cache")
        wheels.unpacked(patch, folder)
        patch.setattr(installation, "leave_page_cache", lambda folder: None)  # it waits for the disk
        for of, number in ((releases("python x"), 0), (releases("python x"), 1), (releases("python x", beside=("beside==1",)), 0)):
            with of.open(number, lambda words: None):
                pass


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip's only wheels, and an empty cache."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    some_wheels(folder)
    wheels.only(monkeypatch, folder, tmp_path / "cache")
    monkeypatch.setattr(installation, "leave_page_cache", lambda folder: None)
    monkeypatch.setattr(environments, "_held", {})
    return folder


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip's only wheels, and the cache where some of them are installed."""
    folder = once("environments of a package", three_environments)
    wheels.only(monkeypatch, folder, folder / "cache")
    monkeypatch.setattr(environments, "_held", {})
    monkeypatch.setattr(installation, "_filled", lambda *words: pytest.fail("an environment is made"))


def releases(words: str, name: str = "ballast-box", first: str = "1.0", last: str = "1.1.1", beside: tuple[str, ...] = ()) -> Versions:
    command = of_words(words.split())
    asked = Suite(variants=(Variant(COMMAND, command.name, command=command),), timeout_ns=60 * 10**9)
    return version_range.of_releases(asked, name, first, last, False, lambda words: None, beside)


@pytest.mark.long
def test_bisect_of_program(index, memprof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels.unpacked(monkeypatch, index)
    monkeypatch.setattr(search, "ENDS", 6)
    (tmp_path / "hold.py").write_text("import ballast, time; time.sleep(0.02)")
    words = ["--package", "ballast-box", "--from", "1.0", "--to", "1.1.0", "--with", "beside==1"]

    done = memprof("bisect", *words, "--json", "-o", "b.jsonl", "--", "python", "hold.py")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (step,) = told["steps"]
    assert (told["versions"], step["before"], step["at"]) == (["1.0", "1.1"], "1.0", "1.1")
    assert step["also"] == ["needed 1.0 → 2.0"]
    # 10 MiB more of a bytearray, by two looks at the program.
    grown = re.fullmatch(
        r"What changed at the peak of RUN: other blocks in use \+(\d+\.\d) MiB; all slices together .* MiB, the step .* MiB\.",
        told["sentences"][2],
    )
    assert grown is not None and 8 <= float(grown[1]) <= 11, told["sentences"]
    made = environments.of("ballast-box")
    assert [(each.version, each.requirements, each.packages["beside"]) for each in made] == [
        (version, ("beside==1",), "1") for version in ("1.1", "1.0")
    ]

    again = memprof("bisect", *words, "--no-explain", "--threshold", "100MiB", "--", "python", "hold.py")

    assert "is installed in" not in again.stderr and "There is nothing to search" in again.stdout, again.stderr
    removed = memprof("runtimes", "remove", "ballast-box@1.0")
    assert removed.stdout.startswith("ballast-box 1.0 ") and [each.version for each in environments.of("ballast-box")] == ["1.1"]


@pytest.mark.long
def test_bisect_of_growing_program(installed, memprof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With as few units and as few processes as tell growth: that the search asks for enough of them is shown where nothing is measured."""
    monkeypatch.setattr(grow, "FIRST_UNITS", 130)
    monkeypatch.setattr(search, "ENDS", 6)
    # It waits, at first and after each unit: on a busy machine the recorder may come to its looks late.
    code = """
import ballast, sys, time
time.sleep(0.2)
for number in range(int(sys.argv[1])):
    ballast.work()
    print("served", flush=True)
    time.sleep(0.001)
"""
    (tmp_path / "serve.py").write_text(code)
    words = ["--package", "ballast-box", "--from", "1.0", "--to", "1.1.0", "--metric", "growth_bytes", "--phase-regex", "request=^served"]

    done = memprof("bisect", *words, "--", "python", "serve.py", "{runs}")

    assert done.returncode == 0, done.stderr
    assert "ballast-box 1.0 -> 1.1: Growth per request 0 B -> 4." in done.stdout, done.stdout


def test_program_runs_inside_environment(installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = tmp_path / "look.py"
    look.write_text("import json, os, sys; json.dump([sys.prefix, *map(os.environ.get, sys.argv[2:])], open(sys.argv[1], 'w'))")
    out = tmp_path / "out.json"
    of = releases(f"python3 {look} {out} VIRTUAL_ENV PATH PYTHONHOME")

    with of.open(1, lambda words: None) as suite:
        monkeypatch.setenv("PYTHONHOME", "/nowhere")
        (run, *_) = campaign.measure(plan(suite).orders[:1], Silent(), lambda line: None)

    made = next(each for each in environments.of("ballast-box") if each.version == "1.1")  # the very release, though 1.1 names a line too
    prefix, virtual, path, home = json.loads(out.read_text())
    assert run.outcome.ok and (prefix, virtual, home) == (str(made.folder), str(made.folder), None)
    assert path.split(os.pathsep)[0] == str(made.folder / "bin")
    assert run.job.argv[0] == "python3" and not run.job.env, "where the environment lies is no setting"


def test_environment_found_by_all_words(installed) -> None:
    def found(beside: tuple[str, ...]) -> str:
        with releases("python x", beside=beside).open(0, lambda words: None) as suite:
            (variant,) = suite.variants
        assert variant.command is not None
        return variant.command.surroundings["PATH"].split(os.pathsep)[0]

    folders = {each.requirements: str(each.folder / "bin") for each in environments.of("ballast-box") if each.version == "1.0"}
    assert {words: found(words) for words in ((), ("beside==1",))} == folders


@pytest.mark.long
def test_package_beside_runtime(index, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"\0")
    asked = Suite(models=(str(tmp_path / "net.onnx"),), variants=(Variant("onnxruntime@1.30.0"),))

    of = version_range.of_releases(asked, "numpy", "2.1", "2.2", False, lambda words: None)

    with of.open(0, lambda words: None) as suite:
        (order, *_) = plan(suite).orders
        (variant,) = suite.variants
    (made,) = environments.of("numpy")
    assert (variant.runtime, variant.name, variant.python) == ("onnxruntime", "onnxruntime", made.interpreter)
    assert (order.runtime.version, made.packages["numpy"]) == ("1.30.0", "2.1.0")
    assert "onnxruntime==1.30.0" in made.requirements and not environments.of("onnxruntime")
    assert of.travels is not None
    with of.travels(Selection(), lambda words: None) as travelling:
        there = travelling.asked({"2.1.0": (1, 2)}, {}, None)
    assert [(each.runtime, each.name) for each in there.suite.variants] == [("onnxruntime@1.30.0", "2.1.0")]
    assert (there.sought.package, there.sought.variant) == ("numpy", "onnxruntime")


@pytest.mark.parametrize(
    ("variant", "name", "beside", "says"),
    [
        (Variant("onnxruntime@1.30.0"), "onnxruntime", (), "the releases of onnxruntime are searched; write -r onnxruntime"),
        (Variant("onnxruntime@1.30.0"), "numpy", ("onnxruntime<2",), "the version of onnxruntime is given twice"),
        (Variant("nnxruntime"), "numpy", (), "there is no runtime 'nnxruntime' to install; did you mean onnxruntime"),
        (None, "onnxrumtime", (), "--package onnxrumtime is measured by a MODEL .*; did you mean onnxruntime"),
    ],
)
def test_release_words_refused(variant, name, beside, says) -> None:
    asked = Suite(models=("net.onnx",), variants=(variant,) if variant else ())
    with pytest.raises(UsageError, match=says):
        version_range.of_releases(asked, name, "1", "2", False, print, beside)


def test_distribution_is_its_runtime() -> None:
    by_name, by_distribution = (packages.runtime_of(name) for name in ("litert", "AI-Edge_LiteRT"))

    assert by_name is not None and by_name == by_distribution == installation.known("litert")
    assert packages.runtime_of("faster-whisper") is None


# -- npm


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up npm and node on PATH, and an empty cache."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name, text in (("npm", _NPM), ("node", "#!/bin/sh\necho v20.1.0\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(environments, "_held", {})
    return folder


def test_npm_release_installed_once(npm) -> None:
    said: list[str] = []
    of = releases("thing --fast", "npm:thing", "1.0", "1.2.0")
    assert of.labels == ("1.0.0", "1.1.0", "1.2.0") and of.facts["node"] == "v20.1.0"

    for _ in range(2):
        with of.open(2, said.append) as suite:
            (run, *_) = campaign.measure(plan(suite).orders[:1], Silent(), lambda line: None)

    (made,) = environments.every()
    assert run.outcome.ok and run.job.program.path == str(made.folder / "node_modules/.bin/thing")
    (variant,) = suite.variants
    assert variant.command.surroundings["NODE_PATH"] == str(made.folder / "node_modules")
    assert (made.runtime, made.version, made.python, made.packages) == ("npm:thing", "1.2.0", "v20.1.0", {"thing": "1.2.0"})
    assert said[0] == "npm:thing 1.2.0: npm installs it" and len(said) == 2
    with pytest.raises(InputError, match=r"^npm:thing 1\.1\.0: No matching version found\.$"), of.open(1, said.append):
        pass
    assert installation.remove("npm:thing@1.2.0") == [made] and environments.every() == []


def test_files_of_program_are_facts(npm, tmp_path: Path) -> None:
    script = tmp_path / "a.js"
    script.write_text("1")

    def facts() -> set[tuple[str, str]]:
        return set(releases(f"node {script} {'x' * 5000}", "npm:thing", "1.0", "1.2.0").facts.items())

    first = facts()
    assert facts() == first
    script.write_text("2")
    assert {name for name, _ in facts() - first} == {f"file {script}"}


def test_npm_pre_releases_and_unknown_package(npm) -> None:
    asked = Suite(variants=(Variant(COMMAND, "x", command=of_words(["x"])),))
    of = version_range.of_releases(asked, "npm:@of/thing", "1.0", "1.2", True, print)
    assert of.labels == ("1.0.0", "1.1.0-beta.1", "1.1.0", "1.2.0")
    with pytest.raises(UsageError, match=r"--to 2: npm knows no such version of @of/thing; the newest are 1\.0\.0"):
        version_range.of_releases(asked, "npm:@of/thing", "1.0", "2", False, print)
    with pytest.raises(InputError, match=r"^npm cannot tell the versions of lost: Not Found - GET https://x/lost$"):
        version_range.of_releases(asked, "npm:lost", "1.0", "1.2", False, print)


def test_missing_npm_named(npm, monkeypatch: pytest.MonkeyPatch) -> None:
    (npm / "npm").unlink()
    monkeypatch.setenv("PATH", str(npm))
    with pytest.raises(InputError, match=r"^--package npm:NAME takes node and npm, and there is no npm on PATH$"):
        releases("thing", "npm:thing", "1.0", "1.2")


def test_scoped_name_parsed() -> None:
    cases = {"npm:@of/thing@1.2": ("npm:@of/thing", "1.2"), "npm:thing": ("npm:thing", None), "a==1.0": ("a", "1.0"), "a@2": ("a", "2")}
    assert {text: installation.parse(text) for text in cases} == cases
