"""From an order, of a model in a runtime or of a program, to its Explanation: a plain run for the figures, a held one for the looks, the rules.

The plain run's peaks say at which RSS the held run is stopped inside a phase as well, so that a transient is seen while it is there. Of the
held run only the looks are kept: once a process was looked at, its resident set is not the same as without.

A program that marks its phases stands still at their ends as memprof's runner does. gdb holds one whose phases are functions at the first end of
each. One whose output tells its phases is stopped soon after their ends, and one without phases near its peak. The process that is looked at is the
one that was started, or that marks.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from ..base.errors import InputError, MeasurementError, UsageError
from ..base.units import counted, format_bytes
from ..campaign import campaign
from ..campaign.progress import Keep, Progress, Quiet
from ..models import inputs
from ..models.tensors import StoredTensor, UnknownFormat, Unparsed, pieces, tensors
from ..places.place import HERE
from ..programs import native
from ..programs.runtimes import native_twin
from ..records import store
from ..records.summary import late_rise_bytes, late_rise_words, timed_phase
from ..records.types import COMMAND, EXECUTE, RUN, STARTUP, Job, Mark, Run
from ..subjects.job_command import heap_record
from ..subjects.order import Order, assumed_words
from . import activations, findings, indexed_rows, remote, small_weights, snippets, waterfall
from .activations import GraphFacts
from .indexed_rows import TableUse
from .records import SCHEMA, SEEN_SHARE, Explanation, PhaseFigures, PhaseLook, TensorCopies
from .remote import Looker
from .rule_inputs import Facts
from .snapshot import ProcessSnapshot
from .snippets import Index
from .waterfall import PhaseAccount
from .whole_weights import Small

# Of a peak, one after another. The first run that is held may be over before it can be stopped so near to it, or be smaller than the plain one.
_TRIP_SHARES = (0.97, 0.75)
_TRIP_LEAST = 4 << 20
_HEAP_FOLDER = "heap-profile"
_TRIP_INTERVAL_NS = 500_000
_NAMED_TENSORS = 2000
_NAMED_FILES, _NAMED_FILE_LEAST = 5, 1 << 20
# Two peaks are the same if they differ by no more than this, as a share of them and in bytes, whichever is less.
_ALIKE_SHARE, _ALIKE_BYTES = 0.01, 1 << 20


def explain(order: Order, progress: Progress, keep: Keep) -> Explanation:
    """Measure one order plain, then held, and explain its memory. keep: takes the plain Run, as a line of a runs file.

    Raises MeasurementError where a run fails, and what campaign.measure raises.
    """
    remarks: list[str] = []
    if assumed := assumed_words(order.job):
        progress.say(assumed)
    index, tiny = weights(order, remarks, progress)
    looker = remote.looker(order, index, tiny)
    # Iterations are polled as often as other phases: their growth is looked at, and no latency is taken from this run.
    polled = replace(order, job=replace(order.job, iterations_interval_ns=order.job.interval_ns))
    progress.say(f"{order.job.model.name}: measuring it with these settings")
    (plain,) = campaign.measure([polled], Quiet(progress), keep)
    must_be_ok(plain)
    sought = index is not None or tiny is not None
    held, looks = _held(_with_wiped_blocks(order, remarks) if sought else order, plain, looker, progress, remarks)
    files = looker.model_files(plain.job)
    base = next((look for look in looks if look.phase == STARTUP), None)
    is_program = order.command is not None
    if is_program:
        remarks += _of_program(plain, looks)
        accounts = [waterfall.account(look, base or waterfall.unlooked(look), index, files, tiny, mapped=True) for look in looks]
    else:
        accounts = [waterfall.account(look, None if look is base else base, index, files, tiny) for look in looks]
    read = indexed_rows.partly_read(plain.job, looks[-1], files) if looks else ()
    remarks += [use.sentence for use in read]
    explanation = _explanation(order, plain, held, index, accounts, remarks, _unread(read, index, accounts))
    for warning in explanation.warnings:
        progress.say(f"{order.job.model.name}: warning: {warning}")
    return explanation


def weights(order: Order, remarks: list[str], progress: Progress) -> tuple[Index | None, Small | None]:
    """The weights to look for: those whose copies are counted, and those too small for that. None where there are no such weights: a program's model
    may be none, or no file that can be read."""
    path = Path(order.job.model.path)
    if order.command is not None and not order.job.model.files:
        remarks.append("copies of weights need a model, of any format: name it before --")
        return None, None
    try:
        stored, of_pieces = _stored(order, path, remarks)
        progress.say(f"{order.job.model.name}: choosing what to look for in {counted(len(stored), 'piece' if of_pieces else 'tensor')}")
        index = replace(snippets.index(stored), of_pieces=of_pieces)
        tiny = small_weights.choose([weight.tensor for weight in index.weights if weight.why_not])
    except Unparsed as error:
        size = format_bytes(order.job.model.bytes)
        remarks.append(f"{error}; copies of weights are not counted, and none of the {size} of its files is placed")
        return None, None
    except InputError as error:
        if order.command is None:
            raise
        remarks.append(f"{error}; copies of weights are not counted")
        return None, None
    if not len(index.keys.words):
        remarks.append("no tensor of this model can be told from other memory (tiny, constant or of low entropy): copies are not counted")
        return None, tiny
    return index, tiny


def _stored(order: Order, path: Path, remarks: list[str]) -> tuple[list[StoredTensor], bool]:
    """The tensors of a model, and whether they are pieces of a program's file of an unknown format. Raises as `tensors` does."""
    try:
        return tensors(path), False
    except UnknownFormat:
        if order.command is None or not path.is_file():
            raise
    remarks.append(f"{path.name} is in no format that memprof reads: copies of its bytes are looked for, and called weights")
    return pieces(path), True


