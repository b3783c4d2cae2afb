"""From flags or a file to Jobs: order, words, and everything that is refused before a process starts."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext

import pytest

from memprof.base import toml
from memprof.base.errors import InputError, UsageError
from memprof.subjects import suite, values
from memprof.subjects.settings import OF_A_SUITE, OF_A_VARIANT, fields
from memprof.subjects.suite import Suite, Variant


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "net.json"
    path.write_text("{}")
    return str(path)


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
def test_variant_from_word(text, expected):
    assert suite.parse_variant(text) == expected


@pytest.mark.parametrize("text", ["", "x", "x=", "=onert", "x=onert,mmap", "x=onert,=on", "x=onert,threads=0"])
def test_variant_invalid(text):
    with pytest.raises(UsageError):
        suite.parse_variant(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("in=1,3,224,224", ("in", (1, 3, 224, 224))), ("a=b=1x2", ("a=b", (1, 2))), ("scalar=", ("scalar", ()))]
)
def test_shape_from_word(text, expected):
    assert values.parse_shape(text) == expected


@pytest.mark.parametrize(
    ("shape", "array", "refusal"),
    [
        ((2, 3), (2, 3), None),
        ((2, 3), (7, 2, 3), None),  # a stream of seven
        ((4, 3), (2, 3), "--shape x=4,3: in.npz has x as 2x3; leave one of the two out"),
        ((3,), (), "--shape x=3: in.npz has x as scalar; leave one of the two out"),
    ],
)
def test_shape_beside_array(shape, array, refusal):
    with pytest.raises(UsageError, match=f"^{re.escape(refusal)}$") if refusal else nullcontext():
        values.check_arrays({"x": shape, "y": (1,)}, {"x": array}, "folder/in.npz")


@pytest.mark.parametrize("text", ["1,2", "=1", "in=a", "in=1,-2"])
def test_shape_invalid(text):
    with pytest.raises(UsageError):
        values.parse_shape(text)


def test_suite_file_overridden_by_flags(model, tmp_path):
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


def test_suite_file_relative_paths(tmp_path):
    (tmp_path / "suite.toml").write_text('models = ["net.json"]\nruntimes = ["mine.py"]')

    wished = suite.read(tmp_path / "suite.toml")

    assert wished.models == (str(tmp_path / "net.json"),)
    assert wished.runtimes == (str(tmp_path / "mine.py"),)


@pytest.mark.parametrize("content", ["models = 3", "modles = []", "x =", "[[variant]]\nname='a'", 'cache = "hot"', "\xff"])
def test_suite_file_invalid(tmp_path, content):
    (tmp_path / "suite.toml").write_bytes(content.encode("latin-1"))

    with pytest.raises(InputError, match=r"suite .*suite\.toml"):
        suite.read(tmp_path / "suite.toml")


def test_runtime_without_package_for_python():
    from memprof.programs.runtimes import Runtime

    assert "no package for Python 3.13.0; the last one is for 3.12" in Runtime("onert", "onert", python="3.13.0").how_to_install
    assert Runtime("onert", "onert", python="3.12.1").how_to_install == "pip install 'ml-memprof[onert]'"


def test_toml_long_lists_not_deep_keys(tmp_path):
    path = tmp_path / "suite.toml"
    names = [f"m{number}.json" for number in range(2000)]
    for quote in "\"'":
        path.write_text(f"models = [{', '.join(f'{quote}{name}{quote}' for name in names)}]\n")
        assert toml.read(path) == {"models": names}
    for text in (".".join("a" * 1000) + " = 1", "x = " + '"\\"' + '", ' + ".".join("a" * 1000), "\"\"\"; ''' " + ".".join("a" * 1000)):
        path.write_text(text)
        with pytest.raises(ValueError, match="nested too deeply"):
            toml.read(path)


# Each setting as a file has it, and as the command line has it.
BOTH = {
    "set": ({"arena": False, "level": 3}, ("arena=off", "level=3")),
    "threads": ([1, 2], "1,2"),
    "env": ({"A": "1"}, ("A=1",)),
    "python": ("/opt/python", "/opt/python"),
    "shape": ({"x": [1, 3]}, ("x=1,3",)),
    "inputs": ("in.npz", "{folder}/in.npz"),
    "input": ({"sr": 16000, "flag": True, "scale": 0.5}, ("sr=16000", "flag=on", "scale=0.5")),
    "name": ("net", "net"),
    "cwd": ("build", "{folder}/build"),
    "phase": ({"load": "open_model"}, ("load=open_model",)),
    "phase_regex": ({"load": "a=b"}, ("load=a=b",)),
    "drive": ("http:80/x,parallel=2", "http:80/x,parallel=2"),
    "warmup": (0, 0),
    "runs": (7, 7),
    "cache": ("cold", "cold"),
    "deterministic": (False, False),
    "cpus": ("1,0", "1,0"),
    "no_swap": (True, True),
    "recorder": ("c", "c"),
    "timeout": ("2min", "2min"),
    "interval": ("2ms", "2ms"),
    "max_temperature": ("45C", "45C"),
    "repeats": (3, 3),
    "release": (False, False),
}


@pytest.mark.parametrize("setting", OF_A_SUITE, ids=lambda setting: setting.name)
def test_setting_same_in_file(tmp_path, setting):
    in_file, word = BOTH[setting.parameter]
    text = {
        list: lambda: str(in_file),
        dict: lambda: "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in in_file.items()) + " }",
    }
    (tmp_path / "suite.toml").write_text(f"{setting.parameter} = {text.get(type(in_file), lambda: json.dumps(in_file))()}\n")
    word = word.replace("{folder}", str(tmp_path)) if isinstance(word, str) else word

    of_file = suite.read(tmp_path / "suite.toml")

    assert getattr(of_file, setting.field) == fields({setting.parameter: word}, "")[setting.field]
    assert getattr(of_file, setting.field) != getattr(Suite(), setting.field)


@pytest.mark.parametrize(
    ("written", "meant"), [("env/bin/python", "{folder}/env/bin/python"), ("/opt/python", "/opt/python"), ("python3.11", "python3.11")]
)
def test_interpreter_relative_to_file(tmp_path, written, meant):
    path = tmp_path / "suite.toml"
    path.write_text(
        f'python = "{written}"\n[[variant]]\nname = "v"\nruntime = "synthetic"\npython = "{written}"\n[build]\npython = "{written}"\n'
    )

    read = suite.read(path)

    assert {read.python, read.variants[0].python, read.build.python} == {meant.format(folder=tmp_path)}


def test_variant_same_settings_as_suite(tmp_path):
    path = tmp_path / "suite.toml"
    settings = (
        'set = { arena = false, level = 3 }\nthreads = [1, 2]\nenv = { A = 1 }\nshape = { x = [1, 3], y = [] }\npython = "./python"\n'
    )
    path.write_text(f'{settings}[[variant]]\nruntime = "synthetic"\n{settings}')

    read = suite.read(path)

    for setting in OF_A_VARIANT:
        assert getattr(read.variants[0], setting.field) == getattr(read, setting.field) != getattr(Suite(), setting.field)
