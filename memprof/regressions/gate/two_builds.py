"""The measurements of a gate: a suite, or both sides of a git ref.

With --base-ref both sides are measured in one campaign. Each repeat of a variant runs beside its counterpart, and the sides alternate as the first,
so that a machine that drifts drifts for both.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from ...base import files
from ...base.errors import MemprofError, UndecidedError
from ...campaign.progress import Progress
from ...programs import conversion_cache, runtimes
from ...records.summary import VariantKey, place_of
from ...records.types import BUILD, COMMAND, PEAK, PHASES, RELEASE, WARMUP, JobSide, Run
from ...subjects import suite
from ...subjects.configuration import with_defaults
from ...subjects.order import Order
from ...subjects.orders import plan
from ...subjects.suite import Build, Suite, Variant
from ...verdicts import baseline, budgets
from ...verdicts.baseline import GateSide
from ...verdicts.budgets import Budget, Spot
from ...versions import shared_code, shared_files, side_environments, worktrees
from ...versions.shared_code import Shared
from . import ballast, growth_limits, law_limits
from .interleaving import measure_sides, orders_at
from .request import BASE, HEAD, GateRequest, GateSides

_HERE = "this folder"


@contextmanager
def measured(
    request: GateRequest, base: GateSide, names: Sequence[str], limits: Sequence[Budget], progress: Progress
) -> Iterator[GateSides]:
    """The suite measured now, beside this base, or with --base-ref both sides; their trees live as long as the block.

    Raises UsageError, before anything is measured, for a limit that guards nothing in the suite, and for a positive control that cannot be made.
    """
    if not request.of_two_trees:
        if request.command is not None:
            _build(request.command, Path.cwd(), _HERE, progress)
        wanted = _with_request(request.command or suite.read(_file(request)), request, progress.say)
        if request.command is None and wanted.build is not None:
            progress.say("this checkout is measured as it is: the suite's [build] runs for --base-ref alone, in the tree of each side")
        planned = plan(wanted)
        _say(planned.remarks, progress)
        _check(request, limits, planned.orders)
        growths, fits = growth_limits.wished(wanted, planned.orders), law_limits.wished(wanted, planned.orders)
        runs = measure_sides({HEAD: planned.orders}, {HEAD: request.output}, progress)[HEAD]
        title = f"{request.suite or wanted.only.name}, measured now"
        title += f", against {request.judge_words}" if request.judge_words else ""
        yield GateSides(
            title,
            base,
            _side(runs, names),
            lambda side, place: orders_at(planned.orders, place) if side == HEAD else (),
            growth=growth_limits.measured(growths, request, progress),
            laws=law_limits.measured(fits, request, progress),
        )
        return
    both_sides = _both_trees if request.against is not None else _both_sides
    with both_sides(request, progress) as (title, base_side, head_orders, remarks, wanted):
        _check(request, limits, head_orders)
        growths, fits = growth_limits.wished(wanted, head_orders), law_limits.wished(wanted, head_orders)
        orders: dict[JobSide, Sequence[Order]] = {BASE: _alone(base_side.orders), HEAD: _alone(head_orders)}
        runs_by_side = measure_sides(orders, {BASE: request.base_output, HEAD: request.output}, progress)
        yield GateSides(
            title,
            _side(runs_by_side[BASE], names),
            _side(runs_by_side[HEAD], names),
            lambda side, place: orders_at(orders[side], place),
            (*remarks, *base_side.remarks),
            base_side.gone,
            base_side.unmeasurable,
            growth_limits.measured(growths, request, progress),
            law_limits.measured(fits, request, progress),
        )


def _check(request: GateRequest, limits: Sequence[Budget], orders: Sequence[Order]) -> None:
    budgets.check(limits, _spots(orders))
    if request.prove:
        ballast.check(orders)


def _spots(orders: Sequence[Order]) -> list[Spot]:
    """Where a budget may hold: a program, and a runtime in a user's file, may have phases that nobody knows before."""
    spots: list[Spot] = []
    for job in (order.job for order in orders):
        open_phases = job.runtime == COMMAND or job.runtime.endswith(".py")
        left_out = {BUILD, *([] if job.warmup else [WARMUP]), *([] if job.release else [RELEASE])}
        phases = [phase for phase in PHASES if phase not in left_out]
        spots += [(job.model.name, job.variant)] if open_phases else [(job.model.name, job.variant, phase) for phase in (*phases, PEAK)]
    return list(dict.fromkeys(spots))


def _say(remarks: Sequence[str], progress: Progress) -> None:
    for remark in remarks:
        progress.say(remark)


def _side(runs: Sequence[Run], names: Sequence[str]) -> GateSide:
    return GateSide(baseline.entries(runs, names), from_runs=tuple(runs))


def _with_request(wanted: Suite, request: GateRequest, say: Callable[[str], None]) -> Suite:
    """The suite with what the request and the defaults of memprof's configuration say besides."""
    repeats = request.repeats if request.repeats is not None else wanted.repeats
    return with_defaults(replace(wanted, place=request.on, repeats=repeats), say)


