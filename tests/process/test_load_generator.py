"""`run --cmd ... --drive`: phases, tokens and memory of a server that memprof asks, and all that it may do instead."""

from __future__ import annotations

import json
import shlex
import socket
import sys
from pathlib import Path

import pytest
from support import completion_server
from support.recorder_runs import free_port, with_patience

from memprof.base.errors import UsageError
from memprof.campaign import campaign, load_generator
from memprof.records import store
from memprof.subjects.drive import Drive, parse

SERVER = Path(__file__).parents[1] / "support" / "completion_server.py"
KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def drive(memprof, tmp_path, port, monkeypatch):
    """drive(mode, word...) -> (result, run): a server of that mode under a load."""
    monkeypatch.setattr(load_generator, "_DEATH_S", 60.0)  # a busy machine may say late that the server has died

    def run(mode, *words, more="", timeout="200s", warmup=1, count=4):
        runs = tmp_path / "runs.jsonl"
        load = ["--drive", f"openai:{port},prompts=16,generate=4{more}", "--warmup", str(warmup), "--runs", str(count), "--repeats", "1"]
        server = f"s={shlex.join([sys.executable, str(SERVER)])} {port} {mode}"
        result = memprof("run", "--cmd", server, *load, "--timeout", timeout, "-o", str(runs), *words)
        return result, store.load([runs]).runs[0] if runs.exists() and runs.stat().st_size else None

    return run


def test_server_measured_in_each_phase(drive, nothing_left):
    result, run = drive("loading", "--all")

    assert run.outcome.ok, run.outcome.sentence
    assert [mark.phase for mark in run.marks] == ["MODEL_LOAD", "WARMUP", "REQUEST"]
    load, warmup, request = run.marks
    assert load.time_ns >= 500_000_000  # as long as it said that it loads
    assert (load.units, warmup.units) == ({}, {"token": 4, "prompt_token": 16})
    assert (len(request.times_ns), request.units) == (4, {"token": 16, "prompt_token": 64})
    assert load.end_ns <= warmup.begin_ns <= warmup.end_ns <= request.begin_ns
    assert all(mark.rss_peak_exact for mark in run.marks)
    # Four requests, each held from then on; a thread's stack and arena come beside them.
    assert request.rss_end_bytes - warmup.rss_end_bytes >= 4 * 256 * KIB - run.machine.peak_bound_bytes
    assert "warming up 1 & running 4, 1 repeat, prompts of" in result.stdout
    assert "prompts of 16 tokens, all different, 4 generated, 1 at once" in result.stdout
    assert "REQUEST, tokens/s" in result.stdout
    # The server waits between its first token and the others. On a busy machine the client may see a first token late, but not half that wait
    # late in each of four requests.
    waits_ns = [time_ns - first_ns for first_ns, time_ns in zip(request.first_token_ns, request.times_ns, strict=True)]
    assert min(request.first_token_ns) > 0
    assert min(request.times_ns) >= completion_server.LATE_S * 1e9
    assert max(waits_ns) >= completion_server.LATE_S / 2 * 1e9
    assert "REQUEST, first token" in result.stdout
    assert not run.warnings


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("whole", "the server does not stream: its first tokens have no time"),
        ("strict", "whose first token has no time: it refused a stream (HTTP 400: stream: not known)"),
        ("uncounted", "whose first token has no time: its stream has no usage with prompt_tokens and completion_tokens"),
    ],
)
def test_server_without_streaming(drive, mode, why):
    result, run = drive(mode)

    assert run.outcome.ok, run.outcome.sentence
    assert (run.mark("REQUEST").units, run.mark("REQUEST").first_token_ns) == ({"token": 16, "prompt_token": 64}, ())
    assert [warning for warning in run.warnings if why in warning] == list(run.warnings)
    assert len(run.warnings) == 1 and why in result.stdout + result.stderr
    assert "first token" not in "".join(line for line in result.stdout.splitlines() if line.startswith("|"))


def test_requests_parallel_with_repeated_prompts(drive):
    _, run = drive("well", more=",parallel=3,distinct=2")

    assert run.outcome.ok, run.outcome.sentence
    assert run.job.drive == "prompts of 16 tokens, 2 different, 4 generated, 3 at once"
    assert run.marks[-1].units == {"token": 16, "prompt_token": 64}


def test_server_ignoring_termination_is_ended(drive, nothing_left):
    _, run = drive("stubborn", warmup=0, count=1)
    assert run.outcome.ok
    assert [mark.phase for mark in run.marks] == ["MODEL_LOAD", "REQUEST"]


@pytest.mark.parametrize(
    ("mode", "phase", "words"),
    [
        ("refusing", "REQUEST", "request 2 was refused: HTTP 400: the prompt is too long"),
        ("failing", "REQUEST", "request 2 was refused: HTTP 200: the cache is full"),
        ("vague", "WARMUP", "the answer to request 1 has no usage with prompt_tokens and completion_tokens"),
        ("dying", "REQUEST", "ended by SIGKILL in REQUEST"),
        ("leaving", "REQUEST", "it ended before all requests were made"),
    ],
)
def test_server_failures(drive, nothing_left, mode, phase, words):
    result, run = drive(mode)

    assert result.returncode == 4
    assert run.outcome.phase == phase
    assert words in run.outcome.sentence
    assert words in result.stdout + result.stderr


