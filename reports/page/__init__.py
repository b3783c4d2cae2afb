"""Runs -> one HTML page that needs nothing else: no network, no server, no second file.

words.py says in sentences and tables what was found and under which conditions; drawn.py holds the figures that page.js draws and switches
between. What comes from a runs file is escaped twice over: jinja2's autoescape and JSON without `<` keep it text, and the page's policy runs
no script but the three whose hashes it names, and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import jinja2
import msgspec
from markupsafe import Markup

from memprof.errors import InputError, os_reason
from memprof.explain.records import Explanation
from memprof.records import Run

from .. import explain, table
from . import drawn, words

# Where scripts do not run (a CI service's own viewer), these tables are what the page has.
_TABLES_WITHOUT_SCRIPT = ("rss_peak_bytes", "time_ns")
_GENERATOR = b'name="generator" content="memprof '
_THEME = "document.documentElement.dataset.theme=matchMedia('(prefers-color-scheme: dark)').matches?'dark':'light'"


def render(
    runs: Sequence[Run], *, warnings: Sequence[str] = (), sources: Sequence[str] = (), explanations: Sequence[Explanation] = ()
) -> str:
    """The page of these runs. warnings: what was wrong with their files; sources: the files' names; explanations: what explain found.

    Raises InputError where there is no run, or a run's timeline is damaged.
    """
    if not runs:
        raise InputError("there is no run to make a page of")
    by_model = [[run for run in runs if run.job.model.name == name] for name in dict.fromkeys(run.job.model.name for run in runs)]
    scripts = [_THEME, _asset("page.js"), _plotly()]
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_asset("page.html")).render(
        policy=_policy(scripts),
        style=Markup(_asset("page.css")),
        theme_script=Markup(scripts[0]),
        page_script=Markup(scripts[1]),
        plotly_script=Markup(scripts[2]),
        data=Markup(_json(drawn.page(by_model))),
        title=words.title(runs),
        subtitle=words.subtitle(runs),
        made=f"memprof {_version()}, {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}",
        sources=sources,
        notices=words.notices(runs, warnings),
        models=[words.model(group) for group in by_model],
        plain_tables=[table.sections(group, _TABLES_WITHOUT_SCRIPT)[0] for group in by_model],
        machines=words.machines(runs),
        exactness=words.exactness(runs),
        remarks=words.remarks(runs, warnings),
        explained=[Markup(explain.page_piece(found)) for found in explanations],
    )


def check(path: Path) -> None:
    """Whether a page may be written there: an earlier page is replaced, no other file is. Raises InputError where not."""
    if path.is_dir():
        raise InputError(f"{path} cannot be written: it is a folder")
    if not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {path.parent}")
    if path.is_file():
        try:
            with path.open("rb") as file:
                begin = file.read(200)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {os_reason(error)}") from None
        if begin and _GENERATOR not in begin:
            raise InputError(f"{path} exists and is no page of memprof's; -o names another")


def _policy(scripts: Sequence[str]) -> str:
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts)
    # plotly.js writes its style rules itself, and its pictures as data.
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"


def _json(page: drawn.Page) -> str:
    """JSON that a script element can hold: nothing in it can end the element or begin another."""
    text = msgspec.json.encode(page).decode()
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _plotly() -> str:
    # Its file, without importing plotly: that would take longer than all else here.
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise InputError("the page needs plotly: pip install plotly")
    text = (Path(spec.origin).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _version() -> str:
    try:
        return version("memprof")
    except PackageNotFoundError:
        return "(not installed)"
