"""`memprof zoo`: writes a model file from the zoo."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from .. import units, zoo


def _list(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        for name, meaning in zoo.NAMES.items():
            click.echo(f"{name:<20} {meaning}")
        context.exit()


def _size(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    return None if text is None else units.parse_bytes(text)


_EPILOG = """\b
Examples:
  memprof zoo --list
  memprof zoo inception_v3 --format tflite -o inception_v3.tflite
  memprof zoo mlp --format onnx --size 1GiB -o mlp.onnx
  memprof zoo llama --format gguf --type q8_0 --size 50MB -o llama.gguf
"""


@click.command("zoo", epilog=_EPILOG)
@click.argument("name")
@click.option("--format", "format_", type=click.Choice(zoo.FORMATS), required=True, help="The file's format.")
@click.option("--output", "-o", type=click.Path(path_type=Path), required=True, help="The file to write.")
@click.option(
    "--type",
    "type_",
    type=click.Choice(zoo.TYPES),
    help="The type of weights and activations; int8 is fully quantized. float16, q8_0 and q4_0 are for gguf.  [default: float32; gguf: float16]",
)
@click.option(
    "--size", callback=_size, metavar="SIZE", help="The size of the weights, for models that --list marks with --size.  [default: 256MiB]"
)
@click.option("--open", "open_", is_flag=True, help="Leave batch, height and width open (ONNX nets for images).")
@click.option("--external-data", is_flag=True, help="Put ONNX weights into FILE.data. Above 1.9 GiB they always go there.")
@click.option("--force", is_flag=True, help="Replace existing files.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print path, bytes, sha256 and files as JSON; bytes and sha256 are of all files together."
)
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list, help="List the models and stop.")
def command(
    name: str,
    format_: str,
    output: Path,
    type_: str | None,
    size: int | None,
    open_: bool,
    external_data: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Make a model file: a real architecture with random weights.

    The same name and options give the same bytes on every machine. ONNX and TFLite files of the same name hold the same weights.
    """
    files = zoo.make(
        name, output, format=format_, type=type_, size_bytes=size, external_data=external_data, open_dimensions=open_, overwrite=force
    )
    model = zoo.describe(files)
    click.echo(f"made {' and '.join(model.files)}: {units.format_bytes(model.bytes)}, sha256 {model.sha256[:12]}", err=True)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(model)))
