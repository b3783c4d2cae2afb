"""The card of runs: its front matter is YAML, its table Markdown, and its command one that memprof takes."""

from __future__ import annotations

import shlex

import click
import pytest
import yaml
from support.sample_runs import MIB, run, runs

from memprof.base.errors import InputError
from memprof.doors.cli import group
from memprof.records.types import COMMAND, Outcome
from memprof.reports.tables import card
from memprof.subjects.job_command import command_line


def front_and_text(text):
    nothing, front, rest = text.split("---\n", 2)
    assert nothing == ""
    return yaml.safe_load(front), rest


def test_card_front_matter_and_table():
    front, text = front_and_text(card.render([*runs("on"), *runs("b: 'c' #", threads=4, extra_mib=[9], knobs={"arena": "off"})]))

    first, second = front["memory"]
    assert (first["model"], first["variant"], first["repeats"]) == ("net.onnx", "on", 5)  # and not YAML's true
    assert first["peak_rss_bytes"]["PEAK"] == 270.2 * MIB // 1
    assert list(first["peak_rss_bytes"]) == ["STARTUP", "MODEL_LOAD", "PREPARE", "WARMUP", "EXECUTE", "PEAK"]
    assert first["versions"] == {"onnxruntime": "1.0", "python": "3.11.0", "libc": "glibc 2.36"}
    assert first["device"] == {"name": "here", "cpu": "a CPU, 2 CPUs, x86_64, Linux 6.18", "memory_bytes": 8 << 30}
    assert (first["sha256"], first["size_bytes"]) == ("00" * 32, 100 * MIB)
    assert second["variant"] == "b: 'c' #"
    assert second["command"] == "memprof run net.onnx -r onnxruntime --set arena=off --threads 4 --repeats 1 --no-release"
    assert [cell.strip() for cell in text.split("\n| net.onnx | on ")[1].split("|")[1:4]] == ["40.0 MiB", "150.2 MiB", "270.2 MiB"]
    assert f"    {second['command']}" in text


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ({"release": True}, "memprof run net.onnx -r onnxruntime"),
        ({"release": True, "warmup": 0, "runs": 1}, "memprof run net.onnx -r onnxruntime --warmup 0 --runs 1"),
        ({"shapes": {"x": (1, 3)}, "inputs": "a b.npz", "release": True}, "... --shape x=1,3 --inputs 'a b.npz'"),
        (
            {"release": True, "env": {"A": "1", "B": None}, "cache": "cold", "deterministic": True},
            "... --env A=1 --cache cold --deterministic",
        ),
        (
            {"runtime": COMMAND, "argv": ("./app", "a b"), "env": {"A": "1"}, "phase_regexes": {"MODEL_LOAD": "l.*"}, "cpus": "0-1"},
            "memprof exec --phase-regex 'MODEL_LOAD=l.*' --cpus 0-1 --repeats 5 -- A=1 ./app 'a b'",
        ),
    ],
)
def test_command_line_of_job(words, line):
    made = command_line(run(**words).job, 5)

    assert made == line.replace("...", "memprof run net.onnx -r onnxruntime")
    _, name, *rest = shlex.split(made)
    command = group.get_command(click.Context(group), name)
    command.make_context(name, rest)  # which refuses an unknown option


def test_card_of_failed_runs_refused():
    with pytest.raises(InputError, match="no run ended well"):
        card.render([run(outcome=Outcome("exit", phase="EXECUTE", exit_code=1))])


@pytest.mark.parametrize(("exact", "notes"), [(True, 0), (False, 1)])
def test_card_says_once_what_its_sign_means(exact, notes):
    assert card.render(runs("a", exact=exact)).count("~ not exact: it may have been higher.") == notes
