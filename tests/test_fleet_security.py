"""Who may reach a fleet: TLS where the address is not this machine's, certificates that fit, and sentences where they do not."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import socket
import ssl
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest
from conftest import need_tool
from failing import sentence
from fleets import fleet
from made import run

from memprof.cli.fleet import slim
from memprof.errors import InputError, UsageError
from memprof.judge import design
from memprof.measuring.fleet import arrivals, desk, message, packing, scheduler, searching, stand, watching, worker
from memprof.measuring.fleet.message import (
    PROTOCOL,
    Doing,
    Offered,
    Result,
    Said,
    Sent,
    Sought,
    Task,
    encode,
    result,
    suite_of,
    task,
    words_of,
)
from memprof.measuring.fleet.packing import Asked, Wanted, packed, parse_labels
from memprof.measuring.fleet.planning import Offer, Planner, Request
from memprof.measuring.fleet.security import Security, secured, unreachable
from memprof.measuring.places.place import HERE
from memprof.measuring.suite import Suite, parse_cmd, parse_variant
from memprof.runs import store
from memprof.runs.records import Attempt, Outcome
from memprof.seek import dimensions, scale, scale_runs
from memprof.seek.scaled import ScaleRequest


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:8786", "tcp://localhost:8786", "tcp://[::1]:8786", "tcp://127.8.8.8:1"])
def test_this_machine_needs_no_certificates(address):
    assert secured(address, None, None, None, insecure=False) == Security()


@pytest.mark.parametrize("address", ["tcp://10.0.0.1:8786", "tcp://lab:8786", "tcp://0.0.0.0:8786", "tcp://[2001:db8::1]:8786"])
def test_another_machine_is_refused_in_the_clear(address):
    with pytest.raises(UsageError, match="is not encrypted, and who reaches it can run programs on every worker"):
        secured(address, None, None, None, insecure=False)
    assert secured(address, None, None, None, insecure=True) == Security()


@pytest.mark.parametrize("address", ["lab:8786", "http://lab:8786", "tcp://lab", "tcp://:8786", "tcp://lab:port", "", "tcp://lab:1/x"])
def test_an_address_that_is_none(address):
    with pytest.raises(UsageError, match="write the scheduler's address"):
        secured(address, None, None, None, insecure=True)


def test_certificates_go_together_and_with_tls(tmp_path):
    files = [str(tmp_path / name) for name in ("ca", "cert", "key")]
    with pytest.raises(UsageError, match="go together"):
        secured("tls://lab:1", files[0], None, files[2], insecure=False)
    with pytest.raises(UsageError, match="needs certificates"):
        secured("tls://lab:1", None, None, None, insecure=True)
    with pytest.raises(UsageError, match="write tls://lab:1"):
        secured("tcp://lab:1", *files, insecure=False)
    with pytest.raises(InputError, match="ca: no such file"):
        secured("tls://lab:1", *files, insecure=False)


def test_the_reason_of_a_certificate_is_found_behind_the_error():
    try:
        try:
            raise ssl.SSLError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
        except ssl.SSLError as cause:
            raise OSError("Timed out") from cause
    except OSError as error:
        sentence = str(unreachable("tls://lab:1", error))

    assert sentence.startswith("tls://lab:1: the certificates do not fit (")


def test_options_for_a_fleet_need_a_fleet(memprof):
    done = memprof("run", "m.json", "-r", "synthetic", "--each", "kind")
    folder = memprof("run", "m.json", "-r", "synthetic", "--on", "dask:tcp://127.0.0.1:1", "--remote-dir", "x")

    assert (done.returncode, folder.returncode) == (2, 2)
    assert "go with --on dask:ADDRESS" in done.stderr
    assert "its workers choose the folders" in folder.stderr


@pytest.mark.parametrize("command", ["run", "scale", "tune", "bisect", "grow", "explain"])
def test_the_help_of_on_names_a_fleet_where_one_can_measure(memprof, command):
    on = memprof(command, "--help").stdout.partition("\n  --on ")[2].partition("\n  --")[0]
    assert ("dask:ADDRESS" in on) == (command not in ("grow", "explain"))


def test_growth_is_not_sought_on_a_fleet(memprof):
    done = memprof("grow", "m.onnx", "-r", "onnxruntime", "--on", "dask:tcp://127.0.0.1:1")

    assert done.returncode == 2
    assert "only `memprof run`, `scale`, `tune` and `bisect` measure on a fleet; name one machine, such as" in done.stderr


# -- what travels


@pytest.mark.parametrize("text", ["", "kind", "kind=", "=pi5", "kind=a,kind=b", "kind=a,,"])
def test_labels_that_are_none(text):
    with pytest.raises(UsageError, match=r"--labels"):
        parse_labels(text, "--labels")


def test_a_suite_travels_whole(tmp_path):
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


def test_points_of_a_search_are_asked_for_at_once_and_come_back_in_their_order(tmp_path, monkeypatch):
    suite = Suite(models=(model(tmp_path),), runtimes=("synthetic",), repeats=1)
    asked = []

    class Reversed(desk.Desk):
        def runs(self):
            asked.append([item.task.sought.at for item in self.packed])
            for item in reversed(self.packed):
                made = run()
                yield replace(made, job=replace(made.job, at=item.task.sought.at), attempt=Attempt(item.request.key, 1, 1))

    monkeypatch.setattr(searching, "Desk", Reversed)
    machines = searching.Machines(Lab(OFFERED), frozenset())

    answers = list(machines.measure([Asked(suite, Sought({"batch": size})) for size in (1, 2, 3)], SimpleNamespace(say=print), print))

    assert asked == [[{"batch": 1}, {"batch": 2}, {"batch": 3}]]
    assert [(number, answer.complete, [made.job.at["batch"] for made in answer.runs]) for number, answer in answers] == [
        (number, True, [number + 1]) for number in range(3)
    ]
    with pytest.raises(InputError, match="no place of the fleet has kind=pi5: it has 2 places"):
        searching.Machines(Lab(OFFERED), frozenset({("kind", "pi5")})).pinned()


@pytest.mark.parametrize(("place", "refused"), [("here", False), ("ssh:pi@board", True)])
def test_versions_are_not_installed_on_boards(place, refused):
    machines = searching.Machines(Lab({**OFFERED, "place": place}), frozenset())

    assert machines.width == 2 and machines.are_hosts != refused
    if refused:
        with pytest.raises(UsageError, match=r"on the machines of workers \(--offer here\), and there are boards with no labels"):
            machines.check_hosts()


@pytest.mark.parametrize("end", ["time", "Ctrl-C"])
def test_a_search_that_ends_has_the_answers_that_came(tmp_path, monkeypatch, end):
    suite = Suite(models=(model(tmp_path),), runtimes=("synthetic",), repeats=2)

    class Ends(desk.Desk):
        def runs(self):
            first, second, _ = (item.request.key for item in self.packed)
            yield replace(run(), attempt=Attempt(first, 1, 2))  # of a machine that was lost
            yield from (replace(run(repeat=repeat), attempt=Attempt(first, 2, 2)) for repeat in (1, 2))
            yield replace(run(), attempt=Attempt(second, 1, 2))
            self.told(1, 1, 1)
            if end == "time":
                raise AssertionError("it goes on")
            raise KeyboardInterrupt

    monkeypatch.setattr(searching, "Desk", Ends)
    machines = searching.Machines(Lab(OFFERED), frozenset())
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


def test_a_point_that_is_given_up_does_not_end_the_search(tmp_path, monkeypatch):
    path = tmp_path / "law.json"
    path.write_text('{"weights": ["4MiB"], "activations": ["1MiB"]}')

    class GivesUp(desk.Desk):
        def runs(self):
            for number, item in enumerate(self.packed):
                if number == 1:
                    self.failed[item.request.key] = "law.json, b failed 3 times, on 2 machines and is given up: x: full"
                else:
                    yield replace(run(), attempt=Attempt(item.request.key, 1, 1))

    monkeypatch.setattr(searching, "Desk", GivesUp)
    fleet = searching.Machines(Lab(OFFERED), frozenset())
    request = ScaleRequest(str(path), "synthetic", (dimensions.parse("threads=1..4"),), fleet=fleet)
    places = scale_runs.Places(request, SimpleNamespace(say=print), print)

    points = list(places.measure_at_once([{"threads": 1}, {"threads": 2}, {"threads": 4}], 0))

    assert [bool(point.sizes) for point in points] == [True, False, True]
    assert points[1].at == {"threads": 2} and points[1].ended.endswith("is given up: x: full") and not points[1].least


def test_points_that_came_before_an_interruption_are_kept(tmp_path, monkeypatch):
    path = tmp_path / "law.json"
    path.write_text('{"weights": ["4MiB"], "activations": ["1MiB"]}')

    class Interrupted(desk.Desk):
        def runs(self):
            yield replace(run(), attempt=Attempt(self.packed[1].request.key, 1, 1))
            raise KeyboardInterrupt

    monkeypatch.setattr(searching, "Desk", Interrupted)
    request = ScaleRequest(str(path), "synthetic", (dimensions.parse("threads=1..4"),), fleet=searching.Machines(Lab(OFFERED), frozenset()))
    points = scale_runs.Places(request, SimpleNamespace(say=print), print).measure_at_once([{"threads": 1}, {"threads": 4}], 0)

    assert next(points).at == {"threads": 4}
    with pytest.raises(KeyboardInterrupt):
        next(points)


def test_a_machine_of_a_second_kind_that_joins_gets_no_point_of_a_search(tmp_path, monkeypatch):
    suite = Suite(models=(model(tmp_path),), runtimes=("synthetic",), repeats=1)
    kinds, needs = {"a": {"kind": "x", "place": "a"}}, []

    class Answers(desk.Desk):
        def runs(self):
            for item in self.packed:
                needs.append(item.request.needs)
                yield replace(run(), attempt=Attempt(item.request.key, 1, 1))

    def told():
        return {"workers": {f"tcp://{name}": {"memprof": {**OFFERED, "labels": labels}} for name, labels in kinds.items()}}

    monkeypatch.setattr(searching, "Desk", Answers)
    lab = Lab(told=told())
    machines = searching.Machines(lab, frozenset()).pinned()
    kinds["b"] = {"kind": "y", "place": "b"}
    kinds["c"] = {"kind": "x", "place": "c", "fan": "none"}
    lab.told = told()

    list(machines.measure([Asked(suite, Sought({"batch": 1}))], SimpleNamespace(say=print), print))
    asks = desk.Desk(lab, [], SimpleNamespace(say=print), print, kind=machines.kind)
    asks._look()

    assert needs == [{("kind", "x")}]
    assert [place.offered.labels["place"] for place in asks._there.values()] == ["a"]  # though c has all labels that are needed
    lab.told["workers"]["tcp://d"] = {"memprof": {**OFFERED, "place": "other", "labels": {"kind": "x", "place": "d"}}}
    with pytest.raises(UsageError) as refused:
        searching.Machines(lab, frozenset({("kind", "x")})).pinned()
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
def test_a_search_on_several_kinds_says_how_to_choose_each(given, these, others, words):
    lab = Lab(
        told={"workers": {f"tcp://{number}": {"memprof": {**OFFERED, "labels": labels}} for number, labels in enumerate(these + others)}}
    )
    with pytest.raises(UsageError) as refused:
        searching.Machines(lab, frozenset(given.items())).pinned()
    assert f"--machines {words} chooses 1 place with" in str(refused.value)
    chosen = frozenset(parse_labels(words, "--machines").items())
    assert searching.Machines(lab, chosen).pinned().width == 1


def test_a_search_that_is_interrupted_has_a_law_of_the_points_that_came(tmp_path, monkeypatch):
    path = tmp_path / "law.json"
    path.write_text('{"weights": ["4MiB"], "activations": ["1MiB"]}')

    class Interrupted(desk.Desk):
        def runs(self):
            for item in self.packed[1:]:
                yield replace(run(), attempt=Attempt(item.request.key, 1, 1))
            raise KeyboardInterrupt

    monkeypatch.setattr(searching, "Desk", Interrupted)
    fleet = searching.Machines(Lab(OFFERED), frozenset())
    request = ScaleRequest(str(path), "synthetic", (dimensions.parse("threads=1..64"), dimensions.parse("sessions=1..8")), fleet=fleet)

    answer = scale.scale(request, SimpleNamespace(say=print), print)

    assert answer.interrupted
    first, *rest = design.first_places({"threads": (1, 64), "sessions": (1, 8)})
    assert [point.at for point in answer.points] == rest and first not in rest
    assert all(point.sizes["PEAK"] for point in answer.points)


def test_a_comparison_is_known_by_content(tmp_path):
    suite = Suite(models=(model(tmp_path),), runtimes=("synthetic",), repeats=2)
    (first,) = packed(suite, Wanted(), [])
    (same,) = packed(suite, Wanted(), [{"kind": "later"}])
    model(tmp_path, content="{ }")
    (changed,) = packed(suite, Wanted(), [])

    assert first.request.key == same.request.key != changed.request.key
    assert encode(task(encode(first.task))) == encode(first.task)


def test_each_and_spread_make_comparisons(tmp_path):
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
def test_what_a_fleet_cannot_measure(tmp_path, words, refusal):
    suite = Suite(models=(model(tmp_path),), runtimes=("synthetic",))
    with pytest.raises(UsageError, match=refusal):
        packed(Suite(**{**vars(suite), **words}), Wanted(), [])


def test_a_file_outside_of_a_commands_folder_is_not_sent(tmp_path):
    model(tmp_path, "data")
    (tmp_path / "inside").mkdir()
    suite = Suite(variants=(parse_cmd("app=true ../data"),), cwd=str(tmp_path / "inside"))
    with pytest.raises(InputError, match="it lies outside of the folder"):
        packed(suite, Wanted(), [])


# -- a worker's side, without a scheduler


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(arrivals, "_LOOK_S", 0.01)
    return tmp_path


FILES = "cache/memprof/fleet/files"
HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"  # of "hello"


def asked(name="m/hello"):
    return Task("c", 1, "t", "me", {}, (Sent(name, "/there/hello", HELLO, 5),), None)


def test_a_file_comes_in_pieces_and_stays_for_the_next(kept):
    needs = []

    def desk(**words):
        needs.append(words["needs"])
        assert worker.receive("task", HELLO, 0, 5, b"hel") == ""
        assert worker.receive("task", HELLO, 3, 5, b"lo") == ""

    for _ in range(2):
        arrivals.bring(asked(), desk, lambda: False)

    assert needs == [(HELLO,)]
    folder = kept / "cache/memprof/fleet/comparison-c-1"
    assert (folder / "m/hello").read_text() == "hello"


def test_a_small_file_travels_with_its_comparison_and_once_to_a_worker(kept):
    asks, _ = asking()
    (kept / "hello").write_text("hello")
    (kept / "large").write_bytes(bytes(desk._SMALL + 1))
    files = (Sent("m/hello", str(kept / "hello"), HELLO, 5), Sent("m/large", str(kept / "large"), "other", desk._SMALL + 1))

    first, again, elsewhere = (asks._with_small(files, worker) for worker in ("a", "a", "b"))
    arrivals.bring(task(encode(Task("c", 1, "t", "me", {}, first[:1], None))), pytest.fail, lambda: False)

    assert [[file.content for file in files] for files in (first, again, elsewhere)] == [[b"hello", b""], [b"", b""], [b"hello", b""]]
    assert (kept / "cache/memprof/fleet/comparison-c-1/m/hello").read_text() == "hello"


def test_the_files_that_were_used_least_recently_go_first_and_none_that_a_comparison_uses(kept, monkeypatch):
    def bring(key, *contents):
        sent = [Sent(text, "/there", hashlib.sha256(text.encode()).hexdigest(), len(text), text.encode()) for text in contents]
        arrivals.bring(Task(key, 1, "t", "me", {}, tuple(sent), None), pytest.fail, lambda: False)
        for number, path in enumerate(sorted((kept / FILES).iterdir(), key=lambda path: path.stat().st_mtime)):
            os.utime(path, (number, number))  # two moments may have one time
        return message.folder_of(Task(key, 1, "t", "me", {}, (), None))

    def there():
        return {path.read_text() for path in (kept / FILES).iterdir()}

    monkeypatch.setattr(arrivals, "LIMIT_BYTES", 12)
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


def test_a_file_that_another_worker_removes_before_it_is_used_is_asked_for_again(kept, monkeypatch):
    needs, awaited = [], arrivals._await

    def tell(**words):
        needs.append(words["needs"])
        arrivals.keep("task", HELLO, 0, 5, b"hello")

    def removed_at_once(*words):
        awaited(*words)
        if len(needs) == 1:
            (kept / FILES / HELLO).unlink()

    monkeypatch.setattr(arrivals, "_await", removed_at_once)
    arrivals.bring(asked(), tell, lambda: False)

    assert needs == [(HELLO,), (HELLO,)]


def test_folders_of_comparisons_older_than_the_machines_start_are_removed(kept):
    folders = [message.folder_of(Task(key, 1, "t", "me", {}, (), None)) for key in ("old", "now")]
    for folder in folders:
        folder.mkdir(parents=True)
    os.utime(folders[0], (1, 1))

    arrivals.tidy()

    assert [folder.exists() for folder in folders] == [False, True]


def test_a_small_file_that_changed_meanwhile_is_asked_for(kept):
    needs = []

    def tell(**words):
        needs.append(words["needs"])
        assert "damaged" in worker.receive("task", HELLO, 0, 5, b"jello")

    with pytest.raises(InputError, match="it was damaged or changed on its way"):
        arrivals.bring(Task("c", 1, "t", "me", {}, (Sent("m", "/there", HELLO, 5, b"jello"),), None), tell, lambda: False)
    assert needs == [(HELLO,)]


def test_a_full_disk_at_a_worker_is_said(kept, monkeypatch):
    monkeypatch.setattr(arrivals.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 3})())
    with pytest.raises(InputError, match=r"hello cannot be kept on .*: 5 B are to be sent and 3 B are free; XDG_CACHE_HOME of its worker"):
        arrivals.bring(asked(), lambda **words: worker.receive("task", HELLO, 0, 5, b"hello"), lambda: False)


def test_a_disk_that_becomes_full_is_said(kept, monkeypatch):
    def write(path, data):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(arrivals.Path, "write_bytes", write)
    with pytest.raises(InputError, match="No space left on device"):
        arrivals.bring(asked(), lambda **words: worker.receive("task", HELLO, 0, 5, b"hello"), lambda: False)


def test_a_damaged_file_is_refused(kept):
    with pytest.raises(InputError, match="it was damaged or changed on its way"):
        arrivals.bring(asked(), lambda **words: worker.receive("task", HELLO, 0, 5, b"jello"), lambda: False)


def test_a_desk_that_sends_nothing_is_not_waited_for(kept, monkeypatch):
    monkeypatch.setattr(arrivals, "_SILENCE_S", 0.05)
    with pytest.raises(InputError, match="the desk sent nothing of a file"):
        arrivals.bring(asked(), lambda **words: None, lambda: False)
    with pytest.raises(stand.Cancelled):
        arrivals.bring(asked(), lambda **words: None, lambda: True)


def test_no_name_leads_out_of_a_comparisons_folder(kept):
    with pytest.raises(InputError, match="outside of its folder"):
        arrivals.bring(asked("../../../evil"), lambda **words: worker.receive("task", HELLO, 0, 5, b"hello"), lambda: False)


def test_clocks_that_differ_do_not_matter(monkeypatch):
    # A worker says how long it has been at it; the time of day of neither side is in it.
    here = stand.Stand("here", None, None, {})
    here.doing, here.since_s = Doing("m", "desk"), stand.time.monotonic() - 7
    monkeypatch.setattr(stand.time, "time", lambda: 0)

    assert 7 <= here.doing_now()["for_s"] < 1000
    assert "time" not in Offered.__dataclass_fields__


def test_a_place_that_cannot_be_reached_is_said(kept):
    with pytest.raises(InputError, match=r"ssh:nobody@127\.0\.0\.1:1 cannot be offered: ssh:nobody@127\.0\.0\.1:1"):
        stand.Stand("ssh:nobody@127.0.0.1:1", None, None, {}).open()


@pytest.mark.parametrize("end", ["done", ""])
def test_the_last_run_goes_with_the_end_of_its_comparison(end):
    # What tends the place reads its Task, and without "done" dies after its last run.
    words = ["sh", "-c", f"read task; printf 'plan 2\\nrun a\\nrun b\\n{end}\\n'"]
    tending = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    place, told, unsaid = stand.Stand("here", None, None, {}, _process=tending), [], {}

    def measure():
        return place.measure(asked(), lambda **words: told.append(words), lambda: False, unsaid)

    if end:
        assert measure() == Result(2)
    else:
        with pytest.raises(stand.Gone):
            measure()
    place.close()
    assert told == [{"plan": 2}, {"run": "a"}]
    assert unsaid == {"run": "b"}


def test_the_answer_of_a_worker_travels():
    assert result(encode(Result(3, "refused", "why"))).why == "why"
    assert packing.desk_name().count("@") == 1


class Lab:
    """A scheduler that tells what a test wants."""

    scheduler = SimpleNamespace(identity=None)

    def __init__(self, facts=None, desks=None, told=None, status="running"):
        self.desks, self.status = desks, status
        self.told = told or {"workers": {"tcp://a": {"memprof": facts}, "tcp://b": {"memprof": OFFERED}}}

    def sync(self, call, **words):
        return self.told

    def get_metadata(self, keys, default):
        return self.desks

    def cancel(self, futures, force):
        self.cancelled = futures


OFFERED = {"place": "here", "host": "b", "machine": "b", "labels": {}, "protocol": PROTOCOL, "version": "1"}


@pytest.mark.parametrize("facts", [{"protocol": PROTOCOL}, {**OFFERED, "labels": 7}])
def test_a_worker_that_says_odd_things_is_left_out(facts):
    there, (sentence,) = scheduler.places(Lab(facts))
    assert [place.name for place in there] == ["here of b"]
    assert sentence.startswith("the worker at tcp://a says of its place what this memprof does not understand: ")


@pytest.mark.parametrize("odd", [{"x": 7}, {"x": {"desk": 7}}, {"x": [[]]}, 7])
def test_a_desk_that_writes_odd_counts_is_not_shown(odd):
    assert watching._desks(Lab(desks=odd)) == {}
    good = {"desk": "a", "running": 1, "waiting": 2, "done": 3}
    assert list(watching._desks(Lab(desks={**odd, "y": good} if isinstance(odd, dict) else {"y": good}))) == ["y"]


@pytest.mark.parametrize(
    ("answer", "shown"), [(b"{}", False), (b'{"Individual Workers": "/individual-workers"}', True), (b"<html>", True), (None, True)]
)
def test_a_scheduler_without_pages_of_its_own_has_none_linked(answer, shown, monkeypatch):
    asked = []

    def ask(address, timeout):
        asked.append(address)
        if answer is None:
            raise OSError("refused")
        return io.BytesIO(answer)

    monkeypatch.setattr(watching, "_ask", ask)
    lab = Lab(told={"services": {"dashboard": 8787}, "workers": {}})
    lab.dashboard_link = "http://lab:8787/status"

    assert watching._dashboard(lab) == ("http://lab:8787/status" if shown else None)
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
    asks = desk.Desk(Lab(), [], progress, lambda line: None)
    wants = SimpleNamespace(request=SimpleNamespace(key="key"), task=SimpleNamespace(title="m.json"))
    asks._planner = SimpleNamespace(failed=lambda place, again, ahead: True, at=lambda place: "key", benched=set())
    asks._running["task"] = desk._Running(wants, "board", 1, "future")
    return asks, lines


@pytest.mark.parametrize("read", [message.said, message.result, message.task])
def test_a_message_nested_too_deep_is_none(read):
    deep = b'{"task":"t","runs":1,"x":' + b"[" * 100_000
    with pytest.raises(msgspec.DecodeError):
        read(deep)


def test_a_desk_whose_scheduler_is_away_does_not_take_that_for_an_empty_fleet():
    asks, _ = asking()
    asks._there = dict.fromkeys(["board"])
    asks.client = Lab(told={"workers": {}}, status="connecting")
    asks._look()
    assert list(asks._there) == ["board"] and asks._running


def test_a_desk_waits_for_machines_that_were_there_and_for_no_others(monkeypatch):
    def desk_that_wants(labels, lab):
        lines = []
        asks = desk.Desk(lab, [], SimpleNamespace(say=lines.append), print)
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
    monkeypatch.setattr(desk, "_ABSENT_S", -1)
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


def test_a_server_that_is_no_scheduler_is_not_waited_for(memprof, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(scheduler, "_CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        done = memprof("fleet", address)

    assert done.returncode == 5
    assert sentence(done) == f"memprof: no scheduler answers at {address}; `dask scheduler` starts one"


def test_a_scheduler_that_is_lost_is_said(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")

    def away(*call, **words):
        raise OSError("nobody answers")

    monkeypatch.setattr(distributed, "Queue", lambda name, client: SimpleNamespace(name=name, get=away))
    loop = SimpleNamespace(add_callback=lambda call: None)
    client = SimpleNamespace(status="closed", sync=away, scheduler=Lab.scheduler, cancel=lambda futures, force: None, loop=loop)
    wanted = packed(Suite(models=(model(tmp_path),), runtimes=("synthetic",)), Wanted(), [])
    with pytest.raises(InputError, match=r"the connection to the scheduler broke .*--append goes on once it is back"):
        list(desk.Desk(client, wanted, SimpleNamespace(say=print), print).runs())


def test_a_scheduler_that_began_anew_is_no_empty_fleet():
    asks, _ = asking()
    asks._planner = SimpleNamespace(offer=lambda offer: None, unmatched=list, waiting=0, running=1)
    told = {"workers": {"tcp://b": {"memprof": OFFERED}}, "id": "first"}
    asks.client = Lab(told=told)
    for _ in range(2):
        asks._look()
    told.update(workers={}, id="second")
    with pytest.raises(InputError, match=r"the scheduler began anew and knows nothing of this campaign; .*--append goes on"):
        asks._look()


def test_a_desk_hears_from_the_worker_that_a_comparison_ended():
    asks, _ = asking()
    settled = []
    asks._settle = lambda running, result: settled.append((running.place, result))
    assert list(asks._heard(Said("task", ended=Result(0, "refused", "why")), None)) == []
    asks._wake("task", None)  # as Dask says it, later
    assert settled == [("board", Result(0, "refused", "why"))] and not asks._running and not asks._ended


def test_a_message_that_is_none_does_not_lose_the_others():
    asks, lines = asking()
    good = encode(Said("task", say="hello")).decode()
    heard = list(asks._messages(Incoming("[", good, 7, '{"task": 7}', "\ud800")))
    assert [said.say for said in heard] == ["hello"]
    assert list(asks._messages(Incoming(""))) == []
    assert lines and all(line.startswith("a worker sent what this memprof does not understand: ") for line in lines)


@pytest.mark.parametrize("line", ["", "{}", "[" * 100_000, "of no attempt"])
def test_a_run_that_is_none_costs_its_place_the_comparison_and_not_the_campaign(line):
    asks, lines = asking()
    line = line.replace("of no attempt", store.encode(run()).decode())
    said = Said("task", run=line or " ")
    assert list(asks._heard(said, None)) == []
    assert not asks._running and asks.client.cancelled == ["future"]
    (sentence,) = lines
    assert sentence.startswith("m.json begins again elsewhere, whole: board: a run of board")


def test_a_machine_that_vanishes_takes_what_was_sent_ahead_with_it_which_has_not_failed():
    asks, lines = asking()
    asks._planner = Planner()
    asks._planner.want([Request("key", 2), Request("ahead", 1)])
    asks._planner.offer(Offer("board"))
    assert [assigned.key for assigned in asks._planner.next()] == ["key"]
    asks._planner.ending("board")
    assert [assigned.key for assigned in asks._planner.next()] == ["ahead"]
    asks._running["next"] = desk._Running(SimpleNamespace(request=SimpleNamespace(key="ahead")), "board", 1, "future of the next")

    asks._gone("board")

    assert asks.client.cancelled == ["future of the next"] and not asks._running
    assert lines == ["m.json begins again elsewhere, whole: board: board vanished"]
    assert asks._planner.waiting == 2 and asks._planner.failures("ahead") == []


def test_every_run_arrives_once_however_often_it_is_sent():
    asks, _ = asking()
    asks.progress = SimpleNamespace(say=print, started=lambda job, index, total: None, finished=lambda run: None)
    kept = []
    asks.keep = kept.append

    def sent(task, repeat, number):
        made = run(repeat=repeat)
        said = Said(task, run=store.encode(replace(made, attempt=Attempt("c", number, 2))).decode())
        return [(came.job.repeat, came.attempt.number, came.attempt.place) for came in asks._heard(said, None)]

    once = [sent("task", repeat, 1) for repeat in (1, 1, 2, 1, 2)]
    asks._running["again"] = desk._Running(asks._running.pop("task").packed, "other", 2, "future")
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
        self.desk = desk.Desk(Lab(), [*self.comparisons.values()], progress, lambda line: None)
        self.desk._want(self.comparisons)
        self.desk._planner.offer(Offer("board"))

    def measure(self, plan, came, how=None):
        """The next comparison's name. It has `plan` Runs, and ends after those that came."""
        (assigned,) = self.desk._planner.next()
        item = self.comparisons[assigned.key]
        self.desk._running["task"] = desk._Running(item, "board", assigned.attempt, "future")
        said = [Said("task", plan=plan)]
        for repeat in range(came):
            made = replace(run(repeat=repeat), attempt=Attempt(assigned.key, assigned.attempt, plan))
            said.append(Said("task", run=store.encode(made).decode()))
        for words in (*said, Said("task", ended=Result(came, how, "full" if how else ""))):
            list(self.desk._heard(words, None))
        return item.task.title