def must_be_ok(run: Run) -> None:
    if not run.outcome.ok:
        raise MeasurementError(f"{run.job.model.name}, {run.job.variant}: {run.outcome.sentence}")


def measured(run: Run) -> tuple[PhaseFigures, ...]:
    """The phases of a plain run."""
    return tuple(
        PhaseFigures(
            mark.phase,
            mark.height_bytes,
            mark.rss_end_bytes,
            mark.time_ns,
            int(statistics.median(mark.times_ns)) if mark.times_ns else None,
            _inside_of(mark, run.marks),
        )
        for mark in run.marks
    )


def _inside_of(mark: Mark, marks: Iterable[Mark]) -> str:
    """The name of the shortest phase that encloses this one; empty if none does."""
    around = [outer for outer in marks if _encloses(outer, mark)]
    return min(around, key=lambda outer: outer.time_ns).phase if around else ""


def _encloses(outer: Mark, mark: Mark) -> bool:
    """Whether a phase lasts longer than another on both sides. One whose calls lie around the other does so too, but need not have its peak."""
    is_around = outer.begin_ns <= mark.begin_ns and mark.end_ns <= outer.end_ns and outer.time_ns > mark.time_ns
    return is_around and mark.height_bytes - outer.height_bytes < _TRIP_LEAST


def _iterations(plain: Run) -> list[int]:
    """RSS at the end of each iteration of EXECUTE; none if there were fewer polls than iterations."""
    mark = plain.mark(EXECUTE)
    if mark is None or mark.samples < len(mark.times_ns):
        return []
    columns = store.unpack(plain.timeline)
    ends, at = [], mark.end_ns - sum(mark.times_ns)
    for time_ns in mark.times_ns:
        at += time_ns
        ends.append(columns.rss[max(0, bisect_right(columns.t_ns, at) - 1)])
    return ends


def _heap_profile(job: Job) -> str:
    """What shows who allocates, with its command. Functions are no phases there."""
    return f"a heap profile shows who allocates it{', without phases' if job.phases else ''}: {heap_record(job, _HEAP_FOLDER)}"


