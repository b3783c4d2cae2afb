"""A runs file is data: what it names is measured again only where this user's own memprof wrote it here, or the user says so."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import fields, replace
from pathlib import Path

import pytest
from made import job, run

from memprof import zoo
from memprof.errors import InputError
from memprof.plan import executed
from memprof.plan.graphs.read import read
from memprof.runs import signing, store
from memprof.runs.records import Job

# A runtime in a file, as a stranger might plant it: it leaves a trace when it is only looked at.
PLANTED = """
import pathlib
pathlib.Path(__file__).with_name("executed").touch()
class Runtime:
    formats = (".bin",)
    def load(self, model, options): pass
    def prepare(self): pass
    def execute(self): pass
"""
TUNED = ("model.bin", "-r", "./planted.py", "--try", "malloc_arenas=1", "--time", "1s")


@pytest.fixture
def mine(memprof, tmp_path):
    """runs.jsonl: five runs of a runtime in a file, signed here; and `executed`, which the runtime leaves, is gone again."""
    (tmp_path / "planted.py").write_text(PLANTED)
    (tmp_path / "model.bin").write_bytes(b"model")
    done = memprof("run", "model.bin", "-r", "./planted.py", "--warmup", "0", "--runs", "1", "--repeats", "1", "-o", "runs.jsonl")
    assert done.returncode == 0, done.stderr
    (tmp_path / "executed").unlink()
    path = tmp_path / "runs.jsonl"
    (measured,) = store.load([path]).runs
    jobs = [replace(measured.job, repeat=repeat) for repeat in range(1, 6)]
    path.write_bytes(b"".join(store.encode(replace(measured, job=job, signature=signing.signature(job))) for job in jobs))
    return path


def rewritten(path: Path, **changes: object) -> None:
    """The file as a stranger makes it: the same runs, but for these fields of each job."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["job"].update(changes)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def confirmed(memprof, *words):
    # --prove measures again whatever the verdict.
    return memprof("gate", "runs.jsonl", "--baseline", "runs.jsonl", "--prove", "-o", "new.jsonl", *words)


def test_runs_of_our_own_are_measured_again_and_what_is_executed_is_said_first(memprof, mine, tmp_path):
    done = confirmed(memprof)

    assert done.returncode in (0, 3), done.stderr
    assert (tmp_path / "executed").exists() and (tmp_path / "new.checks.jsonl").exists()
    lines = done.stderr.splitlines()
    (shown,) = [number for number, line in enumerate(lines) if "as the runs file says: runtime " in line]
    assert f"{tmp_path}/planted.py, interpreter " in lines[shown]
    assert shown < min(number for number, line in enumerate(lines) if line.startswith("[1/"))


