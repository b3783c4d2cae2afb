"""`memprof runtimes`: what there is to measure with."""

from __future__ import annotations

import click


@click.command(epilog="Example: memprof runtimes onnxruntime")
@click.argument("names", nargs=-1, metavar="[NAME|FILE.py]...")
@click.option("--python", metavar="PATH", help="The interpreter to ask.  [default: memprof's own]")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
def command(names: tuple[str, ...], python: str | None, as_json: bool) -> None:
    """List the runtimes: version or how to install it, and the knobs with their values and meaning."""
    import msgspec

    from ..errors import UsageError, near
    from ..programs import runtimes

    interpreter = runtimes.interpreter(python)
    found = list(runtimes.describe(interpreter))
    if names:
        known = {runtime.name: runtime for runtime in found}
        found = []
        for name in names:
            if name.endswith(".py"):
                found.append(runtimes.find(name, interpreter))
            elif name in known:
                found.append(known[name])
            else:
                raise UsageError(f"there is no runtime {name!r}{near(name, known) or '; there are ' + ', '.join(known)}")
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=1))
        return
    common = {knob.name for knob in found[0].knobs}.intersection(*({knob.name for knob in runtime.knobs} for runtime in found[1:]))
    common = common if len(found) > 1 else set()
    for runtime in found:
        state = f"{runtime.version}" if runtime.installed else f"not installed: {runtime.how_to_install}"
        click.echo(
            f"{runtime.name}  {state}  takes {', '.join('a folder' if ending == '/' else ending for ending in runtime.formats) or 'any file'}"
        )
        _knobs([knob for knob in runtime.knobs if knob.name not in common])
    if common:
        click.echo("every runtime")
        _knobs([knob for knob in found[0].knobs if knob.name in common])


def _knobs(knobs: list) -> None:  # type: ignore[type-arg]
    for knob in knobs:
        default = f", default {knob.default}" if knob.default is not None else ""
        click.echo(f"    {knob.name}={knob.shown_values}  ({knob.acts}{default})")
        click.echo(f"        {knob.meaning}")
