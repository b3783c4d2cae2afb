"""Any program as a variant: the meaning of `--cmd 'NAME=./app --model m.tflite'`, checked before anything starts.

In a command's words `{model}`, `{threads}`, `{runs}` and `{warmup}` are filled in; other braces are the program's own. Words of the form
NAME=VALUE before the program are variables of its environment, as in a shell. A command is a row of the model that it names: the model given to
memprof, or the first of its words that is a model's file. A command that names no model is a row of the program itself.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import dropwhile, groupby
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from ..base.errors import InputError, UsageError, os_reason
from ..base.files import sha256_of
from ..models import companion_files
from ..models.identity import identify
from ..records import phases
from ..records.types import COMMAND, Model, ModelFile
from .runtimes import Runtime

WORDS = ("model", "threads", "runs", "warmup")
# The endings by which a word of a command is taken for a model. A folder is a model if it is an nnpackage.
_MODELS = (".onnx", ".ort", ".tflite", ".circle", ".tvn", ".xml", ".ini", ".pte", ".pt", ".pth", ".mnn", ".param", ".gguf", ".dlc")
_NAME = re.compile(r"([A-Za-z0-9_.+-]+)=(?=\S|$)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_INTERPRETER = re.compile(r"(python|pypy|node|perl|ruby|bash|dash|sh)[0-9.]*")
_WITH_VALUE = ("-W", "-X", "-r", "--require")  # options of interpreters that have a value
_CODE = re.compile(r"-[A-Za-z]*[ce]")  # an option behind which code stands, in place of a script
_SHELL = re.compile(r"(ba|da|z|k)?sh[0-9.]*")
_LEFT_OUT = re.compile(r"(?m)(?:^|\s)#.*$|\d*(?:>>?|<)(?:&\d|\s*[^\s&|;<>()]+)")  # comments and redirections
_SHORT = 24  # characters of a script that is named by its words
# What a shell does itself, and no program that it starts; and words that make a script more than programs one after another.
_BUILTIN = re.compile(r"[.:\[]|cd|echo|exit|export|false|printf|read|set|test|true|ulimit|umask|unset|wait")
_KEYWORD = re.compile(r"[!{]|case|do|done|elif|else|esac|eval|fi|for|function|if|in|then|until|while")


class _Launcher(Struct, frozen=True):
    """A program that starts the one behind its own words. values: its options with a value in the next word; operands: words that it takes first."""

    values: tuple[str, ...] = ()
    operands: int = 0


_LAUNCHERS = {
    "chrt": _Launcher(operands=1),
    "env": _Launcher(("-u", "--unset", "-C", "--chdir")),
    "exec": _Launcher(("-a",)),
    "ionice": _Launcher(("-c", "--class", "-n", "--classdata")),
    "nice": _Launcher(("-n", "--adjustment")),
    "nohup": _Launcher(),
    "numactl": _Launcher(("-m", "--membind", "-N", "--cpunodebind", "-C", "--physcpubind", "-i", "--interleave", "-p", "--preferred")),
    "pdm run": _Launcher(("-p", "--project")),
    "poetry run": _Launcher(),
    "setsid": _Launcher(),
    "stdbuf": _Launcher(("-i", "-o", "-e", "--input", "--output", "--error")),
    "taskset": _Launcher(operands=1),
    "time": _Launcher(("-f", "--format", "-o", "--output")),
    "timeout": _Launcher(("-s", "--signal", "-k", "--kill-after"), 1),
    "uv run": _Launcher(("-p", "--python", "--with", "--extra", "--group", "--package", "--project", "--directory", "--env-file")),
}

RUNTIME = Runtime(name=COMMAND, version="")


class Command(Struct, frozen=True):
    """A program, its words and its surroundings, with WORDS still to be filled in. cwd: None for memprof's own working folder.

    surroundings: variables by which it finds what is in an environment of memprof's, None for those that it must not have. Where that lies is no
    setting of its run.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None = None
    surroundings: Mapping[str, str | None] = field(default_factory=dict)

    def has(self, word: str) -> bool:
        """Whether `{word}` occurs."""
        return any(f"{{{word}}}" in text for text in (*self.argv, *self.env.values()))

    def filled(self, words: Mapping[str, object]) -> Command:
        """The command with these values in place of the words."""

        def fill(text: str) -> str:
            for word, value in words.items():
                text = text.replace(f"{{{word}}}", str(value))
            return text

        return replace(self, argv=tuple(map(fill, self.argv)), env={key: fill(value) for key, value in self.env.items()})


# -- words of the command line


