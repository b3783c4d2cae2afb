"""What is measured, as the command line says it, and the way from a suite to its runs file and tables."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import textwrap
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from msgspec import Struct, structs
from msgspec.structs import replace

from ...base.errors import EXIT_INTERRUPTED, MeasurementError, MemprofError, UsageError
from ...base.units import counted
from ...subjects.settings import SETTINGS, Setting
from . import CliCommand

if TYPE_CHECKING:
    from ...campaign.progress import Keep, Progress
    from ...places.place import Place
    from ...records.summary import Key, Row
    from ...records.types import Run
    from ...subjects.suite import Suite, Variant

# In the context of a command: all its words, those behind `--`, and whether all options are explained.
_WORDS, _PROGRAM, _HELP_ALL = "memprof.words", "memprof.program", "memprof.help_all"


_WORTH_A_HINT_NS = 300e9
_WORTH_A_WARNING = 1.5  # times as long


class SharedOption(click.Option):
    """An option that has the same meaning in every command that has it: its help is short, and whole with --help-all."""


class Measuring(CliCommand):
    """A command that measures: its help shows its own options, and the names of those that it shares with others."""

    def __init__(self, *args: Any, **words: Any) -> None:
        super().__init__(*args, **words)

        def show(ctx: click.Context, option: click.Parameter, given: bool) -> None:
            if given:
                ctx.meta[_HELP_ALL] = True
                click.echo(ctx.get_help())
                ctx.exit()

        self.params.append(
            click.Option(
                ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=show, help="Show this message with every option."
            )
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        shared = [option for option in options if isinstance(option, SharedOption)]
        own = [option for option in options if option not in shared]
        with formatter.section("Options"):
            formatter.write_dl([record for option in own if (record := option.get_help_record(ctx)) is not None])
        records = [record for option in shared if (record := option.get_help_record(ctx)) is not None]
        with formatter.section("What is measured and how, the same in every command (--help-all explains it)"):
            if _HELP_ALL in ctx.meta:
                formatter.write_dl(records)
            else:
                margin = " " * formatter.current_indent
                each = [names.replace(" ", "\N{NO-BREAK SPACE}") for names, _ in records]
                lines = textwrap.wrap(
                    "  ".join(each), formatter.width, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False
                )
                formatter.write("".join(f"{line}\n" for line in lines).replace("\N{NO-BREAK SPACE}", " "))


class QuestionCommand(Measuring):
    """A command that asks about what is measured: its words end at `--`, and behind that are those of a program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_WORDS] = tuple(args)
        if "--" in args:
            place = args.index("--")
            ctx.meta[_PROGRAM] = tuple(args[place + 1 :])
            args = args[:place]
        return super().parse_args(ctx, args)


def words_of_program() -> tuple[str, ...]:
    """The words behind `--` of the present command."""
    words: tuple[str, ...] = click.get_current_context().meta.get(_PROGRAM, ())
    return words


def command_line(without: Collection[str]) -> str:
    """The line that gives the present command again, without these parameters."""
    ctx = click.get_current_context()
    words = iter(ctx.meta[_WORDS])
    left_out = {name: option for option in ctx.command.params if option.name in without for name in option.opts}
    kept = ctx.command_path.split()
    for word in words:
        option = left_out.get(word.partition("=")[0])
        if word == "--":
            kept += [word, *words]
        elif option is None:
            kept.append(word)
        elif "=" not in word and not getattr(option, "is_flag", False):
            next(words)
    return shlex.join(kept)


class Words(Struct, frozen=True):
    """What is measured, as it stands on the command line: models, runtimes, a program's words behind `--`, and the settings by parameter.

    Only a command that takes several runtimes has more than one.
    """

    models: tuple[str, ...]
    runtimes: tuple[str, ...]
    program: tuple[str, ...]
    settings: Mapping[str, Any]

    @property
    def python(self) -> str | None:
        """The interpreter that was named."""
        return cast("str | None", self.settings["python"])

    def suite(self, place: Place | None = None, on_fleet: bool = False, varied: Collection[str] = ()) -> Suite:
        """The suite of these words, measured there or here, with the defaults of memprof's configuration. on_fleet, varied: see with_defaults. Raises
        UsageError."""
        from ...subjects.configuration import with_defaults
        from ...subjects.suite import Variant, of_words
        from . import talk

        if self.program and self.runtimes:
            raise UsageError("-r NAME or -- PROGRAM: a runtime, or a program")
        if self.program or self.runtimes:  # they may run what is a model for them
            refuse_process(self.models)
        else:
            refuse_program(self.models)
        kind = "program" if self.program else "runtime" if self.runtimes else ""
        variants = tuple(Variant(runtime=name) for name in self.runtimes)
        if self.program:
            variants = (program_variant(self.program, self.settings),)
        where = {} if place is None else {"place": place}
        return with_defaults(of_words(self.settings, kind, models=self.models, variants=variants, **where), talk, on_fleet, varied)


