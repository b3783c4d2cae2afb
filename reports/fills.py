"""Fills of areas: colours with hatches, without matplotlib, so that pages can use them too. Colours are Okabe and Ito's."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

INK = "#000000"


class Fill(Struct, frozen=True):
    """An area's colour, and the hatch that tells it apart in black and white."""

    colour: str
    hatch: str = ""
    edge: str = INK

    def words(self) -> dict[str, Any]:
        """For bars and areas."""
        return {"facecolor": self.colour, "hatch": self.hatch, "edgecolor": self.edge, "linewidth": 0.5}
