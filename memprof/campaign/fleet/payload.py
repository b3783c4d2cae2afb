"""A suite as comparisons that can travel: each with the files that it names, by their content, and the labels of the machine that it needs."""

from __future__ import annotations

import getpass
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ...base.errors import InputError, UsageError, os_reason
from ...base.files import sha256_of
from ...models.identity import identify
from ...places.place import HERE
from ...programs.commands import Command
from ...records.types import Model
from ...subjects import shards
from ...subjects.command_orders import check_counts
from ...subjects.suite import DEFAULTS, Suite, Variant, variants_of
from .message import ComparisonTask, Labels, SearchRequest, Sent

_PER_RUN = 50 << 20  # what a run takes besides its model, as if it were bytes of it


class MachineChoice(Struct, frozen=True):
    """How the machines of a campaign are chosen. labels: that each must have. each: a label, for whose every value all is measured once.
    spread: whether the machines that fit are interchangeable, so that repeats are divided among them."""

    labels: Labels = frozenset()
    each: str | None = None
    spread: bool = False


def parse_labels(text: str, option: str) -> dict[str, str]:
    """`kind=pi5,arch=aarch64`. Raises UsageError."""
    labels: dict[str, str] = {}
    for word in text.split(","):
        name, equals, value = word.strip().partition("=")
        if not (name and equals and value):
            raise UsageError(f"{option} {text!r}: write LABEL=VALUE,..., such as kind=pi5,arch=aarch64")
        if labels.setdefault(name, value) != value:
            raise UsageError(f"{option} {text!r}: {name} has two values, and a machine has one")
    return labels