def refuse_process(words: Iterable[str]) -> None:
    """Raises UsageError for the number of a process among the words for models and programs."""
    for word in words:
        if word.isdecimal() and not os.path.exists(word):
            raise UsageError(f"{word} is not a file; a process that already runs can only be polled: memprof attach {word}")


def refuse_program(words: Sequence[str]) -> None:
    """Raises UsageError for a program, or for the number of a process, among the words for models and runs."""
    program = next(filter(_is_program, words), None)
    if program is None:
        refuse_process(words)
        return
    ctx = click.get_current_context()
    if _WORDS not in ctx.meta:
        raise UsageError(f"{program} is a program, and memprof exec measures one: {shlex.join(['memprof', 'exec', *words])}")
    options = list(takewhile(lambda word: word != "--", ctx.meta[_WORDS]))
    for word in words:
        options.remove(word)
    line = shlex.join([*ctx.command_path.split(), *options, "--", *words, *words_of_program()])
    raise UsageError(f"{program} is a program, and a program goes behind --: {line}")


def _is_program(word: str) -> bool:
    """Whether a shell would start this: a file that may be run and is a script or a binary, or a name on the PATH. Libraries are compiled models."""
    if not os.path.lexists(word):
        return os.sep not in word and shutil.which(word) is not None
    if not os.path.isfile(word) or not os.access(word, os.R_OK | os.X_OK) or word.endswith(".so"):
        return False
    with open(word, "rb") as file:
        return file.read(4).startswith((b"#!", b"\x7fELF"))


def program_variant(words: Sequence[str], settings: Mapping[str, Any]) -> Variant:
    """The variant that is the program of these words, called as --name says. settings: by parameter.

    Raises UsageError, for a number of iterations that a program is not told too: it makes them itself, unless memprof asks a server for them.
    """
    from ...programs.commands import of_words
    from ...subjects.suite import of_command

    refuse_process(words[:1])
    command = of_words(words)
    for word in ("warmup", "runs"):
        if settings[word] is not None and settings["drive"] is None and not command.has(word):
            raise UsageError(f"{command.name}: write {{{word}}} where the number goes, or give no --{word}")
    return of_command(replace(command, name=settings["name"] or command.name))


def subject(function: Any, several: bool = False, without: Collection[str] = ()) -> Any:
    """The options for what is measured. The function takes them as one Words. several: runtimes can be more than one. without: settings that the
    command refuses, with its reason, and that its help therefore lacks."""

    @functools.wraps(function)
    def called(*others: Any, settings: Mapping[str, Any], **words: Any) -> Any:
        named = words.pop("runtime")
        runtimes = tuple(named) if several else (named,) if named is not None else ()
        return function(*others, subject=Words(words.pop("models"), runtimes, words_of_program(), settings), **words)

    more = " (repeatable).  [default: every one that is installed and takes the model]" if several else "."
    called = settings_options(*SETTINGS, without=without)(called)
    called = click.option(
        "-r", "--runtime", metavar="NAME", multiple=several, help=f"A runtime, or the file of a runtime that you wrote{more}"
    )(called)
    return click.argument("models", nargs=-1, metavar="[MODEL] [-- PROGRAM WORD...]")(called)


def settings_options(*settings: Setting, without: Collection[str] = ()) -> Callable[[Any], Any]:
    """The options of these settings. The function takes them as `settings`, by parameter. without: see `subject`."""

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def called(*others: Any, **words: Any) -> Any:
            return function(*others, settings={setting.parameter: words.pop(setting.parameter) for setting in settings}, **words)

        return with_options([setting_option(setting, setting.name in without) for setting in settings], called)

    return decorate


