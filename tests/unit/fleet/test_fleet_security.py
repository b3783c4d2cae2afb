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
from memprof.fleet import membership, message, monitor, payload, scheduler, scheduler_client, search_client, worker, worker_slots
from memprof.fleet.message import PROTOCOL, Doing, Offered, Result, Said, Sent, Sought, Task, encode, result, suite_of, task, words_of
from memprof.fleet.payload import Asked, Wanted, packed, parse_labels
from memprof.fleet.planner import Offer, Planner, Request
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

    class Reversed(scheduler_client.Desk):
        def runs(self):
            asked.append([item.task.sought.at for item in self.packed])
            for item in reversed(self.packed):
                made = run()
                yield replace(made, job=replace(made.job, at=item.task.sought.at), attempt=Attempt(item.request.key, 1, 1))

    monkeypatch.setattr(search_client, "Desk", Reversed)
    machines = search_client.Machines(Lab(OFFERED), frozenset())

    answers = list(machines.measure([Asked(suite, Sought({"batch": size})) for size in (1, 2, 3)], SimpleNamespace(say=print), print))

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

    class Ends(scheduler_client.Desk):
        def runs(self):
            first, second, _ = (item.request.key for item in self.packed)
            yield replace(run(), attempt=Attempt(first, 1, 2))  # of a machine that was lost
            yield from (replace(run(repeat=repeat), attempt=Attempt(first, 2, 2)) for repeat in (1, 2))
            yield replace(run(), attempt=Attempt(second, 1, 2))
            self.told(1, 1, 1)
            if end == "time":
                raise AssertionError("it goes on")
            raise KeyboardInterrupt

    monkeypatch.setattr(search_client, "Desk", Ends)
    machines = search_client.Machines(Lab(OFFERED), frozenset())
    asked = [Asked(suite, Sought({"batch": size})) for size in (1, 2, 2)]
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

    class Answers(scheduler_client.Desk):
        def runs(self):
            for item in self.packed:
                needs.append(item.request.needs)
                yield replace(run(), attempt=Attempt(item.request.key, 1, 1))

    def told():
        return {"workers": {f"tcp://{name}": {"memprof": {**OFFERED, "labels": labels}} for name, labels in kinds.items()}}

    monkeypatch.setattr(search_client, "Desk", Answers)
    lab = Lab(told=told())
    machines = search_client.Machines(lab, frozenset()).pinned()
    kinds["b"] = {"kind": "y", "place": "b"}
    kinds["c"] = {"kind": "x", "place": "c", "fan": "none"}
    lab.told = told()

    list(machines.measure([Asked(suite, Sought({"batch": 1}))], SimpleNamespace(say=print), print))
    asks = scheduler_client.Desk(lab, [], SimpleNamespace(say=print), print, kind=machines.kind)
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
    (first,) = packed(suite, Wanted(), [])
    (same,) = packed(suite, Wanted(), [{"kind": "later"}])
    model(tmp_path, content="{ }")
    (changed,) = packed(suite, Wanted(), [])

    assert first.request.key == same.request.key != changed.request.key
    assert encode(task(encode(first.task))) == encode(first.task)


def test_comparisons_by_each_and_spread(tmp_path):
    suite = Suite(models=(model(tmp_path), model(tmp_path, "n.json")), runtimes=("synthetic",), repeats=5)
    machines = [{"kind": "a"}, {"kind": "a"}, {"kind": "b"}, {"other": "x"}]

    each = packed(suite, Wanted(each="kind"), machines)
    spread = packed(suite, Wanted(each="kind", spread=True), machines)

    assert sorted(sorted(item.request.needs) for item in each) == [[("kind", "a")]] * 2 + [[("kind", "b")]] * 2
    assert sorted((item.task.kind, item.task.title, item.task.repeats) for item in spread) == [
        ("a", "m.json", (1, 3, 5)),
        ("a", "m.json", (2, 4)),
        ("a", "n.json", (1, 3, 5)),
        ("a", "n.json", (2, 4)),
        ("b", "m.json", (1, 2, 3, 4, 5)),
        ("b", "n.json", (1, 2, 3, 4, 5)),
    ]
    assert len({item.request.apart for item in spread if item.task.kind == "a"}) == 2
    with pytest.raises(UsageError, match="--spread says that machines are interchangeable: say which"):
        packed(suite, Wanted(spread=True), machines)


