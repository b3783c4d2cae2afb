"""The words of a program's command."""

from __future__ import annotations

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
        ("bash -ec true", "bash"),
        ("sh ./run.sh", "run.sh"),
        ("./engine model.bin", "engine"),
        ("./pythonic app.py", "pythonic"),
    ],
)
def test_command_named_after_what_it_runs(words, name):
    assert commands.subject(words.split()) == name
    assert commands.parse(words).name == name
    assert commands.parse(f"own={words}").name == "own"
