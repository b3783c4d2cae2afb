"""Other finders of steps on the series that come in on standard input, with their defaults: run by an interpreter that has them.

In: a JSON list of series, each a list of points, each a list of values. Out: a JSON object, by finder the places of the steps of each series.
apache-otava and asv see the median of each point, as they see one figure a commit; ruptures has no default penalty, so it gets that of its
manual's first example (pen=10), on the medians divided by their standard deviation, because the penalty is not in bytes.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import types
from pathlib import Path
from typing import Any


def main() -> None:
    """Read, search with each finder that is installed, print."""
    series = [[statistics.median(point) for point in points] for points in json.load(sys.stdin)]
    answers: dict[str, Any] = {}
    for name, finder in {"apache-otava": otava, "ruptures": ruptures, "asv": asv}.items():
        try:
            answers[name] = [finder(values) for values in series]
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    json.dump(answers, sys.stdout)


def otava(values: list[float]) -> list[int]:
    """E-divisive with a t test, as `otava analyze` calls it."""
    from otava.analysis import compute_change_points

    return [int(change.index) for change in compute_change_points(values)[0]]


def ruptures(values: list[float]) -> list[int]:
    """PELT with a radial kernel."""
    import numpy
    import ruptures as package

    signal = numpy.asarray(values)
    signal = (signal - signal.mean()) / (signal.std() or 1)
    return [int(place) for place in package.Pelt(model="rbf").fit(signal).predict(pen=10)[:-1]]


def asv(values: list[float]) -> list[int]:
    """asv's piecewise constant fit. Its package imports much that a search does not need, so that its module alone is loaded."""
    if "asv" not in sys.modules:
        spec = importlib.util.find_spec("asv")
        if spec is None or spec.origin is None:
            raise ImportError("No module named 'asv'")
        package = types.ModuleType("asv")
        package.__path__ = [str(Path(spec.origin).parent)]
        sys.modules["asv"] = package
    from asv.step_detect import detect_steps

    return [begin for begin, *_ in detect_steps(values)[1:]]


if __name__ == "__main__":
    main()