def desk_name() -> str:
    """Who asks, for other people."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename} (memprof {os.getpid()})"


def packed(suite: Suite, wanted: MachineChoice, machines: Sequence[Mapping[str, str]]) -> list[ComparisonTask]:
    """The comparisons of a suite. machines: the labels of those that are there. Raises UsageError and InputError.

    With `each` there is one of every comparison for every value of that label; with `spread` a comparison is divided by repeats, each part with
    all variants, for as many machines as fit.
    """
    _check(suite)  # it travels as it was asked: its worker has the defaults
    times = suite.over(DEFAULTS).repeats or 1
    fitting = [labels for labels in machines if wanted.labels <= labels.items()]
    values = _values(wanted, fitting, machines)
    comparisons = []
    for part in shards.comparisons(suite):
        whole = _FileCollector(part).packed()
        for value in values:
            needs = wanted.labels | ({(wanted.each, value)} if wanted.each and value else set())
            if wanted.spread:
                kind = value or ",".join(f"{name}={value}" for name, value in sorted(wanted.labels))
                count = max(1, min(times, sum(needs <= labels.items() for labels in fitting)))
                shares = [tuple(range(first, times + 1, count)) for first in range(1, count + 1)]
                divided = [replace(whole, repeats=share, part=number, kind=kind) for number, share in enumerate(shares)]
            else:
                divided = [whole]
            for one in divided:
                runs = (len(one.repeats) or times) * _rows(part)
                comparisons.append(_with_key(replace(one, needs=needs, runs=runs, cost=_cost(part.over(DEFAULTS), one.model, runs))))
    return comparisons


class SearchTrial(Struct, frozen=True):
    """A comparison that a search asks for. suite: its runs. sought: what it asks beyond that. reference: the file of the outputs that others are
    compared with. sent: of commits, what travels with them."""

    suite: Suite
    sought: SearchRequest
    reference: str | None = None
    sent: tuple[Sent, ...] = ()


def sought(asked: SearchTrial, labels: Labels, number: int = 0) -> ComparisonTask:
    """A comparison of a search, for a machine with these labels. number: its own among those of one time, of which several may ask
    for the same. Raises UsageError and InputError."""
    if asked.sought.commits is not None:
        task = _of_commits(asked, labels)
    else:
        (task,) = packed(asked.suite, MachineChoice(labels), [])
    task = replace(task, sought=asked.sought)
    if asked.reference is not None:
        file = sent_file("reference.npz", Path(asked.reference), "the outputs of the default ")
        task = replace(task, files=(*task.files, file), sought=replace(asked.sought, reference=file.name))
    return _with_key(task, number)


def _of_commits(asked: SearchTrial, labels: Labels) -> ComparisonTask:
    """A comparison of commits, whose suite is a file of theirs."""
    title = ", ".join(label for label, numbers in asked.sought.repeats.items() if numbers)
    runs = sum(map(len, asked.sought.repeats.values()))
    names = {sent.name: sent.path for sent in asked.sent}
    return ComparisonTask(title, desk_name(), asked.suite, asked.sent, names=names, needs=labels, runs=runs, cost=float(_PER_RUN * runs))


def check_phases(suite: Suite) -> None:
    """Raises UsageError for phases that only this machine can see."""
    if suite.phases:
        raise UsageError("--phase, for which gdb follows the program, works on this machine only, not on a fleet")


def _check(suite: Suite) -> None:
    check_phases(suite)
    if not suite.models and not suite.variants:
        raise UsageError("name a model to measure")
    for variant in suite.variants:
        check_counts(suite, variant)


def _values(wanted: MachineChoice, fitting: Sequence[Mapping[str, str]], machines: Sequence[Mapping[str, str]]) -> list[str | None]:
    """The values of the label of --each, or None alone."""
    if wanted.spread and not wanted.labels and wanted.each is None:
        raise UsageError("--spread says that machines are interchangeable: say which, with --machines or --each")
    if wanted.each is None:
        return [None]
    values = sorted({labels[wanted.each] for labels in fitting if wanted.each in labels})
    if not values:
        known = sorted({label for labels in machines for label in labels})
        raise InputError(f"--each {wanted.each}: no machine that fits has this label; there are the labels {', '.join(known) or 'of none'}")
    return list(values)


def _with_key(task: ComparisonTask, number: int = 0) -> ComparisonTask:
    files = [(file.name, file.sha256) for file in task.files]
    facts = (replace(task, files=(), desk="", model=None, names={}, needs=frozenset()), files, sorted(task.needs), number)
    # A suite has its place, which is the same for all that travel.
    key = hashlib.sha256(msgspec.json.encode(facts, order="deterministic", enc_hook=lambda place: place.name)).hexdigest()[:32]
    return replace(task, key=key)


def _rows(suite: Suite) -> int:
    """How many Runs a repeat has."""
    return sum(len(variant.threads or suite.threads) or 1 for variant in variants_of(suite))


def _cost(suite: Suite, model: Model | None, runs: int) -> float:
    """How long a comparison may take, in bytes of models that are loaded and run through."""
    turns = 1 + (suite.warmup or 0) + (suite.runs or 0)
    return float(runs * (_PER_RUN + turns * (model.bytes if model is not None else 0)))


def sent_file(name: str, path: Path, what: str = "") -> Sent:
    """A file to be sent under a name. what: it is, before its path. Raises InputError."""
    try:
        sha256, size = sha256_of(path)
    except OSError as error:
        raise InputError(f"{what}{path}: {os_reason(error)}") from None
    return Sent(name, str(path.absolute()), sha256, size)


def sent_of(model: Model, folder: str) -> list[Sent]:
    """The files of a model. folder: the comparison's in place of the model's, or of that in which the model lies. Raises InputError."""
    top = model.path if os.path.isdir(model.path) else os.path.dirname(model.path)
    sent = []
    for file in model.files:
        inside = os.path.relpath(file.path, os.path.realpath(top))
        if inside.split(os.sep)[0] == os.pardir:
            raise InputError(f"{model.name} cannot be sent to a worker: its file {file.path} lies outside of {top}")
        sent.append(Sent(f"{folder}/{inside}", file.path, file.sha256, file.bytes))
    return sent


class _FileCollector(Struct):
    """Collects the files that a comparison's words name, and puts names in the comparison's folder in their place."""

    suite: Suite
    files: dict[str, Sent] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def packed(self) -> ComparisonTask:
        """The comparison of these words. What means something on one machine only, or lies in others here, does not travel."""
        suite, model = self.suite, None
        if suite.models:
            model = identify(suite.models[0], suite.name)
            suite = replace(suite.of_model(suite.models[0]), models=(self._model(model),), name=model.name)
        if suite.inputs is not None:
            suite = replace(suite, inputs=self._single(suite.inputs, "inputs"))
        if suite.drive is not None and suite.drive.body is not None:
            suite = replace(suite, drive=replace(suite.drive, body=self._single(suite.drive.body, "body")))
        suite = replace(
            suite,
            runtimes=tuple(self._runtime(name) for name in suite.runtimes),
            variants=tuple(self._variant(variant) for variant in suite.variants),
            cwd=None if suite.cwd is not None and os.path.isdir(suite.cwd) else suite.cwd,
            place=HERE,
            build=None,
            stdin=False,
            model_shapes={},
            version=None,
        )
        title = model.name if model is not None else self.suite.name or "; ".join(variant.name for variant in self.suite.variants)
        return ComparisonTask(title, desk_name(), suite, tuple(self.files.values()), model, self.names)

    def _model(self, model: Model) -> str:
        name = os.path.basename(model.path)
        self.files.update({sent.name: sent for sent in sent_of(model, f"model/{name}" if os.path.isdir(model.path) else "model")})
        self.names[f"model/{name}"] = os.path.abspath(model.path)
        return f"model/{name}"

    def _single(self, path: str, what: str) -> str:
        """The name of a file that the words name by its path."""
        return self._put(path, f"{what}/{len(self.files)}/{os.path.basename(path)}", what)

    def _put(self, path: str, name: str, what: str) -> str:
        self.files[name] = sent_file(name, Path(path), f"{what} ")
        self.names[name] = self.files[name].path
        return name

    def _runtime(self, name: str) -> str:
        return f"./{self._single(name, 'runtime')}" if name.endswith(".py") else name

    def _variant(self, variant: Variant) -> Variant:
        if variant.command is None:
            return replace(variant, runtime=self._runtime(variant.runtime))
        return replace(variant, command=self._command(variant.command))

    def _command(self, command: Command) -> Command:
        """A command in a folder of the comparison's. The program and all files that it names by a relative path go with it, under the same names."""
        folder = command.cwd or self.suite.cwd or "."
        if not os.path.isdir(folder):
            return command  # a folder on the machine that measures
        there = f"commands/{len(self.names)}"
        self.names[there] = os.path.abspath(folder)
        first, *rest = command.argv
        for word in (first if os.sep in first else "", *rest):
            for text in (word, word.partition("=")[2]):
                path = os.path.join(folder, text)
                if text and not os.path.isabs(text) and os.path.isfile(path):
                    name = os.path.normpath(text)
                    if name.split(os.sep)[0] == os.pardir:
                        raise InputError(f"{command.name}: {text} cannot be sent to a worker: it lies outside of the folder {folder}")
                    self._put(path, f"{there}/{name}", f"{command.name}:")
        return replace(command, cwd=there)
