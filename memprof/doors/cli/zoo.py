"""`memprof zoo`: writes a model file from the zoo."""

from __future__ import annotations

import json
from pathlib import Path

import click
from msgspec import to_builtins

from ... import zoo
from ...base import units
from ...base.errors import UsageError
from . import CliCommand


def _list(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        for name, meaning in zoo.NAMES.items():
            click.echo(f"{name:<20} {meaning}")
        context.exit()


def _formats(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in text.split(",")))


_EPILOG = """\b
Examples:
  memprof zoo --list
  memprof zoo inception_v3 --format tflite -o inception_v3.tflite
  memprof zoo mlp --format onnx --size 1GiB -o mlp.onnx
  memprof zoo mobilenet_v2 --format onnx,tflite,mnn,ncnn -o mobilenet_v2
  memprof zoo llama --format gguf --type q8_0 --size 50M -o llama.gguf
  memprof zoo llama --format genai --size 50MB -o llama
"""


@click.command("zoo", cls=CliCommand, epilog=_EPILOG)
@click.argument("name")
@click.option(
    "--format",
    "formats",
    callback=_formats,
    metavar="FORMAT,...",
    required=True,
    help=f"{', '.join(zoo.FORMATS)}: one of them, or several for the same net with the same weights.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    required=True,
    help="The file to write; with several formats its name without the ending. An ncnn model is NAME.param and NAME.bin, a genai model is a folder.",
)
@click.option(
    "--type",
    "type_",
    type=click.Choice(zoo.TYPES),
    help="The type of weights and activations; int8 is fully quantized. float16, q8_0 and q4_0 are for gguf.  [default: float32; gguf: float16]",
)
@click.option("--size", metavar="SIZE", help="The size of the weights, for models that --list marks with --size.  [default: 256MiB]")
@click.option("--open", "open_", is_flag=True, help="Leave batch, height and width open (ONNX nets for images).")
@click.option("--external-data", is_flag=True, help="Put ONNX weights into FILE.data. Above 1.9 GiB they always go there.")
@click.option("--force", is_flag=True, help="Replace existing files.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print path, bytes, sha256 and files as JSON, a list for several formats; bytes and sha256 are of all files of a model together.",
)
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list, help="List the models and stop.")
def command(
    name: str,
    formats: tuple[str, ...],
    output: Path,
    type_: str | None,
    size: str | None,
    open_: bool,
    external_data: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Make a model file: a real architecture with random weights.

    The same name and options give the same bytes on every machine, except for mnn, which MNN makes. Files of the same name hold the same weights in
    all formats.
    """
    if output.name in ("", ".."):
        raise UsageError(f"-o {output} is a folder: name the model in it, -o {output / name}")
    size_bytes = units.parse_bytes(size) if size is not None else None
    # With several formats, an option of ONNX is for the ONNX file.
    only_onnx = [format == "onnx" or len(formats) == 1 for format in formats]
    for format, onnx in zip(formats, only_onnx, strict=True):
        zoo.check(name, format, type_, size_bytes, external_data and onnx, open_ and onnx)  # all of them before the first is written
    paths = [output if len(formats) == 1 else output.with_name(output.name + zoo.ENDINGS[format]) for format in formats]
    made = []
    for format, path, onnx in zip(formats, paths, only_onnx, strict=True):
        files = zoo.make(
            name,
            path,
            format=format,
            type=type_,
            size_bytes=size_bytes,
            external_data=external_data and onnx,
            open_dimensions=open_ and onnx,
            overwrite=force,
        )
        made.append(zoo.describe(files))
        click.echo(f"made {' and '.join(made[-1].files)}: {units.format_bytes(made[-1].bytes)}, sha256 {made[-1].sha256[:12]}", err=True)
    if as_json:
        facts = [to_builtins(model) for model in made]
        click.echo(json.dumps(facts if len(formats) > 1 else facts[0]))
