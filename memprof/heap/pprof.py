"""Reads pprof's profiles: Go's, those of Rust's jemalloc_pprof, and those that `pprof -proto` makes of other tools' files.

The format is the message Profile of google/pprof's proto/profile.proto, compressed with gzip or not. Its fields, as they are read here:

    Profile   1 sample_type {1 type, 2 unit}   2 sample   3 mapping   4 location   5 function   6 string_table   9 time_nanos
              11 period_type   12 period   14 default_sample_type
    Sample    1 location_id, the site first   2 value, one for each sample_type
    Mapping   1 id   2 memory_start   3 memory_limit   4 file_offset   5 filename
    Location  1 id   2 mapping_id   3 address   4 line {1 function_id, 2 line}, the innermost of inlined functions first
    Function  1 id   2 name   4 filename

Texts are numbers of string_table. Numbers are of 64 bits with a sign, and repeated ones are packed or not. The writer has scaled samples already.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from ..base import protobuf
from ..base.errors import InputError
from ..base.files import Data, Torn
from ..base.protobuf import BYTES, VARINT, Field
from . import one_moment
from .frames import UNKNOWN, Frame
from .one_moment import DEEPEST, IN_USE, MOST_ENTRIES, StackSums
from .profile import HeapProfile

# A byte's worth of each unit that a profile may have for memory: google/pprof's internal/measurement/measurement.go.
_UNITS = {"bytes": 1, "byte": 1, "b": 1}
for _power, _letter in enumerate("kmgtp", 1):
    for _unit in (f"{_letter}b", f"{_letter}byte", f"{_letter}bytes"):
        _UNITS[_unit] = 1 << 10 * _power
for _power, _word in enumerate(("kilo", "mega", "giga", "tera", "peta"), 1):
    for _unit in (f"{_word}byte", f"{_word}bytes"):
        _UNITS[_unit] = 1 << 10 * _power
_MOST_MAPPINGS = 1_000_000


def read(data: Data, path: str, value: str | None = None) -> HeapProfile:
    """The profile in a message that is not compressed. value: one of the file's sample types in bytes, see one_moment.

    Raises InputError if the message is damaged or holds no memory, and UsageError for a value that it does not have.
    """
    try:
        return _PprofReader(data, path).profile(value)
    except Torn:
        raise InputError(f"{path} is no profile of pprof, or a damaged one: its message does not hold what it says") from None


class _PprofReader:
    def __init__(self, data: Data, path: str) -> None:
        self._data, self._path = data, path
        # Where the repeated messages of each kind begin and end, alternating: a profile has millions.
        self._spans = {number: array("q") for number in (1, 2, 3, 4, 5, 6, 11)}
        self._numbers = {9: 0, 12: 0, 14: 0}
        entries = 0
        for field in protobuf.fields(data, 0, len(data)):
            if field.wire == BYTES and field.number in self._spans:
                entries += 1
                if entries > MOST_ENTRIES:
                    raise InputError(f"{path} is damaged: it has more than {MOST_ENTRIES:,} entries")
                self._spans[field.number].extend((field.begin, field.end))
            elif field.wire == VARINT and field.number in self._numbers:
                self._numbers[field.number] = protobuf.signed(data, field)
        self._texts = self._spans[6]
        self._frames = one_moment.new_frames()

    def profile(self, wanted: str | None) -> HeapProfile:
        value, unit, place, values = self._value(wanted)
        period_units = [self._value_type(begin, end)[1] for begin, end in _pairs(self._spans[11])]
        locations = self._locations()
        stacks = StackSums(self._path)
        unknown = (self._frames.number(Frame(UNKNOWN, kind="unknown")),)
        for begin, end in _pairs(self._spans[2]):
            ids, numbers = self._sample(begin, end)
            if place >= len(numbers):
                raise Torn
            size = numbers[place] * unit
            if size < 0:
                raise InputError(f"{self._path} has samples below 0: it is the difference of two profiles, and no heap")
            stack = tuple(frame for number in ids for frame in locations.get(number, unknown))
            stacks.add(stack, size)
        return one_moment.profile(
            "pprof",
            self._path,
            self._frames,
            stacks.sums,
            command=self._command,
            period=self._numbers[12] if period_units[:1] == ["bytes"] else 0,
            value=value,
            values=values,
            written_ns=self._numbers[9] or None,
        )

    def _value(self, wanted: str | None) -> tuple[str, int, int, list[str]]:
        """The value to show: its name, its unit in bytes, its place in each sample, and all such names."""
        kinds = [self._value_type(begin, end) for begin, end in _pairs(self._spans[1])]
        if len(kinds) > 64:
            raise Torn
        units = [_UNITS.get(unit.lower()) for _, unit in kinds]
        values = [name for (name, _), unit in zip(kinds, units, strict=True) if unit is not None]
        if not values:
            shown = ", ".join(f"{name} in {unit}" for name, unit in kinds) or "nothing"
            raise InputError(f"{self._path} is a profile of pprof of {shown[:200]}, and no heap profile: it has no value in bytes")
        default = self._text(self._numbers[14])
        if default not in values:
            default = IN_USE if IN_USE in values else values[-1]
        value = one_moment.selected(self._path, values, wanted, default)
        place = next(at for at, (name, _) in enumerate(kinds) if name == value and units[at] is not None)
        return value, units[place] or 1, place, values

    def _value_type(self, begin: int, end: int) -> tuple[str, str]:
        numbers = self._fields(begin, end)
        return self._text(numbers.get(1, 0)), self._text(numbers.get(2, 0))

    @property
    def _command(self) -> str:
        """The first mapping is the program's, as profile.proto says."""
        mappings = self._spans[3]
        return self._text(self._fields(mappings[0], mappings[1]).get(5, 0)) if mappings else ""

    def _locations(self) -> dict[int, tuple[int, ...]]:
        """The numbers of the frames of each location."""
        mappings = {}
        for begin, end in _pairs(self._spans[3]):
            fields = self._fields(begin, end)
            name = self._text(fields.get(5, 0))
            mappings[fields.get(1, 0)] = (fields.get(2, 0), fields.get(4, 0), name) if name else None
            if len(mappings) > _MOST_MAPPINGS:
                raise Torn
        functions = {}
        for begin, end in _pairs(self._spans[5]):
            fields = self._fields(begin, end)
            functions[fields.get(1, 0)] = self._text(fields.get(2, 0)), self._text(fields.get(4, 0))
        locations = {}
        for begin, end in _pairs(self._spans[4]):
            fields = self._fields(begin, end)
            address, mapping = fields.get(3, 0) & (1 << 64) - 1, mappings.get(fields.get(2, 0))
            module = mapping[2] if mapping is not None else None
            lines = []
            for part in protobuf.fields(self._data, begin, end):
                if part.number == 4 and part.wire == BYTES:
                    line = self._fields(part.begin, part.end)
                    name, file = functions.get(line.get(1, 0), ("", ""))
                    number = line.get(2, 0)
                    place = number if 0 < number < 1 << 31 else None
                    lines.append(Frame(name or UNKNOWN, file or None, place, module, address or None, "site" if name else "unknown"))
            if not lines:
                lines.append(one_moment.offset_frame(address, mapping) if address else Frame(UNKNOWN, None, None, module, None, "unknown"))
            locations[fields.get(1, 0)] = tuple(self._frames.number(line) for line in lines)
        return locations

    def _sample(self, begin: int, end: int) -> tuple[list[int], list[int]]:
        """A sample's locations and values."""
        ids: list[int] = []
        values: list[int] = []
        for field in protobuf.fields(self._data, begin, end):
            if field.number in (1, 2):
                numbers = ids if field.number == 1 else values
                numbers.extend(self._repeated(field))
                if len(numbers) > DEEPEST:
                    raise Torn
        return ids, values

    def _repeated(self, field: Field) -> Iterator[int]:
        if field.wire not in (VARINT, BYTES) or field.end - field.begin > 10 * DEEPEST:
            raise Torn
        at = field.begin
        while at < field.end:
            number, at = protobuf.varint(self._data, at, field.end)
            yield protobuf.as_signed(number)

    def _fields(self, begin: int, end: int) -> dict[int, int]:
        """The plain numbers of a message, by the numbers of their fields. The last counts where one stands several times."""
        return {
            field.number: protobuf.signed(self._data, field) for field in protobuf.fields(self._data, begin, end) if field.wire == VARINT
        }

    def _text(self, number: int) -> str:
        if not 0 <= 2 * number < max(len(self._texts), 1):
            raise Torn
        begin, end = self._texts[2 * number : 2 * number + 2] if self._texts else (0, 0)
        return self._data[begin:end].decode("utf-8", "backslashreplace")


def _pairs(spans: array[int]) -> Iterator[tuple[int, int]]:
    return zip(spans[::2], spans[1::2], strict=True)
