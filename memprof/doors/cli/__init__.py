"""The command line: one file per command, each a pair of parser and call, imported when the command is called.

Errors become their sentence and their exit code here and nowhere else (see memprof.base.errors).
"""

from __future__ import annotations

import builtins
import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...base.errors import EXIT_DEFECT, EXIT_INTERRUPTED, TOO_LITTLE_MEMORY, MemprofError, out_of_memory
from ...base.pairs import LEAVE_ONE_OUT, WITH_COMMAS
from ...base.terminal_text import plain
from ...base.thread_limits import load_numpy

if TYPE_CHECKING:
    from types import ModuleType

    from ...records.store import FileRuns

# section: name: (module of this folder, first line of its help), so that --help imports none of them.
_COMMANDS = {
    "Measure": {
        "run": ("run", "Measure models in runtimes, phase by phase, and print tables."),
        "exec": ("exec", "Measure a program and the processes that it starts."),
        "attach": ("attach", "Poll a process that already runs."),
        "import": ("import_", "Turn logs of other tools into runs."),
        "merge": ("merge", "Put runs files of several shards together."),
    },
    "Look": {
        "table": ("table", "Print tables from runs files."),
        "plot": ("plot", "Draw pictures from runs files."),
        "page": ("page", "Write a self-contained interactive page."),
        "view": ("view", "Open the page in a browser."),
        "card": ("card", "Print what a model card shows of memory."),
        "trace": ("trace", "Write runs as a trace that Perfetto opens."),
    },
    "Judge": {
        "compare": ("compare", "Say what differs between two sets of runs, beyond noise."),
        "gate": ("gate", "Decide whether memory got worse: verdicts, budgets, an exit code."),
        "baseline": ("baseline", "Keep the samples that a gate compares with."),
        "bisect": ("bisect", "Find the commit or the release that changed a figure."),
        "history": ("history", "Keep a project's memory commit by commit, and find its steps."),
    },
    "Understand": {
        "explain": ("explain", "Say why the memory is what it is, and what would lower it."),
        "heap": ("heap", "Show who allocated the peak: massif, heaptrack, memray."),
        "tune": ("tune", "Search a runtime's knobs for the settings with the least peak."),
        "grow": ("grow", "Say whether memory rises with use, and keeps rising."),
        "fit": ("fit", "Find the least memory in which a model runs."),
        "scale": ("scale", "Find how memory grows with batch, threads or sessions."),
        "plan": ("plan", "Plan a graph before it runs: best order, arena, residency."),
    },
    "Tools": {
        "fleet": ("fleet", "Show a fleet: its machines, their work and the queue."),
        "worker": ("worker", "Offer this machine, or boards beside it, to a fleet."),
        "doctor": ("doctor", "Say what can be measured on this machine, and how exactly."),
        "runtimes": ("runtimes", "List the runtimes, their versions and their knobs."),
        "marks": ("marks", "Say where the header and the Python file for marks are."),
        "clean": ("clean", "Remove the files that memprof keeps on another machine."),
        "zoo": ("zoo", "Make a model file: a real architecture with random weights."),
    },
}
# With any of their words; reports load it when a caller needs them.
_WITH_NUMPY = ("bisect", "explain", "grow", "history", "plan", "scale", "zoo")
# Options of near meanings, the metavariable of that meaning, and what to call where a command has none of them.
_NEAR_MEANINGS = (
    (
        ("--budget", "--within", "--limit", "--max-memory"),
        "SIZE",
        "`memprof gate --run SUITE.toml --budget SIZE` holds peaks to a budget, and `memprof fit --within SIZE` tries a limit",
    ),
    (("--time", "--budget", "--for", "--duration"), "TIME", "--timeout TIME is the longest time of one run"),
    (("--runs", "--iterations", "--loops"), "N", "`memprof run --runs N` sets the timed iterations"),
    (("--max-latency", "--max-slowdown"), "%", "`memprof tune --max-latency +10%` and `memprof fit --max-latency 2x` bound the latency"),
)


