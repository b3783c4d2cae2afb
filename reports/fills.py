"""Fills of areas: colours with hatches, without matplotlib, so that pages can use them too. Colours are Okabe and Ito's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
