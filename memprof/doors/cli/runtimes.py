"""`memprof runtimes`: the runtimes that there are to measure with; `install` and `remove`: environments for those that are not there."""

from __future__ import annotations

import sys

import click

from . import CliCommand, talk
from .subject import place_options, reaching

_EPILOG = """\b
Examples:
  memprof runtimes
  memprof runtimes onnxruntime --newer
  memprof runtimes install torch
  memprof runtimes install onnxruntime==1.17
  memprof run model.onnx -r onnxruntime@1.17 -r onnxruntime@1.31
  memprof runtimes remove onnxruntime@1.17
"""
_LARGE = 1 << 30  # a download that one is asked about


@click.command("runtimes", cls=CliCommand, epilog="Example: memprof runtimes onnxruntime")
@click.argument("names", nargs=-1, metavar="[NAME|FILE.py]...")
@click.option("--python", metavar="PATH", help="The interpreter to ask.  [default: memprof's own]")
@click.option("--newer", is_flag=True, help="Ask pip for newer versions; that takes the network.")
@place_options
@click.option("--json", "as_json", is_flag=True, help="Print the same as JSON.")
def listing(names: tuple[str, ...], python: str | None, newer: bool, on: str | None, remote_dir: str | None, as_json: bool) -> None:
    """List the runtimes: version or how to install it, and the knobs with their values and meaning.

    Of a runtime that is named, also what a program writes for each value.
    """
    import msgspec

    from ...base.errors import UsageError, near_or_all
    from ...programs import runtimes
    from ...versions.runtime_list import listed

    with reaching(on, remote_dir, python, leases=False) as place:
        interpreter = place.interpreter(python)
        described = list(runtimes.describe(interpreter, None, place))
        if names:
            known = {runtime.name: runtime for runtime in described}
            described = []
            for name in names:
                if name.endswith(".py"):
                    described.append(runtimes.find(name, interpreter, place))
                elif name in known:
                    described.append(known[name])
                else:
                    raise UsageError(f"there is no runtime {name!r}{near_or_all(name, known)}")
        rows = listed(described, interpreter, with_environments=on is None and python is None, newer=newer)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(rows), indent=1))
        return
    common = {knob.name for knob in rows[0].knobs}.intersection(*({knob.name for knob in row.knobs} for row in rows[1:]))
    common = common if len(rows) > 1 else set()
    for row in rows:
        click.echo(f"{row.name}  {row.state}  takes {', '.join(row.endings) or 'any file'}")
        for line in row.lines:
            click.echo(f"    {line}")
        _knobs([knob for knob in row.knobs if knob.name not in common], bool(names))
    if common:
        click.echo("every runtime")
        _knobs([knob for knob in rows[0].knobs if knob.name in common], bool(names))


def _knobs(knobs: list, in_program: bool) -> None:  # type: ignore[type-arg]
    """Print knobs. in_program: also what a program writes for each value."""
    for knob in knobs:
        default = f", default {knob.default}" if knob.default is not None else ""
        needs = "".join(f", needs {name}={value}" for name, value in knob.needs.items())
        click.echo(f"    {knob.name}={knob.shown_values}  ({knob.acts}{default}{needs})")
        click.echo(f"        {knob.meaning}")
        for value, words in knob.calls.items() if in_program else ():
            click.echo(f"        {value} in a program: {words}")


@click.command(cls=CliCommand, epilog="Example: memprof runtimes install onnxruntime==1.17")
@click.argument("name", metavar="NAME[==VERSION]")
@click.option(
    "--with", "beside", multiple=True, metavar="PACKAGE", help="A further requirement, as pip takes it: torch==2.13.0 (repeatable)."
)
@click.option("--python", metavar="PATH", help="The interpreter of the environment.  [default: memprof's own]")
@click.option("--yes", is_flag=True, help="Install without a question, however large it is.")
@click.option("--json", "as_json", is_flag=True, help="Print the environment as JSON.")
def install(name: str, beside: tuple[str, ...], python: str | None, yes: bool, as_json: bool) -> None:
    """Install a runtime into an environment of memprof's own.

    memprof prints its size and time first. Afterwards -r NAME finds it, and -r NAME@VERSION this version; several versions stand side by
    side. A VERSION of one or two numbers is a line of releases, and the newest of them is taken.
    pip's own settings hold: PIP_INDEX_URL, PIP_FIND_LINKS.
    """
    import msgspec

    from ...base.errors import InputError
    from ...base.units import format_bytes
    from ...versions import installation

    runtime, version = installation.parse(name)

    def agree(estimate: installation.Estimate) -> None:
        if yes or estimate.bytes < _LARGE:
            return
        torch = next((file for file in estimate.files if file.name == "torch"), None)
        advice = ""
        if torch is not None and any(file.name.startswith("nvidia-") for file in estimate.files):
            pin = f"torch=={torch.version}+cpu" if runtime == "torch" else f"--with torch=={torch.version}+cpu"
            advice = f" (a build for CPUs is far smaller: {pin}, with PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu)"
        if not sys.stdin.isatty():
            raise InputError(f"{estimate.subject}: {format_bytes(estimate.bytes)} to download: --yes installs it{advice}")
        click.confirm(f"Install it?{advice}", abort=True, err=True)

    environment = installation.install(installation.Wish(runtime, version, beside, python), talk, agree)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(environment), indent=1))
        return
    click.echo(f"{environment.runtime} {environment.version}  {format_bytes(environment.bytes)}  {environment.folder}")


@click.command(cls=CliCommand, epilog="Example: memprof runtimes remove onnxruntime@1.17")
@click.argument("name", metavar="NAME[@VERSION]")
def remove(name: str) -> None:
    """Remove the environments of a runtime or a package."""
    from ...base.units import format_bytes
    from ...versions import installation

    for environment in installation.remove(name):
        click.echo(f"{environment.runtime} {environment.version}  {format_bytes(environment.bytes)} were removed")


class _Runtimes(click.Group):
    """`memprof runtimes NAME...` lists, unless the first word is the name of a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not (args and (args[0] in self.commands or args[0] in ctx.help_option_names)):
            args = [listing.name or "", *args]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        return self.commands.get(cmd_name, listing)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "[OPTIONS] [NAME|FILE.py]...")
        formatter.write_usage(ctx.command_path, "install|remove [OPTIONS] NAME", prefix="       ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listing.format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


@click.group(cls=_Runtimes, commands={"install": install, "remove": remove}, epilog=_EPILOG)
def command() -> None:
    """List the runtimes: version or how to install it, which environment has it, and the knobs with their values and meaning."""
