"""Plans as text and JSON: the costs of an order and its table of steps, a model that was reordered, and buffers that were packed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from memprof.base.units import capitalised, counted, listed
from memprof.plan.analysis import Analysis, Ordered, StepRow
from memprof.plan.arenas.packing import Packed
from memprof.plan.graphs.weights import Account
from memprof.plan.reordering import Reordered
from memprof.records import metrics

from ..short_names import distinct, shortened
from . import grid
from .grid import Section, TextTable, Unit

SCRATCH = "Scratch memory of kernels, weights repacked by a runtime and its allocator's slack are outside a static plan."
# A table of more small figures than this is read better in KiB.
_PLAIN_BYTES = 100_000
_MOST_NAMES = 10
LONGEST_NAME = 40
_NAMES = {
    "model": "the model's order",
    "sorted": "the model's order, made topological",
    "best": "the best order",
    "onnxruntime": "onnxruntime's order",
    "onnxruntime:priority": "onnxruntime's order by priority",
}


def unit_of(values: Sequence[float], wanted: str | None = None) -> Unit:
    """The unit of a table: the wanted unit, bytes if all values are small, else the unit that suits the largest value. Raises UsageError."""
    return grid.choose_unit(metrics.BYTES, values, "B" if wanted is None and max(values, default=0) < _PLAIN_BYTES else wanted)


def show(analysis: Analysis, steps: Sequence[StepRow] | None = None, *, format: str = "markdown", unit: str | None = None) -> str:
    """An analysis as text. format: `markdown`, `text` or `json`. steps: the table of the chosen order, shown in place of the tensors at the peak."""
    if format == "json":
        content: dict[str, Any] = to_builtins(analysis)
        if steps is not None:
            content["steps"] = [to_builtins(row) for row in steps]
        return json.dumps(content, indent=1, ensure_ascii=False)
    tables = [_costs(analysis, unit), *([_training(analysis, unit)] if analysis.training else []), _weights(analysis, unit)]
    tables += [_steps(analysis.chosen, steps, unit)] if steps is not None else [_peak(analysis.chosen, unit)]
    in_place = ", working in place" if analysis.in_place else ""
    title = f"{Path(analysis.model).name}: {counted(analysis.operators, 'operator')} in {analysis.mode}{in_place}"
    return grid.laid_out(Section(title, tuple(tables), tuple(_notes(analysis))), grid.say_in(format))


def order_name(order: Ordered) -> str:
    return _NAMES.get(order.name, f"order of {Path(order.name).name}" if "/" in order.name or "." in order.name else order.name)


def exact(bytes: int, unit: Unit) -> str:
    return f"{bytes:,}" if unit.size == 1 else unit.cell(bytes)


def _costs(analysis: Analysis, wanted: str | None) -> TextTable:
    orders = [analysis.chosen, *([analysis.best] if analysis.best is not None and analysis.best is not analysis.chosen else [])]
    unit = unit_of([order.peak_bytes for order in orders], wanted)
    least = "at least " if analysis.unsized else ""
    rows = [("peak of tensors", *(least + exact(order.peak_bytes, unit) for order in orders))]
    if analysis.best is not None:
        rows.append(("no order needs less than", *([""] * (len(orders) - 1)), _bound(analysis, unit)))
    greedy = [exact(order.arena.greedy_bytes, unit) if order.arena else "-" for order in orders]
    for label, texts in (
        ("arena, greedy by size (TFLite's rule)", greedy),
        ("arena, exact packer", [_packed(order, unit) for order in orders]),
    ):
        rows.append((label, *(text if text == "-" else least + text for text in texts)))
    rows.append(
        (
            "forced by",
            *(f"{shortened(order.operator, LONGEST_NAME)} ({order.kind}), step {order.step}" if order.step else "-" for order in orders),
        )
    )
    names = [order_name(order) for order in orders]
    if analysis.best is analysis.chosen and analysis.chosen.name != "best":
        names = [f"{names[0]}, a best one" if analysis.proven else f"{names[0]}, the best found"]
    return TextTable(unit.caption("Tensors"), ("", *names), tuple(rows))


def _bound(analysis: Analysis, unit: Unit) -> str:
    assert analysis.lower_bound_bytes is not None and analysis.best is not None
    proven = "as far as sizes are known" if analysis.unsized else "proven"
    return f"{exact(analysis.lower_bound_bytes, unit)}, {proven if analysis.proven else 'not proven to be reached'}"


def _packed(order: Ordered, unit: Unit) -> str:
    if order.arena is None or order.arena.packed_bytes is None:
        return "-"
    text = exact(order.arena.packed_bytes, unit)
    return f"{text}, proven" if order.arena.proven else f"{text} (bound {exact(order.arena.lower_bound_bytes, unit)})"


def _weights(analysis: Analysis, wanted: str | None) -> TextTable:
    weights = analysis.weights
    shown: list[tuple[str, Account]] = [
        ("stored", weights.stored),
        ("read by several operators", weights.shared),
        ("copies of the same content", weights.duplicated),
        ("folded away at load", weights.folded),
        ("results of folding", weights.results),
        ("read through a fused DequantizeLinear", weights.fused),
        ("read by no operator", weights.unused),
        ("held after folding", weights.held),
    ]
    unit = unit_of([account.bytes for _, account in shown], wanted)
    rows = [(label, f"{account.count:,}", exact(account.bytes, unit)) for label, account in shown if account.count or label == "stored"]
    return TextTable(unit.caption("Weights"), ("", "tensors", "size"), tuple(rows))


def _training(analysis: Analysis, wanted: str | None) -> TextTable:
    training = analysis.training
    assert training is not None
    tensors = analysis.chosen.peak_bytes - training.kept_activation_bytes_at_peak - training.gradient_bytes_at_peak
    lines: list[tuple[str, int, int | None]] = [
        ("activations kept for the backward pass", training.kept_activation_bytes_at_peak, training.kept_activation_bytes),
        ("gradients of weights", training.gradient_bytes_at_peak, training.gradient_bytes),
        ("other tensors", tensors, None),
        ("trained weights", training.trainable_bytes, training.trainable_bytes),
        ("other weights", analysis.weights.held.bytes - training.trainable_bytes, analysis.weights.held.bytes - training.trainable_bytes),
        (f"optimizer's state ({training.optimizer})", training.state_bytes, training.state_bytes),
    ]
    lines.append(("all together", sum(bytes for _, bytes, _ in lines), None))
    unit = unit_of([bytes for _, *both in lines for bytes in both if bytes is not None], wanted)
    rows = tuple((label, *("" if bytes is None else exact(bytes, unit) for bytes in both)) for label, *both in lines)
    return TextTable(unit.caption(f"Training in {order_name(analysis.chosen)}"), ("", "at the peak", "in the whole step"), rows)


def _peak(order: Ordered, wanted: str | None) -> TextTable:
    unit = unit_of([tensor.bytes for tensor in order.alive], wanted)
    named_tensors, others = order.alive[:_MOST_NAMES], order.alive[_MOST_NAMES:]
    names = _shortened(tensor.name for tensor in named_tensors)
    rows: list[tuple[str, str, str]] = [(names[tensor.name], tensor.use, exact(tensor.bytes, unit)) for tensor in named_tensors]
    if others:
        rows.append((f"{len(others)} more", "", exact(sum(tensor.bytes for tensor in others), unit)))
    return TextTable(
        unit.caption(f"In memory at {shortened(order.operator, LONGEST_NAME)}, the peak of {order_name(order)}"),
        ("tensor", "use", "size"),
        tuple(rows),
        2,
    )


def _steps(order: Ordered, rows: Sequence[StepRow], wanted: str | None) -> TextTable:
    unit = unit_of([row.peak_bytes for row in rows], wanted)
    operators = _shortened(row.operator for row in rows)
    tensors = _shortened((name for row in rows for name in (*row.in_use, *row.to_keep)), LONGEST_NAME // 2)
    lines = [
        (
            operators[row.operator],
            _names([tensors[name] for name in row.in_use], 4),
            _names([tensors[name] for name in row.to_keep], 4),
            exact(row.memory_bytes, unit),
            exact(row.peak_bytes, unit),
        )
        for row in rows
    ]
    header = ("node", "tensors in use", "tensors to keep", "memory of the step", "peak so far")
    return TextTable(unit.caption(f"Steps in {order_name(order)}"), header, tuple(lines), 3)


def sentence(words: str) -> str:
    return f"{capitalised(words)}."


def _shortened(names: Iterable[str], most: int = LONGEST_NAME) -> dict[str, str]:
    """For each name the text that is shown for it; JSON has it whole."""
    different = list(dict.fromkeys(names))
    return dict(zip(different, distinct(different, most), strict=True))


def _names(names: Sequence[str], most: int = 8, longest: int = LONGEST_NAME) -> str:
    return listed([shortened(name, longest) for name in names], most)


def _notes(analysis: Analysis) -> list[str]:
    notes = [SCRATCH, *(sentence(words) for words in (analysis.moved, analysis.source) if words)]
    if analysis.best is not None and analysis.lower_bound_bytes is not None:
        optimum = (
            "" if analysis.proven else f"; the least peak is between {analysis.lower_bound_bytes:,} and {analysis.best.peak_bytes:,} bytes"
        )
        notes.append(f"Best order: {analysis.how}{optimum}.")
    if analysis.folded_operators:
        verb, pronoun = ("is not a step", "it") if analysis.folded_operators == 1 else ("are not steps", "them")
        count = counted(analysis.folded_operators, "operator")
        notes.append(f"{count} computed from constants alone {verb}: a runtime folds {pronoun} at load.")
    if analysis.unsized:
        count = counted(len(analysis.unsized), "tensor")
        counts = "counts" if len(analysis.unsized) == 1 else "count"
        notes.append(f"{count} of unknown size {counts} nothing, so every figure reads at least: {_names(analysis.unsized, longest=120)}.")
    notes += [
        f"Not understood: {unknown.what}{': ' + _names(unknown.names, longest=80) if unknown.names else ''}."
        for unknown in analysis.unknown
    ]
    return notes + [f"Assumed: {assumption}." for assumption in analysis.assumptions]


def reordered(done: Reordered, *, format: str = "text") -> str:
    """The outcome of reordering as a sentence or as JSON."""
    if format == "json":
        return json.dumps(to_builtins(done), indent=1, ensure_ascii=False)
    copied = f"; its external data is written too: {_names(done.files[1:])}" if done.files[1:] else ""
    copied += "".join(f"; assumed: {assumption}" for assumption in done.assumptions)
    if not done.moved:
        least = "which no order undercuts" if done.proven else "and no better order is known"
        return f"{done.files[0]} is written in the model's order: it peaks at {done.before_bytes:,} bytes of tensors, {least}{copied}"
    least = "" if done.after_bytes == done.before_bytes else f" instead of {done.before_bytes:,}"
    if done.lower_bound_bytes is not None:
        least += ", proven to be the least" if done.proven else f"; no order needs less than {done.lower_bound_bytes:,}"
    return f"{done.files[0]} is written: its tensors peak at {done.after_bytes:,} bytes{least}{copied}"


def packed(result: Packed, *, format: str = "markdown") -> str:
    """Offsets for a file's buffers, as a table or as JSON."""
    if format == "json":
        content = to_builtins(result)
        del content["csv"]
        return json.dumps(content, indent=1, ensure_ascii=False)
    least = ", proven the least" if result.proven else ""
    rows = [
        ("arena", f"{result.size_bytes:,}{least}"),
        ("no arena is smaller than", f"{result.lower_bound_bytes:,}"),
        ("greedy by size (TFLite's rule)", f"{result.greedy_bytes:,}"),
    ]
    if result.capacity_bytes is not None:
        words = {"met": "met", "impossible": "cannot be met, proven", "undecided": "not met, not proven impossible"}
        rows.append(("capacity", f"{result.capacity_bytes:,}: {words[str(result.verdict)]}"))
    title = f"{Path(result.file).name}: {counted(result.buffers, 'buffer')}"
    notes = (f"How: {result.how}.",) if result.how else ()
    return grid.laid_out(Section(title, (TextTable("Arena (B)", ("", "bytes"), tuple(rows)),), notes), grid.say_in(format))
