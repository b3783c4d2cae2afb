"""From flags or a file to Jobs: order, words, and everything that is refused before a process starts."""

from __future__ import annotations

import pytest

from memprof.base.errors import InputError, UsageError
from memprof.subjects import orders
from memprof.subjects.suite import Suite, Variant


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "net.json"
    path.write_text("{}")
    return str(path)


def planned(model, **words):
    return orders.plan(Suite(models=(model,), **{"runtimes": ("synthetic",), **words}))


def test_variants_interleaved_in_each_repeat(model):
    plan = planned(model, runtimes=(), variants=(Variant("synthetic", "a"), Variant("synthetic", "b")), repeats=2)

    assert [(order.job.repeat, order.job.variant) for order in plan.orders] == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]


def test_defaults_match_readme(model):
    job = planned(model).orders[0].job

    assert (job.warmup, job.runs, job.cache, job.deterministic) == (5, 5, "warm", False)
    assert (job.interval_ns, job.timeout_ns) == (1_000_000, 600 * 10**9)
    assert len(planned(model).orders) == 5


def test_thread_sweep_one_job_each(model):
    assert [order.job.threads for order in planned(model, threads=(1, 2, 4), repeats=1).orders] == [1, 2, 4]


@pytest.mark.parametrize(("threads", "expected"), [(1, 5_000_000), (10_000, 0)])
def test_polling_of_iterations_by_threads(model, monkeypatch, threads, expected):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})

    assert planned(model, threads=(threads,)).orders[0].job.iterations_interval_ns == expected


def test_interval_given_holds_everywhere(model):
    job = planned(model, threads=(10_000,), interval_ns=2_000_000).orders[0].job

    assert (job.interval_ns, job.iterations_interval_ns) == (2_000_000, 2_000_000)


def test_knobs_checked_and_normalized(model):
    order = planned(model, set={"malloc_mmap_threshold": "64KiB", "extra": "1MiB"}).orders[0]

    assert order.job.knobs == {"malloc_mmap_threshold": "65536", "extra": "1048576"}
    assert order.env == {"MALLOC_MMAP_THRESHOLD_": "65536"}


def test_deterministic_settings(model):
    order = planned(model, deterministic=True).orders[0]

    assert order.job.threads == 1
    assert order.env == {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "1"}


def test_environment_of_variant_wins(model):
    order = planned(model, runtimes=(), variants=(Variant("synthetic", "a", env={"X": "2"}),), env={"X": "1", "Y": "1"}).orders[0]

    assert order.job.env == {"X": "2", "Y": "1"}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"runtimes": ()}, "name a runtime"),
        ({"runtimes": ("onnxruntim",)}, "no runtime 'onnxruntim'; did you mean onnxruntime"),
        ({"runtimes": ("synthetic", "synthetic")}, "two variants are called synthetic"),
        ({"set": {"extr": "1"}}, "no knob 'extr'; did you mean extra"),
        ({"set": {"malloc_trim": "maybe"}}, "malloc_trim takes on|off"),
        ({"set": {"malloc_arenas": "few"}}, "malloc_arenas takes a whole number"),
        ({"set": {"extra": "big"}}, "'big' is not a size"),
        ({"repeats": 0}, "repeats 0: 1 is the least"),
        ({"runs": -1}, "runs -1: 0 is the least"),
        ({"threads": (0,)}, "threads 0: 1 is the least"),
        ({"shapes": {"x": (2, -1)}}, "a size of x -1: 0 is the least"),
    ],
)
def test_plan_refuses_bad_values(model, words, reason):
    with pytest.raises(UsageError) as error:
        planned(model, **words)

    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"python": "/no/such/python"}, "no such interpreter"),
        ({"python": "/bin/true"}, "not a usable Python"),
        ({"runtimes": ("./none.py",)}, "no such file"),
        ({"set": {"preload": "/no/such.so"}}, "preload=/no/such.so: no such file"),
        ({"inputs": "/no/such.npz"}, "no such file"),
    ],
)
def test_plan_refuses_missing_files(model, words, reason):
    with pytest.raises(InputError) as error:
        planned(model, **words)

    assert reason in str(error.value)


def test_model_unsupported_by_one_runtime(model, tmp_path):
    (tmp_path / "user.py").write_text(
        "class Runtime:\n    formats = ('.bin',)\n    def load(self, m, o): ...\n    def prepare(self): ...\n    def execute(self): ..."
    )

    plan = planned(model, runtimes=("synthetic", str(tmp_path / "user.py")))

    assert {order.job.variant for order in plan.orders} == {"synthetic"}
    assert plan.remarks == ("net.json: user is left out, user.py takes .bin",)


def test_model_without_runtime(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"\0")

    with pytest.raises(UsageError, match="none of the named runtimes takes it"):
        planned(str(tmp_path / "net.onnx"))


def test_few_repeats_remarked(model):
    assert "too few to decide a comparison" in planned(model, repeats=4).remarks[0]
    assert planned(model, repeats=5).remarks == ()


def test_knob_needing_another_refused(tmp_path):
    pytest.importorskip("ai_edge_litert")
    (tmp_path / "net.tflite").write_bytes(b"\0")
    words = {"models": (str(tmp_path / "net.tflite"),), "runtimes": ("litert",)}

    with pytest.raises(UsageError, match=r"^litert: weight_cache=on needs api=compiled_model$"):
        orders.plan(Suite(**words, set={"weight_cache": "on"}))
    with pytest.raises(UsageError, match=r"^litert: node_fusion=off needs api=interpreter$"):
        orders.plan(Suite(**words, set={"node_fusion": "off", "api": "compiled_model"}))
    with pytest.raises(UsageError, match=r"^litert: preserve_all_tensors=on needs api=interpreter$"):
        orders.plan(Suite(**words, set={"preserve_all_tensors": "on", "api": "compiled_model"}))

    for given in ({"weight_cache": "on", "api": "compiled_model"}, {"weight_cache": "off"}, {"node_fusion": "off"}):
        assert orders.plan(Suite(**words, set=given)).orders[0].job.knobs == given
