"""Checks the prose of README, the manual, CONTRIBUTING and CHANGELOG: proselint's checks, and the phrases of ci/words.toml.

Code is no prose: blocks, indented examples, `words in backquotes`, link targets and HTML comments are blanked, so that lines and columns stay.
Prints `FILE:LINE:COLUMN: message` for each finding, and ends with 1 if there is one.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from proselint.checks import __register__ as proselint_checks
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.registry.checks import Check, Padding, types
from proselint.tools import LintFile

try:
    import tomllib
except ImportError:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Markdown has ASCII quotes and signs, a p value of 0.004 is not one of 0, and a heading's words may recur below it.
LEFT_OUT = ("typography", "psychology", "lexical_illusions")
CODE = re.compile(
    r"^(?P<fence>```+|~~~+).*?^(?P=fence)$|^(?:    |\t).*?$|<!--.*?-->|`[^`\n]*`|(?<=\])\([^)\s]*\)|^\[\w+\]: .*?$|https?://\S+",
    re.MULTILINE | re.DOTALL,
)


def prose(text: str) -> str:
    """The text with every character of code blank, line ends excepted."""
    return CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)


def phrases() -> list[Check]:
    """One check per phrase of ci/words.toml. A blank of a pattern matches a line's end too."""
    styles = tomllib.loads((ROOT / "ci" / "words.toml").read_text(encoding="utf-8"))["phrase"]
    return [
        Check(
            check_type=types.Existence(
                items=(f"(?:{style['pattern']})".replace(" ", r"\s+"),),
                padding=Padding.RAW if style.get("symbols") else Padding.WORDS_IN_TEXT,
            ),
            path="phrase",
            message=f"write {style['instead']}",
        )
        for style in styles
    ]


def main() -> int:
    registry = CheckRegistry()
    registry.register_many((*proselint_checks, *phrases()))
    config = {**DEFAULT, "checks": {"phrase": True, **{name: on and name not in LEFT_OUT for name, on in DEFAULT["checks"].items()}}}
    found = 0
    for path in FILES:
        text = prose(path.read_text(encoding="utf-8"))
        for result in LintFile(path.name, text).lint(config):
            line, column = result.pos
            words = " ".join(text[result.check_result.span[0] - 1 : result.check_result.span[1] - 1].split())
            print(f"{path.relative_to(ROOT)}:{line}:{column}: '{words}': {result.check_result.message}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
