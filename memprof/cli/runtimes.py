"""`memprof runtimes`: the runtimes that there are to measure with."""

from __future__ import annotations

import click

from .measuring import place_options, reaching


@click.command(epilog="Example: memprof runtimes onnxruntime")
@click.argument("names", nargs=-1, metavar="[NAME|FILE.py]...")
@click.option("--python", metavar="PATH", help="The interpreter to ask.  [default: memprof's own]")
@place_options
@click.option("--json", "as_json", is_flag=True, help="Print the same as JSON.")
def command(names: tuple[str, ...], python: str | None, on: str | None, remote_dir: str | None, as_json: bool) -> None:
    """List the runtimes: version or how to install it, and the knobs with their values and meaning."""
    import msgspec

    from ..errors import UsageError, near_or_all
    from ..programs import runtimes

    with reaching(on, remote_dir, python, leases=False) as place:
        interpreter = place.interpreter(python)
        listed = list(runtimes.describe(interpreter, None, place))
        if names:
            known = {runtime.name: runtime for runtime in listed}
            listed = []
            for name in names:
                if name.endswith(".py"):
                    listed.append(runtimes.find(name, interpreter, place))
                elif name in known:
                    listed.append(known[name])
                else:
                    raise UsageError(f"there is no runtime {name!r}{near_or_all(name, known)}")
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(listed), indent=1))
        return
    common = {knob.name for knob in listed[0].knobs}.intersection(*({knob.name for knob in runtime.knobs} for runtime in listed[1:]))
    common = common if len(listed) > 1 else set()
    for runtime in listed:
        state = f"{runtime.version}" if runtime.installed else f"not installed: {runtime.how_to_install}"
        click.echo(f"{runtime.name}  {state}  takes {', '.join(runtime.endings) or 'any file'}")
        _knobs([knob for knob in runtime.knobs if knob.name not in common])
    if common:
        click.echo("every runtime")
        _knobs([knob for knob in listed[0].knobs if knob.name in common])


def _knobs(knobs: list) -> None:  # type: ignore[type-arg]
    for knob in knobs:
        default = f", default {knob.default}" if knob.default is not None else ""
        click.echo(f"    {knob.name}={knob.shown_values}  ({knob.acts}{default})")
        click.echo(f"        {knob.meaning}")
