"""What stays after RELEASE in each installed runtime, on inception_v3 of the zoo or a small language model: the table of docs/numbers.md.

Each runtime loads, warms up once, executes twice and is deleted, in three fresh processes. Memory is what counts here, so that a
busy machine spoils nothing. PyTorch and ExecuTorch have torchvision's net, exported (export_net.py).
"""

from __future__ import annotations

import sys
from pathlib import Path

import memprof
from memprof.base.errors import InputError
from memprof.base.units import format_bytes
from memprof.cli import report
from memprof.programs import runtimes
from memprof.records import summary
from memprof.records.metrics import METRICS, value
from memprof.records.types import PEAK, Run

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from atlas import subjects

from bench import docs, nets
from bench.table import aligned

TAKES = {
    "onnxruntime": ".onnx",
    "onnxruntime-native": ".onnx",
    "openvino": ".onnx",
    "tvm": ".onnx",
    "tflite": ".tflite",
    "litert": ".tflite",
    "onert": ".tflite",
    "onert-native": ".tflite",
    "ncnn": ".param",
    "mnn": ".mnn",
    "torch": ".pt2",
    "executorch": ".pte",
}
LANGUAGE = {"llamacpp": "llama, q8_0", "ctranslate2": "decoder, 6 layers of 512", "genai": "decoder, 50 MB"}  # models of the atlas
_REPEATS = 3
_TITLES = ("runtime", "PEAK", "kept: RSS", "anonymous", "file-backed", "heap in use", "heap freed, kept")


def main() -> None:
    """Measure the installed runtimes and write the table into the manual."""
    runs_measured: list[Run] = []
    for ending in dict.fromkeys(TAKES.values()):
        names = [name for name, takes in TAKES.items() if takes == ending and _installed(name)]
        if names:
            runs_measured += memprof.measure([nets.model("inception_v3", ending)], names, warmup=1, runs=2, repeats=_REPEATS)
    for name, net in LANGUAGE.items():
        if _installed(name):
            model = subjects.models(name, nets.FOLDER)[net]
            runs_measured += memprof.measure([model], variants=subjects.variant(name, sys.executable), warmup=1, runs=2, repeats=_REPEATS)
    rows = [_row(runs) for runs in summary.groups(runs_measured).values()]
    notes = [
        f"inception_v3 of the zoo, 90.9 MiB of weights; the largest of {_REPEATS} processes, above the baseline but for PEAK.",
        *(f"{name} has a model of the atlas: {net}." for name, net in LANGUAGE.items() if _installed(name)),
        "heap: the part of anonymous memory that glibc's malloc manages; freed blocks that it keeps may not be resident.",
    ]
    page = docs.write("release", aligned([_TITLES, *rows]), notes)
    print(f"{page} has the table", file=sys.stderr)


def _installed(name: str) -> bool:
    try:
        runtimes.find(name, sys.executable)
    except InputError as error:
        print(error, file=sys.stderr)
        return False
    return True


def _row(runs: list[Run]) -> tuple[str, ...]:
    release = report("tables.release")
    first = runs[0]
    version = f" {first.about.runtime_version}" if first.about else ""
    failed = next((run.outcome for run in runs if not run.outcome.ok), None)
    if failed is not None:
        return (f"{first.job.variant}{version}", failed.sentence, *["-"] * len(release.COLUMNS))
    peak = max(value(run, PEAK, METRICS["rss_peak_bytes"]) or 0 for run in runs)
    kept = [max((release.kept_bytes(run, metric) or 0 for run in runs), default=0) for metric in release.COLUMNS.values()]
    return (f"{first.job.variant}{version}", format_bytes(peak), *map(format_bytes, kept))


if __name__ == "__main__":
    main()
