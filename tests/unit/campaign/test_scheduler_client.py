"""The desk of a fleet: what it asks Dask for, what begins again elsewhere, and that each run counts once."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from support.fleet_messages import OFFERED, Lab
from support.fleet_messages import worker as worker_of
from support.sample_runs import run

from memprof.base.errors import InputError
from memprof.campaign.fleet import scheduler_client
from memprof.campaign.fleet.message import PROTOCOL, ComparisonTask, Event, Offered, Result, resources
from memprof.records import store
from memprof.subjects.suite import Suite


class Campaign:
    """A desk of made-up comparisons, each of two runs, and machines at their addresses with these labels."""

    def __init__(self, comparisons, machines, **words):
        self.lines, self.counts, self.kept = [], [], []
        progress = SimpleNamespace(say=self.lines.append, started=lambda job, *place: self.counts.append(place), finished=lambda run: None)
        self.lab = Lab(told={"workers": {}})
        self.machines(machines)
        self.desk = scheduler_client.SchedulerClient(self.lab, comparisons, progress, self.kept.append, **words)
        self.desk._take()

    def machines(self, labels):
        self.lab.told["workers"] = {
            address: worker_of({**OFFERED, "place": address, "labels": {**words, "place": address}}) for address, words in labels.items()
        }

    def look(self):
        self.desk._look()

    def hear(self, news):
        return list(self.desk._heard(news))

    def future(self, title):
        return next(one.future for one in self.desk._open.values() if one.comparison.title == title)

    def begin(self, title, address):
        """A worker begins with a comparison; what it says of that from then on."""
        words = {"comparison": f"key of {title}", "task": self.future(title).key, "address": address}
        self.hear(Event(**words, begins=True, plan=2))
        return words

    def run(self, words, repeat):
        return self.hear(Event(**words, run=store.encode(run(repeat=repeat))))

    def measure(self, title, address, runs=2, how=None, why="full"):
        """A comparison is begun, has so many runs, and ends."""
        words = self.begin(title, address)
        for repeat in range(runs):
            self.run(words, repeat)
        self.hear(Event(**words, end=Result(how, why if how else "")))

    def submitted(self):
        """The titles and the workers of what Dask was given since the last time, in the order of their priorities."""
        asked, self.lab.submitted = self.lab.submitted, []
        titles = {one.future.key: one.comparison.title for one in self.desk._open.values()}
        return [(titles[each.key], each.workers) for each in sorted(asked, key=lambda each: -each.priority) if each.key in titles]


def asked(title, cost=1.0, needs=frozenset(), **words):
    return ComparisonTask(title, "me", Suite(), key=f"key of {title}", needs=frozenset(needs), cost=cost, runs=2, **words)


PI = ("kind", "pi5")


def test_longest_comparison_has_priority():
    campaign = Campaign([asked("short", 1), asked("long", 9), asked("longer", 10, {PI})], {"a": {"kind": "pi5"}})
    campaign.look()

    made = {
        title: each for each in campaign.lab.submitted for title in ("short", "long", "longer") if campaign.future(title).key == each.key
    }
    assert [made[title].priority for title in ("longer", "long", "short")] == [0, -1, -2]
    assert made["short"].resources == resources(frozenset()) and made["longer"].resources == resources(frozenset({PI}))
    assert {each.workers for each in campaign.lab.submitted} == {None}, "Dask chooses"


@pytest.mark.parametrize(
    ("labels", "kind", "fits"),
    [
        (set(), None, True),
        ({("kind", "a"), ("pool", "lab")}, None, True),
        ({("kind", "b")}, None, False),
        ({("kind", "a")}, {("kind", "a"), ("pool", "lab")}, True),
        ({("kind", "a")}, {("kind", "a")}, False),  # the machine has one more label
    ],
)
def test_resources_of_labels(labels, kind, fits):
    offered = Offered("here", "h", "m", {"kind": "a", "pool": "lab", "host": "h"}, PROTOCOL, "1").resources
    wanted = resources(frozenset(labels), None if kind is None else frozenset(kind))
    assert (wanted.items() <= offered.items()) == fits


def test_other_protocol_shares_no_resource(monkeypatch):
    before = resources(frozenset())
    monkeypatch.setattr("memprof.campaign.fleet.message.PROTOCOL", PROTOCOL + 1)
    assert before.keys().isdisjoint(resources(frozenset()))


def test_desk_tells_its_counts():
    campaign = Campaign([asked("m"), asked("n"), asked("o")], {"a": {}, "b": {}})
    campaign.look()
    campaign.measure("m", "a")
    campaign.begin("n", "a")
    campaign.look()

    assert campaign.lab.desk == {"desk": "me", "running": 1, "waiting": 1, "done": 1, "task": campaign.future("o").key}


def test_refused_comparison_measured_elsewhere():
    campaign = Campaign([asked("m")], {"a": {}, "b": {}, "c": {}})
    campaign.look()
    assert campaign.submitted() == [("m", None)]

    campaign.measure("m", "a", 1, "refused")
    assert campaign.submitted() == [("m", ["b", "c"])]
    campaign.measure("m", "c", 0, "refused")
    assert campaign.submitted() == [("m", ["b"])]
    campaign.measure("m", "b")

    assert not campaign.desk._open and not campaign.desk.failed
    assert campaign.lines == [
        "m begins again elsewhere, whole: a of b: full; its 1 run stays aside",
        "m begins again elsewhere, whole: c of b: full",
    ]


def test_refused_comparison_returns_to_only_machine():
    campaign = Campaign([asked("m")], {"a": {}})
    campaign.look()
    campaign.measure("m", "a", 0, "refused")
    assert campaign.submitted()[-1] == ("m", ["a"])
    campaign.machines({"a": {}, "b": {}})
    campaign.look()
    assert campaign.submitted() == [("m", ["b"])], "another machine came while it waits"


def test_comparison_given_up_after_three_failures():
    campaign = Campaign([asked("m")], {address: {} for address in "abcd"})
    campaign.look()
    for address in "abc":
        campaign.measure("m", address, 0, "refused", f"no room on {address}")

    assert not campaign.desk._open
    (sentence,) = campaign.desk.failed.values()
    assert sentence == ("m failed 3 times, on 3 machines and is given up: a of b: no room on a; b of b: no room on b; c of b: no room on c")


def test_unrepeatable_failure_given_up():
    campaign = Campaign([asked("m")], {"a": {}, "b": {}})
    campaign.look()
    campaign.measure("m", "a", 0, "usage", "no such knob")

    assert campaign.desk.failed == {"key of m": "m failed on a of b and is given up: a of b: no such knob"}
    assert not campaign.desk._open


def test_unbuilt_commits_named():
    campaign = Campaign([asked("m")], {"a": {}})
    campaign.look()
    words = campaign.begin("m", "a")
    campaign.hear(Event(**words, end=Result("unmade", "no make", {"c1": "no make"})))

    assert campaign.desk.unmade == {"key of m": {"c1": "a of b: no make"}}
    assert campaign.desk.failed == {"key of m": "a of b: no make"}


def test_failing_machine_gets_nothing_more():
    names = [f"m{number}" for number in range(5)]
    campaign = Campaign([asked(name) for name in names], {"bad": {}, "a": {}})
    campaign.look()
    campaign.submitted()
    for name in names[:3]:
        campaign.measure(name, "bad", 0, "refused")
        campaign.measure(name, "a")
    campaign.submitted()
    assert campaign.lines[-1] == "bad of b failed three times in a row and gets nothing more"

    campaign.look()
    assert campaign.submitted() == [("m3", ["a"]), ("m4", ["a"])], "what waits is taken from it"
    campaign.machines({"bad": {}})
    with pytest.raises(InputError, match="bad of b failed too often, and no other place fits the rest of the queue"):
        campaign.look()


def test_failures_in_a_row_end_with_success():
    campaign = Campaign([asked(f"m{number}") for number in range(4)], {"a": {}, "b": {}})
    campaign.look()
    for number, how in enumerate(("refused", "refused", None, "refused")):
        campaign.measure(f"m{number}", "a", 0 if how else 2, how)
    assert campaign.desk._in_a_row["a"] == 1


def test_vanished_machine_leaves_task_to_dask():
    campaign = Campaign([asked("m"), asked("n")], {"a": {}, "b": {}})
    campaign.look()
    campaign.submitted()
    lost = campaign.begin("m", "a")
    campaign.run(lost, 0)
    campaign.machines({"b": {}})
    campaign.look()

    assert campaign.submitted() == [] and campaign.lab.cancelled == []
    assert campaign.lines == ["m begins again elsewhere, whole: a of b: it vanished; its 1 run stays aside"]
    again = campaign.begin("m", "b")  # the same task
    assert again["task"] == lost["task"]
    assert campaign.run(lost, 1) == [], "what a lost attempt still says is nobody's"
    assert [(made.attempt.number, made.attempt.place) for made in campaign.run(again, 0)] == [(2, "b of b")]


def test_second_begin_tells_of_loss():
    campaign = Campaign([asked("m")], {"a": {}, "b": {}})
    campaign.look()
    for count, address in enumerate("aba"):
        campaign.begin("m", address)
        assert len(campaign.lines) == count
    campaign.begin("m", "b")

    assert not campaign.desk._open and len(campaign.lab.cancelled) == 1, "Dask's next attempt is taken back"
    (sentence,) = campaign.desk.failed.values()
    assert sentence.startswith("m failed 3 times, on 2 machines and is given up: a of b: it vanished; b of b: ")


@pytest.mark.parametrize("begun", [False, True])
def test_task_killed_with_its_workers(begun):
    distributed = pytest.importorskip("distributed")
    campaign = Campaign([asked("m")], {"a": {}, "b": {}})
    campaign.look()
    campaign.submitted()
    if begun:
        campaign.begin("m", "a")
    killed = distributed.KilledWorker("m", None, 3)
    future = campaign.future("m")
    future.status, future.exception = "error", lambda: killed
    campaign.hear(future)

    assert campaign.submitted() == [("m", None)]
    assert bool(campaign.lines) == begun, "what was begun at no worker has not failed"


def test_task_lost_with_scheduler():
    campaign = Campaign([asked("m")], {"a": {}})
    campaign.look()
    with pytest.raises(InputError, match=r"the connection to the scheduler broke .*--append goes on once it is back"):
        future = campaign.future("m")
        future.status = "cancelled"
        campaign.hear(future)


def test_spread_parts_on_different_machines():
    campaign = Campaign([asked(f"part{number}", part=number) for number in range(3)], {address: {} for address in "abc"})
    campaign.look()
    assert sorted(workers for _, workers in campaign.submitted()) == [["a"], ["b"], ["c"]]
    campaign.look()
    assert campaign.submitted() == []

    campaign.machines({"a": {}, "b": {}})
    campaign.look()
    ((_, workers),) = campaign.submitted()
    assert workers in (["a"], ["b"]), "it goes on without the machine that vanished"


def test_counter_of_kept_runs():
    campaign = Campaign([asked("m"), asked("n")], {"a": {}, "b": {}})
    campaign.look()
    campaign.measure("m", "a", 1, "refused")
    campaign.measure("n", "b")
    campaign.measure("m", "b")

    assert campaign.counts == [(1, 4), *((number, 4) for number in range(1, 5))]
    assert Counter(store.decode(line, "").attempt.number for line in campaign.kept) == {1: 3, 2: 2}


def test_repeated_run_kept_once():
    campaign = Campaign([asked("m")], {"a": {}})
    campaign.look()
    words = campaign.begin("m", "a")

    assert [len(campaign.run(words, repeat)) for repeat in (1, 1, 2, 1, 2)] == [1, 0, 1, 0, 0]
    assert len(campaign.kept) == 2


def test_missing_runs_restart_comparison():
    campaign = Campaign([asked("m")], {"a": {}, "b": {}})
    campaign.look()
    words = campaign.begin("m", "a")
    campaign.run(words, 1)
    campaign.hear(Event(**words, end=Result()))
    assert campaign.lines == ["m begins again elsewhere, whole: a of b: 1 of 2 runs came back; its 1 run stays aside"]


def test_earlier_comparisons_left_out():
    campaign = Campaign([asked("m"), asked("n")], {"a": {}}, earlier={"key of m": (1, True), "key of n": (3, False)})
    campaign.look()
    assert campaign.lines == ["1 comparison of 2 is in the file already"]
    (made,) = campaign.run(campaign.begin("n", "a"), 1)
    assert made.attempt.number == 4


def test_desk_keeps_places_without_scheduler():
    campaign = Campaign([asked("m")], {"a": {}})
    campaign.look()
    campaign.begin("m", "a")
    campaign.machines({})
    campaign.lab.status = "connecting"
    campaign.look()
    assert list(campaign.desk._there) == ["a"] and not campaign.lines


def test_unmatched_labels_refused_at_once():
    campaign = Campaign([asked("m", needs={PI})], {"a": {"kind": "x"}, "b": {}})
    with pytest.raises(InputError, match=r"^no place of the fleet has kind=pi5: it has 1 place with kind=x; 1 place with no labels$"):
        campaign.look()
    assert not campaign.lab.submitted
    with pytest.raises(InputError, match=r"^the fleet has no place: there is no place at all: start `memprof worker` beside the machines$"):
        Campaign([asked("m")], {}).look()


def test_desk_waits_for_vanished_machines(monkeypatch):
    campaign = Campaign([asked("m", needs={PI}), asked("n", needs={PI})], {"a": {"kind": "pi5"}})
    campaign.look()
    campaign.measure("m", "a")
    campaign.machines({"b": {"kind": "x"}})
    campaign.look()
    assert campaign.lines == ["no place of the fleet has kind=pi5 any more: what needs it waits"]
    monkeypatch.setattr(scheduler_client, "_ABSENT_S", -1)
    with pytest.raises(InputError, match="no place of the fleet has kind=pi5 any more, for -1 s: it has 1 place with kind=x"):
        campaign.look()
