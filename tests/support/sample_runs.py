"""Made-up Runs, for what reads Runs: no process is started for them."""

from __future__ import annotations

import base64
import zlib
from array import array
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from memprof.records.types import About, Job, Machine, Mark, Model, ModelFile, Outcome, Run, Timeline, Work

MIB = 1 << 20
PHASES = ("STARTUP", "MODEL_LOAD", "PREPARE", "WARMUP", "EXECUTE")
# RSS in MiB at the end of each phase, and the peak in it.
USUAL = {"STARTUP": (40, 40), "MODEL_LOAD": (140, 150), "PREPARE": (260, 270), "WARMUP": (265, 266), "EXECUTE": (265, 268)}


def machine(name: str = "here", **changes: object) -> Machine:
    facts: dict[str, object] = {
        "name": name,
        "arch": "x86_64",
        "kernel": "6.18",
        "libc": "glibc 2.36",
        "cpu": "a CPU",
        "cpus": 2,
        "cpus_usable": 2,
        "memory_bytes": 8 << 30,
        "swap_bytes": 0,
        "page_bytes": 4096,
        "huge_pages": "madvise",
        "peak_bound_bytes": 524288,
    }
    return Machine(**{**facts, **changes})  # type: ignore[arg-type]


def job(model: str = "net.onnx", variant: str = "a", repeat: int = 1, threads: int | None = None, **changes: object) -> Job:
    file = ModelFile(f"/models/{model}", 100 * MIB, "00" * 32)
    facts: dict[str, object] = {
        "model": Model(model, file.path, (file,), file.bytes, file.sha256),
        "runtime": "onnxruntime",
        "variant": variant,
        "repeat": repeat,
        "warmup": 5,
        "runs": 5,
        "threads": threads,
    }
    return Job(**{**facts, **changes})  # type: ignore[arg-type]


def of_program(runs: Sequence[Run], name: str, content: str, path: str = "/bin") -> list[Run]:
    """The same runs, of a program that has no model. content: what tells two builds of it apart."""
    file = ModelFile(f"{path}/{name}", MIB, content * 64)
    words = {"runtime": "command", "argv": (file.path, "5"), "program": file}
    return [
        replace(run, job=replace(run.job, model=replace(run.job.model, files=(), bytes=0, sha256=file.sha256), **words)) for run in runs
    ]


def mark(
    phase: str,
    index: int,
    end_mib: float,
    peak_mib: float,
    *,
    begin_mib: float | None = None,
    times_ms: Sequence[float] = (),
    exact: bool = True,
) -> Mark:
    begin_ns = 10**9 * index
    end = int(end_mib * MIB)
    return Mark(
        phase=phase,
        begin_ns=begin_ns,
        end_ns=begin_ns + 400_000_000,
        rss_peak_bytes=int(peak_mib * MIB),
        rss_peak_exact=exact,
        times_ns=tuple(int(time * 1e6) for time in times_ms),
        samples=1,
        interval_ns=1_000_000,
        hwm_bytes=int(peak_mib * MIB),
        rss_begin_bytes=None if begin_mib is None else int(begin_mib * MIB),
        rss_end_bytes=end,
        anon_end_bytes=max(end - 10 * MIB, 0),
        file_end_bytes=10 * MIB,
        shmem_end_bytes=0,
        swap_end_bytes=0,
        vms_end_bytes=2 * end,
        vms_peak_bytes=2 * end,
        minor_faults=10,
        major_faults=0,
        cpu_ns=1000,
    )


def run(
    variant: str = "a",
    repeat: int = 1,
    *,
    model: str = "net.onnx",
    threads: int | None = None,
    memory: Mapping[str, tuple[float, float]] = USUAL,
    extra_mib: float = 0.0,
    exact: bool = True,
    outcome: Outcome | None = None,
    samples: Sequence[tuple[int, int, int, int]] = (),
    where: Machine | None = None,
    **changes: object,
) -> Run:
    """A Run with these (end, peak) in MiB by phase; a failed one has the phases before the one it failed in."""
    outcome = outcome or Outcome("ok")
    phases = list(memory)[: list(memory).index(outcome.phase)] if outcome.phase in memory else list(memory)
    marks = tuple(
        mark(
            phase,
            index,
            memory[phase][0] + (extra_mib if index else 0),
            memory[phase][1] + (extra_mib if index else 0),
            begin_mib=memory[phases[index - 1]][0] + (extra_mib if index > 1 else 0) if index else None,
            times_ms=(20, 21, 22, 23, 24) if phase in ("WARMUP", "EXECUTE") else (),
            exact=exact,
        )
        for index, phase in enumerate(phases)
    )
    return Run(
        memprof=1,
        job=job(model, variant, repeat, threads, **changes),
        machine=where or machine(),
        started_ns=0,
        outcome=outcome,
        timeline=timeline(samples or [(index * 10**9, int(memory[phase][0] * MIB), 10 * MIB, 0) for index, phase in enumerate(phases)]),
        marks=marks,
        about=About("1.0", "3.11.0"),
    )


def runs(variant: str = "a", extra_mib: Sequence[float] = (0, 0.1, 0.2, 0.3, 0.4), **rest: object) -> list[Run]:
    """Repeats of one variant, each with its own addition to all phases but the first."""
    return [run(variant, repeat, extra_mib=extra, **rest) for repeat, extra in enumerate(extra_mib, 1)]  # type: ignore[arg-type]


def timeline(samples: Sequence[tuple[int, int, int, int]]) -> Timeline:
    columns = list(zip(*samples, strict=True)) or [(), (), (), ()]
    rss = columns[1] or (0,)
    return Timeline(*(packed(column) for column in columns), len(samples), min(rss), sum(rss) // len(rss), max(rss))


def packed(column: Sequence[int]) -> str:
    steps = [now - before for before, now in zip([0, *column], column, strict=False)]
    return base64.b64encode(zlib.compress(array("q", steps).tobytes())).decode()


def worked(iterations: Sequence[int], rss: Sequence[int], phase: str = "EXECUTE", **more: Sequence[int]) -> Work:
    """A curve of bytes by iterations; `file` and `swap` are columns too, and any other word is a unit's."""
    none = [0] * len(rss)
    times = [1_000_000 * done for done in iterations]
    columns = [packed(column) for column in (times, rss, more.pop("file", none), more.pop("swap", none))]
    return Work(phase, ("iteration", *more), *columns, tuple(map(packed, (iterations, *more.values()))), len(rss))