def test_server_never_answers(drive, port, tmp_path, monkeypatch, nothing_left):
    monkeypatch.setattr(load_generator, "_SPARE_S", 30.0)
    for timeout in ("4s", "64s"):  # a busy machine may be late to say so, and then its time is up
        (tmp_path / "runs.jsonl").unlink(missing_ok=True)
        result, run = drive("mute", timeout=timeout)
        if run.outcome.status != "timeout":
            break
    assert result.returncode == 4
    assert f"in MODEL_LOAD: the server did not answer at http://127.0.0.1:{port}/v1/models in time" in run.outcome.sentence


def test_port_in_use_refused(drive, port):
    with socket.create_server(("127.0.0.1", port)):
        result, run = drive("well")
    assert result.returncode == 5
    assert f"port {port} of 127.0.0.1 is in use: the program there would be asked in place of s" in result.stderr
    assert run is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--drive", "openai"), "write openai:PORT"),
        (("--drive", "vllm:80"), "write openai:PORT"),
        (("--drive", "openai:70000"), "write openai:PORT"),
        (("--drive", "openai:80/v1"), "write openai:PORT"),
        (("--drive", "openai:80,prompts=0"), "prompts is a number from 1 on"),
        (("--drive", "openai:80,prompt=1"), "openai has no 'prompt=1'; it has prompts=, generate=, parallel=, distinct="),
        (("--drive", "http:80/,prompts=1"), "http has no 'prompts=1'; it has parallel=, body="),
        (("--drive", "http:80/,body=no-such-file"), "no-such-file: No such file"),
        (("--drive", "openai:80", "--phase-regex", "load=ready"), "give neither --phase nor --phase-regex"),
        (("--drive", "openai:80", "-r", "synthetic"), "--drive is for servers, which are programs"),
    ],
)
def test_load_options_refused(memprof, tmp_path, words, says):
    result = memprof("run", "--cmd", "s=sleep 1", *words, "-o", str(tmp_path / "r.jsonl"))
    assert result.returncode == (5 if "body" in words[-1] and "has no" not in says else 2)
    assert says in result.stderr


def test_host_defaults_to_loopback():
    assert parse("openai:8080").host == "127.0.0.1"
    assert parse("openai:board.local:8080").host == "board.local"
    with pytest.raises(UsageError):
        parse("openai:")


def test_http_address_parsed():
    assert parse("http:8000") == Drive("127.0.0.1", 8000, kind="http")
    wanted = Drive("board", 8000, kind="http", path="/v2/models/net:predict", body="in.json", parallel=2)
    assert parse("http:board:8000/v2/models/net:predict,body=in.json,parallel=2") == wanted


def test_prompts_differ_unless_repeated():
    asked = []

    class Asked(load_generator.Driving):
        def _http(self, method, path, body=None):
            asked.append(tuple(json.loads(body)["prompt"]))
            return 200, {"usage": {"prompt_tokens": 8, "completion_tokens": 1}}, None

    for distinct in (None, 3):
        asking = Asked(Drive("127.0.0.1", 1, prompts=8, distinct=distinct), None)
        for number in range(600):
            asking._request(number)
    assert len(set(asked[:600])) == 600
    assert len(set(asked[600:])) == 3


GREW = "It grows with new inputs only. This is a cache or a leak keyed by content. With the same input: "


def test_grow_asks_same_and_new_prompts(memprof, port, nothing_left):
    words = ("grow", "--drive", f"openai:{port},prompts=16,generate=4", "--budget", "64", "--", sys.executable, str(SERVER))

    done = memprof(*words, str(port), "caching")

    assert done.returncode == 1, done.stdout + done.stderr
    assert GREW in done.stdout


def test_grow_posts_same_and_new_bodies(memprof, tmp_path, port, nothing_left):
    (tmp_path / "bodies").mkdir()
    for number in range(64):
        body = {"prompt": [number], "max_tokens": 1, "model": "the-model"}
        (tmp_path / "bodies" / f"{number:02}.json").write_text(json.dumps(body))
    words = ("grow", "--drive", f"http:{port}/v1/completions,body=bodies", "--budget", "64", "--", sys.executable, str(SERVER))

    done = memprof(*words, str(port), "caching")

    assert done.returncode == 1, done.stdout + done.stderr
    assert GREW in done.stdout


def test_bodies_of_file_of_lines(tmp_path):
    path = tmp_path / "bodies.jsonl"
    path.write_text('{"a": 1}\n\n{"a": 2}\n{"a": 3}')
    several, two = parse(f"http:80/x,body={path}"), Drive("127.0.0.1", 80, kind="http", path="/x", body=str(path), distinct=2)

    assert several.varies and several.is_json
    assert several.bodies() == (b'{"a": 1}', b'{"a": 2}', b'{"a": 3}')
    assert two.bodies() == (b'{"a": 1}', b'{"a": 2}')


