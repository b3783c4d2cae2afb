"""The claims of `memprof explain`, measured: `python ci/bench/explain.py [copies] [speed] [waterfall] [cases]`, all of it by default.

    copies     precision and recall over processes that hold known copies: 1,000 tensors, 0 to 4 copies of each
    speed      how fast a process is scanned for 1,000 tensors, how long it stands still a GB, and how far a scan moves its resident set
    waterfall  the unexplained part for each runtime on inception_v3
    cases      whether each known case comes out as the first finding, with its bytes, and the real effect of its proposals; the manual has it

A Markdown table goes to standard output, progress to standard error. Models are made in bench/ where they are missing. `--tensors N` and
`--repeats N` make it smaller, to try it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

# bench is a package of scripts beside this one's folder; it is never installed. The processes that hold copies are those of the tests.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.held_copies import LAYOUTS, holding, resident_bytes, score, write_tensors

from bench import docs, tools
from bench.table import aligned
from bench.tools import verdict
from memprof.base.units import format_bytes
from memprof.explain import records, snapshot, snippets, waterfall

FOLDER = Path(__file__).resolve().parents[2] / "bench"
RUNTIMES = {"onnxruntime": ".onnx", "tflite": ".tflite", "litert": ".tflite", "onert": ".tflite", "tvm": ".onnx"}
Row = tuple[str, str, str, str]


def main() -> None:
    """Measure the parts that are named, and print their rows."""
    parts = {"copies": _copies, "speed": _speed, "waterfall": _waterfalls, "cases": _cases}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--tensors", type=int, default=1000, metavar="N")
    parser.add_argument("--repeats", type=int, default=5, metavar="N")
    words = parser.parse_args()
    if unknown := set(words.parts) - set(parts):
        parser.error(f"there is no part {sorted(unknown)[0]}: {', '.join(parts)}")
    lines = ["| what | target | measured | |", "| --- | --- | --- | --- |"]
    print("\n".join(lines))
    for name in words.parts or parts:
        print(f"{name} ...", file=sys.stderr)
        for row in parts[name](words):
            lines.append(f"| {' | '.join(row)} |")
            print(lines[-1], flush=True)
    if not words.parts:
        docs.write("explain", "\n".join(lines))


def _copies(words: argparse.Namespace) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        tensors = write_tensors(Path(folder) / "weights.bin", words.tensors)
        index = snippets.index(tensors)
        tables: dict[str, list[list[str]]] = {
            f"{count} {layout}": [[layout] * count for _ in tensors]
            for layout in LAYOUTS
            for count in ((1, 2) if layout != "stored" else (1, 4))
        }
        draw = random.Random(1)
        tables["none, but values close to them"] = [["near"] for _ in tensors]
        tables["0 to 4 of any"] = [draw.choices((*LAYOUTS, "near"), k=draw.randrange(5)) for _ in tensors]
        sums = [0, 0, 0, 0]
        for name, kept in tables.items():
            with holding(tensors, kept, 64 << 20) as pid:
                seen = snapshot.take(pid, "x", index.keys)
            held = waterfall.account(seen, None, index, ()).held
            counts = score(index, held, kept)
            sums = [total + part for total, part in zip(sums, counts, strict=True)]
            yield f"copies: {name}, {len(tensors)} tensors", "", _shares(*counts), ""
        right, _, claimed, there = sums
        met = right >= 0.99 * claimed and right >= 0.99 * there
        yield "copies: all of these processes", "precision and recall 0.99", _shares(*sums), verdict(met)


def _shares(right: int, exact: int, claimed: int, there: int) -> str:
    precision, recall = (right / whole if whole else 1.0 for whole in (claimed, there))
    return f"precision {precision:.4f}, recall {recall:.4f}, layout named {exact / there if there else 1:.4f} ({there} copies)"


def _speed(words: argparse.Namespace) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        tensors = write_tensors(Path(folder) / "weights.bin", words.tensors)
        begin = time.monotonic()
        index = snippets.index(tensors)
        chosen = time.monotonic() - begin
        with holding(tensors, [["stored", "transposed"] for _ in tensors], 512 << 20) as pid:
            before = resident_bytes(pid)
            looks = [snapshot.take(pid, "x", index.keys) for _ in range(words.repeats)]
            moved = resident_bytes(pid) - before
        speeds = sorted(look.hits.bytes / look.hits.time_ns for look in looks if look.hits is not None)
        still = sorted(look.stood_still_ns / look.hits.bytes for look in looks if look.hits is not None)
        size = looks[0].hits.bytes if looks[0].hits is not None else 0
    middle = len(speeds) // 2
    subject = f"{len(tensors)} tensors, {len(index.keys.words)} snippets, {format_bytes(size)}"
    yield (
        f"scanning speed, {subject}",
        ">= 4 GB/s",
        f"{speeds[middle]:.1f} GB/s ({speeds[0]:.1f} to {speeds[-1]:.1f})",
        verdict(speeds[middle] >= 4),
    )
    yield "the child stands still", "<= 1 s a GB", f"{still[middle]:.2f} s a GB (to {still[-1]:.2f})", verdict(still[middle] <= 1)
    yield "a look moves the child's RSS by", "< 1 MiB", format_bytes(moved), verdict(abs(moved) < 1 << 20)
    yield "choosing the snippets, before the child starts", "", f"{chosen:.1f} s", ""


# -- real runtimes


def _model(name: str, form: str, *more: str) -> Path:
    return tools.zoo(name, FOLDER / f"{name}{form}", *more)


def _explained(model: Path, runtime: str, *more: str) -> records.Explanation | None:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "explanation.json"
        command = [tools.script("memprof"), "explain", str(model), "-r", runtime, "--threads", "1", "-o", str(target), *more]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return None
        return records.load(target)


def _waterfalls(words: argparse.Namespace) -> Iterator[Row]:
    for runtime, form in RUNTIMES.items():
        explanation = _explained(_model("inception_v3", form), runtime)
        worst = max((phase.unexplained for phase in explanation.phases), default=1.0) if explanation is not None else 1.0
        yield f"unexplained part, {runtime}, inception_v3, the worst look", "<= 5% of RSS", f"{worst:.2%}", verdict(worst <= 0.05)


def _cases(words: argparse.Namespace) -> Iterator[Row]:
    mib = 1 << 20
    tflite, onnx = _model("inception_v3", ".tflite"), _model("inception_v3", ".onnx")
    cases = (
        ("onert without mapped data", tflite, ("onert",), "load_twice", (50 * mib, 95 * mib)),
        ("TVM, weights in the library", onnx, ("tvm", "--set", "runtime_only=on"), "library_copied", (90 * mib, 290 * mib)),
        (
            "onnxruntime, shared_if",
            _model("shared_if", ".onnx", "--size", "256MiB"),
            ("onnxruntime",),
            "shared_repacked",
            (500 * mib, 524 * mib),
        ),
        ("onnxruntime, inception_v3 as it is", onnx, ("onnxruntime",), "kept", (80 * mib, 120 * mib)),
        ("litert with XNNPACK", tflite, ("litert",), "xnnpack", (85 * mib, 95 * mib)),
    )
    rows = []
    for name, model, runtime, rule, (least, most) in cases:
        explanation = _explained(model, *runtime, "--verify", "--repeats", str(words.repeats))
        first = explanation.findings[0] if explanation is not None and explanation.findings else None
        right = first is not None and first.rule == rule and least <= first.bytes <= most
        title, saved = (f"{first.title}: {format_bytes(first.bytes)}", _saved(first)) if first is not None else ("nothing", "")
        measured = f"{title}; {saved}"
        rows.append([f"{model.name}, {' '.join(runtime)}", title, saved])
        yield f"first finding, {name}", f"{rule}, {format_bytes(least)} to {format_bytes(most)}", measured, verdict(right)
    docs.write(
        "explain-cases", aligned([["case", "first finding", "what helps, measured"], *rows]), [f"Medians of {words.repeats} runs a side."]
    )
    tidy = FOLDER / "tidy.json"
    tidy.write_text(json.dumps({"load": [{"allocate": "weights", "bytes": 64 * mib}], "execute": [{"sleep_s": 0.01}]}))
    explanation = _explained(tidy, "synthetic")
    count = len(explanation.findings) if explanation is not None else -1
    yield "findings on a program that has none", "0", str(count), verdict(count == 0)


def _saved(finding: records.Finding) -> str:
    parts = []
    for proposal in finding.proposals:
        done = proposal.verified
        name = " ".join(f"{key}={value}" for key, value in proposal.settings.items())
        if done is not None and done.error is not None:
            parts.append(f"{name}: {done.error}")
        elif done is not None and done.peak_bytes and done.end_bytes:
            cost = f", iteration {done.iteration_ns[1] / done.iteration_ns[0] - 1:+.0%}" if done.iteration_ns else ""
            parts.append(f"{name}: PEAK {_less(done.peak_bytes)}, end {_less(done.end_bytes)}{cost}")
    return "; ".join(parts)


def _less(pair: tuple[float, float]) -> str:
    return f"{(pair[1] - pair[0]) / 2**20:+.1f} MiB"


if __name__ == "__main__":
    main()