def _held(order: Order, plain: Run, looker: Looker, progress: Progress, remarks: list[str]) -> tuple[Run, list[ProcessSnapshot]]:
    """A held run and its looks. Raises memory_map.Unreadable where the process's memory may not be read, MeasurementError for a program that was not
    held."""
    by_lines = bool(order.job.phase_regexes)
    run = plain
    looks: list[ProcessSnapshot] = []
    known: list[str] = []
    if plain.mark(RUN) is None:
        ends_alone = by_lines or order.job.phases  # a process that gdb follows cannot be stopped by others
        transients = _transients(plain)
        for share in _TRIP_SHARES:
            trips = {} if ends_alone else {phase: level + int(share * height) for phase, (level, height, _) in transients.items()}
            tried = _held_at(order, trips, plain, looker, progress)
            if not looks or _inside(tried[1]) > _inside(looks):
                run, looks, known = tried
            if _inside(looks) == len(trips):
                break
        if ends_alone:
            known += [
                f"{phase} peaks {format_bytes(height)} above {ground}, and memprof does not stop it there, because its phases come from "
                f"{'lines' if by_lines else 'functions'}: copies of weights that it holds only then are in no figure. With marks (memprof marks)"
                f"{'' if by_lines else ', or with functions inside it as phases,'} they are; {_heap_profile(order.job)}"
                for phase, (_, height, ground) in transients.items()
                if not _is_reached_inside(phase, plain)
            ]
    if plain.mark(RUN) is not None or (by_lines and _are_late(looks, plain)):
        # The process that was started is the one that is stopped.
        first = next((process.rss_peak_bytes for process in plain.processes if process.parent is None), plain.height_bytes)
        for share in _TRIP_SHARES:
            near = _held_at(order, {"": int(share * first)}, plain, looker, progress)
            if any(look.phase.endswith("/peak") for look in near[1]):
                run, looks, known = near
                break
    if not looks and order.command is not None:
        raise MeasurementError(
            f"{order.job.variant}: it was over before it could be stopped and looked at. Mark its phases (memprof marks), or profile its heap: "
            f"{heap_record(order.job, _HEAP_FOLDER)}"
        )
    remarks += known
    return run, looks


def _with_wiped_blocks(order: Order, remarks: list[str]) -> Order:
    """The order of a process that overwrites each block as it gets it, if it can: else a block of its heap shows the weights that it held before it
    was freed and given out again."""
    try:
        order.place.only_here("a library that overwrites reused memory")
        return replace(order, env={**order.env, **native.preloaded("wipe.c", order.env)})
    except (InputError, UsageError) as error:
        remarks.append(f"old weights in blocks that were freed and are in use again count as copies here: {error}")
        return order


def _inside(looks: Iterable[ProcessSnapshot]) -> int:
    """How many looks came inside a phase."""
    return sum(look.phase.endswith("/peak") for look in looks)


def _are_late(looks: Sequence[ProcessSnapshot], plain: Run) -> bool:
    """Whether a program that was stopped soon after its lines had gone on meanwhile: most of its peak was in no look."""
    return max((sum(mapping.rss for mapping in look.mappings) for look in looks), default=0) < SEEN_SHARE * plain.height_bytes


def _held_at(
    order: Order, sizes: Mapping[str, int], plain: Run, looker: Looker, progress: Progress
) -> tuple[Run, list[ProcessSnapshot], list[str]]:
    """A run that is held at its phases' ends and at these sizes, its looks, and remarks on what they missed."""
    job = replace(order.job, hold=True, interval_ns=min(order.job.interval_ns, _TRIP_INTERVAL_NS))
    held = replace(order, job=job, hold_at=sizes)
    looks: list[ProcessSnapshot] = []

    def look(job: Job, phase: str, pid: int) -> None:
        progress.say(f"{job.model.name}: looking at {phase}")
        looks.append(looker.take(pid, phase, weights=phase != STARTUP))

    (run,) = campaign.measure([held], Quiet(progress), lambda line: None, look)
    must_be_ok(run)
    remarks = list(run.warnings)
    without_end = (STARTUP, RUN) if order.command is not None else ()
    ends = [mark.phase for mark in run.marks]
    missing = [phase for phase in ends if phase not in without_end and not any(look.phase == phase for look in looks)]
    if missing:
        remarks.append(
            f"the child did not stand still at the end of {', '.join(missing)}: nothing is known about {'them' if len(missing) > 1 else 'it'}"
        )
    remarks += [
        f"the transient of {phase} was over before the child could be stopped inside it, so its content is not known; {_heap_profile(order.job)}"
        for phase in filter(None, held.hold_at)
        if not any(look.phase == f"{phase}/peak" for look in looks)
    ]
    order_of = {phase: number for number, phase in enumerate(ends)}
    return run, sorted(looks, key=lambda look: (order_of.get(look.phase.partition("/")[0], 99), "/" not in look.phase)), remarks


