"""The positive control of programs: whichever way names the phases, the process whose peak counts holds the known increase."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from support.compiler import once_compiled
from support.native_programs import HEAD, HEADER, program
from support.sample_runs import MIB

FUNCTION = """
__attribute__((noinline)) static char *load(void) { char *memory = hold(20 * MIB); usleep(20000); return memory; }
int main(void) { char *memory = load(); puts("weights loaded"); fflush(stdout); usleep(20000); return memory[5] - 1; }
"""
MARKS = 'memprof_begin("MODEL_LOAD"); hold(20 * MIB); usleep(20000); memprof_end();'
PHASES = {
    "none": [],
    "marks": [],
    "function": ["--phase", "load=load"],
    "line": ["--phase-regex", "load=weights loaded"],
}
needs_gdb = pytest.mark.skipif(shutil.which("gdb") is None, reason="there is no gdb")


def engine(folder: Path, way: str, script: bool) -> Path:
    """A program of 20 MiB; script: it is started by a shell, which waits for it."""
    path = folder / "engine"
    compiled = program(MARKS) if way == "marks" else str(once_compiled("gcc", "program.c", HEAD + FUNCTION, f"-I{HEADER.parent}"))
    shutil.copy(compiled, path)
    if script:
        (folder / "run.sh").write_text(f"#!/bin/sh\n{path}\necho ended\n")
        (folder / "run.sh").chmod(0o755)
    return folder / "run.sh" if script else path


@pytest.mark.long
@pytest.mark.parametrize(
    ("way", "script"),
    [("marks", False), ("marks", True), pytest.param("function", True, marks=needs_gdb), ("line", True), ("none", True)],
)
def test_prove_with_phases_of_program(memprof, tmp_path, way, script, nothing_left):
    done = memprof("gate", "--budget", "1GiB", "--prove", "-o", "n.jsonl", "--json", *PHASES[way], "--", engine(tmp_path, way, script))

    proof = json.loads(done.stdout)["proof"]
    assert (done.returncode, proof["seen"], proof["silent"]) == (0, True, True), done.stderr
    assert proof["added_bytes"] == pytest.approx(MIB, rel=0.25)


# Here the program whose phases are named runs without a script.
@pytest.mark.parametrize("table", [pytest.param('[phase]\nload = "load"', marks=needs_gdb), '[phase_regex]\nload = "weights loaded"'])
def test_prove_with_phases_of_suite(memprof, tmp_path, table, nothing_left):
    path = engine(tmp_path, "function", False)
    (tmp_path / "suite.toml").write_text(f'repeats = 5\n{table}\n[[variant]]\nname = "engine"\ncmd = "{path}"\n')
    (tmp_path / "budgets.toml").write_text('[[budget]]\npeak = "1 GiB"\n')

    done = memprof("gate", "--run", "suite.toml", "--budgets", "budgets.toml", "--prove", "-o", "new.jsonl", "--json")

    proof = json.loads(done.stdout)["proof"]
    assert (done.returncode, proof["seen"], proof["silent"]) == (0, True, True), done.stderr


@pytest.mark.parametrize("launcher", [[], ["timeout", "60"]], ids=["alone", "behind timeout"])
def test_prove_refuses_static_program_early(memprof, tmp_path, launcher, nothing_left):
    static = tmp_path / "static"
    (tmp_path / "static.c").write_text("int main(void) { return 0; }\n")
    subprocess.run(["cc", "-static", "-o", static, tmp_path / "static.c"], check=True)

    done = memprof("gate", "--budget", "1GiB", "--prove", "-o", "new.jsonl", "--", *launcher, static)

    assert (done.returncode, done.stdout) == (2, "")
    assert "static is linked statically: nothing can be preloaded into it" in done.stderr
    assert not (tmp_path / "new.jsonl").exists()


def test_prove_passes_over_static_program(memprof, tmp_path, nothing_left):
    static = tmp_path / "static"
    (tmp_path / "static.c").write_text(
        "#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n"
        "int main(void) { memset(malloc(20 << 20), 1, 20 << 20); usleep(20000); return 0; }\n"
    )
    subprocess.run(["cc", "-O0", "-static", "-o", static, tmp_path / "static.c"], check=True)
    variants = [f'[[variant]]\nname = "{name}"\ncmd = "{path}"\n' for name, path in (("still", static), ("engine", program(MARKS)))]
    (tmp_path / "suite.toml").write_text("repeats = 5\n" + "".join(variants))
    (tmp_path / "budgets.toml").write_text('[[budget]]\npeak = "1 GiB"\n')

    done = memprof("gate", "--run", "suite.toml", "--budgets", "budgets.toml", "--prove", "-o", "new.jsonl", "--json")

    proof = json.loads(done.stdout)["proof"]
    assert (done.returncode, proof["seen"], proof["key"]["variant"]) == (0, True, "engine"), done.stderr


def test_prove_names_cleared_environment(memprof, tmp_path, nothing_left):
    done = memprof(
        "gate", "--budget", "1GiB", "--prove", "-o", "new.jsonl", "--json", "--", "env", "-i", program("hold(20 * MIB); usleep(20000);")
    )

    content = json.loads(done.stdout)
    assert (done.returncode, content["proof"]) == (3, None), done.stderr
    (reason,) = [row["reason"] for row in content["rows"] if row["verdict"] == "undecided"]
    assert reason.endswith("a program on the way is linked statically, is setuid or clears LD_PRELOAD")
