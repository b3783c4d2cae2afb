"""Makes all pages of memprof: data and scripts that cannot be mistaken for each other, a policy that loads nothing, and a file that replaces
an earlier page and nothing else.

Text from a measured program is guarded twice: jinja2's autoescape and JSON without `<` keep it text, and the policy runs no script but
those whose hashes it names.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup, escape
from numpy.typing import NDArray

from memprof.base.files import check_target
from memprof.base.units import format_bytes

_WEB = "memprof.reports.web"
_SHARED = ("base.html", "words.html")
_STYLES = ("uplot/uPlot.css", "common.css")
_SCRIPTS = ("uplot/uPlot.js", "common.js")
GENERATOR = b'name="generator" content="memprof '


def render(
    package: str, name: str, data: Any, *, title: str, subtitle: str, notices: Sequence[str] = (), sources: Sequence[str] = (), **words: Any
) -> str:
    """The page of NAME.html in a package, which extends web/base.html, with NAME.js and, if there is one, NAME.css behind those that all pages
    share.

    data: for the script to draw. notices: above everything else. sources: the files that the page is made from. words: for the template.
    Everything is escaped that is not Markup.
    """
    style = files(package).joinpath(f"{name}.css")
    styles = [*(asset(_WEB, part) for part in _STYLES), style.read_text(encoding="utf-8") if style.is_file() else ""]
    scripts = [*(asset(_WEB, part) for part in _SCRIPTS), asset(package, f"{name}.js")]
    loader = jinja2.FunctionLoader(lambda part: asset(_WEB if part in _SHARED else package, part))
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["size"] = format_bytes
    environment.filters["options"] = _with_options
    return environment.get_template(f"{name}.html").render(
        policy=_policy(scripts),
        style=Markup("".join(styles)),
        scripts=[Markup(script) for script in scripts],
        data=Markup(_json_text(data)),
        maker=f"memprof {version('ml-memprof')}, {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}",
        title=title,
        subtitle=subtitle,
        notices=notices,
        sources=sources,
        **words,
    )


def _with_options(text: str) -> Markup:
    """A sentence in which memprof's commands between backticks and the names of options, such as --shape, are code: a line never ends within one."""
    code = re.compile(r"`((?:memprof |--)[^`]*)`|(?<!\S)--[a-z][a-z-]*")
    return Markup(code.sub(lambda match: f"<code>{match[1] or match[0]}</code>", str(escape(text))))


def _policy(scripts: Sequence[str]) -> str:
    """The content security policy of a page with these scripts."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def _json_text(value: Any) -> str:
    """JSON that a script element can hold: nothing in it can end the element or begin another."""
    text = msgspec.json.encode(value).decode()
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def packed(column: NDArray[Any], kind: str) -> str:
    """A column of numbers of this kind, such as `<u4`, which common.js unpacks."""
    return base64.b64encode(column.astype(kind).tobytes()).decode()


def asset(package: str, name: str) -> str:
    """A text file of that package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def check(path: Path) -> None:
    """Whether a page may be written there: an earlier page is replaced, no other file is. Raises InputError where not."""
    check_target(path, lambda head: GENERATOR in head, "a page of memprof's")
