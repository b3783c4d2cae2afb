"""Environments of memprof's own: made whole or not at all, found by name and version, kept within a size, removed when nobody uses them."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from support import wheels
from support.local_server import served
from support.recorder_runs import wait_for
from support.session_cache import once

from memprof.base import cache_folders
from memprof.base.errors import InputError, UsageError
from memprof.base.leftovers import end_leftovers
from memprof.programs import environments
from memprof.programs.environments import Environment
from memprof.records import store
from memprof.versions import installation, pip

pytestmark = pytest.mark.xdist_group("environments")  # one worker makes what its tests share

ENOUGH = SimpleNamespace(total=1 << 40, used=0, free=1 << 40)


def some_wheels(folder: Path) -> None:
    for version in ("1.16.1", "1.17.1", "1.17.3", "1.31.0"):
        wheels.onnxruntime(folder, version)
    for version in ("1.26.4", "2.1.0"):
        wheels.numpy(folder, version)


def two_versions(folder: Path) -> None:
    """Both versions are installed: the cache of a memprof that did so, and what it said."""
    some_wheels(folder)
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        wheels.only(patch, folder, folder / "cache")
        for version in ("1.17", "1.31.0"):
            installation.install(installation.Wish("onnxruntime", version), said.append, lambda estimate: said.append("asked"))
    (folder / "said.json").write_text(json.dumps(said))


@pytest.fixture(scope="module")
def two() -> Path:
    return once("environments of two versions", two_versions)


@pytest.fixture
def installed(two: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    wheels.only(monkeypatch, two, two / "cache")
    return two


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for wheels, with an empty cache."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheels.only(monkeypatch, folder, tmp_path / "cache")
    return folder


def left(cache: Path) -> list[str]:
    """What is in the folder of environments, its locks aside."""
    with environments.locked(
        "onnxruntime", lambda sentence: None
    ):  # another worker that makes one in the same cache has a half-made one there
        return _there(cache)


def _there(cache: Path) -> list[str]:
    folder = cache / "memprof" / "environments"
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock") if folder.exists() else []


def test_install_estimate_before_consent(two):
    said = json.loads((two / "said.json").read_text())

    assert said[1] == "asked" and said[0].startswith("onnxruntime 1.17.3: 2 packages, ")
    assert "to download" in said[0] and "on the disk" in said[0] and "at 10 MB/s" in said[0]


def test_install_downgrades_numpy(two, installed):
    said = json.loads((two / "said.json").read_text())
    packages = {each.version: each.packages["numpy"] for each in environments.every()}

    assert packages == {"1.17.3": "1.26.4", "1.31.0": "2.1.0"}
    assert "onnxruntime 1.17.3 cannot be imported with numpy 2.1.0: numpy 1.26.4 takes its place" in said


def test_run_compares_installed_versions(installed, memprof, tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"\0")
    words = ["-r", "onnxruntime@1.17", "-r", "onnxruntime@1.31.0", "--repeats", "1", "--warmup", "0", "-o", "runs.jsonl"]

    done = memprof("run", "net.onnx", *words)

    assert done.returncode == 0, done.stderr
    assert "| onnxruntime@1.17 " in done.stdout and "| onnxruntime@1.31.0 " in done.stdout
    runs = store.load([str(tmp_path / "runs.jsonl")]).runs
    assert [(run.job.runtime, run.about.runtime_version) for run in runs] == [("onnxruntime", "1.17.3"), ("onnxruntime", "1.31.0")]
    assert len({run.job.python for run in runs}) == 2 and all("environments" in run.job.python for run in runs)


def test_runtimes_list_environments(installed, memprof):
    text = memprof("runtimes", "onnxruntime").stdout
    (row,) = json.loads(memprof("runtimes", "onnxruntime", "--json").stdout)

    for each in environments.of("onnxruntime"):
        assert f"    {each.version} in {each.folder}, " in text and f": -r onnxruntime@{each.version}\n" in text
    assert [each["version"] for each in row["environments"]] == ["1.31.0", "1.17.3"]
    assert all(each["bytes"] > 1000 for each in row["environments"])


def test_missing_version_names_install_command(installed, memprof, tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"\0")

    done = memprof("run", "net.onnx", "-r", "onnxruntime@1.16")
    nameless = memprof("run", "net.onnx", "-r", "onnxruntime@")

    assert done.returncode == 5
    assert "onnxruntime 1.16 is in no environment of memprof's" in done.stderr
    assert "1.31.0, 1.17.3): memprof runtimes install onnxruntime==1.16" in done.stderr
    assert (nameless.returncode, nameless.stderr) == (2, "memprof: 'onnxruntime@' names no version: write onnxruntime@VERSION\n")


def test_interpreter_with_other_version_refused(installed, memprof, tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"\0")
    python = environments.of("onnxruntime", "1.31.0")[0].interpreter

    done = memprof("run", "net.onnx", "-r", "onnxruntime@1.17", "--python", python)

    assert (done.returncode, done.stderr) == (5, f"memprof: {python} has onnxruntime 1.31.0, not 1.17\n")


def test_install_reuses_environment(installed):
    before = left(installed / "cache")
    said: list[str] = []

    environment = installation.install(installation.Wish("onnxruntime", "1.17.3"), said.append, pytest.fail)

    assert environment.version == "1.17.3"
    package = installation.PipPackage.of(installation.known("onnxruntime"))
    assert installation.ensure(package, "1.31.0", said.append).interpreter.startswith(str(installed / "cache"))
    assert left(installed / "cache") == before
    assert set(said) <= {"another memprof installs onnxruntime: waiting until it is done"}  # other tests have the same cache


@pytest.mark.parametrize(
    ("name", "sentence", "code"),
    [
        (
            "onnxruntime==1.99",
            r"onnxruntime 1\.99: there is no onnxruntime==1\.99\.\* for Python .*; the newest are 1\.31\.0, 1\.17\.3, 1\.17\.1, 1\.16\.1$",
            5,
        ),
        ("onnxruntim", "there is no runtime 'onnxruntim' to install; did you mean onnxruntime", 2),
        ("synthetic", "there is no runtime 'synthetic' to install; synthetic needs no installation", 2),
        ("onnxruntime==", "'onnxruntime==': write NAME or NAME==VERSION", 2),
        ("onnxruntime==1;x", "'onnxruntime==1;x': write NAME or NAME==VERSION", 2),
    ],
)
def test_install_refusals(installed, memprof, name, sentence, code):
    done = memprof("runtimes", "install", name)

    assert done.returncode == code
    assert re.match(f"memprof: {sentence}", done.stderr) and done.stderr.count("\n") == 1


def test_install_without_matching_wheel(fresh):
    wheels.wheel(fresh, "onnxruntime", "1.31.0", {}, tag="cp27-cp27mu-win32")

    with pytest.raises(InputError, match=r"there is no wheel of onnxruntime for Python 3\.\S+ on Linux \S+; nothing was downloaded"):
        installation.install(installation.Wish("onnxruntime"), print, pytest.fail)
    assert left(fresh.parent / "cache") == []


def test_install_without_disk_space(fresh, monkeypatch):
    monkeypatch.setattr(pip, "files_for", lambda *_: [pip.Download("onnxruntime", "1.31.0", 2000, 8000)])
    monkeypatch.setattr(installation.shutil, "disk_usage", lambda path: SimpleNamespace(free=100))

    with pytest.raises(InputError, match=r"onnxruntime 1\.31\.0 needs about .* in .*, where 100 B are free; nothing was installed"):
        installation.install(installation.Wish("onnxruntime"), print, pytest.fail)
    assert left(fresh.parent / "cache") == []


def test_install_conflicting_packages(fresh):
    some_wheels(fresh)
    wheels.wheel(fresh, "strict", "1", {}, ("numpy<2",))

    with pytest.raises(InputError, match=r"the packages exclude one another: .*numpy"):
        installation.install(installation.Wish("onnxruntime", beside=("strict", "numpy>=2")), print, pytest.fail)


def test_install_removes_unimportable_runtime(fresh):
    wheels.numpy(fresh, "2.1.0")
    wheels.wheel(fresh, "onnxruntime", "1.31.0", {"onnxruntime/__init__.py": "raise OSError('libgomp.so.1: no such file')"}, ("numpy",))

    words = r"was installed, but cannot be imported: OSError: libgomp\.so\.1: no such file; the environment was removed"
    with pytest.raises(InputError, match=words):
        installation.install(installation.Wish("onnxruntime"), print, lambda estimate: None)
    assert left(fresh.parent / "cache") == []


def test_install_large_download_needs_consent(installed, memprof, monkeypatch):
    monkeypatch.setattr("memprof.doors.cli.runtimes._LARGE", 10)
    monkeypatch.setattr(pip, "files_for", lambda *_: [pip.Download("onnxruntime", "1.16.1", 2000, 8000)])
    before = left(installed / "cache")

    done = memprof("runtimes", "install", "onnxruntime==1.16")

    assert done.returncode == 5 and "to download: --yes installs it" in done.stderr
    assert left(installed / "cache") == before


@contextmanager
def index(folder: Path) -> Iterator[str]:
    """A package index whose every wheel breaks off half way, with the metadata beside it as PEP 658 has it."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "5000000")
            self.end_headers()

        def do_GET(self) -> None:
            name = self.path.rstrip("/").rpartition("/")[2]
            if name.endswith(".whl"):
                self.do_HEAD()
                self.wfile.write(b"half")
                self.close_connection = True
                return
            if name.endswith(".metadata"):
                body = f"Metadata-Version: 2.1\nName: {name.split('-')[0]}\nVersion: {name.split('-')[1]}\n"
            else:
                files = [path.name for path in folder.glob(f"{name}-*.whl")]
                body = "".join(f'<a href="/files/{file}" data-dist-info-metadata="true">{file}</a>' for file in files)
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *words: object) -> None: ...

    with served(Handler) as url:
        yield f"{url}/simple"