@pytest.mark.parametrize(
    ("words", "refusal"),
    [({"phases": {"MODEL_LOAD": "load"}}, "--phase"), ({"models": ()}, "name a model to measure")],
)
def test_packing_refusals(tmp_path, words, refusal):
    suite = Suite(models=(model(tmp_path),), runtimes=("synthetic",))
    with pytest.raises(UsageError, match=refusal):
        packed(Suite(**{**vars(suite), **words}), Wanted(), [])


def test_file_outside_command_folder_refused(tmp_path):
    model(tmp_path, "data")
    (tmp_path / "inside").mkdir()
    suite = Suite(variants=(parse_cmd("app=true ../data"),), cwd=str(tmp_path / "inside"))
    with pytest.raises(InputError, match="it lies outside of the folder"):
        packed(suite, Wanted(), [])


FILES = "cache/memprof/fleet/files"


def test_file_arrives_in_pieces_once(kept):
    needs = []

    def scheduler_client(**words):
        needs.append(words["needs"])
        assert worker.receive("task", HELLO, 0, 5, b"hel") == ""
        assert worker.receive("task", HELLO, 3, 5, b"lo") == ""

    for _ in range(2):
        membership.bring(asked(), scheduler_client, lambda: False)

    assert needs == [(HELLO,)]
    folder = kept / "cache/memprof/fleet/comparison-c-1"
    assert (folder / "m/hello").read_text() == "hello"


def test_small_file_sent_once_per_worker(kept):
    asks, _ = asking()
    (kept / "hello").write_text("hello")
    (kept / "large").write_bytes(bytes(scheduler_client._SMALL + 1))
    files = (Sent("m/hello", str(kept / "hello"), HELLO, 5), Sent("m/large", str(kept / "large"), "other", scheduler_client._SMALL + 1))

    first, again, elsewhere = (asks._with_small(files, worker) for worker in ("a", "a", "b"))
    membership.bring(task(encode(Task("c", 1, "t", "me", {}, first[:1], None))), pytest.fail, lambda: False)

    assert [[file.content for file in files] for files in (first, again, elsewhere)] == [[b"hello", b""], [b"", b""], [b"hello", b""]]
    assert (kept / "cache/memprof/fleet/comparison-c-1/m/hello").read_text() == "hello"


def test_oldest_unused_files_removed(kept, monkeypatch):
    def bring(key, *contents):
        sent = [Sent(text, "/there", hashlib.sha256(text.encode()).hexdigest(), len(text), text.encode()) for text in contents]
        membership.bring(Task(key, 1, "t", "me", {}, tuple(sent), None), pytest.fail, lambda: False)
        for number, path in enumerate(sorted((kept / FILES).iterdir(), key=lambda path: path.stat().st_mtime)):
            os.utime(path, (number, number))  # two moments may have one time
        return message.folder_of(Task(key, 1, "t", "me", {}, (), None))

    def there():
        return {path.read_text() for path in (kept / FILES).iterdir()}

    monkeypatch.setattr(membership, "LIMIT_BYTES", 12)
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


def test_removed_file_requested_again(kept, monkeypatch):
    needs, awaited = [], membership._await

    def tell(**words):
        needs.append(words["needs"])
        membership.keep("task", HELLO, 0, 5, b"hello")

    def removed_at_once(*words):
        awaited(*words)
        if len(needs) == 1:
            (kept / FILES / HELLO).unlink()

    monkeypatch.setattr(membership, "_await", removed_at_once)
    membership.bring(asked(), tell, lambda: False)

    assert needs == [(HELLO,), (HELLO,)]


def test_folders_before_boot_removed(kept):
    folders = [message.folder_of(Task(key, 1, "t", "me", {}, (), None)) for key in ("old", "now")]
    for folder in folders:
        folder.mkdir(parents=True)
    os.utime(folders[0], (1, 1))

    membership.tidy()

    assert [folder.exists() for folder in folders] == [False, True]


def test_changed_small_file_requested(kept):
    needs = []

    def tell(**words):
        needs.append(words["needs"])
        assert "damaged" in worker.receive("task", HELLO, 0, 5, b"jello")

    with pytest.raises(InputError, match="it was damaged or changed on its way"):
        membership.bring(Task("c", 1, "t", "me", {}, (Sent("m", "/there", HELLO, 5, b"jello"),), None), tell, lambda: False)
    assert needs == [(HELLO,)]


