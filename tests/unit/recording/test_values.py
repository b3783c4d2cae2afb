"""Figures that a program reports of itself."""

from __future__ import annotations

import math

import pytest

from memprof.records.types import Run

from .written import Recording


def reported(*values: float) -> Run:
    recording = Recording()
    recording.begin("A")
    for number, value in enumerate(values):
        recording.mark("value", name=f"n{number}", t_ns=number, value=value)
    recording.end("A", peak=10)
    return recording.run()


def test_values_keep_phase_and_digits() -> None:
    recording = Recording()
    recording.begin("A")
    recording.mark("value", name="arena_bytes", t_ns=1, value=12345678901)
    recording.end("A", peak=10)
    recording.mark("value", name="loss", t_ns=2, value=0.125)
    run = recording.run()
    assert [(value.name, value.value, value.phase, value.note) for value in run.values] == [
        ("arena_bytes", 12345678901, "A", None),
        ("loss", 0.125, None, None),
    ]


@pytest.mark.parametrize(
    ("value", "kept", "note"),
    [
        (math.nan, None, "not a number"),
        (math.inf, None, "infinite"),
        (-math.inf, None, "minus infinite"),
        (1e100, None, "1e100 or more"),
        (-1e200, None, "minus 1e100 or more"),
        (10**300, None, "1e100 or more"),
        (9e99, 9e99, None),
        (10**20, 1e20, None),
        (1 << 53, float(1 << 53), None),
        (-7, -7, None),
    ],
)
def test_no_finite_number_has_a_note(value: float, kept: float | None, note: str | None) -> None:
    run = reported(value)
    assert [(value.value, value.note) for value in run.values] == [(kept, note)]
    assert not run.warnings


@pytest.mark.parametrize("form", ["1E+5", "1e-400", "-0", "1e999", "-1e999", "0e999999999999", "1" + "0" * 29, "0.1" + "0" * 30 + "1"])
def test_numbers_in_unusual_forms_are_read(form: str) -> None:
    recording = Recording()
    recording.line(f'{{"mark":"value","pid":1,"name":"n","t_ns":1e3,"value":{form}}}')
    run = recording.run()
    assert [(value.t_ns, value.name) for value in run.values] == [(1000, "n")]


@pytest.mark.parametrize("value", ["true", '"1"', "null", "[]"])
def test_what_is_no_number_is_left_out(value: str) -> None:
    recording = Recording()
    recording.line(f'{{"mark":"value","pid":1,"name":"n","t_ns":1,"value":{value}}}')
    run = recording.run()
    assert (run.values, len(run.warnings)) == ((), 1)


def test_thousands_of_values_are_thinned() -> None:
    recording = Recording()
    for number in range(9000):
        value = -7 if number == 5000 else 99999 if number == 6000 else number % 10
        recording.mark("value", name="x", t_ns=number, value=value)
    recording.mark("value", name="y", t_ns=9000, value=math.nan)
    values = recording.run().values
    numbers = [value.value for value in values if value.value is not None]
    assert len(values) <= 4000
    assert (min(numbers), max(numbers)) == (-7, 99999)
    assert [value.t_ns for value in values] == sorted(value.t_ns for value in values)
    assert values[-1].note == "not a number"
