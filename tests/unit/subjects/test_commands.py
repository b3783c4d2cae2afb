"""Commands as variants: their words, their models, how they end, and phases that come from what they print."""

from __future__ import annotations

import json

import pytest
from support.recorder_runs import sentence
from support.sample_runs import run as made_run

from memprof.base.errors import InputError, UsageError
from memprof.programs import commands, symbols
from memprof.records import store
from memprof.records.recorder_order import CommandStart
from memprof.subjects import orders, suite


@pytest.mark.parametrize(
    ("text", "name", "argv", "env"),
    [
        ("orig=./app --model m.tflite", "orig", ("./app", "--model", "m.tflite"), {}),
        ("./app --model=m.tflite", "app", ("./app", "--model=m.tflite"), {}),
        ("two=OMP_NUM_THREADS=2 A= ./app 'a b'", "two", ("./app", "a b"), {"OMP_NUM_THREADS": "2", "A": ""}),
        ("v1.2-rc+x=app", "v1.2-rc+x", ("app",), {}),
        ('j=app {"a":1} {threads}', "j", ("app", "{a:1}", "{threads}"), {}),
        ("ünï=./äpp ö", "äpp", None, None),
    ],
)
def test_command_parts(text, name, argv, env):
    if argv is None:  # only plain words are names; the rest is a program's path
        assert commands.parse(text).argv == ("ünï=./äpp", "ö")
        return
    command = commands.parse(text)
    assert (command.name, command.argv, dict(command.env)) == (name, argv, env)


@pytest.mark.parametrize(
    ("text", "said"),
    [("a=", "write NAME=PROGRAM"), ("", "write NAME=PROGRAM"), ("a=./x 'open", "no closing quotation"), ("a=B=c", "names no program")],
)
def test_command_malformed(text, said):
    with pytest.raises(UsageError, match=said):
        commands.parse(text)


def words_of(*texts, **settings):
    """The argv of each order of these commands, without repeats."""
    planned = orders.plan(suite.Suite(variants=tuple(map(suite.parse_cmd, texts)), repeats=1, **settings))
    return [(order.job.variant, order.job.model.name, order.job.threads, order.argv[1:]) for order in planned.orders]


def test_braces_known_filled_others_kept(tmp_path):
    model = tmp_path / "net.tflite"
    model.write_bytes(b"not empty")

    planned = words_of("a=echo {model} {threads} {runs} {warmup} {x} {}", models=(str(model),), threads=(1, 4), runs=7, warmup=2)

    assert planned == [("a", "net.tflite", count, (str(model), str(count), "7", "2", "{x}", "{}")) for count in (1, 4)]


def test_threads_in_command_variable():
    (planned,) = orders.plan(suite.Suite(variants=(suite.parse_cmd("a=OMP_NUM_THREADS={threads} echo"),), threads=(3,), repeats=1)).orders
    assert planned.env["OMP_NUM_THREADS"] == "3"
    assert planned.job.threads == 3


@pytest.mark.parametrize("form", ["{}", "--graph={}"])
def test_model_is_first_model_word(tmp_path, form):
    (tmp_path / "net.circle").write_bytes(b"model")
    (tmp_path / "data.bin").write_bytes(b"data")

    (planned,) = orders.plan(
        suite.Suite(variants=(suite.parse_cmd(f"a=echo data.bin {form.format('net.circle')}"),), cwd=str(tmp_path), repeats=1)
    ).orders

    assert (planned.job.model.name, planned.job.model.bytes) == ("net.circle", 5)
    assert [file.path for file in planned.job.model.files] == [str(tmp_path / "net.circle")]  # brought into the page cache
    assert planned.cwd == str(tmp_path)


def test_nnpackage_as_model(tmp_path):
    (tmp_path / "net" / "metadata").mkdir(parents=True)
    (tmp_path / "net" / "metadata" / "MANIFEST").write_text("{}")
    assert words_of(f"a=echo {tmp_path}/net")[0][1] == "net"


def test_commands_without_model_share_name():
    planned = words_of("orig=echo a", "swap=printf b")
    assert [(variant, model) for variant, model, *_ in planned] == [("orig", "echo"), ("swap", "echo")]
    assert words_of("a=echo", name="VGG16")[0][1] == "VGG16"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["/a/b/app --in x 1", "/a/b/app --in y 1"], ["… --in x", "… --in y"]),
        (["/a/old/bin/app x", "/a/new/bin/app x"], ["old/bin/app", "new/bin/app"]),
        (["/a/app x", "/a/app x --swap"], ["app", "… --swap"]),
        (["/a/app x y", "/a/app y x"], ["command /a/app x y", "command /a/app y x"]),
    ],
)
def test_commands_of_same_name_told_apart(texts, expected):
    made = [made_run("app", argv=tuple(text.split())) for text in texts]
    apart, _ = store.told_apart(made)
    assert [run.job.variant for run in apart] == [f"app ({text})" for text in expected]


def test_command_unstartable_among_several():
    planned = orders.plan(suite.Suite(variants=tuple(map(suite.parse_cmd, ["here=true", "gone=./nope"])), repeats=1))
    assert [(order.job.variant, str(order.error)) for order in planned.orders] == [("here", "None"), ("gone", "nope: no such file")]
    with pytest.raises(InputError, match=r"^nope: no such file$"):  # once, and not after its own name
        words_of("./nope", "other=./nope2")


def test_several_models_need_placeholder(tmp_path):
    models = []
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).write_bytes(b"model")
        models.append(str(tmp_path / name))
    with pytest.raises(UsageError, match="there are 2 of them"):
        words_of("x=echo", models=tuple(models))
    assert [words[1] for words in words_of("x=echo {model}", models=tuple(models))] == ["a.onnx", "b.onnx"]


