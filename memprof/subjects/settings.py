"""One table of the words for what is measured and how: the same in every question, with one meaning.

Each makes an option of the command line, a key of a suite's file, and a field of a Suite. The module is light, as every command imports it: what
reads programs is imported when such a word is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ..base.errors import UsageError
from ..base.pairs import by_name
from ..base.units import parse_celsius, parse_duration_ns
from . import drive, values


def relative(folder: Path, text: str) -> str:
    """A path that is relative to a folder."""
    return str(folder / os.path.expanduser(text)) if text else ""  # an empty word is not the folder; its user reports that


def program(folder: Path, text: str) -> str:
    """A program, whose path is relative to a folder; without a / it is looked for on PATH."""
    return relative(folder, text) if os.sep in text else text


class Setting(Struct, frozen=True):
    """A word for what is measured.

    name: that of its option; in a file it has _ for -. field: that of Suite. read: the value of its text, for one that can be repeated a pair of
    key and value; None for the text itself. choices: the only texts. kind: of the value that click makes: text, a whole number or a switch.
    only: the one kind of subject that heeds it, empty for both. in_file: its type in a file, for each key where it can be repeated; None for
    `kind`. path: what its text in a file of a folder means, where it is a path: `relative` or `program`. off: the option that switches a switch off.
    written: the text of a value, which `read` reads.
    """

    name: str
    field: str
    help: str
    metavar: str | None = None
    read: Callable[[str], Any] | None = None
    many: bool = False
    choices: tuple[str, ...] = ()
    kind: type = str
    only: Literal["", "runtime", "program"] = ""
    in_file: Any = None
    path: Callable[[Path, str], str] | None = None
    off: str = ""
    written: Callable[[Any], str] = str

    @property
    def parameter(self) -> str:
        """Its keyword among the words of a command, and its key in a file."""
        return self.name.replace("-", "_")

    @property
    def file_type(self) -> Any:
        """The type of its value in a file."""
        if self.many:
            return dict[str, self.in_file or str]  # type: ignore[misc]
        return Literal[self.choices] if self.choices else self.in_file or self.kind

    def value(self, given: Any) -> Any:
        """The field's value. given: what click made of the option. Raises UsageError."""
        if self.many:
            return by_name(map(self.read, given), f"--{self.name}") if self.read is not None else tuple(given)
        return self.read(given) if self.read is not None else given

    def options(self, value: Any) -> Iterator[str]:
        """The words of a command line that give this value; none for a value that is not set."""
        if value in (None, "", ()) or value == {}:
            return
        if self.kind is bool:
            yield f"--{self.name if value else self.off}"
        elif self.many:
            for key, each in value.items():
                yield from (f"--{self.name}", f"{key}={self.written(each)}")
        else:
            yield from (f"--{self.name}", self.written(value))

    def lines(self, value: Any) -> Iterator[str]:
        """The line of a suite's file that gives this value; none for a value that is not set."""
        if value in (None, "", ()) or value == {}:
            return
        if self.many:
            pairs = (
                f"{key if re.fullmatch(r'[A-Za-z0-9_-]+', key) else toml_value(key)} = {self._in_file(each)}" for key, each in value.items()
            )
            yield f"{self.parameter} = {{ {', '.join(pairs)} }}"
        else:
            yield f"{self.parameter} = {self._in_file(value)}"

    def _in_file(self, value: Any) -> str:
        return toml_value(list(value) if isinstance(value, tuple) else value if self.kind is not str else self.written(value))

    def value_in(self, folder: Path, given: Any) -> Any:
        """The field's value. given: as a file in that folder has it, of `file_type`. Raises UsageError."""
        if self.many:
            return self.value([f"{key}={_text(each)}" for key, each in given.items()])
        text = given if self.kind is not str else _text(given)
        return self.value(self.path(folder, text) if self.path is not None else text)


def toml_value(value: Any) -> str:
    """A text, a number, a switch or a list of them as TOML writes it, which is as JSON does."""
    return msgspec.json.encode(value).decode()


