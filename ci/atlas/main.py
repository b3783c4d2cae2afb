"""What each release of a runtime costs in memory: `make atlas`, or PARTS="onnxruntime ncnn" for some runtimes.

The last releases of every runtime that pip packages, each in an environment of memprof's, measure three or more models (see subjects.py). Figures
are kept in memprof's cache, under atlas/, as a history whose commits are releases. Kept releases are not measured again, so that the script goes on
where it was stopped, and a new release is all that a later call adds. With --on the machines of a fleet measure (see on_fleet.py). At the end the
page, atlas/site/index.html, and the tables of docs/evidence/atlas.md are written from all kept releases; --no-measure does nothing else.

Times are not told: runs may share the machine with others. PIP_CONSTRAINT keeps torch away, which no runtime here needs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from bench import docs
from memprof.base import files
from memprof.base.cache import cache_folder
from memprof.base.errors import MemprofError
from memprof.base.units import counted, format_duration
from memprof.campaign import campaign
from memprof.campaign.fleet.search_client import Machines
from memprof.campaign.progress import Silent
from memprof.campaign.runs_writer import keeping
from memprof.doors.cli.fleet import FleetOptions, searching
from memprof.records import store
from memprof.reports import history as page
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite, Variant
from memprof.verdicts import steps
from memprof.versions import history_file, installation, pip
from memprof.versions import history_folder as kept
from memprof.versions.commits import Commit

from . import on_fleet, releases, subjects, tables

TITLE = "What releases of runtimes cost in memory"


class Place:
    """The folder of the atlas. points: the history; models; unable: why releases could not be measured."""

    def __init__(self) -> None:
        self.folder = cache_folder("atlas")
        self.points, self.models, self._unable = self.folder / "points", self.folder / "models", self.folder / "unable.json"
        for folder in (self.points, self.models):
            folder.mkdir(exist_ok=True)

    def done(self) -> set[str]:
        """The hashes of the releases that are measured."""
        return set(kept.load(self.points).commits) if any(self.points.glob("*.json")) else set()

    def unable(self) -> dict[str, str]:
        """Reasons by `runtime version`."""
        return dict(json.loads(self._unable.read_bytes())) if self._unable.exists() else {}

    def note(self, release: str, reason: str) -> None:
        """Keep the reason why a release could not be measured."""
        files.write(self._unable, json.dumps({**self.unable(), release: reason}, indent=1).encode())


def main() -> None:
    """Measure, then write the page and the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runtimes", nargs="*", metavar="RUNTIME", help=", ".join(subjects.RUNTIMES))
    parser.add_argument("--releases", type=int, default=6, metavar="N", help="the last N of each runtime")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument("--again", action="store_true", help="try again what could not be measured")
    parser.add_argument("--no-measure", action="store_true", help="only write the page and the tables")
    parser.add_argument("--on", metavar="dask:ADDRESS", help="measure on a fleet")
    parser.add_argument("--machines", metavar="LABEL=VALUE,...", help="with --on: only machines with these labels")
    words = parser.parse_args()
    if unknown := set(words.runtimes) - set(subjects.RUNTIMES):
        parser.error(f"there is no runtime {sorted(unknown)[0]}: {', '.join(subjects.RUNTIMES)}")
    place, began = Place(), time.monotonic()
    if not words.no_measure:
        try:
            with _without_torch(), searching(FleetOptions.given(words.on, None, words.machines)) as machines:
                if machines is not None:
                    _on_fleet(place, machines, words.runtimes or subjects.RUNTIMES, words.releases, words.repeats, words.again)
                else:
                    for runtime in words.runtimes or subjects.RUNTIMES:
                        _runtime(place, runtime, words.releases, words.repeats, words.again)
        except MemprofError as error:
            sys.exit(f"atlas: {error}")
        _say(f"measured in {format_duration(int((time.monotonic() - began) * 1e9))}")
    _write(place)


