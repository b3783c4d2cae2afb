"""Who may reach a fleet: TLS where the address is not this machine's, certificates that fit, and sentences where they do not."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import socket
import ssl
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest
from support.fleet_messages import HELLO, OFFERED, Lab, asked, kept  # noqa: F401  (the fixtures)
from support.recorder_runs import sentence
from support.sample_runs import run

from memprof.base.errors import InputError, UsageError
from memprof.cli.fleet import slim
from memprof.fleet import message, monitor, payload, scheduler, scheduler_client, search_client, worker, worker_files, worker_slots
from memprof.fleet.message import PROTOCOL, Doing, Event, Offered, Result, SearchRequest, Sent, Task, encode, suite_of, task, words_of
from memprof.fleet.payload import MachineChoice, SearchTrial, packed, parse_labels
from memprof.fleet.security import unreachable
from memprof.places.place import HERE
from memprof.records import store
from memprof.records.types import Attempt, Outcome
from memprof.subjects.suite import Suite, parse_cmd, parse_variant


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


def test_suite_round_trip(tmp_path):
    suite = Suite(
        models=("m.onnx",),
        variants=(parse_variant("a=onnxruntime,threads=2,mem_pattern=off,env.X=1"), parse_cmd("b=X=1 ./app {model}")),
        shapes={"x": (1, 3)},
        set={"arena": "off"},
        threads=(1, 2),
        warmup=3,
        cache="cold",
        cpus="0-1",
        no_swap=True,
        max_celsius=45.0,
    )

    assert suite_of(words_of(suite), HERE) == suite
    with pytest.raises(InputError, match="a suite that this memprof does not know: it has colour"):
        suite_of({"colour": "red"}, HERE)
    with pytest.raises(InputError, match="a suite that this memprof does not know: Expected"):
        suite_of({"threads": "many"}, HERE)


def model(tmp_path, name="m.json", content="{}"):
    path = tmp_path / name
    path.write_text(content)
    return str(path)


def test_search_points_answered_in_order(tmp_path, monkeypatch):
    suite = Suite(models=(model(tmp_path),), runtimes=("synthetic",), repeats=1)
    asked = []

    class Reversed(scheduler_client.SchedulerClient):
        def runs(self):
            asked.append([item.task.sought.at for item in self.comparisons])
            for item in reversed(self.comparisons):
                made = run()
                yield replace(made, job=replace(made.job, at=item.task.sought.at), attempt=Attempt(item.key, 1, 1))

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

    assert seen == [4]
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
        return {"workers": {f"tcp://{name}": {"memprof": {**OFFERED, "labels": labels}} for name, labels in kinds.items()}}

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
    lab.told["workers"]["tcp://d"] = {"memprof": {**OFFERED, "place": "other", "labels": {"kind": "x", "place": "d"}}}
    with pytest.raises(UsageError) as refused:
        search_client.Machines(lab, frozenset({("kind", "x")})).pinned()
    assert str(refused.value).partition(": ")[2].split("; ") == [
        "--machines fan=none,kind=x chooses 1 place with fan=none,kind=x",
        "no --machines chooses 2 places with kind=x, because others have all that too: give the workers one more label (--labels)",
    ]


@pytest.mark.parametrize(
    ("given", "these", "others", "words"),
    [
        ({}, [{"arch": "x", "kind": "a", "host": "1"}], [{"arch": "x", "kind": "b", "host": "2"}], "kind=a"),
        ({"pool": "p"}, [{"pool": "p", "kind": "a"}], [{"pool": "p", "kind": "b"}], "kind=a,pool=p"),
        # Each label alone is another's too.
        ({}, [{"arch": "x", "kind": "a"}], [{"arch": "x", "kind": "b"}, {"arch": "y", "kind": "a"}], "arch=x,kind=a"),
        # Others have all labels of this kind, but it is one machine.
        ({}, [{"kind": "a", "host": "1"}], [{"kind": "a", "host": "2", "fan": "none"}], "host=1"),
    ],
)
def test_search_refuses_several_machine_kinds(given, these, others, words):
    lab = Lab(
        told={"workers": {f"tcp://{number}": {"memprof": {**OFFERED, "labels": labels}} for number, labels in enumerate(these + others)}}
    )
    with pytest.raises(UsageError) as refused:
        search_client.Machines(lab, frozenset(given.items())).pinned()
    assert f"--machines {words} chooses 1 place with" in str(refused.value)
    chosen = frozenset(parse_labels(words, "--machines").items())
    assert search_client.Machines(lab, chosen).pinned().width == 1


def test_comparison_key_by_content(tmp_path):
    suite = Suite(models=(model(tmp_path),), runtimes=("synthetic",), repeats=2)
    (first,) = packed(suite, MachineChoice(), [])
    (same,) = packed(suite, MachineChoice(), [{"kind": "later"}])
    model(tmp_path, content="{ }")
    (changed,) = packed(suite, MachineChoice(), [])

    assert first.key == same.key != changed.key
    assert encode(task(encode(first.task))) == encode(first.task)


def test_comparisons_by_each_and_spread(tmp_path):
    suite = Suite(models=(model(tmp_path), model(tmp_path, "n.json")), runtimes=("synthetic",), repeats=5)
    machines = [{"kind": "a"}, {"kind": "a"}, {"kind": "b"}, {"other": "x"}]

    each = packed(suite, MachineChoice(each="kind"), machines)
    spread = packed(suite, MachineChoice(each="kind", spread=True), machines)

    assert sorted(sorted(item.needs) for item in each) == [[("kind", "a")]] * 2 + [[("kind", "b")]] * 2
    assert sorted((item.kind, item.task.title, item.task.repeats) for item in spread) == [
        ("a", "m.json", (1, 3, 5)),
        ("a", "m.json", (2, 4)),
        ("a", "n.json", (1, 3, 5)),
        ("a", "n.json", (2, 4)),
        ("b", "m.json", (1, 2, 3, 4, 5)),
        ("b", "n.json", (1, 2, 3, 4, 5)),
    ]
    assert len({item.apart for item in spread if item.kind == "a"}) == 2
    with pytest.raises(UsageError, match="--spread says that machines are interchangeable: say which"):
        packed(suite, MachineChoice(spread=True), machines)


@pytest.mark.parametrize(
    ("words", "refusal"),
    [({"phases": {"MODEL_LOAD": "load"}}, "--phase"), ({"models": ()}, "name a model to measure")],
)
def test_packing_refusals(tmp_path, words, refusal):
    suite = Suite(models=(model(tmp_path),), runtimes=("synthetic",))
    with pytest.raises(UsageError, match=refusal):
        packed(Suite(**{**vars(suite), **words}), MachineChoice(), [])


def test_file_outside_command_folder_refused(tmp_path):
    model(tmp_path, "data")
    (tmp_path / "inside").mkdir()
    suite = Suite(variants=(parse_cmd("app=true ../data"),), cwd=str(tmp_path / "inside"))
    with pytest.raises(InputError, match="it lies outside of the folder"):
        packed(suite, MachineChoice(), [])


FILES = "cache/memprof/fleet/files"


def test_file_arrives_in_pieces_once(kept):
    needs = []

    def report(**words):
        needs.append(words["needs"])
        assert worker.receive("task", HELLO, 0, 5, b"hel") == ""
        assert worker.receive("task", HELLO, 3, 5, b"lo") == ""

    for execution in ("0", "1"):
        worker_files.fetch(replace(asked(), execution=execution), report, lambda: False)

    assert needs == [(HELLO,)]
    folder = kept / "cache/memprof/fleet/comparison-c-1"
    assert (folder / "m/hello").read_text() == "hello"


def test_oldest_unused_files_removed(kept, monkeypatch):
    def bring(key, *contents):
        by_hash = {hashlib.sha256(text.encode()).hexdigest(): text for text in contents}
        sent = tuple(Sent(text, "/there", sha256, len(text)) for sha256, text in by_hash.items())

        def report(needs):
            for text in map(by_hash.get, needs):
                requested.append(text)
                assert worker_files.keep("task", hashlib.sha256(text.encode()).hexdigest(), 0, len(text), text.encode()) == ""

        worker_files.fetch(Task(key, "t", "me", {}, sent, None), report, lambda: False)
        for number, path in enumerate(sorted((kept / FILES).iterdir(), key=lambda path: path.stat().st_mtime)):
            os.utime(path, (number, number))  # two moments may have one time
        return message.folder_of(Task(key, "t", "me", {}, (), None))

    def there():
        return {path.read_text() for path in (kept / FILES).iterdir()}

    requested = []
    monkeypatch.setattr(worker_files, "LIMIT_BYTES", 12)
    running = bring("running", "first")
    ended = bring("ended", "other")
    shutil.rmtree(ended)
    assert there() == {"first", "other"}
    shutil.rmtree(bring("third", "third"))
    assert there() == {"first", "third"}, "a comparison that runs has the oldest"
    assert (running / "first").read_text() == "first"
    shutil.rmtree(running)
    shutil.rmtree(bring("again", "first"))  # is used again, and sent no second time
    bring("last", "last!")
    assert there() == {"first", "last!"}
    assert requested == ["first", "other", "third", "last!"]


def test_removed_file_requested_again(kept, monkeypatch):
    needs, awaited = [], worker_files._wait

    def tell(**words):
        needs.append(words["needs"])
        worker_files.keep("task", HELLO, 0, 5, b"hello")

    def removed_at_once(*words):
        awaited(*words)
        if len(needs) == 1:
            (kept / FILES / HELLO).unlink()

    monkeypatch.setattr(worker_files, "_wait", removed_at_once)
    worker_files.fetch(asked(), tell, lambda: False)

    assert needs == [(HELLO,), (HELLO,)]


def test_folders_before_boot_removed(kept):
    folders = [message.folder_of(Task(key, "t", "me", {}, (), None)) for key in ("old", "now")]
    for folder in folders:
        folder.mkdir(parents=True)
    os.utime(folders[0], (1, 1))

    worker_files.tidy()

    assert [folder.exists() for folder in folders] == [False, True]


def test_full_disk_before_transfer(kept, monkeypatch):
    monkeypatch.setattr(worker_files.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 3})())
    with pytest.raises(InputError, match=r"hello cannot be kept on .*: 5 B are to be sent and 3 B are free; XDG_CACHE_HOME of its worker"):
        worker_files.fetch(asked(), lambda **words: worker.receive("task", HELLO, 0, 5, b"hello"), lambda: False)


def test_full_disk_during_transfer(kept, monkeypatch):
    def write(path, data):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(worker_files.Path, "write_bytes", write)
    with pytest.raises(InputError, match="No space left on device"):
        worker_files.fetch(asked(), lambda **words: worker.receive("task", HELLO, 0, 5, b"hello"), lambda: False)


def test_full_disk_before_folder(kept, monkeypatch):
    made = worker_files.Path.mkdir

    def mkdir(path, *words, **more):
        if "comparison-" in path.name:
            raise OSError(errno.ENOSPC, "no space", str(path))
        made(path, *words, **more)

    monkeypatch.setattr(worker_files.Path, "mkdir", mkdir)
    with pytest.raises(InputError, match=r"/comparison-c- on .*: No space left on device"):
        worker_files.fetch(asked(), pytest.fail, lambda: False)


def test_damaged_file_refused(kept):
    with pytest.raises(InputError, match="it was damaged or changed on its way"):
        worker_files.fetch(asked(), lambda **words: worker.receive("task", HELLO, 0, 5, b"jello"), lambda: False)


def test_silent_desk_times_out(kept, monkeypatch):
    monkeypatch.setattr(worker_files, "_SILENCE_S", 0.05)
    with pytest.raises(InputError, match="the desk sent nothing of a file"):
        worker_files.fetch(asked(), lambda **words: None, lambda: False)
    with pytest.raises(worker_slots.Cancelled):
        worker_files.fetch(replace(asked(), execution="again"), lambda **words: None, lambda: True)


def test_file_name_outside_folder_refused(kept):
    with pytest.raises(InputError, match="outside of its folder"):
        worker_files.fetch(asked("../../../evil"), lambda **words: worker.receive("task", HELLO, 0, 5, b"hello"), lambda: False)


def test_clock_differences_ignored(monkeypatch):
    # A worker says how long it has been at it; the time of day of neither side is in it.
    here = worker_slots.Slot("here", None, None, {})
    here.doing, here.since_s = Doing("m", "desk"), worker_slots.time.monotonic() - 7
    monkeypatch.setattr(worker_slots.time, "time", lambda: 0)

    assert 7 <= here.doing_now()["for_s"] < 1000
    assert "time" not in Offered.__dataclass_fields__


def test_event_round_trip():
    end = Result(3, "refused", "why", {"a": "b"})
    assert message.event(encode(Event("task", outputs=b"\x00\xff", end=end))) == Event("task", outputs=b"\x00\xff", end=end)
    assert payload.desk_name().count("@") == 1


@pytest.mark.parametrize("facts", [{"protocol": PROTOCOL}, {**OFFERED, "labels": 7}])
def test_worker_with_odd_facts_skipped(facts):
    there, (sentence,) = scheduler.places(Lab(facts))
    assert [place.name for place in there] == ["here of b"]
    assert sentence.startswith("the worker at tcp://a says of its place what this memprof does not understand: ")


@pytest.mark.parametrize("odd", [{"x": 7}, {"x": {"desk": 7}}, {"x": [[]]}, 7])
def test_desk_with_odd_counts_hidden(odd):
    good = {"desk": "a", "running": 1, "waiting": 2, "done": 3, "task": "known"}
    desks = {**(odd if isinstance(odd, dict) else {}), "y": good, "gone": {**good, "task": "dropped"}}
    assert monitor._desks(Lab(desks=odd, told={})) == []
    assert monitor._desks(Lab(desks=desks, told={"known": "processing", "dropped": None})) == [monitor.Waiting(**good)]


@pytest.mark.parametrize(
    ("answer", "shown"), [(b"{}", False), (b'{"Individual Workers": "/individual-workers"}', True), (b"<html>", True), (None, True)]
)
def test_dashboard_link_needs_pages(answer, shown, monkeypatch):
    asked = []

    def ask(address, timeout):
        asked.append(address)
        if answer is None:
            raise OSError("refused")
        return io.BytesIO(answer)

    monkeypatch.setattr(monitor, "_ask", ask)
    lab = Lab(told={"services": {"dashboard": 8787}, "workers": {}})
    lab.dashboard_link = "http://lab:8787/status"

    assert monitor._dashboard(lab) == ("http://lab:8787/status" if shown else None)
    assert asked == ["http://lab:8787/individual-plots.json"]


@pytest.mark.parametrize("read", [message.event, message.task])
def test_message_nested_too_deep(read):
    deep = b'{"task":"t","runs":1,"x":' + b"[" * 100_000
    with pytest.raises(msgspec.DecodeError):
        read(deep)


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
    monkeypatch.setattr("memprof.cli.fleet._SHOWN", 3)
    lost = Outcome("lost", "EXECUTE")
    made = [run(repeat=number, outcome=lost if number > 6 else None) for number in range(1, 20)]

    kept = list(slim(made))

    assert [each.job.repeat for each in kept] == [1, 2, 3, 7, 8, 9]
    assert {each.timeline for each in kept} == {store.NOTHING_SEEN} != {made[0].timeline}
    assert "the tables at the end are of the first 3 runs" in capsys.readouterr().err


@pytest.mark.parametrize("ends", ["scheduler gone", "cancelled", "place gone", "well"])
def test_interrupted_place_measures_nothing_more(kept, monkeypatch, ends):
    # What the place's process still measures of a comparison would count as the next one's.
    distributed, said, done = pytest.importorskip("distributed"), [], []

    def measure(task, cancelled):
        yield Event(plan=1)
        if ends == "cancelled":
            raise worker_slots.Cancelled
        if ends == "place gone":
            raise worker_slots.Gone("no route")
        yield Event(end=Result(1))

    def put(loop, call, name, data, timeout):
        said.append(message.event(data.encode()))
        if ends == "scheduler gone" and said[-1].plan:
            raise OSError("closed")

    slot = SimpleNamespace(lost=False, gone=SimpleNamespace(set=None), measure=measure, close=lambda: done.append("close"))
    slot.open = lambda: done.append("open")
    here = SimpleNamespace(
        name="w",
        address="tcp://w",
        get_current_task=lambda: "key",
        loop=SimpleNamespace(add_callback=lambda call: done.append("lost")),
        scheduler=SimpleNamespace(queue_put=None),
    )
    monkeypatch.setattr(distributed, "get_worker", lambda: here)
    monkeypatch.setattr(distributed.utils, "sync", put)
    monkeypatch.setattr(worker, "_SLOTS", {"w": slot})
    data = encode(Task("c", "t", "me", {}, (), None))

    if ends == "scheduler gone":
        with pytest.raises(OSError, match="closed"):
            worker.measure(data, "queue")
    else:
        worker.measure(data, "queue")

    assert done == {"well": [], "place gone": ["close", "lost"]}.get(ends, ["close", "open"])
    assert said[0].place == "tcp://w" and len({event.execution for event in said}) == 1
    assert said[-1].end == {"well": Result(1), "place gone": Result(0, "lost", "no route")}.get(ends)
    if ends == "place gone":
        with pytest.raises(distributed.Reschedule):
            worker.measure(data, "queue")