def _of_program(plain: Run, looks: Sequence[ProcessSnapshot]) -> Iterator[str]:
    """Which of a program's processes was looked at, and the files that are mapped in it at the last look."""
    if len(plain.processes) > 1:
        yield (
            f"of its {len(plain.processes)} processes one was looked at, the one that was started or that marks its phases; PEAK is of all of them"
        )
    if looks:
        sizes: Counter[str] = Counter()
        for mapping in looks[-1].mappings:
            sizes[mapping.path] += mapping.rss if mapping.is_file else 0
        named = ", ".join(f"{path} {format_bytes(size)}" for path, size in sizes.most_common(_NAMED_FILES) if size >= _NAMED_FILE_LEAST)
        if named:
            yield f"mapped files at the last look: {named}"


def _transients(plain: Run) -> dict[str, tuple[int, int, str]]:
    """Phases whose peak lies clearly above their begin and end: the larger of these two, the peak's height above it, in bytes, and which it is."""
    found = {}
    for mark in plain.marks:
        level, ground = max((mark.rss_end_bytes or 0, "its end"), (mark.rss_begin_bytes or 0, "its begin"))
        if mark.phase not in (STARTUP, EXECUTE, RUN) and mark.rss_end_bytes and mark.height_bytes - level >= _TRIP_LEAST:
            found[mark.phase] = (level, mark.height_bytes - level, ground)
    return found


def _is_reached_inside(phase: str, plain: Run) -> bool:
    """Whether a phase inside this one comes near its peak: the look at the end of that one, or the remark on it, tells of the peak."""
    outer = plain.mark(phase)
    return outer is not None and any(
        _encloses(outer, mark) and outer.height_bytes - mark.height_bytes < _TRIP_LEAST for mark in plain.marks
    )


def _unread(read: Sequence[TableUse], index: Index | None, accounts: Sequence[PhaseAccount]) -> int:
    """The bytes of the tables that were read in so small parts that no copy of them is found. Pieces of a file may have been copied in parts."""
    if index is not None and index.of_pieces:
        return sum(weight.tensor.bytes for weight in index.weights)
    names = {use.stored.name for use in read}
    weights = index.weights if index is not None else ()
    return sum(
        weight.tensor.bytes
        for number, weight in enumerate(weights)
        if not weight.why_not and weight.tensor.name in names and number not in accounts[-1].copies
    )


def _explanation(
    order: Order, plain: Run, held: Run, index: Index | None, accounts: Sequence[PhaseAccount], remarks: list[str], unread_bytes: int
) -> Explanation:
    job, is_program = plain.job, order.command is not None
    devices = {mark.phase: mark.device_end_bytes or 0 for mark in held.marks}
    phases = tuple(replace(account.phase, device_bytes=devices.get(account.phase.name, 0)) for account in accounts)
    shapes = _shapes(job)
    graph = activations.of_graph(Path(job.model.path), shapes) if shapes is not None else GraphFacts()
    counted_bytes, counted_tensors, not_counted = waterfall.counted(index) if index is not None else (0, 0, {})
    rise_bytes = late_rise_bytes([plain])
    facts = Facts(
        runtime=order.runtime,
        knobs={**{knob.name: knob.default for knob in order.runtime.knobs if knob.default is not None}, **job.knobs},
        measured=measured(plain),
        phases=phases,
        plan_bytes=graph.highest_bytes,
        iterations=_iterations(plain),
        ran=len(execute.times_ns) if (execute := plain.mark(EXECUTE)) is not None else 0,
        threads=job.threads,
        unread_bytes=unread_bytes,
        native=native_twin(order.runtime.name, order.python) if order.place is HERE and not is_program else None,
        shapes=", ".join(f"{name}={'x'.join(map(str, shape))}" for name, shape in (shapes or {}).items()),
        loops=graph.loops,
        ends_alone=bool(job.phases or job.phase_regexes),
        heap_profile=_heap_profile(job),
    )
    return Explanation(
        memprof_explain=SCHEMA,
        model=job.model,
        runtime=job.variant if is_program else job.runtime,
        runtime_version=plain.about.runtime_version if plain.about is not None else "",
        knobs=job.knobs,
        threads=job.threads,
        machine=plain.machine.name,
        python_version=plain.about.python_version if plain.about is not None else "",
        machine_words=plain.machine.words,
        libc=plain.machine.libc,
        packages=plain.about.packages if plain.about is not None else {},
        measured=tuple(facts.measured),
        phases=phases,
        weight_bytes=sum(weight.tensor.bytes * weight.instances for weight in index.weights) if index is not None else None,
        counted_bytes=counted_bytes if index is not None else None,
        counted_tensors=counted_tensors,
        not_counted=not_counted,
        tensors=_tensors(index, accounts) if index is not None and not index.of_pieces else (),
        findings=findings.find(facts),
        remarks=tuple(
            dict.fromkeys(
                (
                    *(plain.about.notes if plain.about is not None else ()),
                    *plain.warnings,
                    *remarks,
                    *([late_rise_words(rise_bytes, timed_phase([plain]))] if rise_bytes else []),
                    *(() if is_program and not facts.ran else (findings.sight(facts),)),
                )
            )
        ),
        shapes=shapes or {},
        assumed=job.assumed,
        warmup=None if is_program else job.warmup,
        runs=None if is_program else job.runs,
        warnings=(*_not_looked_at(plain, held), *_doubts(plain, phases), *findings.doubts(facts)),
        looked_peak_bytes=held.height_bytes,
        peak_bound_bytes=plain.machine.peak_bound_bytes,
        of_pieces=index is not None and index.of_pieces,
    )


