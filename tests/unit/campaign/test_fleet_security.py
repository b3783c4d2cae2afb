"""Who may reach a fleet: TLS where the address is not this machine's, certificates that fit, and sentences where they do not."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import pickle
import socket
import ssl
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from msgspec.structs import asdict, replace
from support.fleet_messages import HELLO, OFFERED, Lab, kept  # noqa: F401  (the fixtures)
from support.fleet_messages import worker as worker_of
from support.recorder_runs import sentence
from support.sample_runs import run

from memprof.base.cache import cache_folder
from memprof.base.errors import InputError, UsageError
from memprof.campaign.fleet import message, monitor, scheduler, scheduler_client, search_client, worker, worker_files
from memprof.campaign.fleet.comparison_runs import PlaceLost
from memprof.campaign.fleet.message import PROTOCOL, ComparisonTask, Doing, Event, Offered, Result, SearchRequest, Sent
from memprof.campaign.fleet.payload import MachineChoice, SearchTrial, packed, parse_labels
from memprof.campaign.fleet.security import unreachable
from memprof.doors.cli.fleet import slim
from memprof.places.place import HERE
from memprof.programs.commands import Command
from memprof.records import store
from memprof.records.types import Attempt, Outcome
from memprof.subjects.suite import Suite, Variant, parse_cmd, parse_variant


def test_certificate_failure_behind_error():
    try:
        try:
            raise ssl.SSLError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
        except ssl.SSLError as cause:
            raise OSError("Timed out") from cause
    except OSError as error:
        sentence = str(unreachable("tls://lab:1", error))

    assert sentence.startswith("tls://lab:1: the certificates do not fit (")


def test_fleet_options_need_fleet(memprof):
    done = memprof("run", "m.json", "-r", "synthetic", "--each", "kind")
    folder = memprof("run", "m.json", "-r", "synthetic", "--on", "dask:tcp://127.0.0.1:1", "--remote-dir", "x")

    assert (done.returncode, folder.returncode) == (2, 2)
    assert "go with --on dask:ADDRESS" in done.stderr
    assert "its workers choose the folders" in folder.stderr


@pytest.mark.parametrize("command", ["run", "scale", "tune", "bisect", "grow", "explain"])
def test_help_of_on_names_fleet(memprof, command):
    on = memprof(command, "--help-all").stdout.partition("\n  --on ")[2].partition("\n  --")[0]
    assert ("dask:ADDRESS" in on) == (command not in ("grow", "explain"))


def test_grow_refuses_fleet(memprof):
    done = memprof("grow", "m.onnx", "-r", "onnxruntime", "--on", "dask:tcp://127.0.0.1:1")

    assert done.returncode == 2
    assert "only `memprof run`, `scale`, `tune` and `bisect` measure on a fleet; name one machine, such as" in done.stderr


@pytest.mark.parametrize("text", ["", "kind", "kind=", "=pi5", "kind=a,kind=b", "kind=a,,"])
def test_label_refusals(text):
    with pytest.raises(UsageError, match=r"--labels"):
        parse_labels(text, "--labels")


def test_comparison_survives_pickling(tmp_path):
    suite = Suite(
        models=(model(tmp_path),),
        variants=(parse_variant("a=onnxruntime,threads=2,mem_pattern=off,env.X=1"), parse_cmd("b=X=1 ./app {model}")),
        shapes={"x": (1, 3)},
        set={"arena": "off"},
        warmup=3,
        cache="cold",
        cpus="0-1",
        no_swap=True,
        max_celsius=45.0,
        stdin=True,
    )
    (task,) = packed(suite, MachineChoice(), [])

    assert pickle.loads(pickle.dumps(replace(task, suite=replace(task.suite, place=None)))) == replace(
        task, suite=replace(task.suite, place=None)
    )
    assert (task.suite.shapes, task.suite.set, task.suite.cache, task.suite.stdin) == (suite.shapes, suite.set, "cold", False)


def test_protocol_number_of_records():
    """Whoever changes what travels gives PROTOCOL another number, and this test both: another memprof would take the record wrongly."""
    records = (ComparisonTask, SearchRequest, message.Commits, Event, Result, Offered, Doing, Sent, Suite, Variant, Command)
    names = [(record.__name__, [(name, record.__annotations__[name]) for name in record.__struct_fields__]) for record in records]
    assert (PROTOCOL, hashlib.sha256(repr(names).encode()).hexdigest()[:8]) == (7, "46927dc2")


def model(tmp_path, name="m.json", content="{}"):
    path = tmp_path / name
    path.write_text(content)
    return str(path)


def test_search_points_answered_in_order(tmp_path, monkeypatch):
    suite = Suite(models=(model(tmp_path),), runtimes=("synthetic",), repeats=1)
    asked = []

    class Reversed(scheduler_client.SchedulerClient):
        def runs(self):
            asked.append([item.sought.at for item in self.comparisons])
            for item in reversed(self.comparisons):
                made = run()
                yield replace(made, job=replace(made.job, at=item.sought.at), attempt=Attempt(item.key, 1, 1))

    monkeypatch.setattr(search_client, "SchedulerClient", Reversed)
    machines = search_client.Machines(Lab(OFFERED), frozenset())

    answers = list(
        machines.measure([SearchTrial(suite, SearchRequest({"batch": size})) for size in (1, 2, 3)], SimpleNamespace(say=print), print)
    )

    assert asked == [[{"batch": 1}, {"batch": 2}, {"batch": 3}]]
    assert [(number, answer.complete, [made.job.at["batch"] for made in answer.runs]) for number, answer in answers] == [
        (number, True, [number + 1]) for number in range(3)
    ]
    with pytest.raises(InputError, match="no place of the fleet has kind=pi5: it has 2 places"):
        search_client.Machines(Lab(OFFERED), frozenset({("kind", "pi5")})).pinned()


@pytest.mark.parametrize(("place", "refused"), [("here", False), ("ssh:pi@board", True)])
def test_boards_refuse_version_installs(place, refused):
    machines = search_client.Machines(Lab({**OFFERED, "place": place}), frozenset())

    assert machines.width == 2 and machines.are_hosts != refused
    if refused:
        with pytest.raises(UsageError, match=r"on the machines of workers \(--offer here\), and there are boards with no labels"):
            machines.check_hosts()


@pytest.mark.parametrize("end", ["time", "Ctrl-C"])
def test_ended_search_keeps_answers(tmp_path, monkeypatch, end):
    suite = Suite(models=(model(tmp_path),), runtimes=("synthetic",), repeats=2)

    class Ends(scheduler_client.SchedulerClient):
        def runs(self):
            first, second, _ = (item.key for item in self.comparisons)
            yield replace(run(), attempt=Attempt(first, 1, 2))  # of a machine that was lost
            yield from (replace(run(repeat=repeat), attempt=Attempt(first, 2, 2)) for repeat in (1, 2))
            yield replace(run(), attempt=Attempt(second, 1, 2))
            assert self.stop() == (end == "time")
            if end == "Ctrl-C":
                raise KeyboardInterrupt

    monkeypatch.setattr(search_client, "SchedulerClient", Ends)
    machines = search_client.Machines(Lab(OFFERED), frozenset())
    asked = [SearchTrial(suite, SearchRequest({"batch": size})) for size in (1, 2, 2)]
    seen, answers = [], []

    def stop(runs):
        seen.append(len(runs))
        return end == "time"

    try:
        for number, answer in machines.measure(asked, SimpleNamespace(say=print), print, stop):
            answers.append((number, answer.complete, [made.job.repeat for made in answer.runs]))
        assert end == "time"
    except KeyboardInterrupt:
        assert end == "Ctrl-C"

    assert seen == [3]
    assert answers == [(0, True, [1, 2]), *([(1, False, [1]), (2, False, [])] if end == "time" else [])]


def test_search_ignores_joining_machine_kind(tmp_path, monkeypatch):
    suite = Suite(models=(model(tmp_path),), runtimes=("synthetic",), repeats=1)
    kinds, needs = {"a": {"kind": "x", "place": "a"}}, []

    class Answers(scheduler_client.SchedulerClient):
        def runs(self):
            for item in self.comparisons:
                needs.append(item.needs)
                yield replace(run(), attempt=Attempt(item.key, 1, 1))

    def told():
        return {"workers": {f"tcp://{name}": worker_of({**OFFERED, "labels": labels}) for name, labels in kinds.items()}}

    monkeypatch.setattr(search_client, "SchedulerClient", Answers)
    lab = Lab(told=told())
    machines = search_client.Machines(lab, frozenset()).pinned()
    kinds["b"] = {"kind": "y", "place": "b"}
    kinds["c"] = {"kind": "x", "place": "c", "fan": "none"}
    lab.told = told()

    list(machines.measure([SearchTrial(suite, SearchRequest({"batch": 1}))], SimpleNamespace(say=print), print))
    asks = scheduler_client.SchedulerClient(lab, [], SimpleNamespace(say=print), print, kind=machines.kind)
    asks._look()

    assert needs == [{("kind", "x")}]
    assert [place.offered.labels["place"] for place in asks._there.values()] == ["a"]  # though c has all labels that are needed
    lab.told["workers"]["tcp://d"] = worker_of({**OFFERED, "place": "other", "labels": {"kind": "x", "place": "d"}})
    with pytest.raises(UsageError) as refused:
        search_client.Machines(lab, frozenset({("kind", "x")})).pinned()
    assert str(refused.value).partition(": ")[2] == (
        "--machines fan=none,kind=x (1 place), --machines kind=x (2 places); some have all labels of others: give each kind of worker a label of "
        "its own (--labels)"
    )


@pytest.mark.parametrize(
    ("given", "these", "others", "words"),
    [
        ({}, [{"arch": "x", "kind": "a", "host": "1"}], [{"arch": "x", "kind": "b", "host": "2"}], "arch=x,kind=a"),
        ({"pool": "p"}, [{"pool": "p", "kind": "a"}], [{"pool": "p", "kind": "b"}], "kind=a,pool=p"),
        # Each label alone is another's too.
        ({}, [{"arch": "x", "kind": "a"}], [{"arch": "x", "kind": "b"}, {"arch": "y", "kind": "a"}], "arch=x,kind=a"),
    ],
)
def test_search_refuses_several_machine_kinds(given, these, others, words):
    lab = Lab(
        told={"workers": {f"tcp://{number}": worker_of({**OFFERED, "labels": labels}) for number, labels in enumerate(these + others)}}
    )
    with pytest.raises(UsageError) as refused:
        search_client.Machines(lab, frozenset(given.items())).pinned()
    assert f"--machines {words} (1 place)" in str(refused.value)
    chosen = frozenset(parse_labels(words, "--machines").items())
    assert search_client.Machines(lab, chosen).pinned().width == 1


def test_comparison_key_by_content(tmp_path):
    suite = Suite(models=(model(tmp_path),), runtimes=("synthetic",), repeats=2)
    (first,) = packed(suite, MachineChoice(), [])
    (same,) = packed(suite, MachineChoice(), [{"kind": "later"}])
    model(tmp_path, content="{ }")
    (changed,) = packed(suite, MachineChoice(), [])

    assert first.key == same.key != changed.key


def test_comparisons_by_each_and_spread(tmp_path):
    suite = Suite(models=(model(tmp_path), model(tmp_path, "n.json")), runtimes=("synthetic",), repeats=5)
    machines = [{"kind": "a"}, {"kind": "a"}, {"kind": "b"}, {"other": "x"}]

    each = packed(suite, MachineChoice(each="kind"), machines)
    spread = packed(suite, MachineChoice(each="kind", spread=True), machines)

    assert sorted(sorted(item.needs) for item in each) == [[("kind", "a")]] * 2 + [[("kind", "b")]] * 2
    assert sorted((item.kind, item.title, item.repeats) for item in spread) == [
        ("a", "m.json", (1, 3, 5)),
        ("a", "m.json", (2, 4)),
        ("a", "n.json", (1, 3, 5)),
        ("a", "n.json", (2, 4)),
        ("b", "m.json", (1, 2, 3, 4, 5)),
        ("b", "n.json", (1, 2, 3, 4, 5)),
    ]
    assert sorted(item.part for item in spread if item.kind == "a") == [0, 0, 1, 1]
    with pytest.raises(UsageError, match="--spread says that machines are interchangeable: say which"):
        packed(suite, MachineChoice(spread=True), machines)


@pytest.mark.parametrize(
    ("words", "refusal"),
    [({"phases": {"MODEL_LOAD": "load"}}, "--phase"), ({"models": ()}, "name a model to measure")],
)
def test_packing_refusals(tmp_path, words, refusal):
    suite = Suite(models=(model(tmp_path),), runtimes=("synthetic",))
    with pytest.raises(UsageError, match=refusal):
        packed(Suite(**{**asdict(suite), **words}), MachineChoice(), [])


def test_file_outside_command_folder_refused(tmp_path):
    model(tmp_path, "data")
    (tmp_path / "inside").mkdir()
    suite = Suite(variants=(parse_cmd("app=true ../data"),), cwd=str(tmp_path / "inside"))
    with pytest.raises(InputError, match="it lies outside of the folder"):
        packed(suite, MachineChoice(), [])


FILES = "cache/memprof/fleet/files"


def hello(name="m/hello"):
    return (Sent(name, "/there/hello", HELLO, 5),)


def test_file_arrives_in_pieces_once(kept):
    needs = []

    def ask(hashes):
        needs.append(hashes)
        yield from (b"hel", b"lo", b"")

    for _ in range(2):
        with worker_files.folder_of((*hello(), *hello("again")), ask) as folder:
            assert [(folder / name).read_text() for name in ("m/hello", "again")] == ["hello"] * 2
        assert not folder.exists()

    assert needs == [[HELLO]]


def test_oldest_unused_files_removed(kept, monkeypatch):
    requested = []

    def sent(*contents):
        return tuple(Sent(text, "/there", hashlib.sha256(text.encode()).hexdigest(), len(text)) for text in contents)

    @contextmanager
    def brought(*contents):
        by_hash = {file.sha256: file.name for file in sent(*contents)}

        def ask(hashes):
            for text in map(by_hash.get, hashes):
                requested.append(text)
                yield from (text.encode(), b"")

        with worker_files.folder_of(sent(*contents), ask) as folder:
            for number, path in enumerate(sorted((kept / FILES).iterdir(), key=lambda path: path.stat().st_mtime)):
                os.utime(path, (number, number))  # two moments may have one time
            yield folder

    def there():
        return {path.read_text() for path in (kept / FILES).iterdir()}

    monkeypatch.setattr(worker_files, "LIMIT_BYTES", 12)
    with brought("first") as running:
        links = [kept / "link"]
        os.link(running / "first", links[0])  # as another place's comparison has it
    with brought("other"):
        pass
    with brought("third"):
        pass
    assert there() == {"first", "third"}, "a comparison that runs has the oldest"
    links[0].unlink()
    for name in ("first", "last!"):  # the first is used again, and sent no second time
        with brought(name):
            pass
    assert there() == {"first", "last!"}
    assert requested == ["first", "other", "third", "last!"]


def test_folder_of_killed_worker_removed(kept):
    gone = cache_folder("fleet") / "comparison-abcd"  # nobody has noted that token
    gone.mkdir()
    with worker_files.folder_of((), pytest.fail) as folder:
        assert folder.exists() and not gone.exists()
        with worker_files.folder_of((), pytest.fail) as other:
            assert folder.exists() and other != folder


@pytest.mark.parametrize("what", ["files", "comparison-"])
def test_full_disk_named(kept, monkeypatch, what):
    refusing = worker_files.Path.mkdir if what == "comparison-" else worker_files.Path.open

    def refuse(path, *words, **more):
        if what in str(path) and ".lock" not in str(path):
            raise OSError(errno.ENOSPC, "no space", str(path))
        return refusing(path, *words, **more)

    monkeypatch.setattr(worker_files.Path, refusing.__name__, refuse)
    words = rf"/{what}.* on .*: No space left on device; XDG_CACHE_HOME of its worker"
    with pytest.raises(InputError, match=words), worker_files.folder_of(hello(), lambda hashes: iter((b"hello", b""))):
        pytest.fail("it was kept")


def test_damaged_file_refused(kept):
    with (
        pytest.raises(InputError, match="hello was damaged or changed on its way"),
        worker_files.folder_of(hello(), lambda hashes: iter((b"jello", b""))),
    ):
        pytest.fail("it was kept")
    assert list((kept / FILES).iterdir()) == []


def test_file_name_outside_folder_refused(kept):
    with pytest.raises(InputError, match="outside of its folder"), worker_files.folder_of(hello("../../../evil"), pytest.fail):
        pytest.fail("it was kept")


def station(**words):
    return worker.Station(Offered(**OFFERED), HERE, SimpleNamespace(name="here of b"), **words)


def test_silent_desk_times_out(kept, monkeypatch):
    monkeypatch.setattr(worker, "_SILENCE_S", 0.05)
    told = []
    station().measure(ComparisonTask("t", "me", Suite(), hello()), "key", lambda **words: told.append(words))
    assert [*told[0], *told[1]] == ["begins", "needs"] and told[1]["needs"] == (HELLO,)
    assert told[2]["end"].how == "refused" and told[2]["end"].why == "the desk sent nothing of a file for 0 s"


def test_lost_place_is_left(kept, monkeypatch):
    def lose(*words):
        raise PlaceLost("no route")

    told, here = [], station()
    monkeypatch.setattr(worker.comparison_runs, "measure", lose)
    with pytest.raises(worker.Interrupted):
        here.measure(ComparisonTask("t", "me", Suite()), "key", lambda **words: told.append(words))
    assert told == [{"begins": True}, {"end": Result("refused", "no route")}]
    assert (here.task, here.doing) == ("", Doing()), "nobody stops it any more"


def test_interruption_ends_only_what_works():
    main = worker._MainThread()
    main.interrupted(10, None)  # nothing is measured
    ended = main.submit(lambda: main.interrupted(10, None))
    after = main.submit(int)
    with pytest.raises(worker.Interrupted):
        main.work()
    assert str(ended.exception()) == "ended by Interrupted" and not after.done()
    main.interrupted(10, None)

    after.cancel()
    last = main.submit(lambda: main.interrupted(10, None))
    with pytest.raises(worker.Interrupted):
        main.work()
    assert last.done(), "a call that Dask took back is not made"


def test_piece_for_ended_task_refused(monkeypatch):
    here = station(task="now")
    monkeypatch.setattr(worker, "_STATIONS", [here])
    assert [asyncio.run(worker.receive(task, b"x")) for task in ("before", "now")] == [False, True]
    assert here.pieces.get() == b"x" and here.pieces.empty()


def test_clock_differences_ignored(monkeypatch):
    # A worker says how long it has been at it; the time of day of neither side is in it.
    here = station(doing=Doing("m", "desk"), since_s=worker.time.monotonic() - 7)
    monkeypatch.setattr(worker.time, "time", lambda: 0)

    assert 7 <= here.doing_now()["for_s"] < 1000
    assert "time" not in Offered.__struct_fields__


def test_ended_desk_is_not_shown():
    good = {"desk": "a", "running": 1, "waiting": 2, "done": 3, "task": "known"}
    desks = {"x": None, "y": good, "gone": {**good, "task": "dropped"}}
    assert monitor._desks(Lab(desks=desks, told={"known": "processing", "dropped": None})) == [monitor.Waiting(**good)]


def test_silent_server_no_scheduler(memprof, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(scheduler, "_CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        done = memprof("fleet", address)

    assert done.returncode == 5
    assert sentence(done) == f"memprof: no scheduler answers at {address}; `dask scheduler` starts one"


def test_versions_differ_within_protocol():
    for protocol, usable in ((PROTOCOL, 2), (PROTOCOL + 1, 1)):
        there, sentences = scheduler.places(Lab({**OFFERED, "host": "a", "protocol": protocol, "version": "9.9"}))
        assert (len(there), len(sentences)) == (usable, 2 - usable)
    (sentence,) = sentences
    words = f"here of a has memprof 9.9, and this is memprof {message.version()}: they do not understand one another"
    assert sentence == f"{words} (protocol {PROTOCOL + 1} and {PROTOCOL})"


def test_slim_drops_timelines_and_runs(monkeypatch, capsys):
    monkeypatch.setattr("memprof.doors.cli.fleet._SHOWN", 3)
    lost = Outcome("lost", "EXECUTE")
    made = [run(repeat=number, outcome=lost if number > 6 else None) for number in range(1, 20)]

    kept = list(slim(made))

    assert [each.job.repeat for each in kept] == [1, 2, 3, 7, 8, 9]
    assert {each.timeline for each in kept} == {store.NOTHING_SEEN} != {made[0].timeline}
    assert "the tables at the end are of the first 3 runs" in capsys.readouterr().err
