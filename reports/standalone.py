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

from memprof.files import check_target

GENERATOR = b'name="generator" content="memprof '
THEME = "document.documentElement.dataset.theme=matchMedia('(prefers-color-scheme: dark)').matches?'dark':'light'"


def template(text: str) -> jinja2.Template:
    """A page's template, in which every value is escaped that is not Markup."""
    return jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True).from_string(text)


def policy(scripts: Sequence[str]) -> str:
    """The content security policy of a page with these scripts."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts)
    # plotly.js writes its style rules itself, and its pictures as data.
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"


def json_text(value: Any) -> str:
    """JSON that a script element can hold: nothing in it can end the element or begin another."""
    text = msgspec.json.encode(value).decode()
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def asset(package: str, name: str) -> str:
    """A text file of that package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def made() -> str:
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
