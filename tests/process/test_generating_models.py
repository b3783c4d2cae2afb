"""Models that generate: the runtimes' contract, llama.cpp's settings, and what tables say of tokens."""

from __future__ import annotations

import json
import sys

import pytest
from support.session_cache import once

import memprof as library
from memprof import zoo
from memprof.base.runners import runners_path
from memprof.models import gguf

MIB = 1 << 20

COUNTING = """
class Runtime:
    version = "1"
    def load(self, model, options):
        self.prompts = 0
    def prepare(self): ...
    def prompt(self):
        self.prompts += 1
        return 7
    def generate(self):
        return 5
    def figures(self):
        return {"prompts": self.prompts}
"""


@pytest.fixture
def counting(tmp_path):
    (tmp_path / "counting.py").write_text(COUNTING)
    (tmp_path / "model.bin").write_bytes(b"x")
    return tmp_path


def values(run, name):
    return {value.phase: value.value for value in run.values if value.name == name}


@pytest.mark.usefixtures("recorder")
def test_generating_runtime_phases(counting):
    (run,) = library.measure([counting / "model.bin"], [str(counting / "counting.py")], warmup=2, runs=3, repeats=1)

    assert run.outcome.ok, run.outcome.sentence
    assert [mark.phase for mark in run.marks] == ["STARTUP", "MODEL_LOAD", "PREPARE", "WARMUP", "PROMPT", "GENERATE", "RELEASE"]
    assert [len(mark.times_ns) for mark in run.marks[3:6]] == [2, 3, 3]
    assert [mark.units for mark in run.marks[3:6]] == [{"token": 24}, {"token": 21}, {"token": 15}]
    assert values(run, "prompts") == {"MODEL_LOAD": 0, "PREPARE": 0, "WARMUP": 2, "PROMPT": 5, "GENERATE": 5}
    assert all(before.end_ns <= after.begin_ns for before, after in zip(run.marks, run.marks[1:], strict=False))


@pytest.fixture(scope="module")
def llama():
    pytest.importorskip("xllamacpp")
    return once("llama of 1 MB", lambda folder: zoo.make("llama", folder / "llama.gguf", format="gguf", size_bytes=10**6)) / "llama.gguf"


def measured(model, **settings):
    """The run of a model with these settings, each with one short request."""
    knobs = {"prompt": "8", "generate": "2", "context": "256", **settings}
    (run,) = library.measure([model], ["llamacpp"], set=knobs, threads=[1], warmup=0, runs=1, repeats=1)
    return run


def test_cache_memory_in_prepare_phase(llama):
    small, large = measured(llama, context="1024"), measured(llama, context="33792")
    quantised = measured(llama, context="33792", kv_type="q4_0")

    assert small.outcome.ok, small.outcome.sentence
    assert [mark.phase for mark in small.marks] == ["STARTUP", "MODEL_LOAD", "PREPARE", "PROMPT", "GENERATE", "RELEASE"]
    loads = [run.mark("MODEL_LOAD").anon_end_bytes for run in (small, large)]
    assert abs(loads[0] - loads[1]) < MIB
    tokens = 33792 - 1024
    grown = large.mark("PREPARE").anon_end_bytes - small.mark("PREPARE").anon_end_bytes
    cache = gguf.kv_cache(llama)
    # Beside the cache llama.cpp keeps a table of its cells, of some 60 bytes per token.
    assert cache.bytes_per_token() * tokens - MIB <= grown <= (cache.bytes_per_token() + 100) * tokens + MIB
    saved = large.mark("PREPARE").anon_end_bytes - quantised.mark("PREPARE").anon_end_bytes
    assert saved == pytest.approx((cache.bytes_per_token("f16") - cache.bytes_per_token("q4_0")) * 33792, abs=MIB)
    assert small.mark("PROMPT").units == {"token": 8} and small.mark("GENERATE").units == {"token": 2}
    released = small.mark("RELEASE")
    assert released.anon_end_bytes < large.mark("PREPARE").anon_end_bytes


def test_weights_unmapped_are_anonymous(llama):
    mapped, read = measured(llama), measured(llama, mmap="off")
    weights = {value.phase: value.value for value in mapped.values if value.name == "model_resident_bytes"}
    assert weights["GENERATE"] == pytest.approx(llama.stat().st_size, rel=0.2)
    assert not [value for value in read.values if value.name == "model_resident_bytes"]
    assert read.mark("MODEL_LOAD").anon_end_bytes - mapped.mark("MODEL_LOAD").anon_end_bytes > llama.stat().st_size / 2


