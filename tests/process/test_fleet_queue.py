"""Dask's queue with memprof's comparisons in it: a real scheduler, and workers whose places make their runs up."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from support import sample_runs
from support.fleets import fleet, until

if importlib.util.find_spec("distributed") is None:  # it takes half a second to import, in each worker
    pytest.skip("distributed is not installed", allow_module_level=True)

from memprof.campaign.fleet import scheduler
from memprof.campaign.fleet.message import ComparisonTask
from memprof.campaign.fleet.scheduler_client import SchedulerClient
from memprof.campaign.progress import Silent
from memprof.records import store
from memprof.subjects.suite import Suite

pytestmark = pytest.mark.xdist_group("fleet queue")  # one worker makes what its tests share


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with fleet(tmp_path_factory.mktemp("queue")) as made:
        yield made


@pytest.fixture
def client(lab):
    """A client of a scheduler that has no places yet."""
    with scheduler.connected(lab.address, pytest.fail) as client:
        until(lambda: not scheduler.places(client)[0])  # those of an earlier test are gone
        yield client


@contextmanager
def places(lab, count, runs, seconds):
    """A process that offers so many places."""
    words = [sys.executable, str(Path(__file__).parents[1] / "support/made_places.py"), lab.address, str(count), str(runs), str(seconds)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            for _ in range(count):
                assert process.stdout.readline()
            yield process
        finally:
            process.kill()


class Heard(Silent):
    """Keeps what is said."""

    def __init__(self):
        self.sentences = []

    def say(self, sentence):
        self.sentences.append(sentence)


def comparisons(count, runs, name="m"):
    model = sample_runs.run().job.model
    names = [f"{name}{number}" for number in range(count)]
    return [ComparisonTask(each, "me", Suite(), model=replace(model, name=each), key=each, cost=1.0, runs=runs) for each in names]


def test_queued_comparisons_survive_worker_death(lab, client):
    asked, kept, heard = comparisons(200, 1), [], Heard()
    with places(lab, 4, 1, 0.02) as first, places(lab, 4, 1, 0.02) as second:
        desk, seen = SchedulerClient(client, asked, heard, kept.append), set()
        for run in desk.runs():
            seen.add(run.attempt.place)
            if len(seen) == 8:
                first.kill()  # each of its workers has many more in its queue
        ended = first.poll(), second.poll()

    runs = [store.decode(line, "a run") for line in kept]
    assert not desk.failed
    standing = Counter(run.job.model.name for run in runs if not run.attempt.number > 1)
    again = {run.job.model.name for run in runs if run.attempt.number > 1}
    assert standing.keys() | again == {one.title for one in asked}
    assert set(standing.values()) == {1} and len(runs) - len(standing) >= len(again)
    assert len(seen) == 8, (heard.sentences, ended)


def test_joining_machine_takes_queued_comparisons(lab, client):
    with ExitStack() as stack:
        stack.enter_context(places(lab, 1, 1, 0.3))
        at = []
        for run in SchedulerClient(client, comparisons(40, 1), Silent(), lambda line: None).runs():
            if not at:
                stack.enter_context(places(lab, 1, 1, 0.3))
            at.append(run.attempt.place)

    assert len(at) == 40 and min(Counter(at).values()) >= 5 and len(set(at)) == 2


@pytest.mark.usefixtures("client")
def test_later_desk_goes_first(lab):
    order, joined = [], threading.Event()

    def campaign(name, count, address):
        with scheduler.connected(address, pytest.fail) as client:
            for number, _ in enumerate(SchedulerClient(client, comparisons(count, 1, name), Silent(), lambda line: None).runs(), 1):
                order.append(name)
                if name == "early" and number == 4:
                    joined.set()

    with places(lab, 1, 1, 0.25):
        desks = [threading.Thread(target=campaign, args=(name, count, lab.address)) for name, count in (("early", 16), ("late", 4))]
        desks[0].start()
        until(joined.is_set)
        desks[1].start()
        for desk in desks:
            desk.join(120)

    assert Counter(order) == {"early": 16, "late": 4}
    first = order.index("late")
    assert order[first : first + 4] == ["late"] * 4 and order[-1] == "early", "the later desk has first as many as the other had had"


def test_comparison_goes_to_machine_with_its_label(lab, client):
    asked = [
        replace(one, needs=frozenset({("place", f"made{number % 2}")}) if number < 4 else frozenset())
        for number, one in enumerate(comparisons(8, 2))
    ]
    with places(lab, 3, 2, 0.05):
        runs = list(SchedulerClient(client, asked, Silent(), lambda line: None).runs())

    assert Counter(run.job.model.name for run in runs) == dict.fromkeys((one.title for one in asked), 2)
    at = {run.job.model.name: run.attempt.place for run in runs}
    assert [at[f"m{number}"] for number in range(4)] == [f"made{number % 2} of nowhere" for number in range(4)]
    assert len({(run.job.model.name, run.attempt.place) for run in runs}) == 8


def test_stopped_desk_leaves_nothing_queued(lab, client):
    kept = []
    with places(lab, 1, 1, 0.2):
        runs = list(SchedulerClient(client, comparisons(50, 1), Silent(), kept.append, stop=lambda: len(kept) >= 2).runs())
        until(lambda: not any(client.processing().values()))

    assert 2 <= len(runs) == len(kept) < 50
