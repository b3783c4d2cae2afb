"""The words of a program's command."""

from __future__ import annotations

import shlex

import pytest

from memprof.programs import commands


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("/usr/bin/python3 app.py --fast", "app.py"),
        ("python3.12 -X dev -W error -u tools/app.py", "app.py"),
        ("python -m http.server 80", "http.server"),
        ("python -c pass", "python"),
        ("python -Ic pass", "python"),
        ("python -V", "python"),
        ("python", "python"),
        ("python {model}", "python"),
        ("node -r ./before.js server.mjs", "server.mjs"),
        ("node -e 1", "node"),
        ("bash -ec true", "true"),
        ("sh -c 'set -e; make -s app && MODE=fast ./test.sh --all | tee log >out 2>&1'", "tee"),
        ("sh -c 'cd build && ctest'", "ctest"),
        ("bash -c 'set -eo pipefail; make -s app && ./test.sh'", "test.sh"),
        ("sh -c 'sleep 1; exit $CODE'", "sleep"),
        ("sh -c 'python app.py > log.txt'", "app.py"),
        ("sh -c '# first\nmake # second\n./test.sh\n'", "test.sh"),
        # a script that is more than programs one after another
        ("sh -c 'for n in $(seq 500); do sleep 0.5 & done; wait'", "for n in $(seq 500); do…"),
        ("sh -c 'a=$(./app)'", "a=$(./app)"),
        ("sh -c '$APP x'", "$APP x"),
        ("sh -c ''", "sh"),
        ("""sh -c '"open'""", "sh"),
        ("sh -c 'exec pytest -q'", "pytest"),
        ("sh ./run.sh", "run.sh"),
        # programs that start another
        ("env PYTHONPATH=src pytest", "pytest"),
        ("/usr/bin/env -i -u HOME PATH=/bin python -m pytest", "pytest"),
        ("nice -n 5 timeout -k 5 60 taskset -c 0,1 python app.py", "app.py"),
        ("nice -5 ./engine", "engine"),
        ("stdbuf -oL sh -c 'cd tests && uv run --with numpy pytest'", "pytest"),
        ("uv run -m pytest", "pytest"),
        ("uv sync", "uv"),
        ("env", "env"),
        ("timeout 60", "timeout"),
        ("./engine model.bin", "engine"),
        ("./pythonic app.py", "pythonic"),
    ],
)
def test_command_named_after_what_it_runs(words, name):
    assert commands.subject(shlex.split(words)) == name
    assert commands.parse(words).name == name
    assert commands.parse(f"own={words}").name == "own"


def test_script_of_two_environments_is_one_program(tmp_path):
    files = []
    for name, line in (("one", ""), ("two", ""), ("three", "import other")):
        script = tmp_path / name / "bin" / "tool"
        script.parent.mkdir(parents=True)
        (tmp_path / name / "pyvenv.cfg").touch()
        script.write_text(f"#!{script.parent}/python\nimport tool\n{line}")
        files.append(commands.program_file(script).sha256)

    one, two, three = files
    assert one == two != three
