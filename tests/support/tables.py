"""What the tests of summary share."""

from __future__ import annotations


def cells(text, title):
    """The cells of one Markdown table by variant and column."""
    lines = text.split(f"{title}\n\n")[1].split("\n\n")[0].splitlines()
    split = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {fields[0]: dict(zip(split[0], fields, strict=True)) for fields in split[2:]}