def test_full_disk_before_transfer(kept, monkeypatch):
    monkeypatch.setattr(membership.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 3})())
    with pytest.raises(InputError, match=r"hello cannot be kept on .*: 5 B are to be sent and 3 B are free; XDG_CACHE_HOME of its worker"):
        membership.bring(asked(), lambda **words: worker.receive("task", HELLO, 0, 5, b"hello"), lambda: False)


def test_full_disk_during_transfer(kept, monkeypatch):
    def write(path, data):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(membership.Path, "write_bytes", write)
    with pytest.raises(InputError, match="No space left on device"):
        membership.bring(asked(), lambda **words: worker.receive("task", HELLO, 0, 5, b"hello"), lambda: False)


def test_damaged_file_refused(kept):
    with pytest.raises(InputError, match="it was damaged or changed on its way"):
        membership.bring(asked(), lambda **words: worker.receive("task", HELLO, 0, 5, b"jello"), lambda: False)


def test_silent_desk_times_out(kept, monkeypatch):
    monkeypatch.setattr(membership, "_SILENCE_S", 0.05)
    with pytest.raises(InputError, match="the desk sent nothing of a file"):
        membership.bring(asked(), lambda **words: None, lambda: False)
    with pytest.raises(worker_slots.Cancelled):
        membership.bring(asked(), lambda **words: None, lambda: True)


def test_file_name_outside_folder_refused(kept):
    with pytest.raises(InputError, match="outside of its folder"):
        membership.bring(asked("../../../evil"), lambda **words: worker.receive("task", HELLO, 0, 5, b"hello"), lambda: False)


def test_clock_differences_ignored(monkeypatch):
    # A worker says how long it has been at it; the time of day of neither side is in it.
    here = worker_slots.Stand("here", None, None, {})
    here.doing, here.since_s = Doing("m", "desk"), worker_slots.time.monotonic() - 7
    monkeypatch.setattr(worker_slots.time, "time", lambda: 0)

    assert 7 <= here.doing_now()["for_s"] < 1000
    assert "time" not in Offered.__dataclass_fields__


def test_result_round_trip():
    assert result(encode(Result(3, "refused", "why"))).why == "why"
    assert payload.desk_name().count("@") == 1


@pytest.mark.parametrize("facts", [{"protocol": PROTOCOL}, {**OFFERED, "labels": 7}])
def test_worker_with_odd_facts_skipped(facts):
    there, (sentence,) = scheduler.places(Lab(facts))
    assert [place.name for place in there] == ["here of b"]
    assert sentence.startswith("the worker at tcp://a says of its place what this memprof does not understand: ")


@pytest.mark.parametrize("odd", [{"x": 7}, {"x": {"desk": 7}}, {"x": [[]]}, 7])
def test_desk_with_odd_counts_hidden(odd):
    assert monitor._desks(Lab(desks=odd)) == {}
    good = {"desk": "a", "running": 1, "waiting": 2, "done": 3}
    assert list(monitor._desks(Lab(desks={**odd, "y": good} if isinstance(odd, dict) else {"y": good}))) == ["y"]


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


class Incoming:
    def __init__(self, *messages):
        self.messages = list(messages)

    def get(self, batch=False):
        if batch:
            messages, self.messages = self.messages, []
            return messages
        return self.messages.pop(0)


def asking():
    """A desk that has one comparison at a place, and all it says."""
    lines = []
    progress = SimpleNamespace(say=lines.append)
    asks = scheduler_client.Desk(Lab(), [], progress, lambda line: None)
    wants = SimpleNamespace(request=SimpleNamespace(key="key"), task=SimpleNamespace(title="m.json"))
    asks._planner = SimpleNamespace(failed=lambda place, again, ahead: True, at=lambda place: "key", benched=set())
    asks._running["task"] = scheduler_client._Running(wants, "board", 1, "future")
    return asks, lines


@pytest.mark.parametrize("read", [message.said, message.result, message.task])
def test_message_nested_too_deep(read):
    deep = b'{"task":"t","runs":1,"x":' + b"[" * 100_000
    with pytest.raises(msgspec.DecodeError):
        read(deep)


def test_desk_keeps_places_without_scheduler():
    asks, _ = asking()
    asks._there = dict.fromkeys(["board"])
    asks.client = Lab(told={"workers": {}}, status="connecting")
    asks._look()
    assert list(asks._there) == ["board"] and asks._running