def _text(value: Any) -> str:
    """A value of a file as the command line has it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _phase(text: str) -> tuple[str, str]:
    from ..programs import symbols

    return symbols.parse_phase(text)


def _phase_regex(text: str) -> tuple[str, str]:
    from ..programs.commands import parse_regex

    return parse_regex(text)


def _numbers(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _ns(duration: int) -> str:
    return f"{duration}ns"


def _drive(load: drive.Drive) -> str:
    return load.option


def _celsius(degrees: float) -> str:
    return f"{degrees:g}C"


SETTINGS = (
    Setting("set", "set", "A knob of the runtime (repeatable).", "KEY=VALUE", values.parse_pair, many=True, in_file=str | int | bool),
    Setting(
        "threads",
        "threads",
        "Thread counts.  [default: the runtime's own]",
        "N,N,...",
        values.parse_threads,
        in_file=int | list[int],
        written=_numbers,
    ),
    Setting("env", "env", "A variable for the child (repeatable).", "NAME=VALUE", values.parse_pair, many=True, in_file=str | int),
    Setting("python", "python", "The interpreter that has the runtime.  [default: memprof's own]", "PATH", only="runtime", path=program),
    Setting(
        "shape",
        "shapes",
        "An input's shape (repeatable).",
        "INPUT=1,3,224,224",
        values.parse_shape,
        many=True,
        only="runtime",
        in_file=list[int],
        written=_numbers,
    ),
    Setting("inputs", "inputs", "Inputs by name. memprof makes those that it lacks.", "FILE.npz", only="runtime", path=relative),
    Setting(
        "input",
        "values",
        "The value of an input: of a scalar, or of each of its elements (repeatable).",
        "NAME=VALUE",
        values.parse_value,
        many=True,
        only="runtime",
        in_file=str | int | float | bool,
    ),
    Setting(
        "name",
        "name",
        "The name in tables, of a model or of a program behind --.  [default: its file's, or the program's]",
        "NAME",
    ),
    Setting("cwd", "cwd", "The folder that a program runs in.  [default: this one]", "FOLDER", only="program", path=relative),
    Setting(
        "phase",
        "phases",
        "This function of a program is a phase. gdb follows it. NAME is load, prepare, warmup, execute or any other (repeatable).",
        "NAME=FUNCTION",
        _phase,
        many=True,
        only="program",
    ),
    Setting(
        "phase-regex",
        "phase_regexes",
        "A line of a program's output ends this phase. Times and peaks are then approximate (repeatable).",
        "NAME=REGEX",
        _phase_regex,
        many=True,
        only="program",
    ),
    Setting(
        "drive",
        "drive",
        "The program is a server, which memprof asks: --warmup and --runs are requests. openai:PORT, or http:PORT/PATH for any other; then "
        "prompts=N, generate=N, parallel=N, distinct=N or body=FILE, each after a comma.",
        "openai:PORT,...",
        drive.parse,
        only="program",
        written=_drive,
    ),
    Setting("warmup", "warmup", "Iterations that are not timed.  [default: 5; fewer where a question needs fewer]", "N", kind=int),
    Setting("runs", "runs", "Timed iterations.  [default: 5; fewer where a question needs fewer]", "N", kind=int),
    Setting("cache", "cache", "The model's page cache before each run.  [default: warm]", choices=("warm", "cold", "asis")),
    Setting(
        "deterministic",
        "deterministic",
        "No address randomisation, a fixed hash seed, one malloc arena, and one thread unless --threads says otherwise.",
        kind=bool,
        off="no-deterministic",
    ),
    Setting(
        "cpus",
        "cpus",
        "The CPUs that the run may use; fewer make the bound of peaks smaller.",
        "0-3,6",
        values.canonical_cpus,
        in_file=str | int | list[int],
    ),
    Setting("no-swap", "no_swap", "Keep the run's pages out of swap and zram, by a control group.", kind=bool, off="swap"),
    Setting(
        "recorder",
        "recorder",
        "What looks at the processes; c is a small C program, compiled on first use.  "
        "[default: python; with --on c where there is no Python 3.8]",
        choices=("python", "c"),
    ),
    Setting("timeout", "timeout_ns", "The longest time that a run may take.  [default: 10min]", "TIME", parse_duration_ns, written=_ns),
    Setting(
        "interval",
        "interval_ns",
        "The polling period, for all phases.  [default: 1ms; timed iterations 5ms, or none if the runtime uses every CPU]",
        "TIME",
        parse_duration_ns,
        written=_ns,
    ),
    Setting(
        "max-temperature",
        "max_celsius",
        "Wait before each run until the machine's hottest sensor is no hotter, if it has a sensor.",
        "45C",
        parse_celsius,
        written=_celsius,
    ),
)
# Of a campaign, which measures each variant several times; a question decides that itself.
REPEATS = Setting(
    "repeats", "repeats", "Fresh processes per variant. Fewer than 5 cannot decide a comparison.  [default: 5; of exec 1]", "N", kind=int
)
RELEASE = Setting(
    "release",
    "release",
    "End with the phase RELEASE: the runtime is deleted, and the memory that stays is shown.  [default: --release]",
    kind=bool,
    only="runtime",
    off="no-release",
)
OF_A_PROGRAM = tuple(setting for setting in SETTINGS if setting.only != "runtime")
OF_A_SUITE = (*SETTINGS, REPEATS, RELEASE)
OF_A_VARIANT = tuple(setting for setting in SETTINGS if setting.name in ("set", "threads", "env", "python", "shape"))


def fields(words: Mapping[str, Any], kind: str, remote: bool = False) -> dict[str, Any]:
    """The fields of a Suite from the words of a command line. kind: of the subject, as `Setting.only` has it, empty if there is none yet. remote: it
    is measured on another machine. Raises UsageError, for a setting that the subject does not heed too."""
    given = [setting for setting in OF_A_SUITE if words.get(setting.parameter) not in (None, ())]
    if kind == "program" and remote:  # the interpreter there is also the recorder's, which has it from the place
        given = [setting for setting in given if setting.name != "python"]
    for setting in given:
        if kind and setting.only not in ("", kind):
            raise UsageError(f"--{setting.name} is for a {setting.only}")
    return {setting.field: setting.value(words[setting.parameter]) for setting in given}


def options(given: Mapping[str, Any]) -> list[str]:
    """The words of a command line for these fields of a Suite, by their names: what `fields` makes of them are the same."""
    return [word for setting in OF_A_SUITE for word in setting.options(given.get(setting.field))]
