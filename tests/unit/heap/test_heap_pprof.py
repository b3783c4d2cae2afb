"""Profiles of pprof: real ones as `go tool pprof` reads them, every form of the message, and what is wrong with a file, in one sentence."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from support.sample_profiles import stacks, totals_by_function

from memprof.base import protobuf
from memprof.base.errors import InputError, MemprofError, UsageError
from memprof.heap import load, pprof

DATA = Path(__file__).parents[2] / "data" / "heap"


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def packed(field: int, *values: int) -> bytes:
    return protobuf.field(field, b"".join(map(varint, values)))


def message(
    types: tuple[tuple[str, str], ...],
    *samples: tuple[tuple[int, ...], tuple[int, ...]],
    default: str = "",
    pack: bool = True,
    lines: bool = True,
) -> bytes:
    """A profile whose location N is a call of `fN` in line N of a.c, mapped at 0x1000 from offset 0x200 of /lib/liba.so; lines: with symbols."""
    texts = ["", "/lib/liba.so", "a.c", *(word for pair in types for word in pair), default]
    numbers = {text: place for place, text in reversed(list(enumerate(texts)))}
    every = sorted({place for ids, _ in samples for place in ids})
    texts += [f"f{place}" for place in every]
    parts = [protobuf.field(1, number(1, numbers[name]) + number(2, numbers[unit])) for name, unit in types]
    for ids, values in samples:
        plain = b"".join(number(1, place) for place in ids) + b"".join(number(2, value) for value in values)
        parts.append(protobuf.field(2, packed(1, *ids) + packed(2, *values) if pack else plain))
    parts.append(protobuf.field(3, number(1, 1) + number(2, 0x1000) + number(3, 0x9000) + number(4, 0x200) + number(5, 1)))
    for place in every:
        line = protobuf.field(4, number(1, place) + number(2, place)) if lines else b""
        parts.append(protobuf.field(4, number(1, place) + number(2, 1) + number(3, 0x1000 + place) + line))
        parts.append(protobuf.field(5, number(1, place) + number(2, texts.index(f"f{place}")) + number(4, 2)))
    parts += [protobuf.field(6, text.encode()) for text in texts]
    return b"".join(parts) + (number(14, numbers[default]) if default else b"")


GO = (("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes"))
SAMPLES = (((1, 2, 3), (9, 900, 4, 400)), ((4, 3), (1, 50, 0, 0)), ((1, 2, 3), (1, 100, 1, 100)))


def test_go_heap_as_its_own_tool_reads_it():
    # go tool pprof -top -unit=bytes go.pb.gz (google/pprof of Go 1.19): 14193430B total, and these cumulative figures.
    profile = load(DATA / "go.pb.gz")

    assert (profile.tool, profile.command, profile.peak.total_bytes) == ("pprof", "/tmp/demo/go/heapdemo", 14193430)
    assert totals_by_function(profile) == {
        "main.load": 14168505,
        "main.main": 14189123,
        "main.prepare": 9075630,
        "runtime.main": 14189123,
    } | dict.fromkeys(("runtime.malg", "runtime.newproc.func1", "runtime.newproc1", "runtime.systemstack"), 4307)
    assert "about every 4.0 KiB" in profile.counts
    assert profile.started_ns is not None


def test_go_allocations_as_its_own_tool_reads_them():
    # go tool pprof -top -unit=bytes -sample_index=alloc_space go.pb.gz: 19354204B total.
    profile = load(DATA / "go.pb.gz", "alloc_space")

    assert profile.peak.total_bytes == 19354204
    assert totals_by_function(profile)["main.load"] == 19302618
    assert profile.total == "allocated until the profile was written, freed or not (alloc_space)"
    assert profile.values == ("alloc_space", "inuse_space")


def test_heap_of_node():
    # Written by @datadog/pprof 5.20 in Node; go tool pprof -top -unit=bytes node.pb.gz: 22427282B total, and these cumulative figures.
    profile = load(DATA / "node.pb.gz")
    totals = totals_by_function(profile)

    assert (profile.peak.total_bytes, profile.value) == (22427282, "inuse_space")
    assert (totals["load"], totals["push"], totals["(external)"]) == (20846944, 502912, 1580338)
    assert ("load", "a.js", 3) in {(frame.function, frame.file and frame.file.split("/")[-1], frame.line) for frame in profile.frames}


def test_symbols_and_offsets_stand_side_by_side():
    # Made by go tool pprof -proto ./alloc tcmalloc.heap, which found symbols in the program and none in libc.
    profile = load(DATA / "tcmalloc.pb.gz")

    assert profile.peak.total_bytes == 37975616
    totals = totals_by_function(profile)
    assert (totals["pack"], totals["load"], totals["prepare"]) == (37971520, 15000000, 22971520)
    assert totals["libc.so.6+0x27249"] == 37971520


@pytest.mark.parametrize("pack", [True, False])
def test_stacks_summed(pack):
    profile = pprof.read(message(GO, *SAMPLES, pack=pack), "made")

    assert stacks(profile) == {"f1;f2;f3": 500}
    assert {(frame.function, frame.file, frame.line, frame.module) for frame in profile.frames} >= {("f2", "a.c", 2, "/lib/liba.so")}
    assert stacks(pprof.read(message(GO, *SAMPLES), "made", "alloc_space")) == {"f1;f2;f3": 1000, "f4;f3": 50}


def test_address_without_symbol_is_offset():
    assert stacks(pprof.read(message(GO, *SAMPLES, lines=False), "made")) == {"liba.so+0x201;liba.so+0x202;liba.so+0x203": 500}


@pytest.mark.parametrize(
    ("types", "default", "wanted", "size"),
    [
        ((("space", "bytes"),), "", None, 3),
        ((("space", "kilobytes"),), "", None, 3 << 10),
        ((("space", "MB"), ("objects", "count")), "", None, 3 << 20),
        ((("space", "bytes"), ("other", "bytes")), "", None, 5),
        ((("space", "bytes"), ("other", "bytes")), "space", None, 3),
        ((("space", "bytes"), ("other", "bytes")), "other", "space", 3),
        ((("inuse_space", "bytes"), ("alloc_space", "bytes")), "", None, 3),
    ],
)
def test_value_and_unit_of_sample_type(types, default, wanted, size):
    assert pprof.read(message(types, ((1,), (3, 5)), default=default), "made", wanted).peak.total_bytes == size


def test_value_missing():
    with pytest.raises(UsageError, match="made has no value 'inuse_spac'; did you mean inuse_space"):
        pprof.read(message(GO, *SAMPLES), "made", "inuse_spac")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            message((("samples", "count"), ("cpu", "nanoseconds")), ((1,), (1, 5))),
            "of samples in count, cpu in nanoseconds, and no heap profile",
        ),
        (message(GO, ((1,), (0, 0, -1, -100))), "it is the difference of two profiles, and no heap"),
        (message(GO, ((1,), (1, 1))), "its message does not hold what it says"),  # too few values
        (message(GO, *[((1,), (0, 0, 0, (1 << 62)))] * 3), "more than any memory"),
        (message(GO, ((), (0, 0, 1, 7))) + number(14, 99), "its message does not hold what it says"),  # no such text
        (b"\x0a\x04\x08\x01\x10\x02\x12" + b"\xff" * 8 + b"\x0f", "its message does not hold what it says"),  # 2^60 bytes
        (b"", "of nothing, and no heap profile"),
    ],
)
def test_wrong_profile_refused(content, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        pprof.read(content, "made")

    assert "\n" not in str(error.value)


def test_stack_of_unknown_location_kept():
    content = message(GO, ((1,), (0, 0, 1, 7))) + protobuf.field(2, packed(1, 99) + packed(2, 0, 0, 1, 5))

    assert stacks(pprof.read(content, "made")) == {"f1": 7, "???": 5}


def test_torn_anywhere_is_sentence():
    content = gzip.decompress((DATA / "go.pb.gz").read_bytes())
    read = 0
    for end in range(len(content)):
        try:
            pprof.read(content[:end], "torn")
            read += 1
        except MemprofError as error:
            assert "\n" not in str(error)
    assert read < len(content) / 2


def test_file_compressed_or_not(tmp_path):
    (tmp_path / "plain").write_bytes(gzip.decompress((DATA / "go.pb.gz").read_bytes()))

    assert load(tmp_path / "plain").peak.total_bytes == 14193430
    (tmp_path / "torn.gz").write_bytes((DATA / "go.pb.gz").read_bytes()[:-20])
    with pytest.raises(InputError, match="the compressed file is damaged"):
        load(tmp_path / "torn.gz")


def test_cpu_profile_is_no_heap():
    with pytest.raises(InputError, match="samples in count, cpu in nanoseconds, and no heap profile: it has no value in bytes"):
        load(DATA / "go_cpu.pb.gz")
