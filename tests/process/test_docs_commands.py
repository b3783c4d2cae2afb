"""The `sh` blocks of README and the manual run, each command in its own words, beside small files of the names that the pages use.

Each page has a folder, and its commands run one after another. `LESS` makes one measurement of many, which may lead to any verdict. `ELSEWHERE` lists
the commands that need more than this machine or more than a second of CPU time, each with a test that runs such a command. This test looks at exit
codes; tests/process/test_docs.py compares outputs.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import Memprof, need_tool
from msgspec.structs import replace
from support import manual_files
from support.manual import ROOT, blocks

from memprof.programs import runtimes

MADE_PAGE = "commands.md"  # by `make docs`
PAGES = [ROOT / "README.md", *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.name != MADE_PAGE)]


class Elsewhere(NamedTuple):
    """Commands that do not run here. pattern: found in each of them. need: what they take; a time is CPU time, with `LESS`. test: of tests/, or a
    script of CI, that runs such a command."""

    pattern: str
    need: str
    test: str


ELSEWHERE = (
    Elsewhere(r"^make (demo|test)\b", "every runtime, and the tests themselves", ".ci/run"),
    Elsewhere(r"\bpip install\b|^python3 -m venv ", "an index of packages", "ci/wheel-test"),
    Elsewhere(r"ssh:|^ssh ", "a machine with ssh", "process/test_places.py::test_run_on_place_measures_model"),
    Elsewhere(r"adb:|^adb ", "a device with adb", "process/test_adb.py::test_exec_on_only_device"),
    Elsewhere(r"labgrid|LG_", "a coordinator of labgrid", "process/test_labgrid.py::test_place_acquired_and_released"),
    Elsewhere(r"tcp://|tls://|--on lab\b|^dask ", "a fleet", "process/test_fleet.py::test_fleet_run_and_append"),
    Elsewhere(r"attach --(container|cgroup)", "a container", "process/test_containers.py::test_container_has_all_processes"),
    Elsewhere(r"bisect .*--package", "an index of packages", "process/test_package_releases.py::test_bisect_of_program"),
    Elsewhere(r"bisect --suite", "builds of commits", "process/test_bisect.py::test_bisect_builds_commits"),
    Elsewhere(
        r"runtimes (install|remove|.*--newer)|onnxruntime@",
        "an index of packages",
        "process/test_environments.py::test_run_compares_installed_versions",
    ),
    Elsewhere(r"-r torch\b", "700 MB of packages", "process/test_separate_runtimes.py::test_separate_runtime_follows_contract"),
    Elsewhere(r"ziglang", "a compiler for another machine", "process/recorder/test_figures.py::test_recorder_on_each_architecture"),
    Elsewhere(r"--drive", "a server at a fixed port", "process/test_load_generator.py::test_server_measured_in_each_phase"),
    Elsewhere(r"--base-ref .*--confirm", "builds of two commits", "process/test_gate_run.py::test_sides_with_own_code"),
    Elsewhere(r"-r all\b|tvm,", "every runtime", "process/test_conformance.py::test_runtime_contract"),
    Elsewhere(r"explain .*--verify", "8 s", "process/test_explain_command.py::test_explain_verifies_onnxruntime_shared_weight"),
    Elsewhere(r"--shapes", "3 s", "process/test_grow.py::test_grow_tells_shapes_from_iterations"),
    Elsewhere(r"--inputs", "2 s", "process/test_grow.py::test_grow_feeds_folder"),
    Elsewhere(r"--cycles", "2 s", "process/test_grow.py::test_grow_leaking_runtime_by_reload"),
    Elsewhere(r"--why --who", "5 s", "process/test_grow_call_sites.py::test_leak_in_native_wrapper_located"),
    Elsewhere(r"batch=1\.\.64|vary .*--vary", "17 s", "process/test_scale.py::test_law_with_plan_from_kept_runs"),
    Elsewhere(r"^memprof doctor$", "1 s", "process/test_doctor.py::test_peak_error_within_bound"),
    Elsewhere(r"--threads 1,2,4", "1 s", "process/test_suite.py::test_thread_sweep_one_job_each"),
    Elsewhere(r"batch=1\.\.8 ", "2 s", "process/test_scale.py::test_law_found_inverted_and_confirmed"),
    Elsewhere(r"--within 1GiB", "2 s", "process/test_scale.py::test_law_found_inverted_and_confirmed"),
    Elsewhere(r"grow .*--for 8h", "3 s", "process/test_grow.py::test_grow_reports_progress_until_time_limit"),
    Elsewhere(r"^memprof grow \S+ -r onnxruntime$", "2 s", "process/test_grow.py::test_grow_tells_what_inputs_do"),
    Elsewhere(r"sessions=1", "1 s", "process/test_scale.py::test_sessions_cost_with_or_without_law"),
    Elsewhere(r"processes=1", "2 s", "process/test_scale.py::test_processes_cost_private_memory_each"),
    Elsewhere(r"fit .*-r ", "4 s", "process/test_fit.py::test_fit_command_reports_limits_and_curve"),
    Elsewhere(r"heap record .* -r ", "10 s", "process/test_heap_record.py::test_massif_model_ends_after_prepare"),
)

# Values of options for the commands with these words, in place of the page's or beside them; a program behind `--` has no {warmup} and {runs}.
LESS = {
    "run": {"--repeats": "1", "--warmup": "0", "--runs": "1"},
    "exec": {"--repeats": "1"},
    "gate --": {"--repeats": "1"},
    "explain -r": {"--warmup": "0", "--runs": "1"},
    "grow --": {"--budget": "2000"},
    "attach": {"--for": "200ms"},
    "scale": {"--points": "3"},
    "scale -r": {"--warmup": "0", "--runs": "1"},
    "tune": {"--time": "1s"},
    "tune -r": {"--warmup": "0", "--runs": "1"},
    "fit": {"--time": "1s"},
    "zoo --size": {"--size": "1MiB"},
}
# 1 and 3 are verdicts too, and one measurement leads to any of them.
VERDICTS = {"gate": (0, 1, 3), "grow": (0, 1, 3), "attach": (0, 1, 3), "scale": (0, 3), "history": (0, 3)}
ASSIGNS = re.compile(r'(\w+)="?\$\(memprof (.*)\)"?')
SLOW_TO_IMPORT = ("tvm", "openvino")


def commands(path: Path) -> Iterator[str]:
    """The commands of a page, each on one line and without its comment."""
    for block in blocks(path, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            if command := re.sub(r"(^|\s)#.*", "", line).strip():
                yield " ".join(command.split())


def place(command: str) -> Elsewhere | None:
    return next((entry for entry in ELSEWHERE if re.search(entry.pattern, command)), None)


def here() -> Iterator[object]:
    """Each page, and those of its commands that run here. One that several pages have runs on the first, unless it writes a file for its page."""
    known: set[str] = set()
    for path in PAGES:
        listed = [
            command
            for command in commands(path)
            if place(command) is None and (command not in known or " -o " in command or ASSIGNS.fullmatch(command))
        ]
        known.update(listed)
        if listed:
            yield pytest.param(path.stem, listed, id=path.stem)


def less(words: list[str]) -> list[str]:
    """The words with the values of LESS."""
    end = words.index("--") if "--" in words else len(words)
    options, program = words[:end], words[end:]
    for name, values in LESS.items():
        if set(name.split()) <= {*options, *program[:1]}:
            for option, value in values.items():
                if option in options:
                    options[options.index(option) + 1] = value
                else:
                    options += [option, value]
    return options + program


def words_of(command: str, folder: Path) -> list[str]:
    """The words as a shell passes them: variables and patterns of files are expanded."""
    words = []
    for word in shlex.split(os.path.expandvars(command)):
        words += sorted(path.relative_to(folder).as_posix() for path in folder.glob(word)) if "*" in word else [word]
    return words


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a reader of the manual, who has runtimes that are quick to import."""
    for name in ("git", "gcc"):
        need_tool(name)
    for name in ("onnx", "onnxruntime", "ai_edge_litert"):
        pytest.importorskip(name)
    ask = runtimes.describe

    def quick(*words: object) -> tuple[runtimes.Runtime, ...]:
        return tuple(replace(found, version=None) if found.name in SLOW_TO_IMPORT else found for found in ask(*words))  # type: ignore[arg-type]

    monkeypatch.setattr(runtimes, "describe", quick)
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(sys.executable).parent}", prepend=os.pathsep)
    monkeypatch.delenv("DISPLAY", raising=False)
    with (
        (tmp_path / "server.log").open("w") as log,
        subprocess.Popen(["sh", "-c", "while sleep 0.05; do echo served; done"], stdout=log) as server,
    ):
        monkeypatch.setenv("SERVER", str(server.pid))
        yield tmp_path
        server.kill()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measuring is for Linux")