def test_desk_waits_for_known_machines(monkeypatch):
    def desk_that_wants(labels, lab):
        lines = []
        asks = scheduler_client.Desk(lab, [], SimpleNamespace(say=lines.append), print)
        asks._planner.want([Request("c", 1, frozenset(labels.items()))])
        return asks, lines

    strange = Lab({**OFFERED, "labels": {"kind": "x"}})
    asks, _ = desk_that_wants({"kind": "y"}, strange)
    with pytest.raises(InputError, match=r"^no place of the fleet has kind=y: it has 1 place with kind=x; 1 place with no labels$"):
        asks._look()

    asks, lines = desk_that_wants({"kind": "y"}, strange)
    asks._began = True
    asks._look()
    assert lines == ["no place of the fleet has kind=y any more: what needs it waits"]
    monkeypatch.setattr(scheduler_client, "_ABSENT_S", -1)
    with pytest.raises(InputError, match="no place of the fleet has kind=y any more, for -1 s: it has"):
        asks._look()

    asks, _ = desk_that_wants({}, Lab(told={"workers": {}}))
    with pytest.raises(InputError, match=r"^the fleet has no place: there is no place at all: start `memprof worker` beside the machines$"):
        asks._look()

    asks, _ = desk_that_wants({"kind": "x"}, strange)
    asks._began = True
    asks._planner.benched.add("here of b at tcp://a")
    with pytest.raises(InputError, match="here of b at tcp://a failed too often, and no other place fits what waits"):
        asks._look()