@pytest.mark.parametrize(
    "changes",
    [
        {"env": {"LD_PRELOAD": "/tmp/evil.so\x1b]0;x\x07"}},
        {"python": "/tmp/evil-python"},
        {"runtime": "./planted.py"},
        {"knobs": {"preload": "/tmp/evil.so"}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_a_stranger_wrote_is_not_executed(memprof, mine, tmp_path, changes):
    rewritten(mine, **changes)

    done = confirmed(memprof)

    assert (done.returncode, done.stdout) == (5, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "memprof: --prove would execute what the runs file names for model.bin, planted, and memprof did not write that run here"
    )
    assert line.endswith("; --trust-runs allows it") and "\x1b" not in line and "\x07" not in line
    assert not (tmp_path / "executed").exists() and not (tmp_path / "new.checks.jsonl").exists()


def test_the_program_of_a_strangers_command_is_shown(memprof, mine, tmp_path):
    """It is what would be executed; the runtime of a program is only called `command`."""
    rewritten(mine, argv=("/bin/sh", "-c", "touch executed \x1b[2K"), cwd="/tmp/theirs")

    done = confirmed(memprof)

    assert (
        done.returncode == 5
        and "run here: program /bin/sh -c 'touch executed \\x1b[2K', folder /tmp/theirs, no variables; --trust" in done.stderr
    )
    assert not (tmp_path / "executed").exists()


def test_without_a_signature_nothing_is_executed_but_it_is_judged(memprof, mine, tmp_path):
    mine.write_bytes(b"".join(store.encode(replace(kept, signature=None)) for kept in store.load([mine]).runs))

    assert confirmed(memprof).returncode == 5
    assert memprof("gate", "runs.jsonl", "--baseline", "runs.jsonl").returncode == 0
    assert not (tmp_path / "executed").exists()


def test_a_signature_of_another_machine_is_a_strangers(memprof, mine, tmp_path):
    done = memprof(
        "gate", "runs.jsonl", "--baseline", "runs.jsonl", "--confirm", env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "other")}
    )

    assert done.returncode == 5 and "--confirm would execute" in done.stderr


def test_the_user_may_trust_a_file(memprof, mine, tmp_path):
    rewritten(mine, env={"HELLO": "1"})

    done = confirmed(memprof, "--trust-runs")

    assert done.returncode in (0, 3), done.stderr
    assert "HELLO=1" in done.stderr and (tmp_path / "executed").exists()


def test_trust_is_for_runs_that_are_measured_again(memprof, mine):
    done = memprof("gate", "runs.jsonl", "--baseline", "runs.jsonl", "--trust-runs")
    assert (done.returncode, done.stderr) == (2, "memprof: --trust-runs goes with --confirm or --prove, of runs from a file\n")


def test_a_search_does_not_take_up_a_strangers_settings(memprof, mine, tmp_path):
    rewritten(mine, knobs={"preload": "/tmp/evil.so"})

    done = memprof("tune", *TUNED, "-o", "runs.jsonl", "--append")

    assert done.returncode == 5
    assert "memprof: --append would execute what the runs file names" in done.stderr and "knob preload=/tmp/evil.so" in done.stderr


def test_a_function_of_a_file_from_elsewhere_is_not_run(memprof, tmp_path):
    (tmp_path / "evil.py").write_text(PLANTED)
    asked = {"module": "evil", "file": str(tmp_path / "evil.py"), "name": "Runtime", "path": [], "call": "", "token": ""}
    (tmp_path / "evil.json").write_text(json.dumps(asked))
    runner = Path(__file__).parents[1] / "runners/function.py"

    done = memprof("run", "evil.json", "-r", runner, "--repeats", "1", "-o", "new.jsonl")

    assert done.returncode == 4
    assert "was not written by the test that measures it" in done.stderr
    assert not (tmp_path / "executed").exists()


# -- signatures


@pytest.fixture
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/memprof"


def signed(job: Job):
    return replace(run(), job=job, signature=signing.signature(job))


OTHER = {
    "model": job().model.__class__("other", "/other", (), 0, ""),
    "env": {"A": None},
    "threads": 7,
    "shapes": {"x": (1, 2)},
    "argv": ("true",),
    "deterministic": True,
    "hold": True,
    "cache": "cold",
    "program": None,
    "knobs": {"a": "b"},
    "phases": {"A": "b"},
    "phase_regexes": {"A": "b"},
}


@pytest.mark.parametrize("name", [field.name for field in fields(Job)])
def test_every_field_of_a_job_but_its_variants_name_is_signed(own_state, name):
    before = signed(replace(job(), program=job().model.files[0] if job().model.files else None) if name == "program" else job())
    value = getattr(before.job, name)
    changed_value = OTHER.get(name, value + 1 if isinstance(value, int) else f"{value}x")
    if changed_value == value:
        pytest.skip("made without a program")

    changed = replace(before, job=replace(before.job, **{name: changed_value}))

    assert signing.is_own(before)
    assert signing.is_own(changed) == (name == "variant")


def test_a_signature_survives_the_file(own_state, tmp_path):
    made = signed(replace(job(), env={"A": None, "B": "c"}, shapes={"x": (1, 2)}))
    (tmp_path / "runs.jsonl").write_bytes(store.encode(made))
    (loaded,) = store.load([tmp_path / "runs.jsonl"]).runs
    assert loaded.signature == made.signature and signing.is_own(loaded)


def test_the_key_is_this_users_alone_and_made_once(own_state):
    first = signed(job())
    key = own_state / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 and len(key.read_bytes()) == 32
    assert [entry.name for entry in own_state.iterdir()] == ["key"]
    assert signing.is_own(first) and signing.signature(job()) == first.signature


@pytest.mark.parametrize("damage", ["readable", "short"])
def test_a_key_that_others_may_know_signs_nothing(own_state, damage):
    first = signed(job())
    key = own_state / "key"
    if damage == "readable":
        key.chmod(0o644)
    else:
        key.write_bytes(b"x")

    assert signing.signature(job()) is None
    assert not signing.is_own(first)


def test_where_no_key_can_be_kept_it_is_measured_all_the_same(memprof, scenario, tmp_path):
    (tmp_path / "file").touch()
    words = ("run", scenario(), "-r", "synthetic", "--repeats", "1", "--runs", "1", "-o", "new.jsonl")
    done = memprof(*words, env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "file")})

    assert done.returncode == 0, done.stderr
    (measured,) = store.load([tmp_path / "new.jsonl"]).runs
    assert measured.signature is None
    with pytest.raises(InputError, match="memprof did not write that run here"):
        signing.refuse_strangers([measured], "--confirm")


def test_a_module_in_the_working_folder_is_not_run_by_the_planner(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    zoo.make("mnist", tmp_path / "m.onnx", format="onnx")
    (tmp_path / "onnxruntime.py").write_text("import pathlib\npathlib.Path('executed').touch()\n")
    monkeypatch.chdir(tmp_path)

    order = executed.onnxruntime_order(read(Path("m.onnx")))

    assert order.order and not (tmp_path / "executed").exists()
