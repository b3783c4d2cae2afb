#!/usr/bin/env python3
"""`make bench-scale`: how good the laws of `memprof scale` are. Each part prints its Markdown table; progress goes to standard error.

simulated  laws drawn at random, points with noise, no process: terms found, coefficients, predictions in and up to twice beyond the range
models     models of the zoo in four runtimes: predictions at held-out places in and up to twice beyond the measured range

--count N      laws of each kind, and held-out places of each model.  [default: 100 laws, 20 places]
--model NAME   only this model (repeatable)
--write        put the tables into docs/evidence/claims.md
--keep FILE    append the measured points of each model to a file, as the tests have them in tests/data/laws.jsonl
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

# bench is a package of scripts beside this one's folder; it is never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import docs
from memprof import zoo
from memprof.base.errors import MemprofError
from memprof.base.units import counted
from memprof.campaign.progress import Silent
from memprof.growth.laws import design, laws
from memprof.growth.laws.laws import Law
from memprof.growth.laws.terms import CONSTANT, SizePoint, Term
from memprof.growth.scale import scale
from memprof.growth.scale.answer import Scaled, ScaleRequest
from memprof.records import store
from memprof.records.types import LawSearch
from memprof.subjects.dimensions import parse
from memprof.subjects.suite import Suite, Variant

MIB = 1 << 20
Ranges = Mapping[str, tuple[int, int]]
Drawn = Sequence[tuple[Term, float]]

# The dimensions of drawn laws, the runs they get, and the most terms beside the constant.
KINDS: Sequence[tuple[str, Ranges, int, int]] = (
    ("one dimension", {"x": (1, 64)}, 6, 2),
    ("two dimensions", {"x": (1, 16), "y": (16, 256)}, 6, 2),
    ("three dimensions", {"x": (1, 16), "y": (16, 256), "z": (1, 8)}, 12, 3),
)
_NOISE = 0.0002  # of a size: what anonymous memory repeats to


@dataclass(frozen=True)
class Case:
    """A model of the zoo in a runtime, with the dimensions that vary."""

    name: str
    model: str
    format: str
    runtime: str
    vary: tuple[str, ...]
    size_bytes: int | None = None
    open: bool = False
    knobs: Mapping[str, str] | None = None


CASES = (
    Case("mobilenet_v2", "mobilenet_v2", "onnx", "onnxruntime", ("batch=1..8", "height,width=128..256:32"), open=True),
    Case("resnet50", "resnet50", "onnx", "onnxruntime", ("batch=1..8", "height,width=224"), open=True),
    Case("encoder", "encoder", "onnx", "onnxruntime", ("batch=1..8", "sequence=16..256"), 40 * MIB),
    Case("lstm", "lstm", "onnx", "onnxruntime", ("batch=1..32", "sequence=8..128"), 16 * MIB),
    Case("loop", "loop", "onnx", "onnxruntime", ("batch=1..32", "sequence=8..128"), 8 * MIB),
    Case("decoder", "llama", "onnx", "onnxruntime", ("sequence=16..256",), 40 * MIB),
    Case("mobilenet_v2 (TFLite)", "mobilenet_v2", "tflite", "litert", ("input.0=1..8",)),
    Case("encoder (TFLite)", "encoder", "tflite", "litert", ("ids.0,mask.0=1..8", "ids.1,mask.1=16..256"), 40 * MIB),
    Case("inception_v3 (TFLite)", "inception_v3", "tflite", "tflite", ("input.0=1..8",)),
    Case("encoder (OpenVINO)", "encoder", "onnx", "openvino", ("batch=1..8", "sequence=16..256"), 40 * MIB),
    Case(
        "mobilenet_v2, three dimensions",
        "mobilenet_v2",
        "onnx",
        "openvino",
        ("batch=1..8", "height=128..256:32", "width=128..256:32"),
        open=True,
    ),
    Case(
        "encoder, three dimensions",
        "encoder",
        "tflite",
        "litert",
        ("ids.0,mask.0=1..8", "ids.1,mask.1=16..256", "sessions=1..3"),
        20 * MIB,
    ),
    Case("llama", "llama", "gguf", "llamacpp", ("context=512..8192", "slots=1..4"), 40 * MIB, knobs={"prompt": "16", "generate": "4"}),
)


def _one(model: Path, runtime: str, **settings: Any) -> Suite:
    """A model in a runtime."""
    return Suite(models=(str(model),), variants=(Variant(runtime),), **settings)


def main() -> None:
    """Run the parts that are named, all of them where none is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--keep", type=Path)
    words = parser.parse_args()
    for name in words.parts or PARTS:
        table = models(words.count, words.model, words.keep) if name == "models" else PARTS[name](words.count, words.model)
        print(f"\n{table}\n", flush=True)
        if words.write:
            docs.write(f"laws-{name}", table)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# -- laws that are known


