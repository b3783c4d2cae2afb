"""The claims of docs/generating.md, measured: `python ci/bench/generating.py [kv] [knobs] [mapped] [served]`, all of it by default.

    kv       bytes a token of context, for each type of the KV cache and two contexts, against the arithmetic of the model's file
    knobs    the effect of each of llama.cpp's settings on the peak of each phase
    mapped   a mapped model under limits of memory: how much of it stays resident, how much is read again, tokens a second
    served   llama.cpp's server under a load, by slots and by prompts that differ

Tables go into the manual with --write, and to standard output in any case. --size of the weights as float16, --repeats of each run.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

# bench is a package of scripts beside this one's folder; it is never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import memprof
from bench import docs
from memprof import zoo
from memprof.base.errors import InputError
from memprof.base.units import format_bytes, parse_bytes
from memprof.campaign import campaign
from memprof.campaign.progress import Silent
from memprof.models import gguf
from memprof.places import limits
from memprof.records.types import Run
from memprof.scale.findings import TABLE_OF_CELLS_BYTES
from memprof.subjects import orders
from memprof.subjects.drive import Drive
from memprof.subjects.suite import Suite, parse_cmd

MIB = 1 << 20
_SHORT = {"prompt": "8", "generate": "2"}
_KNOBS = (
    {},
    {"context": "16384"},
    {"slots": "4"},
    {"slots": "4", "kv_unified": "on"},
    {"kv_type": "q8_0"},
    {"kv_type": "q4_0"},
    {"flash_attention": "off"},
    {"batch": "64"},
    {"micro_batch": "64"},
    {"mmap": "off"},
    {"mlock": "on"},
    {"engine": "server"},
    {"engine": "server", "prompt_cache": "64MiB"},
)


def main() -> None:
    """Measure the parts that are named."""
    parts: Mapping[str, Callable[[Path, int], list[str]]] = {"kv": _kv, "knobs": _knobs, "mapped": _mapped, "served": _served}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--size", default="50MB", type=parse_bytes, metavar="SIZE")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/generating.md")
    words = parser.parse_args()
    if unknown := set(words.parts) - set(parts):
        parser.error(f"there is no part {sorted(unknown)[0]}: {', '.join(parts)}")
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "llama.gguf"
        zoo.make("llama", model, format="gguf", size_bytes=words.size)
        for name in words.parts or parts:
            table, *notes = parts[name](model, words.repeats)
            print("\n".join([f"\n{name}\n", table, *(f"- {note}" for note in notes)]), flush=True)
            if words.write:
                docs.write(f"generating-{name}", table, notes)


def _runs(model: Path, knobs: Mapping[str, str], repeats: int, runs: int = 1) -> list[Run]:
    """Runs of a model with one thread. Raises SystemExit if one fails."""
    measured = memprof.measure([model], ["llamacpp"], set=dict(knobs), threads=[1], warmup=0, runs=runs, repeats=repeats)
    for run in measured:
        if not run.outcome.ok:
            sys.exit(f"{dict(knobs)}: {run.outcome.sentence}")
    return list(measured)


def _kv(model: Path, repeats: int) -> list[str]:
    """Two contexts for each type; the difference is of the tokens alone."""
    contexts = (4096, 16384)
    cache = gguf.kv_cache(model)
    measured, arithmetic = {}, {}
    for kind in ("f16", "q8_0", "q4_0"):
        sizes = [
            statistics.median(
                run.mark("PREPARE").anon_end_bytes for run in _runs(model, {**_SHORT, "context": str(n), "kv_type": kind}, repeats)
            )
            for n in contexts
        ]
        measured[kind] = (sizes[1] - sizes[0]) / (contexts[1] - contexts[0])
        arithmetic[kind] = cache.bytes_per_token(kind)
    lines = [
        "| KV cache | by the file, bytes a token | measured | less the table of cells | off by |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for kind, size in measured.items():
        cache_bytes = size - TABLE_OF_CELLS_BYTES
        off = cache_bytes / arithmetic[kind] - 1
        lines.append(f"| {kind} | {arithmetic[kind]:.0f} | {size:.1f} | {cache_bytes:.1f} | {off:+.2%} |")
    shape = f"{len(cache.kv_heads)} layers with {cache.kv_heads[0]} KV heads of {cache.key_width}"
    return [
        "\n".join(lines),
        f"{shape}; contexts of {contexts[0]} and {contexts[1]}; anonymous memory at the end of PREPARE, {_medians(repeats)}.",
        f"Beside the cache llama.cpp keeps a table of its cells: {TABLE_OF_CELLS_BYTES} bytes a token, as the sizes of its allocations say.",
    ]


def _knobs(model: Path, repeats: int) -> list[str]:
    """Each setting alone, beside the defaults."""
    phases = ("MODEL_LOAD", "PREPARE", "PROMPT", "GENERATE")
    lines = ["| settings | " + " | ".join(phases) + " |", "| --- |" + " ---: |" * len(phases)]
    for knobs in _KNOBS:
        runs = _runs(model, {"prompt": "256", "generate": "4", **knobs}, repeats, runs=3)
        peaks = [statistics.median(run.mark(phase).rss_peak_bytes for run in runs) / MIB for phase in phases]
        name = ", ".join(f"{key}={value}" for key, value in knobs.items()) or "defaults"
        lines.append(f"| {name} | " + " | ".join(f"{peak:.1f}" for peak in peaks) + " |")
    return ["\n".join(lines), f"RSS peaks in MiB, {_medians(repeats)}; prompts of 256 tokens, three requests, one thread."]


def _medians(repeats: int) -> str:
    return f"medians of {repeats} runs" if repeats > 1 else "of a single run"


def _mapped(model: Path, repeats: int) -> list[str]:
    """Limits from all of the weights down to less than half."""
    try:
        limiter = limits.find("cgroup")
    except InputError as error:
        sys.exit(str(error))
    weights = model.stat().st_size
    head = "| limit | outcome | model resident | major faults | refaults | read again | GENERATE, tokens/s |"
    lines = [head, "| ---: | --- | ---: | ---: | ---: | ---: | ---: |"]
    knobs = {"prompt": "32", "generate": "8", "context": "256"}
    sizes = (None, *(int(weights * share) + 24 * MIB for share in (1.0, 0.75, 0.5, 0.25)))
    # Cold, so that the pages are brought in by the group that is charged for them.
    suite = Suite(
        models=(str(model),), runtimes=("llamacpp",), set=knobs, warmup=0, runs=2, repeats=1, threads=(1,), cache="cold", release=False
    )
    for limit, mlock in (*((size, "off") for size in sizes), (sizes[2], "on")):
        (order,) = orders.plan(replace(suite, set={**knobs, "mlock": mlock})).orders
        order = replace(order, **({} if limit is None else limiter.start(limit)))
        (run,) = campaign.measure([order], Silent(), lambda line: None)
        name = (format_bytes(limit) if limit else "none") + (", mlock=on" if mlock == "on" else "")
        lines.append(f"| {name} | {' | '.join(_again(run))} |")
    return ["\n".join(lines), f"Weights of {format_bytes(weights)}, mapped; a limit by a control group, without swap."]


def _again(run: Run) -> Iterator[str]:
    marks = [mark for phase in ("PROMPT", "GENERATE") if (mark := run.mark(phase)) is not None]
    yield "ok" if run.outcome.ok else run.outcome.sentence.replace("|", "/")
    resident = [value.value for value in run.values if value.name == "model_resident_bytes" and value.value is not None]
    yield format_bytes(resident[-1]) if resident else "-"
    yield str(sum(mark.major_faults or 0 for mark in marks))
    refaults = [mark.refaults for mark in marks]
    yield "-" if None in refaults else str(sum(refaults))
    yield format_bytes(sum(mark.read_bytes or 0 for mark in marks))
    speeds = [mark.units["token"] / sum(mark.times_ns) * 1e9 for mark in marks if mark.phase == "GENERATE"]
    yield f"{speeds[0]:.1f}" if speeds else "-"


def _served(model: Path, repeats: int) -> list[str]:
    """One to four slots, and prompts that are the same or differ."""
    script = Path(__file__).with_name("serve_llama.py")
    lines = ["| slots | at once | prompts | MODEL_LOAD | REQUEST | peak |", "| ---: | ---: | --- | ---: | ---: | ---: |"]
    for (slots, parallel), distinct in itertools.product(((1, 1), (4, 1), (4, 4)), (1, None)):
        command = parse_cmd(f"server={sys.executable} {script} {{model}} 18231 {slots} 4096")
        suite = Suite(
            models=(str(model),),
            variants=(command,),
            warmup=0,
            runs=8,
            repeats=repeats,
            drive=Drive("127.0.0.1", 18231, prompts=64, generate=4, parallel=parallel, distinct=distinct),
        )
        runs = list(campaign.measure(orders.plan(suite).orders, Silent(), lambda line: None))
        peaks = [statistics.median(run.mark(phase).rss_peak_bytes for run in runs) / MIB for phase in ("MODEL_LOAD", "REQUEST")]
        which = "all the same" if distinct else "all different"
        lines.append(f"| {slots} | {parallel} | {which} | {peaks[0]:.1f} | {peaks[1]:.1f} | {max(peaks):.1f} |")
    return [
        "\n".join(lines),
        f"RSS peaks in MiB, {_medians(repeats)} of 8 requests: prompts of 64 tokens, 4 generated; context=4096.",
    ]


if __name__ == "__main__":
    main()