def parse(text: str) -> Command:
    """`NAME=[VARIABLE=VALUE...] PROGRAM WORD...`, quoted as in a shell. Without NAME it is called as the program. Raises UsageError."""
    match = _NAME.match(text)
    return of_words(split(text[match.end() :] if match else text), match[1] if match else "")


def split(text: str) -> list[str]:
    """The words of a command as a shell splits them. Raises UsageError if there are no words, or if a quote is left open."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"command {text!r}: {str(error).lower()}") from None
    if not words:
        raise UsageError(f"command {text!r}: write NAME=PROGRAM WORD...")
    return words


def of_words(words: Sequence[str], name: str = "") -> Command:
    """A command from words that are split already. Raises UsageError if they name no program."""
    env = {}
    at = 0
    while at < len(words) and _VARIABLE.match(words[at]):
        key, _, env[key] = words[at].partition("=")
        at += 1
    if at == len(words):
        raise UsageError(f"{shlex.join(words)!r} names no program")
    if words[at] == "{python}":
        raise UsageError("there is no command {python}: write python; with --base-ref that is the Python of each side's environment")
    return Command(name or subject(words[at:]), tuple(words[at:]), env)


def launched(argv: Sequence[str]) -> Sequence[str]:
    """The words of the program that a command's words run: without `env NAME=VALUE`, `nice`, `timeout 60`, `uv run` and their like before it."""
    name = os.path.basename(argv[0])
    own = 1 if name in _LAUNCHERS else 2
    launcher = _LAUNCHERS.get(name) or _LAUNCHERS.get(" ".join([name, *argv[1:2]]))
    if launcher is None:
        return argv
    at, operands = own, launcher.operands
    while at < len(argv):
        if argv[at].startswith("-"):
            at += 2 if argv[at] in launcher.values else 1
        elif name == "env" and _VARIABLE.match(argv[at]):
            at += 1
        elif operands:
            at, operands = at + 1, operands - 1
        else:
            return launched(argv[at:])
    return argv


def subject(argv: Sequence[str]) -> str:
    """What a command's words run, as people call it: the script or the module of an interpreter, the last program of a shell's line, else the
    program."""
    argv = launched(argv)
    program = os.path.basename(argv[0])
    if not _INTERPRETER.fullmatch(program):
        return program
    words = iter(argv[1:])
    for word in words:
        if word == "-m":
            return next(words, program)
        if word in _WITH_VALUE:
            next(words, None)
        elif _CODE.fullmatch(word):
            return _script_subject(next(words, ""), program) if _SHELL.fullmatch(program) else program
        elif "{" in word:
            return program
        elif not word.startswith("-"):
            return os.path.basename(word) or program
    return program


def programs(argv: Sequence[str]) -> list[Sequence[str]]:
    """The words of each program that a command's words run, as far as they say it: those of a shell's line where that is plain, else one program."""
    argv = launched(argv)
    if _SHELL.fullmatch(os.path.basename(argv[0])):
        for at, word in enumerate(argv[1:-1], 1):
            if _CODE.fullmatch(word):
                return [launched(words) for words in _script_programs(argv[at + 1]) or ()] or [argv]
    return [argv]


def _script_subject(script: str, shell: str) -> str:
    """What a shell's line runs: the last of its programs where that is plain, else its first words."""
    programs = _script_programs(script)
    if programs and "$" not in programs[-1][0]:
        return subject(programs[-1])
    text = " ".join(script.split()) or shell
    return shell if programs is None else text if len(text) <= _SHORT else f"{text[:_SHORT].rstrip()}…"


def _script_programs(script: str) -> list[list[str]] | None:
    """The words of the programs that a shell's line runs, one after another. Empty if it is more than that; None if it is no shell's line."""
    lexer = shlex.shlex(_LEFT_OUT.sub(" ", script).replace("\n", ";"), posix=True, punctuation_chars=";&|()`")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        tokens = list(lexer)
    except ValueError:  # a quote is left open
        return None
    if not all(token.strip("()`") and not _KEYWORD.fullmatch(token) for token in tokens):
        return []
    groups = [list(group) for ends, group in groupby(tokens, lambda token: not token.strip(";&|")) if not ends]
    return [words for group in groups if (words := list(dropwhile(_VARIABLE.match, group))) and not _BUILTIN.fullmatch(words[0])]


def parse_regex(text: str) -> tuple[str, str]:
    """`load='MODEL_LOAD takes'` as (phase, regular expression). Raises UsageError."""
    name, equals, regex = text.partition("=")
    if not equals or not name or not regex:
        raise UsageError(f"--phase-regex {text!r}: write NAME=REGEX, such as load='MODEL_LOAD takes'")
    try:
        re.compile(regex)
    except re.error as error:
        raise UsageError(f"--phase-regex {text!r}: {error}") from None
    return phases.own(phases.named(name)), regex


