"""From flags or a file to Jobs: order, words, and everything that is refused before a process starts."""

from __future__ import annotations

import json

import pytest

from memprof import toml
from memprof.errors import InputError, UsageError
from memprof.measuring import orders, suite
from memprof.measuring.suite import Suite, Variant


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "net.json"
    path.write_text("{}")
    return str(path)


def planned(model, **words):
    return orders.plan(Suite(models=(model,), **{"runtimes": ("synthetic",), **words}))


def test_variants_are_interleaved_within_each_repeat(model):
    plan = planned(model, runtimes=(), variants=(Variant("synthetic", "a"), Variant("synthetic", "b")), repeats=2)

    assert [(order.job.repeat, order.job.variant) for order in plan.orders] == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]


def test_the_defaults_are_those_of_the_readme(model):
    job = planned(model).orders[0].job

    assert (job.warmup, job.runs, job.cache, job.deterministic) == (5, 5, "warm", False)
    assert (job.interval_ns, job.timeout_ns) == (1_000_000, 600 * 10**9)
    assert len(planned(model).orders) == 5


def test_a_sweep_over_threads_is_one_job_each(model):
    assert [order.job.threads for order in planned(model, threads=(1, 2, 4), repeats=1).orders] == [1, 2, 4]


@pytest.mark.parametrize(("threads", "expected"), [(1, 5_000_000), (10_000, 0)])
def test_timed_iterations_are_not_polled_where_every_cpu_is_used(model, monkeypatch, threads, expected):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})

    assert planned(model, threads=(threads,)).orders[0].job.iterations_interval_ns == expected


def test_an_interval_of_ones_own_holds_everywhere(model):
    job = planned(model, threads=(10_000,), interval_ns=2_000_000).orders[0].job

    assert (job.interval_ns, job.iterations_interval_ns) == (2_000_000, 2_000_000)


def test_knobs_are_checked_and_brought_into_one_form(model):
    order = planned(model, set={"malloc_mmap_threshold": "64KiB", "extra": "1MiB"}).orders[0]

    assert order.job.knobs == {"malloc_mmap_threshold": "65536", "extra": "1048576"}
    assert order.env == {"MALLOC_MMAP_THRESHOLD_": "65536"}


def test_deterministic_is_one_thread_one_arena_and_a_fixed_seed(model):
    order = planned(model, deterministic=True).orders[0]

    assert order.job.threads == 1
    assert order.env == {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "1"}


def test_environment_of_a_variant_wins_over_that_of_all(model):
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
def test_what_cannot_be_meant_is_said(model, words, reason):
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
def test_what_is_not_there_is_said(model, words, reason):
    with pytest.raises(InputError) as error:
        planned(model, **words)

    assert reason in str(error.value)


def test_a_model_that_a_runtime_does_not_take_is_left_out_with_a_remark(model, tmp_path):
    (tmp_path / "user.py").write_text(
        "class Runtime:\n    formats = ('.bin',)\n    def load(self, m, o): ...\n    def prepare(self): ...\n    def execute(self): ..."
    )

    plan = planned(model, runtimes=("synthetic", str(tmp_path / "user.py")))

    assert {order.job.variant for order in plan.orders} == {"synthetic"}
    assert plan.remarks == ("net.json: user is left out, user.py takes .bin",)


def test_a_model_left_with_no_runtime_is_an_error(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"x")

    with pytest.raises(UsageError, match="none of the named runtimes takes it"):
        planned(str(tmp_path / "net.onnx"))


def test_few_repeats_are_remarked_on(model):
    assert "too few to decide a comparison" in planned(model, repeats=4).remarks[0]
    assert planned(model, repeats=5).remarks == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x=onert,mmap=on", Variant("onert", "x", {"mmap": "on"})),
        ("x=./my.py", Variant("./my.py", "x")),
        (
            "x=tvm,python=/p,threads=2,env.A=b=c,weights=separate",
            Variant("tvm", "x", {"weights": "separate"}, (2,), "/p", {"A": "b=c"}),
        ),
    ],
)
def test_a_variant_is_read_from_one_word(text, expected):
    assert suite.parse_variant(text) == expected


@pytest.mark.parametrize("text", ["", "x", "x=", "=onert", "x=onert,mmap", "x=onert,=on", "x=onert,threads=0"])
def test_a_variant_that_cannot_be_read_is_said(text):
    with pytest.raises(UsageError):
        suite.parse_variant(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("in=1,3,224,224", ("in", (1, 3, 224, 224))), ("a=b=1x2", ("a=b", (1, 2))), ("scalar=", ("scalar", ()))]
)
def test_a_shape_is_read(text, expected):
    assert suite.parse_shape(text) == expected