class _Base(Struct, frozen=True):
    """Base's orders at places that head has too, under head's names; the other fields are those of GateSides."""

    orders: tuple[Order, ...] = ()
    remarks: tuple[str, ...] = ()
    gone: tuple[VariantKey, ...] = ()
    unmeasurable: Mapping[tuple[str, str], str] = field(default_factory=dict)


@contextmanager
def _both_sides(request: GateRequest, progress: Progress) -> Iterator[tuple[str, _Base, Sequence[Order], Sequence[str], Suite]]:
    """The gate's title, base, head's orders, remarks, and head's suite; the trees of both live as long as the block."""
    assert request.base_ref is not None
    file = _file(request)
    repository = worktrees.Repository.of(file)
    build = worktrees.checkout_suite(repository).build or Build()
    with worktrees.trees(repository, request.base_ref, build, progress.say) as (base, head):
        wanted = _with_request(worktrees.suite_in(repository, head), request, progress.say)
        planned = plan(wanted)
        _say(planned.remarks, progress)
        remarks = []
        base_side = _Base()
        if repository.has_suite(base.folder):
            # Each side has its suite: a model or variant that a change takes out of it must not go unseen.
            older = _with_request(worktrees.suite_in(repository, base), request, lambda sentence: None)
            base_side = _base_side(replace(older, repeats=wanted.repeats), planned.orders)
        else:
            words = shlex.join(["memprof", "bisect", "--suite", str(file), "--good", request.base_ref])
            remarks = [
                f"{base.label} has no {repository.suite} yet, so all rows are new; this checkout's suite measures it and the commits since: {words}",
                *([base.new] if base.new else []),
            ]
        try:
            yield f"{head.label} against {base.label}", base_side, planned.orders, remarks, wanted
        finally:
            conversion_cache.forget_made_below(head.folder.parent)


@contextmanager
def _both_trees(request: GateRequest, progress: Progress) -> Iterator[tuple[str, _Base, Sequence[Order], Sequence[str], Suite]]:
    """The same for a command: head in this checkout, base in a worktree of the ref. Its build runs once in each."""
    assert request.command is not None and request.against is not None
    here = Path.cwd()
    repository = worktrees.Repository.around(here)
    build, own = request.command.build, request.command.only.command
    assert own is not None
    if build is not None:
        side_environments.check_paths(own, here, build)
    folder = worktrees.folder_inside(repository, request.command.cwd or here, "--cwd")
    if build is None and (shared := shared_code.of_python(repository, own, request.command.env, folder)):
        raise UndecidedError(_same_code(shared[0], own.name))
    with worktrees.tree(repository, request.against, "--against") as base:
        subject = _shared_in_full(request.command, repository, base, folder, progress)
        environments = _environments(build, base.folder.parent)
        _build(request.command, here, _HERE, progress, environments.get(HEAD))
        wanted = _with_request(_in_environment(subject, environments.get(HEAD), here), request, progress.say)
        planned = plan(wanted)
        _say(planned.remarks, progress)
        command = wanted.only.command
        assert command is not None
        after_head = side_environments.installed(command)
        remarks: Sequence[str] = ()
        try:
            _build(request.command, worktrees.place_in(repository, base, here), base.label, progress, environments.get(BASE))
        except worktrees.Unbuilt as error:  # head may be what mends it
            job = planned.orders[0].job
            base_side = _Base(unmeasurable={(job.model.name, job.variant): str(error)})
        else:
            if build is None:
                progress.say(f"{base.label} is measured as git has it: nothing is built there, and files that git ignores are not in it")
            else:
                side_environments.check_shared(after_head, side_environments.installed(command), build)
            command = worktrees.command_in(repository, base, command, folder, build)
            alone = replace(wanted, name=planned.orders[0].job.model.name, variants=(suite.of_command(command),))
            alone = _in_environment(alone, environments.get(BASE), base.folder)
            base_side = _base_side(alone, planned.orders)
            if not environments:
                # Without a build it was asked above, and there is none.
                of_python = shared_code.of_python(repository, command, wanted.env, folder) if build is not None else []
                remarks = _shared_remarks(of_python or shared_code.of_shell(repository, command))
        yield f"head (this checkout) against {base.label}", base_side, planned.orders, remarks, wanted


def _shared_in_full(program: Suite, repository: worktrees.Repository, base: worktrees.Worktree, here: Path, progress: Progress) -> Suite:
    """A program with the paths of files that both sides share in full."""
    variant = program.only
    assert variant.command is not None
    place = worktrees.place_in(repository, base, here)
    command = shared_files.in_full(variant.command, here, repository.root, place)
    env = shared_files.variables_in_full(program.env, here, repository.root, place)
    if shared := sorted({*command.argv, *env.values()} - {*variant.command.argv, *program.env.values()}):
        progress.say(f"both sides share {' and '.join(shared)}")
    return replace(program, env=env, variants=(replace(variant, command=command),))