def test_silent_server_no_scheduler(memprof, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(scheduler, "_CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        done = memprof("fleet", address)

    assert done.returncode == 5
    assert sentence(done) == f"memprof: no scheduler answers at {address}; `dask scheduler` starts one"


def test_lost_scheduler_message(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")

    def away(*call, **words):
        raise OSError("nobody answers")

    monkeypatch.setattr(distributed, "Queue", lambda name, client: SimpleNamespace(name=name, get=away))
    loop = SimpleNamespace(add_callback=lambda call: None)
    client = SimpleNamespace(status="closed", sync=away, scheduler=Lab.scheduler, cancel=lambda futures, force: None, loop=loop)
    wanted = packed(Suite(models=(model(tmp_path),), runtimes=("synthetic",)), Wanted(), [])
    with pytest.raises(InputError, match=r"the connection to the scheduler broke .*--append goes on once it is back"):
        list(scheduler_client.Desk(client, wanted, SimpleNamespace(say=print), print).runs())


def test_restarted_scheduler_ends_campaign():
    asks, _ = asking()
    asks._planner = SimpleNamespace(offer=lambda offer: None, unmatched=list, waiting=0, running=1)
    told = {"workers": {"tcp://b": {"memprof": OFFERED}}, "id": "first"}
    asks.client = Lab(told=told)
    for _ in range(2):
        asks._look()
    told.update(workers={}, id="second")
    with pytest.raises(InputError, match=r"the scheduler began anew and knows nothing of this campaign; .*--append goes on"):
        asks._look()


def test_comparison_end_told_by_worker():
    asks, _ = asking()
    settled = []
    asks._settle = lambda running, result: settled.append((running.place, result))
    assert list(asks._heard(Said("task", ended=Result(0, "refused", "why")), None)) == []
    asks._wake("task", None)  # as Dask says it, later
    assert settled == [("board", Result(0, "refused", "why"))] and not asks._running and not asks._ended


def test_invalid_message_skipped():
    asks, lines = asking()
    good = encode(Said("task", say="hello")).decode()
    heard = list(asks._messages(Incoming("[", good, 7, '{"task": 7}', "\ud800")))
    assert [said.say for said in heard] == ["hello"]
    assert list(asks._messages(Incoming(""))) == []
    assert lines and all(line.startswith("a worker sent what this memprof does not understand: ") for line in lines)


@pytest.mark.parametrize("line", ["", "{}", "[" * 100_000, "of no attempt"])
def test_invalid_run_restarts_comparison(line):
    asks, lines = asking()
    line = line.replace("of no attempt", store.encode(run()).decode())
    said = Said("task", run=line or " ")
    assert list(asks._heard(said, None)) == []
    assert not asks._running and asks.client.cancelled == ["future"]
    (sentence,) = lines
    assert sentence.startswith("m.json begins again elsewhere, whole: board: a run of board")


def test_vanished_machine_returns_comparison_ahead():
    asks, lines = asking()
    asks._planner = Planner()
    asks._planner.want([Request("key", 2), Request("ahead", 1)])
    asks._planner.offer(Offer("board"))
    assert [assigned.key for assigned in asks._planner.next()] == ["key"]
    asks._planner.ending("board")
    assert [assigned.key for assigned in asks._planner.next()] == ["ahead"]
    asks._running["next"] = scheduler_client._Running(
        SimpleNamespace(request=SimpleNamespace(key="ahead")), "board", 1, "future of the next"
    )

    asks._gone("board")

    assert asks.client.cancelled == ["future of the next"] and not asks._running
    assert lines == ["m.json begins again elsewhere, whole: board: board vanished"]
    assert asks._planner.waiting == 2 and asks._planner.failures("ahead") == []


def test_repeated_run_kept_once():
    asks, _ = asking()
    asks.progress = SimpleNamespace(say=print, started=lambda job, index, total: None, finished=lambda run: None)
    kept = []
    asks.keep = kept.append

    def sent(task, repeat, number):
        made = run(repeat=repeat)
        said = Said(task, run=store.encode(replace(made, attempt=Attempt("c", number, 2))).decode())
        return [(came.job.repeat, came.attempt.number, came.attempt.place) for came in asks._heard(said, None)]

    once = [sent("task", repeat, 1) for repeat in (1, 1, 2, 1, 2)]
    asks._running["again"] = scheduler_client._Running(asks._running.pop("task").packed, "other", 2, "future")
    again = [sent(*words) for words in (("task", 1, 1), ("again", 1, 2), ("again", 1, 2))]

    assert once == [[(1, 1, "board")], [], [(2, 1, "board")], [], []]
    assert again == [[], [(1, 2, "other")], []]  # what a lost attempt still says is nobody's
    assert len(kept) == 3


class Counted:
    """A desk of two comparisons with one board, and all that it counts and says."""

    def __init__(self, tmp_path):
        self.counts, self.lines = [], []
        progress = SimpleNamespace(say=self.lines.append, started=lambda job, *place: self.counts.append(place), finished=lambda run: None)
        suite = Suite(models=(model(tmp_path), model(tmp_path, "n.json")), runtimes=("all",), repeats=2)
        self.comparisons = {item.request.key: item for item in packed(suite, Wanted(), [])}
        self.desk = scheduler_client.Desk(Lab(), [*self.comparisons.values()], progress, lambda line: None)
        self.desk._want(self.comparisons)
        self.desk._planner.offer(Offer("board"))

    def measure(self, plan, came, how=None):
        """The next comparison's name. It has `plan` Runs, and ends after those that came."""
        (assigned,) = self.desk._planner.next()
        item = self.comparisons[assigned.key]
        self.desk._running["task"] = scheduler_client._Running(item, "board", assigned.attempt, "future")
        said = [Said("task", plan=plan)]
        for repeat in range(came):
            made = replace(run(repeat=repeat), attempt=Attempt(assigned.key, assigned.attempt, plan))
            said.append(Said("task", run=store.encode(made).decode()))
        for words in (*said, Said("task", ended=Result(came, how, "full" if how else ""))):
            list(self.desk._heard(words, None))
        return item.task.title


def test_counter_of_kept_runs(tmp_path):
    counted = Counted(tmp_path)

    names = [counted.measure(4, 1, "refused"), counted.measure(2, 2), counted.measure(4, 4)]  # by their words both have 2

    assert names == ["m.json", "n.json", "m.json"]
    assert counted.counts == [(1, 6), *((number, 6) for number in range(1, 7))]
    assert counted.lines == ["m.json begins again elsewhere, whole: board: full; its 1 run stays aside"]
    assert counted.desk.aside == 1


def test_counter_with_best_failed_attempt(tmp_path):
    counted = Counted(tmp_path)

    names = [counted.measure(*words) for words in ((4, 2, "refused"), (2, 2), (4, 1, "refused"), (4, 0, "usage"))]

    assert names == ["m.json", "n.json", "m.json", "m.json"]
    assert counted.counts == [(1, 6), (2, 6), (1, 6), (2, 6), (3, 6)]
    assert (counted.desk._kept, counted.desk.aside) == (4, 1)


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