def setting_option(setting: Setting, hidden: bool = False) -> Callable[[Any], Any]:
    """The option of a setting. hidden: in no help."""
    kind: dict[str, Any] = {"type": click.Choice(setting.choices)} if setting.choices else {"type": setting.kind}
    names = f"--{setting.name}"
    if setting.kind is bool:
        kind = {"is_flag": True, "default": None}
        names += f"/--{setting.off}"
    return click.option(names, metavar=setting.metavar, multiple=setting.many, help=setting.help, cls=SharedOption, hidden=hidden, **kind)


recorder_option = setting_option(next(setting for setting in SETTINGS if setting.name == "recorder"))


def place_options(function: Any, last: Callable[[Any], Any] | None = None, fleet: str = "") -> Any:
    """The options for the place where a command measures. last, fleet: see place_or_fleet_options."""
    places = f"ssh:[USER@]HOST[:PORT], adb:[SERIAL], labgrid:PLACE or a name of memprof.toml{fleet}"
    every = (
        click.option("--on", metavar="PLACE", cls=SharedOption, help=f"Measure on another machine: {places}."),
        click.option(
            "--remote-dir",
            metavar="FOLDER",
            cls=SharedOption,
            help="Memprof's folder there.  [default: ~/.cache/memprof or /tmp/memprof-UID; by adb /data/local/tmp/memprof]",
        ),
        last or _no_fleet,
    )
    return with_options(every, function)


def place_or_fleet_options(function: Any) -> Any:
    """The same for a command that a fleet can measure too, and the option for its machines."""
    return place_options(function, machines_option, "; on a fleet: dask:ADDRESS")


def refused_option(*names: str, sentence: Callable[[str], str], is_flag: bool = False) -> Callable[[Any], Any]:
    """A hidden option of a command that cannot heed it and says why. sentence: of the word that was given."""

    def refuse(context: click.Context, option: click.Parameter, given: str | bool | None) -> None:
        if given is not None:
            raise UsageError(sentence(str(given)))

    return click.option(*names, is_flag=is_flag, default=None, hidden=True, expose_value=False, callback=refuse)


def _no_fleet(function: Any) -> Any:
    def sentence(labels: str) -> str:
        from ...places.names import ON_A_FLEET

        return f"--machines {labels}: {ON_A_FLEET}"

    return refused_option("--machines", sentence=sentence)(function)


def here_only(command: str, reason: str) -> Callable[[Any], Any]:
    """The options of a place of a command that cannot measure elsewhere: they say why. reason: the rest of the sentence."""
    on = refused_option("--on", sentence=lambda place: f"{command} works on this machine only, not on {place}: {reason}")
    return lambda function: on(_no_fleet(function))


machines_option = click.option(
    "--machines", metavar="LABEL=VALUE,...", cls=SharedOption, help="With --on dask: only machines of the fleet that have these labels."
)


@contextmanager
def reaching(on: str | None, remote_dir: str | None, python: str | None = None, leases: bool = True) -> Iterator[Place]:
    """The place of --on, for as long as the block lasts. python, leases: see memprof.places.connection.Connection."""
    from ...places.parse import reached
    from .progress import Transfers

    with reached(on, remote_dir, python, leases, Transfers().tell) as place:
        yield place


def say_compiling(place: Place, recorder: str | None = None) -> None:
    """Say that the recorder in C will be compiled now, if it will. recorder: that the user chose, None for the place's own."""
    from ...base.errors import InputError
    from ...programs import recorder_build
    from . import talk

    with suppress(InputError):  # no compiler, which is reported where the recorder is needed
        if (recorder or place.recorder) == "c" and not recorder_build.is_built(place.machine().arch):
            talk(f"compiling the recorder for {place.machine().arch}; this is needed once, and may take minutes")


recording_option = click.option(
    "--keep-recording",
    is_flag=True,
    cls=SharedOption,
    help="Keep the recording of each run in a folder beside the runs file; `memprof import` reads them.",
)


VERBOSE = click.option(
    "--verbose", is_flag=True, cls=SharedOption, help="Show all output of a failed run, not only the line that says why."
)