def _missing(place: Place, runtime: str, count: int, again: bool) -> list[Commit]:
    """The last releases of a runtime that are neither measured nor known to be impossible."""
    distribution = installation.known(runtime).distribution
    assert distribution is not None
    versions = releases.chosen(pip.versions(sys.executable, distribution).versions, count)
    commits = [releases.commit(subjects.RUNTIMES.index(runtime), runtime, version) for version in versions]
    return [each for each in commits if each.hash not in place.done() and (again or each.subject not in place.unable())]


def _on_fleet(place: Place, machines: Machines, runtimes: Sequence[str], count: int, repeats: int, again: bool) -> None:
    machines.check_hosts()
    missing = {runtime: _missing(place, runtime, count, again) for runtime in runtimes}
    wanted = [on_fleet.Wanted(runtime, tuple(new), subjects.models(runtime, place.models)) for runtime, new in missing.items() if new]
    for release, reason in on_fleet.unable(machines, wanted, _Says()).items():
        _note(place, release, reason)
    known = place.unable()
    unmeasured = [(each, tuple(one for one in each.releases if one.subject not in known)) for each in wanted]
    wanted = [dataclasses.replace(each, releases=releases) for each, releases in unmeasured if releases]
    for each, runs, why in on_fleet.measured(machines, wanted, repeats, _Says()):
        if why:
            _say(f"{each.runtime} is not kept: {why}")
        for release in each.releases if runs else ():
            try:
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / "runs.jsonl"
                    with keeping(path, lambda said: None) as keep:
                        for run in runs[release.subject]:
                            keep(store.encode(run))
                    kept.add(place.points, release, [str(path)])
                _say(f"{release.subject}: measured")
            except MemprofError as error:
                _note(place, release.subject, str(error))


class _Says(Silent):
    def say(self, sentence: str) -> None:
        _say(sentence)


def _note(place: Place, release: str, reason: str) -> None:
    # Where this machine has the environment does not belong to the reason.
    reason = re.sub(r"/\S*/site-packages/", "", reason)
    place.note(release, reason)
    _say(f"{release}: {reason}")


def _runtime(place: Place, runtime: str, count: int, repeats: int, again: bool) -> None:
    models = subjects.models(runtime, place.models)
    for release in _missing(place, runtime, count, again):
        began = time.monotonic()
        try:
            made = installation.ensure(installation.PipPackage.of(installation.known(runtime)), release.tags[0], _say)
            installation.leave_page_cache(made.folder)
            with tempfile.TemporaryDirectory() as folder:
                runs = Path(folder) / "runs.jsonl"
                for name, model in models.items():
                    _measure(runs, model, name, subjects.variant(runtime, made.interpreter), repeats)
                kept.add(place.points, release, [str(runs)])
        except MemprofError as error:
            _note(place, release.subject, str(error))
        else:
            _say(f"{release.subject}: measured in {format_duration(int((time.monotonic() - began) * 1e9))}")


def _measure(runs: Path, model: Path, name: str, variant: Variant, repeats: int) -> None:
    suite = Suite(models=(str(model),), variants=(variant,), name=name, warmup=1, runs=2, repeats=repeats)
    with keeping(runs, lambda said: None, append=True) as keep:
        for run in campaign.measure(plan(suite).orders, Silent(), keep):
            if not run.outcome.ok:
                _say(f"{run.job.variant}, {name}: {run.outcome.sentence}")


@contextmanager
def _without_torch() -> Iterator[None]:
    """The block in which pip refuses what needs torch."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("torch<0\n")
        file.flush()
        os.environ["PIP_CONSTRAINT"] = file.name
        yield
        del os.environ["PIP_CONSTRAINT"]


def _write(place: Place) -> None:
    history = history_file.read(kept.load(place.points), None, find=steps.between)
    # In the order of the runtimes; the page shows the first line's model first.
    history = replace(history, lines=tuple(sorted(history.lines, key=lambda line: line.places)))
    atlas = tables.of(history, place.unable())
    html = page.render(history, TITLE, noun="release", tables=atlas.tables, notices=atlas.notes)
    site = place.folder / "site"
    site.mkdir(exist_ok=True)
    files.write(site / "index.html", html.encode())
    manual = docs.write("atlas", tables.markdown(atlas), atlas.notes)
    _say(f"{site / 'index.html'} has the page of {counted(len(history.commits), 'release')}, {manual} the tables")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