# -- the program of a command, and its model


def program(command: Command) -> Path:
    """The program's file. Raises InputError if there is no such file, or if it may not be run."""
    name = command.argv[0]
    if command.cwd is not None and not os.path.isdir(command.cwd):
        raise InputError(f"the folder {command.cwd} does not exist")
    if os.sep not in name:
        executable = shutil.which(name, path=command.env.get("PATH", command.surroundings.get("PATH")))
        if executable is None:
            hint = f"; ./{name} is in this folder" if os.access(os.path.join(command.cwd or ".", name), os.X_OK) else ""
            raise InputError(f"there is no command {name}{hint}")
        return Path(executable)
    path = Path(command.cwd or ".") / os.path.expanduser(name)
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if not path.is_file():
        raise InputError(f"{path} is not a program")
    if not os.access(path, os.X_OK):
        raise InputError(f"{path} is not executable (chmod +x makes it so)")
    return path


def argv(command: Command, path: Path) -> tuple[str, ...]:
    """The words that are started: the program by a path that is valid in the command's working folder."""
    if os.sep not in command.argv[0]:
        return command.argv
    return (str(path.absolute()), *command.argv[1:])


def program_file(path: Path) -> ModelFile:
    """The program's size and content, which distinguish two builds of one name."""
    try:
        status = path.stat()
        return _hashed(str(path.resolve()), status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise InputError(f"{path}: {os_reason(error)}") from None


def running_program(pid: int) -> ModelFile:
    """The program of a process, which may have another root than this one: its path there. Raises OSError, and InputError if the file was deleted."""
    link = Path(f"/proc/{pid}/exe")
    path = os.readlink(link)
    if path.endswith(" (deleted)"):
        raise InputError(f"{path}: the file is gone")
    sha256, size = sha256_of(link)
    return ModelFile(path, size, sha256)


@lru_cache(maxsize=64)
def _hashed(path: str, size: int, _changed_ns: int) -> ModelFile:
    try:
        sha256 = _script_sha256(path) or sha256_of(Path(path))[0]
    except PermissionError:  # a program that may be run but not read
        sha256 = hashlib.sha256(path.encode()).hexdigest()
    return ModelFile(path, size, sha256)


def _script_sha256(path: str) -> str | None:
    """The hash of a script of a virtual environment without its first line, which names the environment's folder. None for any other file."""
    folder = os.path.dirname(path)
    if not os.path.exists(os.path.join(os.path.dirname(folder), "pyvenv.cfg")):
        return None
    with open(path, "rb") as file:
        own_line = file.read(2) == b"#!" and file.readline().startswith(os.fsencode(folder))
        return hashlib.sha256(file.read()).hexdigest() if own_line else None


def model_among(command: Command) -> Path | None:
    """The first of a command's words that is a model: a file of a known ending, or an nnpackage's folder; also after `--option=`."""
    for word in command.argv[1:]:
        for text in (word, word.partition("=")[2]):
            path = os.path.join(command.cwd or ".", os.path.expanduser(text))
            if text.lower().endswith(_MODELS) and os.path.isfile(path) and os.path.getsize(path):
                return Path(path)
            if text and os.path.isfile(os.path.join(path, "metadata", "MANIFEST")):
                return Path(path)
    return None


def names_model(path: Path, model: Model) -> bool:
    """Whether the path that a command has as a word is that of the model of its row."""
    return bool(model.files) and str(companion_files.place(path)) == model.path


def models(commands: Sequence[Command], name: str | None) -> list[Model]:
    """The model of each command, if memprof was given none.

    Commands of one line are there to be compared: those that name no model are rows of the first model that any of them names, else of the
    first program's name. Raises InputError for a file that holds no model.
    """
    paths = [model_among(command) for command in commands]
    named = [identify(path, name) if path is not None else None for path in paths]
    shared = name or next((model.name for model in named if model is not None), subject(commands[0].argv))
    return [model or _itself(shared, command) for model, command in zip(named, commands, strict=True)]


def _itself(name: str, command: Command) -> Model:
    try:
        file = program_file(program(command))
    except InputError:
        return Model(name, command.argv[0], (), 0, "")  # its order has the reason why it cannot be started
    # It has no model's file: nothing is brought into the page cache or dropped from it.
    return Model(name=name, path=file.path, files=(), bytes=0, sha256=file.sha256)