def _draw(generator: random.Random, ranges: Ranges, most: int, library: Sequence[Term]) -> Drawn:
    """A constant and one to `most` terms, each with a share of the size at the far corner that can be seen."""
    constant = generator.uniform(20, 200) * MIB
    corner = {name: np.array([float(high)]) for name, (_, high) in ranges.items()}
    terms = generator.sample(list(library), generator.randint(1, most))
    amounts = [(term, generator.uniform(0.2, 1.5) * constant / float(term.values(corner, 1)[0])) for term in terms]
    return [(CONSTANT, constant), *amounts]


def _library(ranges: Ranges) -> list[Term]:
    """Powers and products, and in one dimension steps too."""
    names = list(ranges)
    terms = [
        Term(tuple((name, power) for name, power in zip(names, powers, strict=True) if power))
        for powers in itertools.product(range(3), repeat=len(names))
        if 0 < sum(powers) <= 3
    ]
    if len(names) == 1:
        linear = ((names[0], 1),)
        terms += [Term(linear, "doubling", names[0]), Term(linear, "pages", names[0], 16.0)]
    return terms


def _size(drawn: Drawn, at: Mapping[str, float]) -> float:
    columns = {name: np.array([float(value)]) for name, value in at.items()}
    return sum(amount * float(term.values(columns, 1)[0]) for term, amount in drawn)


@dataclass
class _Score:
    """Counts over many laws."""

    laws: int = 0
    terms: int = 0
    coefficients: int = 0
    errors: list[float] | None = None
    covered: int = 0

    def add(self, drawn: Drawn, law: Law | None, ranges: Ranges, generator: random.Random) -> None:
        self.laws += 1
        self.errors = self.errors if self.errors is not None else []
        if law is None:
            return

        truth = {term.words: amount for term, amount in drawn}
        coefficients = {entry.term.words: entry.bytes for entry in law.coefficients}
        if set(truth) == set(coefficients):
            self.terms += 1
            self.coefficients += all(abs(coefficients[words] / amount - 1) <= 0.01 for words, amount in truth.items())
        for _ in range(20):
            at = {name: generator.randint(low, 2 * high) for name, (low, high) in ranges.items()}
            size, predicted = _size(drawn, at), law.predict(at)
            self.errors.append(abs(predicted.bytes / size - 1))
            self.covered += predicted.low_bytes <= size <= predicted.high_bytes

    def row(self, name: str) -> str:
        errors = sorted(self.errors or [1.0])
        return (
            f"| {name} | {self.laws} | {self.terms / self.laws:.0%} | {self.coefficients / max(self.terms, 1):.0%} | "
            f"{statistics.median(errors):.2%} | {errors[int(0.99 * (len(errors) - 1))]:.1%} | {self.covered / max(len(errors), 1):.0%} |"
        )


_HEAD = (
    "| laws of | laws | terms right | coefficients within 1% | median error | 99 of 100 within | in the interval |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
)


def simulated(count: int, _models: Sequence[str]) -> str:
    """Points that are computed, with noise."""
    rows = [_HEAD]
    noise = (16384.0, _NOISE)
    for name, ranges, runs, most in KINDS:
        generator, score = random.Random(1), _Score()
        library = _library(ranges)
        for _ in range(count or 100):
            drawn = _draw(generator, ranges, most, library)

            def measure(at: Mapping[str, int], drawn: Drawn = drawn, generator: random.Random = generator) -> SizePoint:
                size = _size(drawn, at)
                return SizePoint(at, size + generator.gauss(0, float(np.hypot(noise[0], noise[1] * size))))

            places = design.places({name: (low, high, 1) for name, (low, high) in ranges.items()})
            points = [measure(at) for at in itertools.islice(places, runs)]
            score.add(drawn, laws.law(points, noise=noise), ranges, generator)
        rows.append(score.row(name))
        _say(rows[-1])
    return "\n".join(rows)