@pytest.mark.parametrize("text", ["1,2", "=1", "in=a", "in=1,-2"])
def test_a_shape_that_cannot_be_read_is_said(text):
    with pytest.raises(UsageError):
        suite.parse_shape(text)


def test_a_file_says_the_same_in_the_same_words_and_flags_win(model, tmp_path):
    path = tmp_path / "suite.toml"
    path.write_text(
        f"""
        models = [{json.dumps(model)}]
        repeats = 7
        interval = "2ms"
        threads = [1, 2]
        [set]
        malloc_arenas = 1
        malloc_trim = true
        [shape]
        input = [1, 2]
        [[variant]]
        name = "more"
        runtime = "synthetic"
        set = {{ extra = "1MiB" }}
        env = {{ A = "1" }}
        """
    )

    merged = Suite(repeats=3, set={"malloc_arenas": "2"}).over(suite.read(path))

    assert merged.models == (model,)
    assert (merged.repeats, merged.interval_ns, merged.threads) == (3, 2_000_000, (1, 2))
    assert merged.set == {"malloc_arenas": "2", "malloc_trim": "on"}
    assert merged.variants == (Variant("synthetic", "more", {"extra": "1MiB"}, env={"A": "1"}),)
    assert merged.shapes == {"input": (1, 2)}


def test_paths_in_a_file_are_relative_to_it(tmp_path):
    (tmp_path / "suite.toml").write_text('models = ["net.json"]\nruntimes = ["mine.py"]')

    wished = suite.read(tmp_path / "suite.toml")

    assert wished.models == (str(tmp_path / "net.json"),)
    assert wished.runtimes == (str(tmp_path / "mine.py"),)


@pytest.mark.parametrize("content", ["models = 3", "modles = []", "x =", "[[variant]]\nname='a'", 'cache = "hot"', "\xff"])
def test_a_bad_file_is_said(tmp_path, content):
    (tmp_path / "suite.toml").write_bytes(content.encode("latin-1"))

    with pytest.raises(InputError, match=r"suite .*suite\.toml"):
        suite.read(tmp_path / "suite.toml")


def test_a_runtime_without_a_package_for_a_python_says_so():
    from memprof.programs.runtimes import Runtime

    assert "no package for Python 3.13.0; the last one is for 3.12" in Runtime("onert", "onert", python="3.13.0").how_to_install
    assert Runtime("onert", "onert", python="3.12.1").how_to_install == "pip install 'ml-memprof[onert]'"


def test_a_knob_that_needs_another_is_refused_before_anything_is_measured(tmp_path):
    pytest.importorskip("ai_edge_litert")
    (tmp_path / "net.tflite").write_bytes(b"x")
    words = {"models": (str(tmp_path / "net.tflite"),), "runtimes": ("litert",)}

    with pytest.raises(UsageError, match=r"^litert: weight_cache=on needs api=compiled_model$"):
        orders.plan(Suite(**words, set={"weight_cache": "on"}))
    with pytest.raises(UsageError, match=r"^litert: node_fusion=off needs api=interpreter$"):
        orders.plan(Suite(**words, set={"node_fusion": "off", "api": "compiled_model"}))
    with pytest.raises(UsageError, match=r"^litert: preserve_all_tensors=on needs api=interpreter$"):
        orders.plan(Suite(**words, set={"preserve_all_tensors": "on", "api": "compiled_model"}))

    for given in ({"weight_cache": "on", "api": "compiled_model"}, {"weight_cache": "off"}, {"node_fusion": "off"}):
        assert orders.plan(Suite(**words, set=given)).orders[0].job.knobs == given


def test_a_suite_may_name_thousands_of_files_in_a_line_and_no_key_of_a_thousand_parts(tmp_path):
    path = tmp_path / "suite.toml"
    names = [f"m{number}.json" for number in range(2000)]
    for quote in "\"'":
        path.write_text(f"models = [{', '.join(f'{quote}{name}{quote}' for name in names)}]\n")
        assert toml.read(path) == {"models": names}
    for text in (".".join("a" * 1000) + " = 1", "x = " + '"\\"' + '", ' + ".".join("a" * 1000), "\"\"\"; ''' " + ".".join("a" * 1000)):
        path.write_text(text)
        with pytest.raises(ValueError, match="nested too deeply"):
            toml.read(path)