def test_interrupted_download_leaves_nothing(fresh, monkeypatch):
    hidden = fresh.parent / "served"
    hidden.mkdir()
    wheels.onnxruntime(hidden, "1.31.0")
    said: list[str] = []
    with index(hidden) as url:
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        for name, value in {"INDEX_URL": url, "RETRIES": "0", "RESUME_RETRIES": "0", "NO_CACHE_DIR": "1"}.items():
            monkeypatch.setenv(f"PIP_{name}", value)
        with pytest.raises(
            InputError,
            match=r"onnxruntime 1\.31\.0: the download broke off; nothing is left of it, and the next try starts from the beginning",
        ):
            installation.install(installation.Wish("onnxruntime"), said.append, lambda estimate: None)
    assert "1 package, 4.8 MiB to download" in said[0]  # as the index says, and nothing was downloaded by then
    assert left(fresh.parent / "cache") == []


def test_index_out_of_reach(fresh, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")

    with pytest.raises(InputError, match=r"^onnxruntime: pip could not read http://127\.0\.0\.1:9/simple \(out of reach\)$"):
        installation.install(installation.Wish("onnxruntime"), print, pytest.fail)


def test_refusing_index_named_beside_wheels(fresh, monkeypatch):
    wheels.onnxruntime(fresh, "1.8.0")

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404 if "numpy" in self.path else 403)

        def log_message(self, *words: object) -> None: ...

    monkeypatch.delenv("PIP_NO_INDEX")
    with served(Refusing) as url:
        place = url.removeprefix("http://")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://user:secret@{place}/simple")
        address = rf"http://user:\*+@{re.escape(place)}/simple"
        with pytest.raises(InputError, match=rf"the newest are 1\.8\.0; pip could not read {address} \(403\)$"):
            installation.install(installation.Wish("onnxruntime", "1.9"), print, pytest.fail)
        assert pip.listed(sys.executable, "numpy").unread == (), "an index that lacks a package does not refuse"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
            "the disk is full; nothing is left of",
        ),
        ("Traceback\nERROR: THESE PACKAGES DO NOT MATCH THE HASHES\n", "pip failed: THESE PACKAGES DO NOT MATCH THE HASHES"),
        ("\nno such option: --python\n", "pip failed: no such option: --python"),
        ("", "pip failed: it printed nothing"),
    ],
)
def test_pip_failure_messages(said, sentence):
    assert str(pip._refusal(said, "python", "torch 2.13.0")).startswith(f"torch 2.13.0: {sentence}")