# -- models


def models(count: int, only: Sequence[str], keep: Path | None = None) -> str:
    """Predictions at held-out places of real models. keep: a file to which the measured points are appended."""
    rows = [
        "| model | runtime | runs | law of PEAK | median error | worst | in the interval |",
        "| --- | --- | ---: | --- | ---: | ---: | ---: |",
    ]
    errors: list[float] = []
    covered: list[bool] = []
    again = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            if only and case.name not in only:
                continue
            try:
                answer, search = _answered(case, Path(folder), count or 20)
            except MemprofError as error:
                rows.append(f"| {case.name} | {case.runtime} | - | {error} | - | - | - |")
                _say(rows[-1])
                continue
            if keep is not None:
                with keep.open("ab") as file:
                    file.write(record(case, answer, search))
            seen, held = _held_out(answer)
            errors += seen
            covered += held
            again += sum(bool(point.again) for point in answer.points)
            rows.append(_row(case, answer, seen, held))
            _say(rows[-1])
    if errors:
        rows.append(f"| all | | | | {statistics.median(errors):.1%} | {max(errors):.1%} | {sum(covered)} of {len(covered)} |")
        rows += ["", f"{counted(again, 'place')} of {len(covered)} lay outside and had two runs more, of which the median counts."]
    return "\n".join(rows)


def record(case: Case, answer: Scaled, search: LawSearch) -> bytes:
    """What the laws of a case are made of, as a line of JSON: its points, and what the arena is simulated from."""
    points = [
        {"at": point.at, "sizes": point.sizes, "planned_bytes": point.planned_bytes, "held_out": point.held_out}
        for point in answer.points
        if not point.ended
    ]
    asked = {"name": case.name, "runtime": case.runtime, "vary": case.vary, "knobs": case.knobs or {}}
    return msgspec.json.encode({**asked, "points": points, "requests": search.requests, "arenas": search.arenas}) + b"\n"


def _answered(case: Case, folder: Path, count: int) -> tuple[Scaled, LawSearch]:
    """The answer, and what its runs keep of the search."""
    path = folder / f"{case.model}-{case.size_bytes or 0}.{case.format}"
    if not path.exists():
        zoo.make(case.model, path, format=case.format, size_bytes=case.size_bytes, open_dimensions=case.open)
    dimensions = tuple(parse(text) for text in case.vary)
    generator = random.Random(case.name)
    varying = [dimension for dimension in dimensions if dimension.varies]
    places = [
        {each.label: each.low + each.step * generator.randint(0, (2 * each.high - each.low) // each.step) for each in varying}
        for _ in range(count)
    ]
    request = ScaleRequest(_one(path, case.runtime, set=case.knobs or {}), dimensions, predictions=places, confirm=True)
    kept: list[LawSearch] = []

    def keep(line: bytes) -> None:
        search = store.decode(line, "a run").search
        if search is not None and (search.requests or search.arenas):
            kept.append(search)

    answer = scale.scale(request, Silent(), keep)
    return answer, kept[-1] if kept else LawSearch()


def _held_out(answer: Scaled) -> tuple[list[float], list[bool]]:
    """The errors at held-out places, as shares, and whether each lay in its interval."""
    points = [point for point in answer.points if point.held_out and not point.ended]
    predictions = answer.predict([point.at for point in points])
    sizes = [point.sizes[answer.main] for point in points]
    errors = [abs(prediction.bytes / size - 1) for prediction, size in zip(predictions, sizes, strict=True)]
    return errors, [prediction.low_bytes <= size <= prediction.high_bytes for prediction, size in zip(predictions, sizes, strict=True)]


def _row(case: Case, answer: Scaled, errors: Sequence[float], covered: Sequence[bool]) -> str:
    from memprof.reports.tables.scale import sentence

    runs = sum(not point.held_out for point in answer.points)
    law = sentence(answer.law) if answer.law is not None else "none"
    if not errors:
        return f"| {case.name} | {case.runtime} | {runs} | {law} | - | - | - |"
    figures = f"{statistics.median(errors):.1%} | {max(errors):.1%} | {sum(covered)} of {len(covered)}"
    return f"| {case.name} | {case.runtime} | {runs} | {law} | {figures} |"


PARTS: Mapping[str, Callable[[int, Sequence[str]], str]] = {
    "simulated": simulated,
    "models": models,
}


if __name__ == "__main__":
    main()
