"""`memprof tune` of a program: what is searched, and what of its words cannot be."""

import pytest
from msgspec.structs import replace
from support.suites import program

from memprof.base.errors import InputError, UsageError
from memprof.footprint.tune import search, tuner
from memprof.footprint.tune.answer import TuneRequest
from memprof.footprint.tune.search import DEFAULT
from memprof.footprint.tune.subject import subject_of
from memprof.places.place import HERE
from memprof.programs.runtimes import Knob
from memprof.records import store
from memprof.records.types import Outcome, Run
from memprof.reports.tables.tune import render
from memprof.subjects import command_orders

COMMON = {"malloc_arenas": Knob("malloc_arenas", "int", None, "env", "", env={"MALLOC_ARENA_MAX": ""}, tries=("1",))}


@pytest.fixture(autouse=True)
def common_knobs(monkeypatch):
    monkeypatch.setattr(command_orders, "common_knobs", lambda: COMMON)


def subject(text, tries, **settings):
    return subject_of(TuneRequest(program(text, **settings), tries=tries))


def job_of(found, *settings):
    return found.order(frozenset(settings), "it", 5).job


def test_program_candidates_beside_first_values():
    found = subject("true --batch {batch} {threads}", {"batch": ("8", "1", "8", "2"), "env.OMP": ("1", "4")}, threads=(2, 1))

    assert found.candidates == {"malloc_arenas": ("1",), "batch": ("1", "2"), "env.OMP": ("4",), "threads": ("1",)}
    assert found.is_program


def test_program_settings_fill_words():
    found = subject("true=X={size} true --batch {batch} --also={batch}", {"batch": ("8", "1"), "size": ("s", "m"), "env.OMP": ("1", "4")})

    default, other = job_of(found), job_of(found, ("batch", "1"), ("env.OMP", "4"), ("malloc_arenas", "1"))
    assert (default.argv[1:], dict(default.env), dict(default.knobs)) == (("--batch", "8", "--also=8"), {"X": "s", "OMP": "1"}, {})
    assert (other.argv[1:], dict(other.env)) == (("--batch", "1", "--also=1"), {"X": "s", "OMP": "4"})
    assert dict(other.knobs) == {"malloc_arenas": "1"}


@pytest.mark.parametrize(
    "settings", [DEFAULT, {("batch", "1")}, {("env.OMP", "4"), ("malloc_arenas", "1")}, {("size", "m"), ("threads", "1"), ("batch", "16")}]
)
def test_program_settings_known_from_run(settings):
    tries = {"batch": ("8", "1", "16"), "size": ("s", "m"), "env.OMP": ("1", "4")}
    found = subject("true=X={size} true --batch {batch}{size} {threads}", tries, threads=(2, 1))
    assert found.settings_of(ran(job_of(found, *settings))) == settings


def test_stranger_runs_refused():
    run = ran(job_of(subject("true {batch}", {"batch": ("8", "1")}), ("batch", "1")))
    for text, tries in (("true {batch} more", ("8", "1")), ("false {batch}", ("8", "1")), ("true {batch}", ("8", "2"))):
        with pytest.raises(InputError, match=r"^the runs in the -o file are of another program, or of other words"):
            subject(text, {"batch": tries}).settings_of(run)


def ran(job):
    return Run(1, job, HERE.machine(), 0, Outcome("ok"), store.NOTHING_SEEN)


@pytest.mark.parametrize(
    ("text", "tries", "sentence"),
    [
        (
            "true {batch}",
            {"bacth": ("1",), "batch": ("1",)},
            "--try bacth: write {bacth} where its value goes among the words of true; did you",
        ),
        ("true {batch}", {}, "true: {batch} stands for values to try, and none are given: --try batch=VALUE,VALUE"),
        ("true", {"env.1": ("1",)}, "--try env.1: '1' is no name of a variable"),
        ("true=OMP=1 true", {"env.OMP": ("1", "2")}, "--try env.OMP: OMP=1 gives it a value too; leave one of the two out"),
    ],
)
def test_program_names_refused(text, tries, sentence):
    with pytest.raises(UsageError) as error:
        subject(text, tries)
    assert str(error.value).startswith(sentence)


def test_threads_without_place_refused():
    with pytest.raises(UsageError, match=r"^true: write \{threads\} where the number of threads goes"):
        subject("true", {}, threads=(1, 2))


def test_braces_of_program_kept():
    found = subject("sh -c 'echo ${HOME} {print 1}' '{batch}'", {"batch": ("1",)})
    assert job_of(found).argv[1:] == ("-c", "echo ${HOME} {print 1}", "1")


def test_program_answer_without_outputs():
    proposal = tuner.Recommendation(0, DEFAULT, 2e6, 1e9, (2e6,), (1e9,), None, False, "memprof exec -- engine", {})
    answer = tuner.Tuned("engine", "engine", search.Goal(), proposal, (), None, (), (), 9, True, True, 1e-3)
    text = render(replace(answer, timed="RUN", compares=False, given={"batch": "8"}))

    assert text.startswith("engine: no settings")
    assert "| RUN (" in text.replace("  ", "")
    assert "outputs |" not in text
    assert "The default has batch=8." in text
    assert text.count("outputs of a program are not compared") == 1