def test_the_counter_is_of_runs_that_are_kept_of_those_that_are_wanted(tmp_path):
    counted = Counted(tmp_path)

    names = [counted.measure(4, 1, "refused"), counted.measure(2, 2), counted.measure(4, 4)]  # by their words both have 2

    assert names == ["m.json", "n.json", "m.json"]
    assert counted.counts == [(1, 6), *((number, 6) for number in range(1, 7))]
    assert counted.lines == ["m.json begins again elsewhere, whole: board: full; its 1 run stays aside"]
    assert counted.desk.aside == 1


def test_the_best_attempt_at_a_comparison_that_is_given_up_is_not_aside(tmp_path):
    counted = Counted(tmp_path)

    names = [counted.measure(*words) for words in ((4, 2, "refused"), (2, 2), (4, 1, "refused"), (4, 0, "usage"))]

    assert names == ["m.json", "n.json", "m.json", "m.json"]
    assert counted.counts == [(1, 6), (2, 6), (1, 6), (2, 6), (3, 6)]
    assert (counted.desk._kept, counted.desk.aside) == (4, 1)


def test_versions_may_differ_if_the_protocol_is_the_same():
    for protocol, usable in ((PROTOCOL, 2), (PROTOCOL + 1, 1)):
        there, sentences = scheduler.places(Lab({**OFFERED, "host": "a", "protocol": protocol, "version": "9.9"}))
        assert (len(there), len(sentences)) == (usable, 2 - usable)
    (sentence,) = sentences
    words = f"here of a has memprof 9.9, and this is memprof {message.version()}: they do not understand one another"
    assert sentence == f"{words} (protocol {PROTOCOL + 1} and {PROTOCOL})"