def test_install_without_pip(fresh, monkeypatch):
    monkeypatch.setattr(pip, "find_spec", lambda name: None)

    with pytest.raises(InputError, match=r"installing takes pip, which .* does not have: .* -m ensurepip"):
        installation.install(installation.Wish("onnxruntime"), print, pytest.fail)


@pytest.mark.usefixtures("nothing_left")
def test_killed_install_cleaned_up(fresh):
    wheels.numpy(fresh, "2.1.0")
    slow = "open(__file__ + '.started', 'w').close()\nimport time\ntime.sleep(600)\n"
    wheels.wheel(fresh, "onnxruntime", "1.31.0", {"onnxruntime/__init__.py": slow}, ("numpy",))
    cache = fresh.parent / "cache"
    with subprocess.Popen([sys.executable, "-m", "memprof", "runtimes", "install", "onnxruntime"], stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: any(name.endswith(".started") for _, _, names in os.walk(cache) for name in names))  # what vanishes is passed over
        process.send_signal(signal.SIGKILL)
    (folder,) = left(cache)

    assert environments.every() == []
    assert end_leftovers() == 1
    assert not (cache / "memprof" / "environments" / folder).exists()


def test_cleanup_keeps_just_finished_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = environments.place() / "torch.token"
    folder.mkdir()

    def finished(token: str) -> bool:
        cache_folders.finish(folder, b"{}")
        return False

    cache_folders.remove_unfinished(finished)

    assert folder.exists()