def test_server_loads_in_one_call(llama):
    run = measured(llama, engine="server", prompt_cache="1MiB")
    assert run.outcome.ok, run.outcome.sentence
    assert "MODEL_LOAD has PREPARE in it" in run.about.notes[0]
    assert run.mark("GENERATE").units == {"token": 2}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"prompt": "300"}, "prompt=300 and generate=2 are 302 tokens: more than the 256"),
        ({"slots": "64", "kv_unified": "off"}, "more than the 4 of a slot (context=256 shared out to slots=64)"),
        ({"kv_type": "q8_0", "flash_attention": "off"}, "kv_type=q8_0 needs flash attention"),
        ({"prompt_cache": "1MiB"}, "prompt_cache is a setting of llama.cpp's server: give engine=server too"),
        ({"batch": "0"}, "batch=0: it is a number from 1"),
    ],
)
def test_settings_fatal_to_llamacpp_refused(llama, settings, words):
    run = measured(llama, **settings)
    assert (run.outcome.status, run.outcome.phase) == ("refused", "MODEL_LOAD")
    assert words in run.outcome.message


def test_damaged_model_quotes_llamacpp(llama, tmp_path):
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(llama.read_bytes()[:20000])
    run = measured(damaged)
    assert (run.outcome.status, run.outcome.phase) == ("error", "MODEL_LOAD")
    assert "llama" in run.outcome.message or "tensor" in run.outcome.message or "gguf" in run.outcome.message


def test_package_of_other_layout_not_trusted(monkeypatch):
    monkeypatch.syspath_prepend(str(runners_path()))
    for name in [name for name in sys.modules if name.split(".")[0] == "runtimes"]:
        monkeypatch.delitem(sys.modules, name)
    from runtimes import llamacpp

    class Params:
        n_predict = n_ctx = n_batch = n_ubatch = 1

    class Package:
        class xllamacpp:
            __file__ = "/no/such/library.so"

    assert llamacpp._address(Params()) is None
    assert llamacpp._Direct.over(Package, Params()) is None
    assert Params.n_ctx == 1


def test_run_without_iterations(llama):
    (run,) = library.measure([llama], ["llamacpp"], set={"context": "256"}, threads=[1], warmup=0, runs=0, repeats=1)
    assert run.outcome.ok, run.outcome.sentence
    assert [mark.phase for mark in run.marks] == ["STARTUP", "MODEL_LOAD", "PREPARE", "RELEASE"]


def test_table_shows_token_rate_and_rereads():
    from msgspec.structs import replace
    from support.sample_runs import mark, run

    from memprof.reports.tables import table

    read = {"major_faults": 7, "read_bytes": 3 * MIB}
    marks = (
        mark("STARTUP", 0, 40, 40),
        mark("MODEL_LOAD", 1, 90, 90),
        replace(mark("PROMPT", 2, 95, 96, times_ms=(500, 500)), units={"token": 200}, end_ns=3 * 10**9, read_bytes=0),
        replace(mark("GENERATE", 4, 95, 96, times_ms=(1000, 1000)), units={"token": 10}, end_ns=6 * 10**9, **read),
    )
    text = table.render([replace(run(), marks=marks)])
    rows = [line for line in text.splitlines() if "tokens/s" in line or "200.0" in line]
    assert rows[0].count("tokens/s") == 2 and "read from disk (MiB)" in rows[0]
    assert "200.0" in rows[1] and "5.00" in rows[1] and "3.00" in rows[1]
    shown = table.render([replace(run(), marks=marks)], format="json")
    assert '"token": 200' in shown
    assert "Latency in GENERATE" in table.render([replace(run(), marks=marks)], ["time_ns"], style="models")
    assert "refaults" not in rows[0]
    in_a_group = [replace(each, refaults=count) for each, count in zip(marks, (0, 3, 4, 5), strict=True)]
    rows = [
        line.split("|")
        for line in table.render([replace(run(), marks=tuple(in_a_group))]).splitlines()
        if "tokens/s" in line or "200.0" in line
    ]
    column = next(place for place, cell in enumerate(rows[0]) if cell.strip() == "refaults")
    assert rows[1][column].strip() == "9"


KEEPS = COUNTING.replace("self.prompts += 1", "self.prompts += 1; kept.append(b'x' * 8000)").replace("class", "kept = []\nclass", 1)


def test_grow_counts_requests(memprof, counting):
    (counting / "counting.py").write_text(KEEPS)
    done = memprof("grow", counting / "model.bin", "-r", counting / "counting.py", "--budget", "300", "--json")

    assert done.returncode == 1, done.stderr
    verdict = json.loads(done.stdout)["verdict"]
    assert (verdict["word"], verdict["unit"], verdict["rivals"]) == ("grows", "request", ["token"])
    assert verdict["slope"] == pytest.approx(8000, rel=0.1)


def test_grow_by_reload_of_generating_runtime(memprof, counting):
    (counting / "counting.py").write_text(KEEPS)
    done = memprof("grow", counting / "model.bin", "-r", counting / "counting.py", "--cycles", "reload", "--budget", "100")

    assert done.returncode == 1, done.stderr
    assert "KiB per reload" in done.stdout
