"""How a run was measured, setting by setting in words, and which settings differ between two runs: these make figures comparable or not."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..base.units import exact_bytes, format_bytes
from .types import COMMAND, Machine, Run

# The knobs common to all runtimes that are sizes: a Run keeps each setting as plain text, a size as a number of bytes.
SIZES = frozenset({"malloc_mmap_threshold", "ballast"})

# Versions that a run reports; a run that failed early, or that an older memprof measured, lacks them.
VERSIONS = ("runtime version", "Python")
_MACHINE = ("machine", "kernel", "C library")
PACKAGE = "package "

_DEFAULT = "default"
_NOT_IMPORTED = "not imported"


def written(knobs: Mapping[str, str]) -> dict[str, str]:
    """The knobs of a job as a person writes them: sizes with their unit."""
    return {
        name: exact_bytes(int(value)) if name in SIZES and value.isdecimal() and len(value) < 20 else value for name, value in knobs.items()
    }


def inputs_in_words(varied: bool, fresh: bool) -> str:
    """What iterations get, as a sentence has it after `with`. varied: inputs of several shapes; fresh: new content each time."""
    if varied:
        return "several shapes and fresh inputs" if fresh else "several shapes"
    return "fresh inputs" if fresh else "the same input"


def in_a_line(knobs: Mapping[str, str]) -> str:
    """The knobs of a job as `a=1,b=4MiB`, by name; empty for none."""
    return ",".join(f"{name}={value}" for name, value in sorted(written(knobs).items()))


def of_repeats(runs: Sequence[Run]) -> dict[str, str]:
    """How repeats were measured, beyond model, variant, threads and machine. A knob, shape or variable that is absent has its default."""
    job = runs[0].job
    about = next((run.about for run in runs if run.about), None)
    facts = {
        "runtime": job.runtime,
        "runtime version": about.runtime_version if about else "",
        "Python": about.python_version if about else "",
        "warm-up": str(job.warmup),
        "runs": str(job.runs),
        "page cache": job.cache,
        "deterministic": "on" if job.deterministic else "off",
        "hold": "held" if job.hold else "plain",
        "inputs": job.inputs or "",
        "program": job.program.sha256[:8] if job.program else "",
        "command": shlex.join(job.argv),
        "folder": job.cwd or "",
        "phases by symbol": ", ".join(f"{name}={symbol}" for name, symbol in job.phases.items()),
        "phases by output": ", ".join(f"{name}={regex}" for name, regex in job.phase_regexes.items()),
        "limit": job.limit or "",
        "CPUs": job.cpus or "",
        "swap": "kept out" if job.no_swap else "",
        "sessions": str(job.sessions) if job.sessions > 1 else "",
        "processes": str(job.processes) if job.processes > 1 else "",
        "memory by units": "followed" if job.use else "",
    }
    facts.update(written(job.knobs))
    facts.update({f"shape of {name}": "x".join(map(str, shape)) for name, shape in job.shapes.items()})
    facts.update({f"value of {name}": value for name, value in job.values.items()})
    facts.update({f"integers of {name}": f"0 to {rows - 1:,}" for name, rows in job.ranges.items()})
    facts.update({f"variable {name}": "unset" if value is None else value for name, value in job.env.items()})
    facts.update({f"{PACKAGE}{name}": version for name, version in (about.packages if about else {}).items()})
    return {name: value for name, value in facts.items() if value}


def of_machine(machine: Machine) -> dict[str, str]:
    """Where a run was measured."""
    values = (f"{machine.name} ({machine.cpu}, {machine.cpus} CPUs)", machine.kernel, machine.libc)
    return {name: value for name, value in zip(_MACHINE, values, strict=True) if value}


def other_machine(base: Machine, head: Machine) -> str | None:
    """In which facts two machines differ so that their figures are not comparable, in words; None if they may be alike but for their names.

    A fact that an imported log lacks is no difference. Kernels differ by their first two numbers: hosts of a CI service get new builds of the
    same version all the time. Two machines of the same make tell sizes of memory that are some MiB apart: only a tenth and more counts.
    """
    versions = [".".join(re.findall(r"\d+", machine.kernel)[:2]) for machine in (base, head)]
    pairs = {
        "architecture": (base.arch, head.arch),
        "kernel": (versions[0], versions[1]),
        "CPUs": (str(base.cpus or ""), str(head.cpus or "")),
    }
    facts = [f"{name} {was} against {now}" for name, (was, now) in pairs.items() if was and now and was != now]
    sizes = sorted((base.memory_bytes, head.memory_bytes))
    if sizes[0] and sizes[1] - sizes[0] >= sizes[1] / 10:
        facts.append(f"memory {format_bytes(base.memory_bytes)} against {format_bytes(head.memory_bytes)}")
    return ", ".join(facts) or None


def differing(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """The settings that differ between two runs: each name, and its value in each run. A version that a run has not reported is no difference."""
    packages = all(any(name.startswith(PACKAGE) for name in side) for side in (before, after))
    for name in sorted({**before, **after}, key=lambda name: (_MACHINE.index(name) if name in _MACHINE else len(_MACHINE), name)):
        missing = _NOT_IMPORTED if name.startswith(PACKAGE) else _DEFAULT
        always = name in (*VERSIONS, *_MACHINE)
        known = packages if missing == _NOT_IMPORTED else not always or (name in before and name in after)
        values = before.get(name, missing), after.get(name, missing)
        if known and values[0] != values[1]:
            yield name, *values


def change(name: str, before: str, after: str) -> str:
    """A setting that differs, briefly: `numpy 1.26 → 2.0`."""
    return f"{name.removeprefix(PACKAGE)} {before} → {after}"


def beside_runtime(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """The versions in which two environments differ beside the runtime's own, each as `numpy 2.4.6 instead of 1.26.4`: that of `after`, of which
    sentences say what it has more or less, stands first.

    A package that one side alone has imported belongs to its runtime. The runtime's own package has the runtime's version, or its beginning.
    """
    own = [side.get("runtime version", "") for side in (before, after)]
    return tuple(
        f"{name.removeprefix(PACKAGE)} {now} instead of {was}"
        for name, was, now in differing(before, after)
        if name == "Python"
        or (name.startswith(PACKAGE) and _NOT_IMPORTED not in (was, now) and not (own[0].startswith(was) and own[1].startswith(now)))
    )


def changes(before: Mapping[str, str], after: Mapping[str, str], model: str, same_file: bool) -> tuple[str, ...]:
    """All that differs between two measurements, briefly. model: its name; same_file: whether it is the same file."""
    return (*(change(*difference) for difference in differing(before, after)), *([] if same_file else [_measured_file(after, model)]))


def _measured_file(way: Mapping[str, str], model: str) -> str:
    """The file that a model's hash is of, in words: a program that names no model has its own name and hash there."""
    if way.get("runtime") != COMMAND:
        return "the model's file"
    program = os.path.basename(way.get("command", "").partition(" ")[0])
    return "the program" if program == model else "the program or the model's file"


def difference_remarks(pairs: Iterable[tuple[str, Mapping[str, str], Mapping[str, str]]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sentences on differences between pairs of runs, base's and head's: on where they ran, once for all pairs, and on how they ran, with the pair's
    label first. Each value stands behind the name of its side."""
    surroundings: dict[str, dict[str, None]] = {}
    asked = []
    for label, before, after in pairs:
        differences = list(differing(before, after))
        packages = {(was, now) for name, was, now in differences if name.startswith(PACKAGE)}
        for name, was, now in differences:
            values = f"base {was}, head {now}"
            if name == "runtime version" and (was, now) in packages:
                continue  # the runtime's own package says it
            if name in (*_MACHINE, *VERSIONS) or name.startswith(PACKAGE):
                surroundings.setdefault(name.removeprefix(PACKAGE), {})[values] = None
            else:
                asked.append(f"{label}: {name} differs: {values}")
    return tuple(f"{name} differs: {'; '.join(values)}" for name, values in surroundings.items()), tuple(asked)
