"""What memory grows with: told by two kinds of processes, whose iterations get the same input, or inputs that vary.

The rest is the same in both: the model, the shapes unless they are what varies, the calls of the runtime, the number of units. So growth in only
one kind comes from what varies. Each kind has its own verdict (memprof.verdicts.growth); nothing is measured or averaged here.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from .growth import Verdict

Varies = Literal["input", "shape"]
By = Literal["iteration", "new input", "new shape", "same input", "same shape"]
# What inputs are like where memory grows with them only, in words.
ONLY_WITH: dict[By, str] = {
    "new input": "new inputs",
    "new shape": "new shapes",
    "same input": "the same input",
    "same shape": "one shape",
}

_MORE = 1.5  # times the rate with the same input: what lies below is no rate of its own


class InputsVerdict(Struct, frozen=True):
    """What two kinds of processes tell together.

    varies: what differs between the kinds. decides: the kind whose verdict is the answer. by: what memory grows with, None unless it grows.
    more: bytes per unit that a new input adds to a growth that the same input has too, 0 where it adds none.
    """

    varies: Varies
    decides: Literal["same", "varied"]
    by: By | None = None
    more: float = 0.0


def judge(same: Verdict, varied: Verdict, varies: Varies) -> InputsVerdict:
    """The verdict on both kinds. It is undecided where either is."""
    if same.word == "undecided":
        return InputsVerdict(varies, "same")
    if varied.word == "undecided":
        return InputsVerdict(varies, "varied")
    if same.word == varied.word == "grows":
        more = _added(same, varied) if varies == "input" else 0.0
        return InputsVerdict(varies, "varied" if more else "same", "iteration", more)
    if varied.word == "grows":
        return InputsVerdict(varies, "varied", "new input" if varies == "input" else "new shape")
    if same.word == "grows":
        return InputsVerdict(varies, "same", "same input" if varies == "input" else "same shape")
    return InputsVerdict(varies, "same" if same.word == "bounded" and varied.word == "steady" else "varied")


def _added(same: Verdict, varied: Verdict) -> float:
    """What a new input adds. Other shapes are other work, so that only rates of the same shapes can be set against each other."""
    apart = varied.low > same.high and varied.slope > _MORE * same.slope
    return varied.slope - same.slope if apart and varied.unit == same.unit else 0.0