def test_empty_bodies_refused(memprof, tmp_path, port):
    (tmp_path / "bodies.jsonl").write_text("\n")

    done = memprof("exec", "--drive", f"http:{port}/x,body=bodies.jsonl", "--", "true")

    assert done.returncode == 5 and done.stderr.endswith("--drive: bodies.jsonl has no bodies for requests\n"), done.stderr


@pytest.mark.parametrize(
    ("load", "sentence"),
    [
        ("http:{}/work", "--fresh: each request to this server has the same content"),
        ("openai:{},prompts=16,generate=4,distinct=2", "--fresh: distinct= says which prompts differ"),
    ],
)
def test_grow_refuses_fresh_requests(memprof, port, load, sentence):
    done = memprof("grow", "--drive", load.format(port), "--fresh", "--", "true")

    assert done.returncode == 2 and sentence in done.stderr


def test_model_larger_than_memory():
    (remark,) = [remark for remark in campaign.surroundings(1 << 50) if "the model has" in remark]
    assert "1048576.00 GiB, more than the machine's memory of" in remark


def test_record_of_load(drive, tmp_path):
    _, run = drive("well", warmup=0, count=1)
    line = json.loads((tmp_path / "runs.jsonl").read_text())
    assert line["job"].pop("drive") == run.job.drive
    assert store.decode(json.dumps(line).encode(), "old").job.drive is None


PLAIN = Path(__file__).parents[1] / "support" / "plain_server.py"


def served(memprof, tmp_path, port, path, mode, *words):
    """A plain server of that mode under a load of 4 requests for the path -> (result, run)."""
    runs = tmp_path / "runs.jsonl"
    server = ["--", sys.executable, str(PLAIN), str(port), mode]
    load = ["--drive", f"http:{port}{path}", "--warmup", "1", "--runs", "4", "--timeout", "200s"]
    result = memprof("exec", *load, *words, "-o", str(runs), *server)
    return result, store.load([runs]).runs[0] if runs.exists() and runs.stat().st_size else None


def test_plain_server_phases(memprof, tmp_path, port, nothing_left):
    result, run = served(memprof, tmp_path, port, "/work", "loading")

    assert run.outcome.ok, run.outcome.sentence
    assert [mark.phase for mark in run.marks] == ["MODEL_LOAD", "WARMUP", "REQUEST"]
    load, warmup, request = run.marks
    assert load.time_ns >= 500_000_000  # it answers 503 as long as it loads
    assert len(request.times_ns) == 4 and request.units == {}
    assert request.rss_end_bytes - warmup.rss_end_bytes >= 4 * MIB - run.machine.peak_bound_bytes  # each request stays
    assert "GET /work, 1 at once" in result.stdout


def test_plain_server_gets_body(memprof, tmp_path, port):
    (tmp_path / "in.bin").write_bytes(bytes(3 * MIB))
    _, run = served(memprof, tmp_path, port, f"/work,body={tmp_path / 'in.bin'}", "well")

    assert run.outcome.ok, run.outcome.sentence
    assert run.job.drive == "POST /work, 1 at once"
    grown = run.mark("REQUEST").rss_end_bytes - run.mark("WARMUP").rss_end_bytes
    assert grown >= 4 * 4 * MIB - run.machine.peak_bound_bytes  # what was posted stays too


def test_plain_server_refuses(memprof, tmp_path, port):
    result, run = served(memprof, tmp_path, port, "/gone", "well")

    assert (result.returncode, run.outcome.phase) == (4, "WARMUP")
    assert "request 1 was refused: HTTP 404" in run.outcome.sentence


@pytest.mark.parametrize(
    ("path", "code", "sentences"),
    [("/work", 1, ("grows. 1.0 MiB per request", "in use by the program")), ("/other", 0, ("steady", "there is no rise to look into"))],
)
def test_server_growth_by_request(memprof, port, path, code, sentences, nothing_left):
    server = ["--", sys.executable, str(PLAIN), str(port), "well"]
    result = memprof("grow", "--why", "--drive", f"http:{port}{path}", "--budget", "60", *server)

    assert result.returncode == code, result.stdout + result.stderr
    assert "per request" in result.stdout and all(sentence in result.stdout for sentence in sentences), result.stdout


def test_scale_by_workers(memprof, port, nothing_left):
    def law(_):
        server = ["--", sys.executable, str(PLAIN), str(port), "well", "{workers}"]
        result = memprof("scale", "--vary", "workers=1..4", "--drive", f"http:{port}/", "--warmup", "0", "--runs", "2", "--json", *server)
        assert result.returncode in (0, 3), result.stdout + result.stderr
        return json.loads(result.stdout)

    def each_worker(answer):
        places = {point["at"]["workers"]: point["sizes"]["REQUEST"] for point in answer["points"]}
        return (places[4] - places[1]) / 3

    # Of several processes a busy machine may leave too little time to tell apart what they share.
    answer = with_patience(law, lambda answer: 8 * MIB <= each_worker(answer) <= 13 * MIB)
    assert "WARMUP" not in answer["points"][0]["sizes"]
    assert 8 * MIB <= each_worker(answer) <= 13 * MIB, answer["points"]
