"""One net in every runtime, and what each knob of the small runtimes does: `python ci/bench/knobs.py [nets] [knobs]`, both by default.

    nets    inception_v3 and mobilenet_v2 in every runtime that is installed: peaks by phase, anonymous and file-backed memory, an iteration
    knobs   ncnn, MNN, TensorFlow Lite Micro, CTranslate2, PyTorch, ExecuTorch and onnxruntime-genai: memory and time with each value of each
            knob beside the default

A runtime that is not installed is left out: `memprof runtimes install torch --with torchvision`, `executorch --with torchvision` and `genai` come
first. PyTorch and ExecuTorch get torchvision's nets, exported (export_net.py). The tables go to standard output and into docs/evidence/runtimes.md,
progress to standard error. Models are made in bench/ where they are missing. `--repeats N` and `--runs N` make it shorter.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

# bench is a package of scripts beside this one's folder; it is never installed. The model of CTranslate2 is that of the tests.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import ct2_model

import memprof
from bench import docs
from bench.nets import EXPORTED, FOLDER, model
from bench.table import aligned
from memprof import zoo
from memprof.base.errors import InputError
from memprof.campaign.progress import Silent
from memprof.programs.runtimes import describe, located
from memprof.records.types import EXECUTE, GENERATE, MODEL_LOAD, PREPARE, WARMUP, Run
from memprof.subjects.suite import Variant

MIB = 1 << 20
NETS = ("inception_v3", "mobilenet_v2")
_BEYOND_DEFAULT = {"arena": ("8MiB",)}  # values of knobs that take a size
_BESIDE = {"genai": {"prompt": "1024"}}  # `chunk` has an effect on long prompts only


def main() -> None:
    """Measure the parts that are named, print their tables and write them into the manual."""
    parts = {"nets": nets, "knobs": knobs}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--repeats", type=int, default=5, metavar="N")
    parser.add_argument("--runs", type=int, default=3, metavar="N")
    parser.add_argument("--note", action="append", default=[], metavar="TEXT", help="a note for below the tables")
    words = parser.parse_args()
    if unknown := set(words.parts) - set(parts):
        parser.error(f"there is no part {sorted(unknown)[0]}: {', '.join(parts)}")
    for name in words.parts or parts:
        print(f"{name} ...", file=sys.stderr)
        rows, failures = footnoted(list(parts[name](words.repeats, words.runs)))
        table, notes = aligned(rows), [*failures, *words.note]
        print(table)
        docs.write(f"runtimes-{name}", table, notes)


class Failure(str):
    """A sentence in the place of a figure."""


def footnoted(rows: Sequence[Sequence[str]]) -> tuple[list[Sequence[str]], list[str]]:
    """Rows with a short word for each failure, or one sentence makes its column too wide to read; and the sentences, as notes."""
    sentences = list(dict.fromkeys(cell for row in rows for cell in row if isinstance(cell, Failure)))
    short = [[f"failed ({sentences.index(cell) + 1})" if isinstance(cell, Failure) else cell for cell in row] for row in rows]
    return [*short], [f"({number}) {sentence}" for number, sentence in enumerate(sentences, 1)]


class Said(Silent):
    """Progress on standard error."""

    def finished(self, run: Run) -> None:
        print(run.job.model.name, run.job.variant, run.outcome.word, file=sys.stderr)

    def say(self, sentence: str) -> None:
        print(sentence, file=sys.stderr)


def nets(repeats: int, count: int) -> Iterator[Sequence[str]]:
    """A row for each net and runtime; a runtime that takes several files gets the ONNX file."""
    phases = (MODEL_LOAD, PREPARE, WARMUP, EXECUTE)
    yield ("net", "runtime", "file", "imported", *phases, "PEAK", "anonymous", "file-backed", "iteration (ms)")
    for name in NETS:
        measured: set[str] = set()
        for ending in (".onnx", ".tflite", *filter(_measurable, EXPORTED)):
            for runs in _groups([model(name, ending)], ["all"], (), repeats, count):
                first = runs[0]
                if first.job.variant in measured:
                    continue
                measured.add(first.job.variant)
                if not all(run.outcome.ok for run in runs):
                    yield (name, first.job.variant, ending, Failure(first.outcome.sentence), *("-" for _ in range(len(phases) + 4)))
                    continue
                yield (
                    name,
                    first.job.variant,
                    ending,
                    _median(runs, lambda run: run.marks[0].rss_end_bytes),
                    *(_median(runs, lambda run, phase=phase: _mark(run, phase).rss_peak_bytes) for phase in phases),
                    _median(runs, _peak),
                    _median(runs, lambda run: _mark(run, EXECUTE).anon_end_bytes),
                    _median(runs, lambda run: _mark(run, EXECUTE).file_end_bytes),
                    _iteration_ms(runs),
                )


def knobs(repeats: int, count: int) -> Iterator[Sequence[str]]:
    """A row for each value of each knob, with its difference to the defaults."""
    yield ("runtime", "model", "settings", "PEAK", "end of EXECUTE", "anonymous", "virtual", "iteration (ms)")
    cases = {
        "ncnn": model("inception_v3", ".onnx"),
        "mnn": model("inception_v3", ".onnx"),
        "tflite_micro": model("mobilenet_v2", ".tflite"),
        "ctranslate2": _ct2(),
        "genai": _genai(),
        **{EXPORTED[ending]: model("inception_v3", ending) for ending in filter(_measurable, EXPORTED)},
    }
    known = {runtime.name: runtime for runtime in describe(sys.executable)}
    common = {knob.name for knob in known["synthetic"].knobs} & {knob.name for knob in known["ncnn"].knobs}
    for name, path in cases.items():
        if not _installed(name):
            continue
        beside = _BESIDE.get(name, {})
        settings: list[dict[str, str]] = [beside]
        for knob in known[name].knobs:
            if knob.name not in common:
                beyond = _BEYOND_DEFAULT.get(knob.name, ()) if knob.values == "bytes" else ()
                settings += [{**beside, knob.name: value} for value in (*knob.candidates(), *beyond)]
        variants = [Variant(name, ",".join(f"{key}={value}" for key, value in given.items()) or "(defaults)", given) for given in settings]
        for runs in _groups([path], [], variants, repeats, count):
            first = runs[0]
            if not all(run.outcome.ok for run in runs):
                yield name, path.name, first.job.variant, Failure(first.outcome.sentence), *("-" for _ in range(4))
                continue
            yield (
                name,
                path.name,
                first.job.variant,
                _median(runs, _peak),
                _median(runs, lambda run: _last(run).rss_end_bytes),
                _median(runs, lambda run: _last(run).anon_end_bytes),
                _median(runs, lambda run: _last(run).vms_end_bytes),
                _iteration_ms(runs),
            )


def _ct2() -> Path:
    path = FOLDER / "ct2-8x512"
    return path if path.exists() else ct2_model.make(path, layers=8, width=512)


def _genai() -> Path:
    path = FOLDER / "llama-50MB"
    if not path.exists():
        FOLDER.mkdir(exist_ok=True)
        zoo.make("llama", path, format="genai", size_bytes=50_000_000)
    return path


def _measurable(ending: str) -> bool:
    """Whether the runtime of an exported file is installed."""
    return _installed(EXPORTED[ending])


def _installed(name: str) -> bool:
    try:
        located(name, None)
    except InputError as error:
        print(f"{name} is left out: {error}", file=sys.stderr)
        return False
    return True


def _groups(models: Sequence[Path], names: Sequence[str], variants: Sequence[Variant], repeats: int, count: int) -> list[list[Run]]:
    """The runs of each variant, on one thread, after one iteration of warm-up."""
    runs = memprof.measure(models, names, variants, threads=[1], warmup=1, runs=count, repeats=repeats, release=False, progress=Said())
    by_variant: dict[str, list[Run]] = {}
    for run in runs:
        by_variant.setdefault(run.job.variant, []).append(run)
    return list(by_variant.values())


def _mark(run: Run, phase: str):  # type: ignore[no-untyped-def]
    return next(mark for mark in run.marks if mark.phase == phase)


def _last(run: Run):  # type: ignore[no-untyped-def]
    """What is timed: EXECUTE, or of a model that generates GENERATE."""
    return run.mark(EXECUTE) or _mark(run, GENERATE)


def _peak(run: Run) -> int:
    return max(mark.height_bytes for mark in run.marks)


def _median(runs: Sequence[Run], of) -> str:  # type: ignore[no-untyped-def]
    return f"{statistics.median(of(run) for run in runs) / MIB:.1f}"


def _iteration_ms(runs: Sequence[Run]) -> str:
    took = statistics.median(time for run in runs for time in _last(run).times_ns) / 1e6
    return f"{took:.0f}" if took >= 100 else f"{took:.3g}"


if __name__ == "__main__":
    main()