def _shapes(job: Job) -> dict[str, tuple[int, ...]] | None:
    """The shapes of the model's inputs as they ran. None if they are not known: no plan can then be set beside the run."""
    if job.runtime == COMMAND:
        return None
    path = Path(job.model.path)
    shapes = inputs.shapes_that_run(path, job.shapes, job.inputs)
    # A runtime of the user's own may make its inputs itself, and in other sizes than 1.
    return None if job.runtime.endswith(".py") and inputs.taken_as_one(path, job.shapes, job.inputs) else shapes


def _not_looked_at(plain: Run, held: Run) -> tuple[str, ...]:
    """That the reported PEAK is not the one of the looks, where they differ by more than two runs of a steady runtime do."""
    told, looked = plain.height_bytes, held.height_bytes
    if abs(told - looked) <= max(min(_ALIKE_SHARE * told, _ALIKE_BYTES), plain.machine.peak_bound_bytes):
        return ()
    meaning = "memory of the plain run beyond it is not explained" if looked < told else "more than the plain run"
    return (f"the process that was looked at peaked at {format_bytes(looked)}{'; ' if looked < told else ', '}{meaning}",)


def _doubts(plain: Run, phases: Iterable[PhaseLook]) -> list[str]:
    """Phases in which the held run was not as large as the plain run."""
    by_lines = bool(plain.job.phase_regexes)
    remarks = []
    for phase in phases:
        mark = plain.mark(phase.name)
        if mark is not None and mark.rss_end_bytes and abs(phase.rss_bytes - mark.rss_end_bytes) > max(8 << 20, 0.05 * mark.rss_end_bytes):
            seen, ended = format_bytes(phase.rss_bytes), format_bytes(mark.rss_end_bytes)
            late = " A line is read a moment after it is printed: marks (memprof marks) hold the program there." if by_lines else ""
            remarks.append(f"the look at the end of {phase.name} saw {seen}, where the plain run had {ended}.{late}".removesuffix("."))
    return remarks


def _tensors(index: Index, accounts: Sequence[PhaseAccount]) -> tuple[TensorCopies, ...]:
    """Tensors with their copies in each phase, the largest first. A model with very many tensors keeps only the largest."""
    counted = []
    for number, weight in enumerate(index.weights):
        if not weight.why_not:
            tensor = weight.tensor
            by_phase = {account.phase.name: account.copies[number] for account in accounts if number in account.copies}
            counted.append(TensorCopies(tensor.name, tensor.dtype, tensor.shape, tensor.bytes, weight.instances, by_phase))
    return tuple(sorted(counted, key=lambda tensor: -tensor.bytes)[:_NAMED_TENSORS])
