"""What the tests of docs share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def examples(page: str) -> Iterator[tuple[str, str]]:
    """The commands of a page's console blocks, each with its output. README lies beside docs/."""
    for block in blocks((ROOT if page == "README" else ROOT / "docs") / f"{page}.md", "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            yield command, printed


def masked(text: str) -> str:
    """Text whose figures, their number of modes, and the widths that follow from them, are alike on every machine."""
    text = re.sub(r"\d+(?:\.\d+)*", "0", text)
    text = re.sub(r"(0 \w+)(?: or \1)+", r"\1", text)  # a PEAK in modes, which another machine or a busy one shows
    text = re.sub(r"-{3,}:?|-+:", "---", text)
    return "\n".join(re.sub(r"[ \t]+", " ", line).strip() for line in text.strip().splitlines() if line.strip())


def prints(printed: str, output: str) -> bool:
    """Whether the output is what was printed: line by line, `...` standing for any lines."""
    lines, at = masked(output).splitlines(), 0
    pieces = [piece.strip().splitlines() for piece in re.split(r"^\.\.\.$", masked(printed), flags=re.MULTILINE)]
    if lines[: len(pieces[0])] != pieces[0]:
        return False
    at = len(pieces[0])
    if len(pieces) == 1:
        return at == len(lines)
    for piece in pieces[1:-1]:
        while lines[at : at + len(piece)] != piece:
            at += 1
            if at > len(lines):
                return False
        at += len(piece)
    last = pieces[-1]
    return not last or (len(lines) - len(last) >= at and lines[len(lines) - len(last) :] == last)
