"""What each question's answer ends with: the notes of runtimes on what memprof changes in them, and the exit code where a capacity is not met."""

import pytest
from msgspec.structs import replace
from support import fit_results
from support import sample_runs as made_up

from memprof.base.errors import InputError
from memprof.doors.cli import answers
from memprof.doors.cli.answers import Showing
from memprof.records import store
from memprof.records.types import About

OFF, APART, ODD = "the telemetry is off", "loading is not apart", "the first iteration compiles"


def told(runtime, *notes):
    return store.encode(replace(made_up.run(runtime=runtime), about=About("1.31.0", "3.11", notes)))


def answered(capsys, *lines, **changes):
    """The notes below the answer of a question that measured these runs."""

    def seek(progress, keep):
        for line in lines:
            keep(line)
        return fit_results.made(**changes)

    assert answers.answer("fit", seek, Showing(None, False, None, None, False, False)) == 0
    return [line.removeprefix("- ") for line in capsys.readouterr().out.splitlines() if line.startswith("- ")]


def test_notes_of_all_runs_under_answer(capsys):
    """One that only some settings have says nothing of the answer."""
    notes = answered(capsys, told("ort", OFF, APART), told("ort", OFF, ODD, APART), remarks=())

    assert notes[-2:] == ["The telemetry is off.", "Loading is not apart."] and "The first iteration compiles." not in notes


def test_notes_name_one_of_several_runtimes(capsys):
    notes = answered(capsys, told("ort", OFF), told("tvm"), told("ort", OFF), remarks=())

    assert notes[-1] == "ort: the telemetry is off."


def test_note_in_answer_stands_once(capsys):
    notes = answered(capsys, told("ort", OFF), remarks=("The telemetry is off.",))

    assert notes.count("The telemetry is off.") == 1


def test_unmet_capacity_ends_with_exit_code(capsys):
    part = fit_results.PartLimit("whole run", None, 60 * fit_results.MIB, None, 1)
    fitted = fit_results.made(parts=(part,), within_bytes=40 * fit_results.MIB)

    with pytest.raises(InputError, match=r"a\|b.onnx does not run within 40.0 MiB") as raised:
        answers.answer(
            "fit", lambda progress, keep: fitted, Showing(None, False, None, None, False, False), unmet=lambda found: found.unmet
        )

    assert raised.value.exit_code == 5
    assert "does not run within 40.0 MiB" in capsys.readouterr().out, "the answer is shown all the same"
    assert replace(fitted, parts=(replace(part, least_bytes=40 * fit_results.MIB),)).unmet == ""
    assert replace(fitted, parts=()).unmet == "", "nothing was tried"