def test_a_desk_keeps_no_timelines_and_not_every_run(monkeypatch, capsys):
    monkeypatch.setattr("memprof.cli.fleet._SHOWN", 3)
    lost = Outcome("lost", "EXECUTE")
    made = [run(repeat=number, outcome=lost if number > 6 else None) for number in range(1, 20)]

    kept = list(slim(made))

    assert [each.job.repeat for each in kept] == [1, 2, 3, 7, 8, 9]
    assert {each.timeline for each in kept} == {store.NOTHING_SEEN} != {made[0].timeline}
    assert "the tables at the end are of the first 3 runs" in capsys.readouterr().err


# -- over TLS


def certificates(folder):
    """An authority, and a certificate of it."""
    openssl = need_tool("openssl")
    words = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
    ]
    folder.mkdir()
    subprocess.run([*words, "-keyout", str(folder / "key"), "-out", str(folder / "cert")], check=True, capture_output=True)
    return folder / "cert", folder / "cert", folder / "key"


def test_a_fleet_over_tls_and_a_certificate_of_a_stranger(memprof, tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    from memprof.measuring.fleet import scheduler

    own, strange = certificates(tmp_path / "own"), certificates(tmp_path / "strange")
    (tmp_path / "fleet").mkdir()
    with fleet(tmp_path / "fleet", own) as made:
        words = [word for option, path in zip(("--tls-ca", "--tls-cert", "--tls-key"), own, strict=True) for word in (option, path)]
        other = [word for option, path in zip(("--tls-ca", "--tls-cert", "--tls-key"), strange, strict=True) for word in (option, path)]
        shown = memprof("fleet", made.address, *words)
        monkeypatch.setattr(scheduler, "_CONNECT_S", 60)  # it is refused at once, but a busy machine needs a while to get there
        refused = memprof("fleet", made.address, *other)
        alone = memprof("fleet", made.address)

    assert made.address.startswith("tls://")
    assert shown.returncode == 0, shown.stderr
    assert "There is no machine: memprof worker offers one." in shown.stdout
    assert refused.returncode == 5
    assert "the certificates do not fit" in refused.stderr
    assert alone.returncode == 2