def test_install_lock_waits(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []
    with (environments.place() / "torch.lock").open("ab") as first:
        fcntl.flock(first, fcntl.LOCK_EX)

        def say(sentence: str) -> None:
            said.append(sentence)
            fcntl.flock(first, fcntl.LOCK_UN)

        with environments.locked("torch", say):
            assert said == ["another memprof installs torch: waiting until it is done"]


def made_up(version: str, size: int, used: float, kept: bool = False) -> Environment:
    """An environment that is a stamp and no more."""
    folder = environments.place() / f"onnxruntime.made{version}"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    environment = Environment("onnxruntime", version, "3.11.7", str(folder / "bin" / "python"), size, kept, {})
    environments.finish(environment)
    os.utime(folder / "used", (used, used))
    return environment


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(environments, "_held", {})
    return tmp_path


def versions() -> list[str]:
    return [each.version for each in environments.every()]


def test_oldest_search_environment_removed(cache):
    for at, (version, kept) in enumerate([("1.1.0", True), ("1.2.0", False), ("1.3.0", False), ("1.4.0", False)]):
        made_up(version, 100, 1000.0 + at, kept)
    said: list[str] = []

    installation.make_room(100, 200, said.append)

    assert versions() == ["1.4.0", "1.1.0"]
    assert len(said) == 2 and said[0].startswith("onnxruntime 1.2.0 was removed, to keep the environments of searches below 200 B")


def test_environment_in_use_kept(cache):
    first, second = made_up("1.1.0", 100, 1000), made_up("1.2.0", 100, 2000)
    with (first.folder / "used").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_SH)

        installation.make_room(100, 100, print)
        with pytest.raises(InputError, match=r"onnxruntime 1\.1\.0: another memprof measures with .*; it was left there"):
            installation.remove("onnxruntime@1.1.0")

    assert versions() == ["1.1.0"] and not second.folder.exists()
    assert installation.remove("onnxruntime") == [first] and versions() == []


def test_environment_use_refreshes_and_locks(cache):
    first, _ = made_up("1.1.0", 100, 1000), made_up("1.2.0", 100, 2000)

    assert environments.use(first) == first.interpreter
    assert first.last_used > 2000
    with (first.folder / "used").open("ab") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_torn_or_moved_environment_ignored(cache):
    torn, moved = made_up("1.1.0", 100, 1000), made_up("1.2.0", 100, 1000)
    (torn.folder / "environment.json").write_bytes(msgspec.json.encode(torn)[:-5])
    moved.folder.rename(moved.folder.with_name("onnxruntime.elsewhere"))

    assert versions() == []


def test_remove_missing_environment(cache):
    made_up("1.1.0", 100, 1000)

    with pytest.raises(InputError, match=r"^onnxruntime 1\.2 is in no environment of memprof's; there is 1\.1\.0$"):
        installation.remove("onnxruntime@1.2")
    with pytest.raises(UsageError):
        installation.remove("onnxruntime@")


def test_version_order_of_pep_440():
    ordered = ("0.9", "1.0.dev3", "1.0a1", "1.0b2", "1.0rc1", "1.0", "1.0.1", "1.9", "1.10", "2.13.0")
    shuffled = sorted(ordered)

    assert tuple(sorted(shuffled, key=environments.version_key)) == ordered and shuffled != list(ordered)
    assert environments.version_key("2.13.0+cpu") == environments.version_key("2.13")


@pytest.mark.parametrize(
    ("version", "wanted", "expected"),
    [
        ("1.17.3", "1.17", True),
        ("1.17.3", "1", True),
        ("1.17.3", "1.17.3", True),
        ("1.17.0", "1.17", True),
        ("2.13.0+cpu", "2.13.0", True),
        ("2.13.0+cpu", "2.13.0+cpu", True),
        ("2.13.0", "2.13.0+cpu", False),
        ("1.170.3", "1.17", False),
        ("1.17.3", "1.17.0", False),
        ("1.17.3.1", "1.17.3", False),
    ],
)
def test_version_prefix_matches_releases(version, wanted, expected):
    assert environments.is_of(version, wanted) is expected
