"""The memory breakdown that llama.cpp prints where it ends (https://github.com/ggml-org/llama.cpp/pull/15860):

    llama_memory_breakdown_print: | memory breakdown [MiB] | total   free     self   model   context   compute    unaccounted |
    llama_memory_breakdown_print: |   - CUDA0 (GTX 1080)   |  8107 = 4632 + ( 3299 =  2103 +     664 +     532) +         174 |
    llama_memory_breakdown_print: |   - Host               |                 14747 = 14477 +       0 +     270                |

Each breakdown is a run with one phase, RUN. A device's figures are values, as `cuda0_model_bytes`: buffers that llama.cpp asked for, in MiB, rounded
down. They are no resident memory: a mapped model counts in full. unaccounted is total - (free + self), without a sign: where a device reports more
free memory than that leaves, it wraps around to some 17592186030401 MiB. Such a figure is left out, with a note.
"""

from __future__ import annotations

import re

from ...base.errors import InputError
from ...records.types import RUN, Mark, Value
from .measurement import MIB, Measurement, check_count, count, figure_name, whole_lines

TOOL = "llama.cpp's memory breakdown"
_HEADING = "memory breakdown [MiB]"
_COLUMNS = ["total", "free", "self", "model", "context", "compute", "unaccounted"]
_OF_HOST = _COLUMNS[2:-1]
_ROUNDING_MIB = 4  # each of the four figures in total - (free + self) - unaccounted is up to 1 MiB below the truth
_COUNTED = "llama.cpp counts the buffers that it asked for, and not which of their pages are resident"


def knows(text: str) -> bool:
    """Whether the heading of a breakdown is there."""
    return _HEADING in text


def read(text: str, file: str) -> list[Measurement]:
    """The measurements in a log, one for each breakdown. Raises InputError if a breakdown has other columns."""
    lines, notes = whole_lines(text)
    model = ""
    blocks: list[tuple[str, list[tuple[str, list[int]]]]] = []
    for line in lines:
        if "loaded meta data with" in line and " from " in line:
            model = line.partition(" from ")[2].partition(" (version")[0][:4096]
        cells = line.split("|")
        if _HEADING in line:
            if len(cells) < 3 or cells[2].split() != _COLUMNS:
                raise InputError(f"the columns of this breakdown are not those that llama.cpp is known to print, {', '.join(_COLUMNS)}")
            blocks.append((model, []))
            check_count(len(blocks), TOOL)
        elif blocks and len(cells) >= 3 and cells[1].strip().startswith("- "):
            numbers = [int(number) for number in re.findall(r"-?[0-9]{1,18}", cells[2])]
            if len(numbers) in (len(_COLUMNS), len(_OF_HOST)):
                blocks[-1][1].append((cells[1].strip().removeprefix("- "), numbers))
    return [_measurement(path, devices, notes) for path, devices in blocks if devices]


def _measurement(path: str, devices: list[tuple[str, list[int]]], notes: list[str]) -> Measurement:
    values: list[Value] = []
    remarks = [_COUNTED, *notes]
    for device, numbers in devices:
        figures = dict(zip(_COLUMNS if len(numbers) == len(_COLUMNS) else _OF_HOST, numbers, strict=True))
        if "unaccounted" in figures:
            left = figures["total"] - figures["free"] - figures["self"]
            if left < -_ROUNDING_MIB or abs(left - figures["unaccounted"]) > _ROUNDING_MIB:
                remarks.append(
                    f"unaccounted of {device} is left out, because it is no size: total - (free + self) is {left} MiB, and llama.cpp printed "
                    f"{figures['unaccounted']} MiB"
                )
                del figures["unaccounted"]
        short = device.partition(" (")[0]
        sizes = {figure_name(short, column): count(size, MIB) for column, size in figures.items()}
        values += [Value(name, 0, size, RUN) for name, size in sizes.items() if size is not None]
    name = path.replace("\\", "/").rpartition("/")[2]
    mark = Mark(RUN, 0, 0, rss_peak_bytes=None, rss_peak_exact=False)
    return Measurement(TOOL, "llamacpp", [mark], model=name, model_path=path, notes=remarks, values=values)