class RunsOptions(Struct, frozen=True):
    """Where the runs of a command go, and how they are shown: in which tables or as JSON, and the output of failed runs or not."""

    output: str | None
    append: bool
    as_json: bool
    keep_recording: bool
    above_baseline: bool = False
    everything: bool = True
    verbose: bool = False

    @property
    def recordings(self) -> Path | None:
        """The folder for the recordings of all runs, if they are wanted."""
        return (Path(self.output) if self.output else unused_path()).with_suffix(".recordings") if self.keep_recording else None


def runs_options(baseline: str) -> Callable[[Any], Any]:
    """The options of run and exec for their runs. The function takes them as one RunsOptions. baseline: what it is the memory of."""
    every = (
        click.option("-o", "--output", metavar="RUNS.jsonl", help="Where the runs go.  [default: memprof-DATE-TIME.jsonl]"),
        click.option("--append", is_flag=True, help="Add to an existing file. If it holds a part of these runs, measure only the others."),
        click.option("--above-baseline", is_flag=True, help=f"Show memory above the baseline: {baseline}."),
        click.option("--all", "everything", is_flag=True, help="Print every table, not only the peaks and what stays after release."),
        recording_option,
        VERBOSE,
        click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables: one row per run and phase."),
    )
    return lambda function: with_options(every, as_one(RunsOptions, function))


def with_options(every: Sequence[Callable[[Any], Any]], function: Any) -> Any:
    """The function with these options, in this order."""
    for option in reversed(every):
        function = option(function)
    return function


def as_one(kind: type[Struct], function: Any) -> Any:
    """The function, which takes the options that are fields of this kind as one record, before all others."""

    @functools.wraps(function)
    def called(**words: Any) -> Any:
        return function(kind(**{field.name: words.pop(field.name) for field in structs.fields(kind)}), **words)

    return called


def measure_suite(suite: Suite, wanted: RunsOptions, on: str | None) -> int:
    """Measure a suite, write its runs as they come and print its tables; the exit code. on: the words of --on."""
    from ...campaign import campaign, resume
    from ...campaign.failed_variants import EqualFailures
    from ...campaign.progress import WORTH_A_FORECAST_NS, forecast
    from ...subjects.orders import plan
    from .progress import showing_output

    planned = plan(suite)

    def measure(progress: Progress, keep: Keep) -> Iterator[Run]:
        orders = planned.orders
        there: Sequence[Run] = ()
        if wanted.output is not None and wanted.append:
            orders, there = resume.unfinished(orders, Path(wanted.output), progress.say)
        if orders:
            say_compiling(suite.place, suite.recorder)
        state = campaign.surroundings(max(order.job.model.bytes for order in orders), suite.place) if orders else ()
        for remark in (*planned.remarks, *state):
            progress.say(remark)
        first, rounds = sum(order.job.repeat == 1 for order in orders), len({order.job.repeat for order in orders})
        if first > 1:
            progress.say(f"{counted(len(orders), 'run')} in all, {first} in each of {counted(rounds, 'round')}")
        yield from there  # the tables are those of the whole campaign
        keep = showing_output(keep, progress) if wanted.verbose else keep
        took_ns, hinted = 0, False
        for number, run in enumerate(
            campaign.measure(orders, progress, keep, recordings=wanted.recordings, failures=EqualFailures(progress)), 1
        ):
            yield run
            took_ns += sum(mark.time_ns for mark in run.marks)
            left, left_ns = len(orders) - number, took_ns / number * (len(orders) - number)
            is_long = left_ns >= _WORTH_A_HINT_NS and rounds > 1
            if (number == first and left_ns >= WORTH_A_FORECAST_NS) or (number < first and is_long and not hinted):
                hinted = is_long
                hint = ": --repeats 1 is enough for a first look" if is_long else ""
                progress.say(f"{forecast(left, 'run', left_ns)}{hint}")

    return keep_runs(measure, wanted, len(planned.orders), on=on)