class CliCommand(click.Command):
    """A command that refuses an option which takes one value and is given twice: click would take the last one in silence. Where an option is
    unknown and the command has another of its meaning, it names that one: click would name one of similar letters."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            _, _, order = self.make_parser(ctx).parse_args(list(args))
        except click.NoSuchOption as error:
            raise self._of_near_meaning(error, ctx) from None
        for option in order:
            if isinstance(option, click.Option) and order.count(option) > 1 and not (option.multiple or option.is_flag or option.count):
                together = WITH_COMMAS if option.metavar and "," in option.metavar else ""
                recipe = together or f"call {ctx.command_path} once for each, or {LEAVE_ONE_OUT}"
                raise click.UsageError(f"{option.opts[-1]} takes one value, and two are given: {recipe}", ctx)
        return super().parse_args(ctx, args)

    def _of_near_meaning(self, error: click.NoSuchOption, ctx: click.Context) -> click.UsageError:
        """What to answer to an unknown option: the command's own of that meaning, or another command that has it; else click's words."""
        known = next((entry for entry in _NEAR_MEANINGS if error.option_name in entry[0]), None)
        if known is None:
            return self._of_near_spelling(error)
        names, metavar, elsewhere = known
        own = {name for option in self.get_params(ctx) if metavar in (option.metavar or "") for name in option.opts}
        here = " or ".join(name for name in names if name in own)
        return click.UsageError(f"{ctx.command_path} has no {error.option_name}: {f'here it is {here}' if here else elsewhere}", ctx)

    @staticmethod
    def _of_near_spelling(error: click.NoSuchOption) -> click.UsageError:
        """click's error without what is near by its dashes alone: --yes is no --by."""
        from ...base.errors import close_to

        bare = {option.lstrip("-"): option for option in error.possibilities or ()}
        close = [bare[name] for name in close_to(error.option_name.lstrip("-"), bare)]
        return click.NoSuchOption(error.option_name, possibilities=close, ctx=error.ctx)


class CliGroup(click.Group):
    """A group of such commands."""

    command_class = CliCommand


class Lazy(CliGroup):
    """A group whose commands are imported when they are called.

    sections: section of the help -> name -> (module of this folder, first line of its help). A module holds its command as `command`, or
    several under their names.
    """

    def __init__(self, *args: Any, sections: dict[str, dict[str, tuple[str, str]]], **words: Any) -> None:
        super().__init__(*args, **words)
        self.sections = sections
        self.listed = {name: entry for section in sections.values() for name, entry in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.listed)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.listed:
            return None
        if cmd_name in _WITH_NUMPY:
            load_numpy()
        module = import_module(f".{self.listed[cmd_name][0]}", __name__)
        command: click.Command = getattr(module, "command", None) or getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.listed))  # the same in every section
        for title, section in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), help) for name, (_, help) in section.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        from ...base.errors import near

        if args and args[0] not in self.listed and not args[0].startswith("-"):
            raise click.UsageError(f"there is no command {args[0]!r}{near(args[0], self.listed)}", ctx)
        return super().resolve_command(ctx, args)


def load_runs(*files: str) -> FileRuns:
    """The content of runs files; their warnings go to standard error."""
    from ...records import store

    loaded = store.load(files)
    for warning in loaded.warnings:
        talk(warning)
    return loaded


def report(name: str) -> ModuleType:
    """A module of reports, by name: no static import crosses that wall, and pandas is not imported before it is needed."""
    if name.startswith(("pictures", "page", "frame", "heap.p")):
        load_numpy()
    return import_module(f"memprof.reports.{name}")


def answer_format(as_json: bool) -> str:
    """How an answer goes to standard output: as JSON, as text on a terminal, which needs no escapes, and else as Markdown."""
    return "json" if as_json else "text" if sys.stdout.isatty() else "markdown"


def write(target: str | None, writer: Callable[[Path], object]) -> None:
    """Write a report's file, whole or not at all: `writer` is called with a draft's path, and the draft gets the target's name when all is written.

    Raises UsageError without a target, InputError if it cannot be written or is a runs file.
    """
    from ...base import files
    from ...base.errors import InputError, UsageError, os_reason
    from ...records.store import is_runs_file

    if target is None:
        raise UsageError("name the file to write: -o FILE")
    path = Path(target)
    if is_runs_file(path):
        raise InputError(f"{path} holds runs; a report is not written over it")
    files.check_target(path)
    try:
        with files.drafts(path) as (draft,):
            writer(draft)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {os_reason(error)}") from None


def write_text(target: str | None, text: str) -> None:
    """`write` for a text, whose last line is ended here."""
    write(target, lambda path: path.write_text(text + "\n", encoding="utf-8"))


def write_html(target: str, html: str) -> int:
    """`write` for a page; its size in bytes."""
    content = html.encode("utf-8", "backslashreplace")  # the name of a file need not be UTF-8
    write(target, lambda path: path.write_bytes(content))
    return len(content)


def _version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version

        click.echo(f"memprof {version('ml-memprof')}")
        ctx.exit()


@click.group(
    cls=Lazy,
    sections=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Example: memprof run model.onnx -r onnxruntime --threads 1 > table.md",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version and exit.")
