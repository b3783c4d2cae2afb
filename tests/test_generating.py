"""Models that generate: the runtimes' contract, llama.cpp's settings, and what tables say of tokens."""

from __future__ import annotations

import pytest

import memprof as library

MIB = 1 << 20

COUNTING = """
class Runtime:
    version = "1"
    def load(self, model, options):
        self.prompts = 0
    def prepare(self): ...
    def prompt(self):
        self.prompts += 1
        return 7
    def generate(self):
        return 5
    def figures(self):
        return {"prompts": self.prompts}
"""


@pytest.fixture
def counting(tmp_path):
    (tmp_path / "counting.py").write_text(COUNTING)
    (tmp_path / "model.bin").write_bytes(b"x")
    return tmp_path


def values(run, name):
    return {value.phase: value.value for value in run.values if value.name == name}


@pytest.mark.usefixtures("probe")
def test_a_runtime_that_generates_has_prompt_and_generate_in_place_of_execute(counting):
    (run,) = library.measure([counting / "model.bin"], [str(counting / "counting.py")], warmup=2, runs=3, repeats=1)

    assert run.outcome.ok, run.outcome.sentence
    assert [mark.phase for mark in run.marks] == ["STARTUP", "MODEL_LOAD", "PREPARE", "WARMUP", "PROMPT", "GENERATE"]
    assert [len(mark.times_ns) for mark in run.marks[3:]] == [2, 3, 3]
    assert [mark.units for mark in run.marks[3:]] == [{"token": 24}, {"token": 21}, {"token": 15}]
    assert values(run, "prompts") == {"MODEL_LOAD": 0, "PREPARE": 0, "WARMUP": 2, "PROMPT": 5, "GENERATE": 5}


def test_phases_of_a_generating_run_do_not_overlap(counting):
    (run,) = library.measure([counting / "model.bin"], [str(counting / "counting.py")], warmup=1, runs=2, repeats=1)

    assert all(before.end_ns <= after.begin_ns for before, after in zip(run.marks, run.marks[1:], strict=False))
