"""Checks the prose of README, the manual, CONTRIBUTING, CHANGELOG and `--help` by proselint's checks and the phrases of
ci/words.toml, and the messages, docstrings and comments of the source by the phrases alone.

Code is no prose: blocks, indented examples, `words in backquotes`, link targets and HTML comments are blanked, so that lines and columns stay.
Prints `FILE:LINE:COLUMN: message` for each finding, and ends with 1 if there is one.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

import click
from commands_page import PAGE, contexts
from proselint.checks import __register__ as proselint_checks
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.registry.checks import Check, Padding, types
from proselint.tools import LintFile

from memprof.doors.cli import group

try:
    import tomllib
except ImportError:
    import tomli as tomllib

Checks = dict[str, bool]
ROOT = Path(__file__).resolve().parents[1]
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted({*(ROOT / "docs").rglob("*.md")} - {PAGE})]
ROOMS = ("memprof", "reports", "runners", "ci")
MODULES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
PROGRAMS = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.[ch]"))]
WITH_MESSAGES = ("memprof", "reports")  # those of runners/ quote the runtimes
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
            path="notation" if style.get("notation") else "prose" if style.get("symbols") else "phrase",
            message=f"write {style['instead']}",
        )
        for style in styles
    ]


def texts(source: str) -> tuple[str, str]:
    """The messages of a module on their lines, and its docstrings and comments on theirs. Words and patterns are left out."""
    messages, explained = [""] * (source.count("\n") + 1), [""] * (source.count("\n") + 1)
    tree = ast.parse(source)
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if node in docstrings:
            for line, text in enumerate(node.value.splitlines(), node.lineno - 1):
                explained[line] = text.strip()
        elif "\\" not in node.value:
            messages[node.lineno - 1] += f" · {node.value}".replace("\n", " ")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            words = token.string.lstrip("# ")
            alone = token.line.lstrip().startswith("#") and not words.startswith("--")
            explained[token.start[0] - 1] = words if alone else f"· {words} ·"  # the next line begins another comment
    return "\n".join(messages).encode(errors="replace").decode(), "\n".join(explained)


def comments(source: str) -> str:
    """The comments of a program in C on their lines."""
    lines = [""] * (source.count("\n") + 1)
    for comment in re.finditer(r'"(?:\\.|[^"\\\n])*"|/\*(.*?)\*/|//([^\n]*)', source, re.DOTALL):
        for line, text in enumerate((comment[1] or comment[2] or "").splitlines(), source.count("\n", 0, comment.start())):
            lines[line] += f" · {text.strip()}" if lines[line] else text.strip(" *")
    return "\n".join(lines)


def documents() -> Iterator[tuple[str, str, Checks]]:
    """The name and the text of each file, module and command's help, and the checks that are for it: those of prose, or of phrases alone."""
    prose_checks = {
        "phrase": True,
        "prose": True,
        "notation": True,
        **{name: on and name not in LEFT_OUT for name, on in DEFAULT["checks"].items()},
    }
    for path in FILES:
        yield str(path.relative_to(ROOT)), prose(path.read_text(encoding="utf-8")), prose_checks
    for path in MODULES:
        name = path.relative_to(ROOT)
        messages, explained = texts(path.read_text(encoding="utf-8"))
        if name.parts[0] in WITH_MESSAGES:
            yield str(name), messages, {"phrase": True}
        yield str(name), explained, {"phrase": True, "prose": True}
    for path in PROGRAMS:
        yield str(path.relative_to(ROOT)), comments(path.read_text(encoding="utf-8")), {"phrase": True, "prose": True}
    for context in contexts(click.Context(group, info_name="memprof")):
        options = (parameter.help or "" for parameter in context.command.params if isinstance(parameter, click.Option))
        text = "\n\n".join((cleandoc(context.command.help or ""), *options))
        yield f"{context.command_path} --help", prose(re.sub(r"^(?:  |Examples?:).*$", "", text, flags=re.MULTILINE)), prose_checks


def main() -> int:
    registry = CheckRegistry()
    registry.register_many((*proselint_checks, *phrases()))
    found = 0
    for name, text, checks in documents():
        for result in LintFile(name, text or " ").lint({**DEFAULT, "checks": checks}):
            begin, end = (place - 1 for place in result.check_result.span)  # result.pos miscounts where many lines are blank
            line, column = text.count("\n", 0, begin) + 1, begin - text.rfind("\n", 0, begin)
            print(f"{name}:{line}:{column}: '{' '.join(text[begin:end].split())}': {result.check_result.message}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