def group() -> None:
    """Exact memory and time of a model's load, prepare and execute phases, in any runtime.

    In pytest the mark @pytest.mark.memprof("120 MiB") limits a test, and `pytest --memprof` shows the memory of each test.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit with its code. The process's own command also ends at SIGTERM as it does at Ctrl-C: with the runs measured until
    then, and without the drafts of what it was writing."""
    sys.stdout, sys.stderr = _patient(sys.stdout, 1), _patient(sys.stderr, 2)
    if arguments is None:
        signal.signal(signal.SIGTERM, _interrupt)
        sys.unraisablehook = _heed
    try:
        code = _guarded(lambda: group.main(arguments, prog_name="memprof", standalone_mode=False), arguments is None)
    except KeyboardInterrupt:  # a second one, before the first was answered
        code = _interrupted()
    if arguments is None:
        _ignore_interruptions()
        # An interruption inside exec() of a text, as dataclasses do it, lets `python -m` (3.11 seen) end by SIGINT whatever the exit code, until
        # the next exec() of a text.
        with suppress(MemoryError, SystemError):  # it takes an arena; without memory exec() may fail and set no exception
            builtins.exec("")  # by its module: the command exec, once loaded, is a name of this package
    sys.exit(code)


def _ignore_interruptions() -> None:
    """From here on only the exit itself could be interrupted, and Python would show a traceback for that."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _heed(lost: sys.UnraisableHookArgs) -> None:
    """An interruption that comes while Python removes an object is lost: it comes again a moment later. Where memory is short, the sentence about
    that is enough: Python has such an error for each module that it then removes."""
    if lost.exc_type is not KeyboardInterrupt:
        if lost.exc_type is not MemoryError:
            sys.__unraisablehook__(lost)
        return
    again = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM))
    again.daemon = True
    again.start()


class _Patient(io.FileIO):
    """A stream whose reader may leave (`| head -1`): output after that goes nowhere, and the exit code is that of the work."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return len(data)


def _patient(stream: Any, number: int) -> Any:
    """The standard stream of that number. A closed stream becomes one that goes nowhere; a stream that a test has put there stays."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if stream not in (sys.__stdout__, sys.__stderr__):
        return stream
    raw = _Patient(number, "wb", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, "backslashreplace", line_buffering=stream.line_buffering)


def talk(sentence: str) -> None:
    """Say a sentence on standard error."""
    click.echo(f"memprof: {plain(sentence)}", err=True)


def _guarded(call: Callable[[], object], is_own: bool = False) -> int:
    """The exit code of a call, whose errors become sentences. is_own: whether it is the process's own command."""
    try:
        code = call()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as exit:
        return exit.exit_code
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # of click 8.2 and later
            error.show()
        else:
            talk(_missing(error) if isinstance(error, click.MissingParameter) else error.format_message())
        return error.exit_code
    except MemprofError as error:
        talk(str(error))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _interrupted()
    except UnicodeEncodeError as error:
        talk(f"{error.object!r} is not UTF-8")
        return MemprofError.exit_code
    except OSError as error:
        from ...base.errors import os_reason

        if out_of_memory(error):
            return _short_of_memory(is_own)
        talk(f"{error.filename or 'standard output'}: {os_reason(error)}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # output that still waits goes nowhere: Python would try again at exit
        return MemprofError.exit_code
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # a Ctrl-C inside an import comes out so, until Python 3.11
            return _interrupted()
        return _short_of_memory(is_own) if out_of_memory(error) else _defect(error)


def _missing(error: click.MissingParameter) -> str:
    """What click says of the first parameter that is missing, for all that are: those that were given are known by then."""
    context = error.ctx
    known = context.params if context is not None else {}
    every = [each for each in (context.command.params if context is not None else ()) if each.required and each.name not in known]
    if context is None or len(every) < 2:
        return error.format_message()
    *words, last = [f"{each.param_type_name} {each.get_error_hint(context)}" for each in every]
    return f"Missing {', '.join(words)} and {last}."


def _short_of_memory(is_own: bool) -> int:
    """Say it. The process's own command ends at once: what Python does at its exit fails too then, and would be told behind the sentence."""
    talk(TOO_LITTLE_MEMORY)
    if is_own:
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(MemprofError.exit_code)
    return MemprofError.exit_code


def _defect(error: Exception) -> int:
    """Say that memprof itself failed, and name a file that helps to mend it: never as a traceback, and never as a regression."""
    import time
    import traceback
    from importlib import metadata

    from ...base import files
    from ...base.cache import state_folder

    words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    try:
        version = metadata.version("ml-memprof")
    except metadata.PackageNotFoundError:  # run from a checkout
        version = "of a checkout"
    facts = f"memprof {version}, Python {sys.version}, {sys.platform}\n{sys.argv[1:]!r}\n\n"
    text = facts + "".join(traceback.format_exception(error))
    try:
        path = state_folder() / time.strftime(f"defect-%Y%m%d-%H%M%S-{os.getpid()}.txt")
        files.write(path, text.encode("utf-8", "backslashreplace"))
        where = f"{path} holds the details for a report"
    except MemprofError as refused:
        where = f"no file for a report could be written ({refused})"
    talk(f"this is a defect of memprof: {words}; {where}")
    return EXIT_DEFECT


def _interrupted() -> int:
    _ignore_interruptions()
    talk("interrupted")
    return EXIT_INTERRUPTED