def keep_runs(
    measure: Callable[[Progress, Keep], Iterable[Run]], wanted: RunsOptions, count: int = 0, silent: bool = False, on: str | None = None
) -> int:
    """Write the runs that `measure(progress, keep)` yields as they come, and print their tables; the exit code.

    count: how many runs there will be, if --append goes on after Ctrl-C. silent: no tables. on: the words of --on.
    """
    from ...campaign.runs_writer import keeping
    from ...records.attempts import standing, was_lost
    from . import talk
    from .progress import chosen

    runs: list[Run] = []
    stopped: MemprofError | OSError | KeyboardInterrupt | None = None
    path = Path(wanted.output) if wanted.output else unused_path()
    with keeping(path, talk, append=wanted.append) as keep:
        try:
            with closing(chosen()) as progress:
                for run in measure(progress, keep):
                    runs.append(run)  # noqa: PERF402  (the runs before an interruption must stay)
        except (KeyboardInterrupt, OSError, MemprofError) as error:
            stopped = error
        runs, _ = standing(runs)
        if runs and not silent:
            _report(runs, wanted)
    if isinstance(stopped, MemprofError | OSError):
        raise stopped
    if stopped is not None:
        done = sum(not was_lost(run) for run in runs)
        again = "--append" if wanted.output else f"-o {path} --append"
        goes_on = f": {done} of {count} runs are in {path}; the same command with {again} goes on"
        talk(f"interrupted{goes_on if 0 < done < count else ''}")
        return EXIT_INTERRUPTED
    if runs and not (wanted.everything or wanted.as_json) and (following := _next(runs, wanted.verbose, path, on)):
        talk(f"next: {following}")
    return 0 if all(run.outcome.ok for run in runs) else MeasurementError.exit_code


def _next(runs: Sequence[Run], verbose: bool, kept: Path, on: str | None = None) -> str:
    """What to try after the brief tables, in a line; empty if there is nothing. kept: the file of the runs.

    A model will run in the runtime that needs least, so its peak is the one worth an explanation. The model is the one that needs most even
    there. Of programs alone, whose authors ask, it is the one that needs most.
    """
    from ...records import summary
    from ...records.types import PEAK
    from ...subjects import job_command

    if not any(run.complete for run in runs):
        printed = any(run.output_bytes for run in runs)
        return "--verbose shows all that a failed run printed" if printed and not verbose else ""
    tables = f"`{shlex.join(['memprof', 'table', str(kept)])}` prints every table"
    of_runtimes = [run for run in runs if run.complete and not run.job.argv]
    of_programs = [run for run in runs if run.complete and run.job.argv and run.job.model.files]
    groups = summary.groups(of_runtimes or of_programs)
    of_models: dict[str, list[summary.Row]] = {}
    for row in summary.summarise((run for group in groups.values() for run in group), ("rss_peak_bytes",)):
        if row.phase == PEAK:
            of_models.setdefault(row.key.model, []).append(row)
    if not of_models or any(run.attempt is not None for run in runs):  # explain does not measure on a fleet
        return tables
    rows = max(of_models.values(), key=lambda rows: min(row.median for row in rows))
    row = (min if of_runtimes else max)(rows, key=lambda row: row.median)
    what = "this memory"
    if len(rows) > 1:
        what = f"the {'smallest' if of_runtimes else 'largest'} peak, that of {row.key.heading}{_trade(groups, rows, row)}"
    return f"`{job_command.explanation(groups[row.key][0].job, on)}` accounts for {what}, {tables}"


def _trade(groups: Mapping[Key, Sequence[Run]], rows: Sequence[Row], named: Row) -> str:
    """How much slower a row is than the fastest, and how much less memory it needs; empty where it needs no less or is not much slower."""
    from ...base.units import format_bytes
    from ...records.summary import iteration_ns

    times = {row.key: time_ns for row in rows if (time_ns := iteration_ns(groups[row.key])) is not None}
    fastest = min((row for row in rows if row.key in times), key=lambda row: times[row.key], default=named)
    slower = times[named.key] / times[fastest.key] if named.key in times else 0
    if slower < _WORTH_A_WARNING or named.median >= fastest.median:
        return ""
    less = format_bytes(fastest.median - named.median)
    return f" ({less} less than {fastest.key.heading}, the fastest, and an iteration takes {slower:.1f} times as long)"


def unused_path() -> Path:
    """A new name for a runs file, for commands without -o."""
    path = Path(time.strftime("memprof-%Y%m%d-%H%M%S.jsonl"))
    return next(free for number in count(1) if not (free := path if number == 1 else path.with_stem(f"{path.stem}-{number}")).exists())


def _report(runs: Sequence[Run], wanted: RunsOptions) -> None:
    from . import answer_format, report

    render = report("tables.table").render  # imported only now that the last child has ended
    click.echo(render(runs, format=answer_format(wanted.as_json), above_baseline=wanted.above_baseline, brief=not wanted.everything))
