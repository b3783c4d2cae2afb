"""Fills of areas: colours with hatches, without matplotlib, so that pages can use them too. Colours are Okabe and Ito's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memprof.explain.records import AGAIN, FILES, IN_USE, KEPT, LIBRARIES, MODEL_FILE, ONCE, REPACKED, REST, STACKS

INK = "#000000"


@dataclass(frozen=True)
class Fill:
    """An area's colour, and the hatch that tells it apart in black and white."""

    colour: str
    hatch: str = ""
    edge: str = INK

    def words(self) -> dict[str, Any]:
        """For bars and areas."""
        return {"facecolor": self.colour, "hatch": self.hatch, "edgecolor": self.edge, "linewidth": 0.5}


# The parts of a resident set. Weights are blue, orange or red; parts that could go are hatched.
PARTS = {
    LIBRARIES: Fill("#B8BEC6"),
    STACKS: Fill("#59626D"),
    ONCE: Fill("#0072B2"),
    MODEL_FILE: Fill("#56B4E9", "////", "#1F5A7D"),
    AGAIN: Fill("#D55E00", "\\\\\\\\", "#5A2700"),
    REPACKED: Fill("#E69F00", "xxxx", "#6B4A00"),
    IN_USE: Fill("#009E73"),
    KEPT: Fill("#CC79A7", "....", "#5C2C49"),
    FILES: Fill("#F0E442", "--", "#6B6400"),
    REST: Fill("#FFFFFF", "", "#555555"),
}
