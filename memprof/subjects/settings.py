"""One table of the words for what is measured and how: the same in every question, with one meaning.

Each makes an option of the command line, and a field of a Suite. The module is light, as every command imports it: what reads a word is imported
when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..base.errors import UsageError
from ..base.units import parse_celsius, parse_duration_ns


@dataclass(frozen=True)
class Setting:
    """A word for what is measured.

    name: that of its option. field: that of Suite. read: the value of its text, for one that can be repeated a pair of key and value; None for the
    text itself. choices: the only texts. kind: of the value that click makes: text, a whole number or a switch. only: the one kind of subject that
    heeds it, empty for both.
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

    @property
    def parameter(self) -> str:
        """Its keyword among the words of a command."""
        return self.name.replace("-", "_")

    def value(self, given: Any) -> Any:
        """The field's value. given: what click made of a word that is there. Raises UsageError."""
        if self.many:
            return dict(map(self.read, given)) if self.read is not None else tuple(given)
        return self.read(given) if self.read is not None else given


def _setting(text: str) -> tuple[str, str]:
    from ..programs.runtimes import split_setting

    return split_setting(text)


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    from .suite import parse_shape

    return parse_shape(text)


def _threads(text: str) -> tuple[int, ...]:
    from .suite import parse_threads

    return parse_threads(text)


def _cpus(text: str) -> str:
    from .suite import canonical_cpus

    return canonical_cpus(text)


def _phase(text: str) -> tuple[str, str]:
    from ..programs import symbols

    return symbols.parse_phase(text)


def _phase_regex(text: str) -> tuple[str, str]:
    from ..programs.commands import parse_regex

    return parse_regex(text)


SETTINGS = (
    Setting("set", "set", "A knob of the runtime (repeatable).", "KEY=VALUE", _setting, many=True),
    Setting("threads", "threads", "Thread counts.  [default: the runtime's own]", "N,N,...", _threads),
    Setting("env", "env", "A variable for the child (repeatable).", "NAME=VALUE", _setting, many=True),
    Setting("python", "python", "The interpreter that has the runtime.  [default: memprof's own]", "PATH", only="runtime"),
    Setting("shape", "shapes", "An input's shape (repeatable).", "INPUT=1,3,224,224", _shape, many=True, only="runtime"),
    Setting("inputs", "inputs", "Inputs by name. memprof makes those that it lacks.", "FILE.npz", only="runtime"),
    Setting("name", "name", "The model's name in tables.", "NAME"),
    Setting("cwd", "cwd", "The folder that a program runs in.  [default: this one]", "FOLDER", only="program"),
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
    Setting("warmup", "warmup", "Iterations that are not timed.", "N", kind=int),
    Setting("runs", "runs", "Timed iterations.", "N", kind=int),
    Setting("cache", "cache", "The model's page cache before each run.  [default: warm]", choices=("warm", "cold", "asis")),
    Setting(
        "deterministic",
        "deterministic",
        "No address randomisation, a fixed hash seed, one malloc arena, and one thread unless --threads says otherwise.",
        kind=bool,
    ),
    Setting("cpus", "cpus", "The CPUs that the run may use; fewer make the bound of peaks smaller.", "0-3,6", _cpus),
    Setting("no-swap", "no_swap", "Keep the run's pages out of swap and zram, by a control group.", kind=bool),
    Setting(
        "recorder",
        "recorder",
        "What looks at the processes; c is a small C program, compiled on first use.  "
        "[default: python; with --on c where there is no Python 3.8]",
        choices=("python", "c"),
    ),
    Setting("timeout", "timeout_ns", "The longest time that a run may take.  [default: 10min]", "TIME", parse_duration_ns),
    Setting("interval", "interval_ns", "The polling period, for all phases.", "TIME", parse_duration_ns),
    Setting(
        "max-temperature",
        "max_celsius",
        "Wait before each run until the machine's hottest sensor is no hotter, if it has a sensor.",
        "45C",
        parse_celsius,
    ),
)


def fields(words: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The fields of a Suite from the words of a command line. kind: of the subject, as `Setting.only` has it, empty if there is none yet. Raises
    UsageError, for a setting that the subject does not heed too."""
    given = [setting for setting in SETTINGS if words[setting.parameter] not in (None, ())]
    for setting in given:
        if kind and setting.only not in ("", kind):
            raise UsageError(f"--{setting.name} is for a {setting.only}")
    return {setting.field: setting.value(words[setting.parameter]) for setting in given}
