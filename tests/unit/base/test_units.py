"""People's units in and out."""

from __future__ import annotations

import pytest

from memprof.base import units
from memprof.base.errors import UsageError
from memprof.base.units import counted, exact_bytes, format_bytes, format_duration, format_number, parse_bytes, parse_duration_ns


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        ("64KiB", 65536),
        ("64 kib", 65536),
        ("1.5MiB", 1572864),
        ("2GB", 2 * 10**9),
        ("1kB", 1000),
        (".5KiB", 512),
        ("50M", 50 << 20),
        ("2g", 2 << 30),
        ("0", 0),
    ],
)
def test_sizes_are_read(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "MiB", "-1KiB", "1 XiB", "1,5MiB", "1e3", "KiB 1", "١KiBB", "9" * 5000, "9999999999GiB"])
def test_size_invalid_refused(text):
    with pytest.raises(UsageError, match="is not a size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("1ms", 10**6), ("1.5s", 1.5e9), ("2min", 12e10), ("30", 3e10), ("10us", 10**4), ("1h", 36e11)]
)
def test_durations_are_read(text, expected):
    assert parse_duration_ns(text) == expected


@pytest.mark.parametrize("text", ["", "ms", "-1s", "1 day", "1ms2", "9" * 5000, "99999999999h"])
def test_duration_invalid_refused(text):
    with pytest.raises(UsageError, match="is not a duration"):
        parse_duration_ns(text)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 B"), (999, "999 B"), (1024, "1.0 KiB"), (-2048, "-2.0 KiB"), (143_864_627, "137.2 MiB"), (3 << 30, "3.00 GiB")],
)
def test_sizes_are_written(count, expected):
    assert format_bytes(count) == expected


@pytest.mark.parametrize(
    ("count", "expected"), [(0, "0"), (65536, "64KiB"), (65537, "65537"), (3 << 20, "3MiB"), (1536 << 10, "1536KiB"), (2 << 40, "2048GiB")]
)
def test_exact_bytes_round_trip(count, expected):
    assert exact_bytes(count) == expected
    assert parse_bytes(expected) == count


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 ns"),
        (999.7, "1 us"),
        (999_400, "999 us"),
        (999_600, "1 ms"),
        (1_250_000, "1.25 ms"),
        (999_700_000, "1 s"),
        (3_100_000_000, "3.1 s"),
        (999_700_000_000, "1000 s"),
        (2000 * 10**9, "2000 s"),
    ],
)
def test_durations_are_written(count, expected):
    assert format_duration(count) == expected


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (0.25, 6, "0.25"),
        (1_048_576, 6, "1048576"),
        (999_999.7, 6, "1000000"),
        (-1_048_576.0, 6, "-1048576"),
        (12.345, 3, "12.3"),
        (999.7, 3, "1000"),
    ],
)
def test_numbers_written_without_exponent(value, digits, expected):
    assert format_number(value, digits) == expected


@pytest.mark.parametrize(("number", "expected"), [(0, "0 tensors"), (1, "1 tensor"), (2, "2 tensors"), (1200, "1,200 tensors")])
def test_count_agrees_with_noun(number, expected):
    assert counted(number, "tensor") == expected


@pytest.mark.parametrize(
    ("sentence", "names", "expected"),
    [
        ("labels.onnx holds no weights", (), "labels.onnx holds no weights"),
        ("./engine ended", (), "./engine ended"),
        ("model_a, b and c", (), "model_a, b and c"),
        ("phases holds no weights", ("phases",), "phases holds no weights"),
        ("objects of Python: 3 more", ("", "net"), "Objects of Python: 3 more"),
        ("thread-local memory", (), "Thread-local memory"),
        ("RSS grew.", (), "RSS grew."),
        ("", (), ""),
    ],
)
def test_sentence_keeps_name_it_begins_with(sentence, names, expected):
    assert units.capitalised(sentence, *names) == expected


def test_choice_in_words():
    assert [units.either(list("abc")[:count]) for count in range(4)] == ["", "a", "a or b", "a, b or c"]


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.045, "+4.5%"), (-0.5, "-50.0%"), (8.99, "+899.0%"), (9, "10 times"), (529.793, "531 times"), (1638.347, "1,639 times")],
)
def test_change_on_nearly_nothing_is_ratio(share: float, text: str) -> None:
    assert units.format_change(share) == text