@pytest.mark.parametrize(("page", "listed"), list(here()))
def test_manual_commands_run(page: str, listed: list[str], reader: Path, memprof: Memprof, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = []
    manual_files.supply(reader)
    for command in listed:
        if assigned := ASSIGNS.fullmatch(command):
            monkeypatch.setenv(assigned[1], memprof(*assigned[2].split()).stdout.strip())
            continue
        if not command.startswith("memprof "):
            subprocess.run(["sh", "-c", command], cwd=reader, check=True)
            continue
        words = less(words_of(command.replace(" 4711", " $SERVER"), reader)[1:])
        if "-o" in words and "--append" not in words:
            for output in reader.glob(f"{words[words.index('-o') + 1].rstrip('/')}*"):
                shutil.rmtree(output) if output.is_dir() else output.unlink()
        done = memprof(*words)
        if "-o" in words:
            manual_files.supply(reader)  # again those that the command replaced
        if done.returncode not in VERDICTS.get(words[0], (0,)):
            wrong.append(f"{command}\n{done.returncode}: {done.stderr[-600:]}")
    assert not wrong, "\n\n".join(wrong)


def test_commands_elsewhere_are_in_manual() -> None:
    every = [command for page in PAGES for command in commands(page)]
    assert [entry.pattern for entry in ELSEWHERE if not any(re.search(entry.pattern, command) for command in every)] == []


@pytest.mark.parametrize("entry", ELSEWHERE, ids=lambda entry: entry.test)
def test_tests_elsewhere_exist(entry: Elsewhere) -> None:
    file, _, name = entry.test.partition("::")
    path = (ROOT / "tests" if name else ROOT) / file
    assert path.is_file()
    assert not name or f"\ndef {name}(" in path.read_text(encoding="utf-8")