def test_runs_without_placeholder_remarked():
    planned = orders.plan(suite.Suite(variants=(suite.parse_cmd("a=echo"),), runs=3, repeats=5))
    assert planned.remarks == ("a: runs has no effect, write {runs} into the command where the number goes",)
    assert planned.orders[0].job.runs == 0


@pytest.mark.parametrize(
    ("words", "remark"),
    [
        ({"python": "python3"}, "python has no effect on a program"),
        ({"inputs": "x.npz", "shapes": {"x": (1,)}}, "shape and inputs have no effect on a program"),
        ({"name": "other"}, None),
    ],
)
def test_settings_for_runtimes_remarked(words, remark):
    planned = orders.plan(suite.Suite(variants=(suite.parse_cmd("a=echo"),), repeats=5, **words))

    assert planned.remarks == ((remark,) if remark else ())


def test_suite_folder_of_commands(tmp_path):
    for name in ("build", "other"):
        (tmp_path / name).mkdir()
    path = tmp_path / "suite.toml"
    path.write_text('cwd = "build"\n[[variant]]\ncmd = "echo"\n[[variant]]\ncmd = "printf x"\ncwd = "other"\n')

    assert [each.command.cwd for each in suite.read(path).variants] == [str(tmp_path / "build"), str(tmp_path / "other")]
    assert [each.command.cwd for each in suite.read(path, cwd="mine").variants] == ["mine", str(tmp_path / "other")]


def test_suite_file_with_commands(tmp_path):
    (tmp_path / "build").mkdir()
    app = tmp_path / "build" / "app"
    app.write_text("#!/bin/sh\nexit 0\n")
    app.chmod(0o755)
    (tmp_path / "suite.toml").write_text(
        'repeats = 2\nruns = 3\n[phase_regex]\nload = "loaded"\n'
        '[[variant]]\nname = "one"\ncmd = "A=1 ./app --runs {runs}"\ncwd = "build"\nenv = { B = "2" }\n'
        '[[variant]]\nname = "two"\ncmd = ["build/app", "a b"]\n'
    )

    first, second, *_ = orders.plan(suite.read(tmp_path / "suite.toml")).orders

    assert (first.job.variant, first.argv, first.cwd) == ("one", (str(app), "--runs", "3"), str(tmp_path / "build"))
    assert (dict(first.env), first.job.runs) == ({"A": "1", "B": "2"}, 3)
    assert second.argv == (str(app), "a b")
    assert first.command == CommandStart((("MODEL_LOAD", "loaded"),))


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        ('name = "a"', "needs either a runtime or a cmd"),
        ('runtime = "onert"\ncmd = "./x"', "needs either"),
        ('cmd = "./x"\nset = {a = 1}', "for runtimes"),
    ],
)
def test_suite_file_refusals(tmp_path, variant, said):
    (tmp_path / "suite.toml").write_text(f"[[variant]]\n{variant}\n")
    with pytest.raises(InputError, match=said):
        suite.read(tmp_path / "suite.toml")


def test_old_runs_files_still_read():
    old = json.loads(store.encode(made_run()))
    for name in ("argv", "cwd", "program", "phases", "phase_regexes"):
        del old["job"][name]
    del old["values"], old["processes"]

    run = store.decode(json.dumps(old).encode(), "an old file")

    assert (run.job.argv, run.values, run.processes) == ((), (), ())


@pytest.mark.parametrize(("text", "said"), [("load", "write NAME=REGEX"), ("load=(", "missing \\)"), ("=x", "write NAME=REGEX")])
def test_phase_regex_malformed(text, said):
    with pytest.raises(UsageError, match=said):
        commands.parse_regex(text)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["exec"], 2, "Missing argument"),
        (["exec", "--", "nosuchprogram"], 5, "there is no command nosuchprogram"),
        (["exec", "--phase-regex", "a=(", "--", "true"], 2, "missing )"),
        (["exec", "--phase", "load", "--", "true"], 2, "write NAME=FUNCTION"),
        (["run", "--cmd", "a=true", "-r", "synthetic"], 2, "a runtime among the commands needs one"),
        (["attach", "4194304"], 5, "there is no process 4194304"),
    ],
)
def test_command_refusals(memprof, tmp_path, words, code, said):
    done = memprof(*words)

    assert done.returncode == code
    assert said in sentence(done)
    assert not list(tmp_path.glob("*.jsonl"))


@pytest.mark.parametrize(
    "name", ["PEAK", "peak", "STARTUP", "Startup", "RUN", "Run", "BASELINE", "baseline", "between_phases", "Between_Phases"]
)
def test_phase_reserved_names_refused(name):
    with pytest.raises(UsageError, match=f"a phase cannot be called {name}: memprof has a figure of that name"):
        commands.parse_regex(f"{name}=done")
    with pytest.raises(UsageError, match=f"a phase cannot be called {name}: memprof has a figure of that name"):
        symbols.parse_phase(f"{name}=main")


def test_phase_reserved_name_with_space():
    with pytest.raises(UsageError, match="a phase cannot be called between_phases"):
        commands.parse_regex("between phases=done")


@pytest.mark.parametrize("name", ["Execute", "PREPARE", "peak.2", "rerun", "running", "between"])
def test_phase_unreserved_names_accepted(name):
    assert commands.parse_regex(f"{name}=done")[0] == symbols.parse_phase(f"{name}=main")[0] == name
