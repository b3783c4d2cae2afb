"""A model's outputs beside those of the first run with default settings: how far they differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ..records.types import Run
from ..subjects.order import Order

# Outputs below it are rounding of larger numbers inside, such as a detector's where nothing is to be found: 1e-6 apart then, they are alike.
_LEAST_MAGNITUDE = 1e-3


class Outputs(Struct, frozen=True):
    """Compares the outputs of one run after another. reference: the file of the first that others are compared with, which need not be there yet.
    written: the file that each run writes, which is removed when it was compared."""

    written: Path
    reference: Path

    def asked(self, orders: Sequence[Order]) -> list[Order]:
        """The orders, each of which writes its outputs."""
        return [replace(order, outputs=str(self.written)) for order in orders]

    def compared(self, run: Run, is_default: bool) -> Run:
        """The Run with the distance of its outputs from the reference, if both are there. The first default that succeeds becomes the reference."""
        if run.outcome.ok and self.written.exists():
            if not self.reference.exists() and is_default:
                self.reference.write_bytes(self.written.read_bytes())
            if self.reference.exists():
                run = replace(run, output_error=output_error(self.reference, self.written))
        self.written.unlink(missing_ok=True)
        return run


def output_error(reference: Path, outputs: Path) -> float:
    """The largest difference of two .npz files' arrays over the largest magnitude of the first's, at least that of `_LEAST_MAGNITUDE` for floats;
    infinite if shapes or finiteness differ."""
    import numpy

    with numpy.load(reference) as expected_arrays, numpy.load(outputs) as actual_arrays:
        if set(expected_arrays.files) != set(actual_arrays.files):
            return float("inf")
        worst = 0.0
        for name in expected_arrays.files:
            expected, actual = expected_arrays[name], actual_arrays[name]
            if expected.shape != actual.shape or expected.dtype.kind not in "fiub":
                same = expected.shape == actual.shape and bool(numpy.array_equal(expected, actual))
                worst = max(worst, 0.0 if same else float("inf"))
                continue
            least = _LEAST_MAGNITUDE if expected.dtype.kind == "f" else 0.0
            expected, actual = expected.astype("float64"), actual.astype("float64")
            if not numpy.array_equal(numpy.isfinite(expected), numpy.isfinite(actual)):
                return float("inf")
            finite = numpy.isfinite(expected)
            scale = max(float(numpy.abs(expected[finite]).max(initial=0.0)), least) or 1.0
            worst = max(worst, float(numpy.abs(expected - actual)[finite].max(initial=0.0)) / scale)
        return worst