def _same_code(shared: Shared, program: str) -> str:
    return (
        f"{shared.reason}, so {program} would run the same code on both sides, and nothing is measured: {shared.mend}; "
        f"if each side's tree comes first on the path of {program}, --build true measures it as it is"
    )


def _shared_remarks(code: Sequence[Shared]) -> list[str]:
    """A package that was installed from the checkout hides the code of both trees from a program that imports it from there."""
    return [f"{shared.reason}: a program that imports it runs the same code on both sides. {shared.mend}" for shared in code]


def _environments(build: Build | None, folder: Path) -> dict[JobSide, Path]:
    """Where each side's environment is made, if the build installs packages of Python."""
    return {side: folder / f"{side}-env" for side in (HEAD, BASE)} if build is not None and side_environments.installs(build) else {}


def _in_environment(program: Suite, environment: Path | None, tree: Path) -> Suite:
    """A program that runs in an environment, None for that of the shell. Raises UsageError if it cannot see what is installed there."""
    command = program.only.command
    if environment is None or command is None:
        return program
    assert program.build is not None
    command = side_environments.inside(command, tree, str(environment / "bin" / "python"), program.build)
    return replace(program, variants=(replace(program.only, command=command),))


def _build(command: Suite, folder: Path, label: str, progress: Progress, environment: Path | None = None) -> None:
    """Run a command's build, if it has one, before anything is measured. Raises InputError."""
    if command.build is not None:
        progress.say(f"{label}: {command.build.command}")
        build = command.build if environment is None else side_environments.with_path_python(command.build)
        worktrees.build_in(folder, build, label, environment)


def _file(request: GateRequest) -> Path:
    assert request.suite is not None
    return request.suite


def _base_side(wanted: Suite, head: Sequence[Order]) -> _Base:
    orders, errors = _planned(wanted)
    models = baseline.renames(*({order.job.model.name: order.job.model.sha256 for order in side} for side in (orders, head)))
    variants = baseline.renames(_runtime_files(orders), _runtime_files(head))
    orders = [_named(order, models, variants) for order in orders]
    places = {place_of(order.job) for order in head}
    pairs = {place[:2] for place in places}
    return _Base(
        tuple(order for order in orders if place_of(order.job) in places),
        (
            *baseline.renaming_remarks({**models, **variants}),
            *(
                f"base cannot measure {model}, {variant}: {error}"
                for (model, variant), error in errors.items()
                if (model, variant) not in pairs
            ),
        ),
        tuple(dict.fromkeys(place for order in orders if (place := place_of(order.job)) not in places)),
        {pair: error for pair, error in errors.items() if pair in pairs},
    )


def _runtime_files(orders: Sequence[Order]) -> dict[str, str]:
    """The hash of each variant's runtime, if that is a file of the repository, by the variant's name."""
    paths = {order.job.variant: Path(order.job.runtime) for order in orders if order.job.runtime.endswith(".py")}
    return {variant: files.sha256_of(path)[0] for variant, path in paths.items()}


def _named(order: Order, models: Mapping[str, str], variants: Mapping[str, str]) -> Order:
    job = order.job
    model = replace(job.model, name=models.get(job.model.name, job.model.name))
    return replace(order, job=replace(job, model=model, variant=variants.get(job.variant, job.variant)))


def _planned(wanted: Suite) -> tuple[list[Order], dict[tuple[str, str], str]]:
    """The orders of all models and variants of a suite that can be measured, and why the others cannot, by model and variant."""
    try:
        return list(plan(wanted).orders), {}
    except MemprofError:
        pass
    orders: list[Order] = []
    errors: dict[tuple[str, str], str] = {}
    for path in wanted.models or (None,):
        for variant in suite.variants_of(wanted):
            alone = replace(wanted, models=(path,) if path else (), runtimes=(), variants=(variant,))
            try:
                orders += plan(replace(alone, name=wanted.name if len(wanted.models) == 1 else None, set=_heeded(wanted, variant))).orders
            except MemprofError as error:
                model = wanted.name or os.path.basename(os.path.normpath(path)) if path else ""
                errors[model, variant.name or os.path.basename(variant.runtime).removesuffix(".py")] = str(error)
    return orders, errors


def _heeded(wanted: Suite, variant: Variant) -> dict[str, str]:
    """The suite's settings for all runtimes, as far as this variant's runtime has such knobs. Raises what finding the runtime raises."""
    if variant.command is not None:
        return dict(wanted.set)
    runtime, _ = runtimes.located(variant.runtime, variant.python or wanted.python)
    return {key: value for key, value in wanted.set.items() if runtime.knob(key)}


def _alone(orders: Sequence[Order]) -> tuple[Order, ...]:
    """The orders without a PYTHONPATH, which would make both sides import one side's modules, or the checkout's."""
    return tuple(replace(order, env={"PYTHONPATH": None, **order.env}) for order in orders)
