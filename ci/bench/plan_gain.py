"""The part of a planned gain that a measurement shows: the net `branches` in its own order and in the best, in runtimes that keep an order.

    python ci/bench/plan_gain.py [tflite] [onnxruntime] [mmap]     # Markdown on standard output; all three where none is named

Planned is the peak of tensors; measured is the peak of EXECUTE's resident memory above that at the end of PREPARE. tflite
without XNNPACK and onnxruntime with order=priority run the file's order (onnxruntime's order is read from its profile first). `mmap` is
onnxruntime with its arena off and glibc giving every buffer pages of its own, so that nothing lies between plan and measurement but kernels.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import docs  # beside this script

MIB = 1 << 20
RUNTIMES = {
    "tflite": ("tflite", "tflite,xnnpack=off", False),
    "onnxruntime": ("onnx", "onnxruntime,order=priority,optimization=off", True),
    "mmap": ("onnx", "onnxruntime,order=priority,optimization=off,arena=off,mem_pattern=off,malloc_mmap_threshold=64KiB", True),
}


def memprof(folder: Path, *words: str) -> str:
    """The standard output of a memprof command."""
    return subprocess.run(["memprof", *words], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def measured(folder: Path, model: str, variant: str) -> float:
    """Median over repeats of EXECUTE's peak above the end of PREPARE, in MiB."""
    words = ["--threads", "1", "--repeats", "5", "--warmup", "1", "--runs", "3", "-o", f"{model}.jsonl", "--json"]
    rows = json.loads(memprof(folder, "run", model, "--variant", f"x={variant}", *words))
    (folder / f"{model}.jsonl").unlink()
    values = []
    for repeat in {row["repeat"] for row in rows}:
        of = {row["phase"]: row for row in rows if row["repeat"] == repeat}
        values.append((of["EXECUTE"]["rss_peak_bytes"] - of["PREPARE"]["rss_end_bytes"]) / MIB)
    return median(values)


def main(chosen: list[str]) -> None:
    lines = [
        "| runtime | order | planned (MiB) | measured (MiB) | gain planned | gain measured | share |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for runtime in chosen or RUNTIMES:
            ending, variant, in_place = RUNTIMES[runtime]
            flags = ["--in-place"] if in_place else []
            own, best = f"branches.{ending}", f"best.{ending}"
            memprof(folder, "zoo", "branches", "--format", ending, "-o", own, "--force")
            memprof(folder, "plan", "reorder", own, "-o", best, "--force", *flags)
            plans, memory = [], []
            for model in (own, best):
                order = ["--order", "onnxruntime:priority"] if ending == "onnx" else []
                shown = json.loads(memprof(folder, "plan", "show", model, "--json", "--time-limit", "0", *order, *flags))["chosen"]
                if shown["order"] != sorted(shown["order"]):
                    sys.exit(f"{runtime} does not keep the order of {model}")
                plans.append(shown["peak_bytes"] / MIB)
                memory.append(measured(folder, model, variant))
            planned, real = plans[0] - plans[1], memory[0] - memory[1]
            lines.append(f"| {runtime} | the file's | {plans[0]:.1f} | {memory[0]:.1f} | | | |")
            lines.append(f"| {runtime} | the best | {plans[1]:.1f} | {memory[1]:.1f} | {planned:.1f} | {real:.1f} | {real / planned:.0%} |")
    print("\n".join(lines))
    if not chosen:
        docs.write("plan-gain", "\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
