"""What every page of memprof's is made with: data and scripts that cannot be mistaken for one another, a policy that loads nothing, and a
file that replaces an earlier page and nothing else.

What comes from a measured program is escaped twice over: jinja2's autoescape and JSON without `<` keep it text, and the policy runs no
script but those whose hashes it names.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from memprof.files import check_target

_WEB = "memprof.reports.web"
_STYLES = ("uplot/uPlot.css", "common.css")
_SCRIPTS = ("uplot/uPlot.js", "common.js")
GENERATOR = b'name="generator" content="memprof '
# Before the first element is drawn, so that a dark page never flashes.
_THEME = "document.documentElement.dataset.theme=matchMedia('(prefers-color-scheme: dark)').matches?'dark':'light'"


def render(package: str, name: str, data: Any, **words: Any) -> str:
    """The page NAME.html of a package with its NAME.js and, where there is one, NAME.css, after what all pages share.

    data: what the script draws. words: what the template says; all of it is escaped that is not Markup.
    """
    own = files(package).joinpath(f"{name}.css")
    styles = [*(asset(_WEB, part) for part in _STYLES), own.read_text(encoding="utf-8") if own.is_file() else ""]
    scripts = [*(asset(_WEB, part) for part in _SCRIPTS), asset(package, f"{name}.js")]
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(asset(package, f"{name}.html")).render(
        policy=_policy([_THEME, *scripts]),
        style=Markup("".join(styles)),
        theme_script=Markup(_THEME),
        scripts=[Markup(script) for script in scripts],
        data=Markup(_json_text(data)),
        made=_made(),
        **words,
    )


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


def asset(package: str, name: str) -> str:
    """A text file of that package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def _made() -> str:
    """By which memprof a page is made, and when."""
    return f"memprof {_version()}, {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}"


def check(path: Path) -> None:
    """Whether a page may be written there: an earlier page is replaced, no other file is. Raises InputError where not."""
    check_target(path, lambda head: GENERATOR in head, "a page of memprof's")


def _version() -> str:
    try:
        return version("ml-memprof")
    except PackageNotFoundError:
        return "(not installed)"
