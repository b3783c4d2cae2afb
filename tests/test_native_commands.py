"""Commands as variants: their words, their models, how they end, and phases that come from what they print."""

from __future__ import annotations

import json
import os
import shlex
import sys

import pytest
from conftest import need_tool
from failing import MIB, WITHOUT_PROBE, measured, runs_in, sentence, with_patience
from made import run as made_run
from native_programs import HEAD, built, order, phases, program, ran, ran_in_time, ran_until_seen

import memprof as memprof_package
from memprof.errors import InputError, UsageError
from memprof.measuring import orders, suite
from memprof.programs import commands, symbols
from memprof.recording.order import Command
from memprof.reports.tables import table
from memprof.runs import store

pytestmark = pytest.mark.usefixtures("recorder")

# -- words


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
def test_a_command_is_a_name_variables_a_program_and_its_words(text, name, argv, env):
    if argv is None:  # only plain words are names; the rest is a program's path
        assert commands.parse(text).argv == ("ünï=./äpp", "ö")
        return
    command = commands.parse(text)
    assert (command.name, command.argv, dict(command.env)) == (name, argv, env)


@pytest.mark.parametrize(
    ("text", "said"),
    [("a=", "write NAME=PROGRAM"), ("", "write NAME=PROGRAM"), ("a=./x 'open", "no closing quotation"), ("a=B=c", "names no program")],
)
def test_what_is_no_command(text, said):
    with pytest.raises(UsageError, match=said):
        commands.parse(text)


def words_of(*texts, **settings):
    """The argv of each order of these commands, without repeats."""
    planned = orders.plan(suite.Suite(variants=tuple(map(suite.parse_cmd, texts)), repeats=1, **settings))
    return [(order.job.variant, order.job.model.name, order.job.threads, order.argv[1:]) for order in planned.orders]


def test_braces_are_filled_in_and_others_left_alone(tmp_path):
    model = tmp_path / "net.tflite"
    model.write_bytes(b"not empty")

    planned = words_of("a=echo {model} {threads} {runs} {warmup} {x} {}", models=(str(model),), threads=(1, 4), runs=7, warmup=2)

    assert planned == [("a", "net.tflite", count, (str(model), str(count), "7", "2", "{x}", "{}")) for count in (1, 4)]


def test_threads_may_go_into_a_variable():
    (planned,) = orders.plan(suite.Suite(variants=(suite.parse_cmd("a=OMP_NUM_THREADS={threads} echo"),), threads=(3,), repeats=1)).orders
    assert planned.env["OMP_NUM_THREADS"] == "3"
    assert planned.job.threads == 3


@pytest.mark.parametrize("form", ["{}", "--graph={}"])
def test_the_model_is_the_first_word_that_is_one(tmp_path, form):
    (tmp_path / "net.circle").write_bytes(b"model")
    (tmp_path / "data.bin").write_bytes(b"data")

    (planned,) = orders.plan(
        suite.Suite(variants=(suite.parse_cmd(f"a=echo data.bin {form.format('net.circle')}"),), cwd=str(tmp_path), repeats=1)
    ).orders

    assert (planned.job.model.name, planned.job.model.bytes) == ("net.circle", 5)
    assert [file.path for file in planned.job.model.files] == [str(tmp_path / "net.circle")]  # brought into the page cache
    assert planned.cwd == str(tmp_path)


def test_an_nnpackage_is_a_model_too(tmp_path):
    (tmp_path / "net" / "metadata").mkdir(parents=True)
    (tmp_path / "net" / "metadata" / "MANIFEST").write_text("{}")
    assert words_of(f"a=echo {tmp_path}/net")[0][1] == "net"


def test_commands_that_name_no_model_are_rows_of_one():
    planned = words_of("orig=echo a", "swap=printf b")
    assert [(variant, model) for variant, model, *_ in planned] == [("orig", "echo"), ("swap", "echo")]
    assert words_of("a=echo", name="VGG16")[0][1] == "VGG16"


def test_builds_of_one_program_are_rows_of_their_own(tmp_path):
    made = []
    for text in ("exit 0", "exit 0 # changed"):
        path = tmp_path / "app"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        made.append(ran(path))

    apart, said = store.told_apart(made)

    assert len({run.job.variant for run in apart}) == 2
    assert "differ in model, program" in said[0]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["/a/b/app --in x 1", "/a/b/app --in y 1"], ["… --in x", "… --in y"]),
        (["/a/old/bin/app x", "/a/new/bin/app x"], ["old/bin/app", "new/bin/app"]),
        (["/a/app x", "/a/app x --swap"], ["app", "… --swap"]),
        (["/a/app x y", "/a/app y x"], ["command /a/app x y", "command /a/app y x"]),
    ],
)
def test_commands_of_one_name_are_told_apart_by_what_differs(texts, expected):
    made = [made_run("app", argv=tuple(text.split())) for text in texts]
    apart, _ = store.told_apart(made)
    assert [run.job.variant for run in apart] == [f"app ({text})" for text in expected]


@pytest.mark.parametrize(
    ("texts", "settings", "error", "said"),
    [
        (["a=nosuchprogram"], {}, InputError, "there is no command nosuchprogram"),
        (["a=./nosuchprogram"], {}, InputError, "nosuchprogram: no such file"),
        (["a=/"], {}, InputError, "/ is not a program"),
        (["a=/etc/passwd"], {}, InputError, "is not executable"),
        (["a=echo"], {"cwd": "/nosuchfolder"}, InputError, "the folder /nosuchfolder does not exist"),
        (["a=echo {model}"], {}, UsageError, "none is given"),
        (["a=echo {threads}"], {}, UsageError, "none is given"),
        (["a=echo"], {"threads": (1, 2)}, UsageError, "write {threads} where"),
        (["a=echo", "a=printf x"], {}, UsageError, "two variants are called a"),
        (["a=echo"], {"runtimes": ("synthetic",)}, UsageError, "a runtime among the commands needs one"),
        (["a=echo"], {"set": {"mmap": "on"}}, UsageError, "command has no knob 'mmap'"),
        (["a=echo"], {"set": {"malloc_arenas": "many"}}, UsageError, "takes a whole number"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(texts, settings, error, said):
    with pytest.raises(error, match=said):
        words_of(*texts, **settings)


def test_one_command_that_cannot_be_started_among_several_is_an_order_with_its_reason():
    planned = orders.plan(suite.Suite(variants=tuple(map(suite.parse_cmd, ["here=true", "gone=./nope"])), repeats=1))
    assert [(order.job.variant, str(order.error)) for order in planned.orders] == [("here", "None"), ("gone", "nope: no such file")]
    with pytest.raises(InputError, match=r"^nope: no such file$"):  # once, and not after its own name
        words_of("./nope", "other=./nope2")


def test_a_function_that_one_of_two_programs_lacks_is_that_ones_failure(tmp_path):
    need_tool("gdb")
    ours = tmp_path / "app.c"
    ours.write_text(HEAD + "__attribute__((noinline)) void load(void) { hold(MIB); } int main(void) { load(); return 0; }")
    both = [f"has={built(ours, '-g')}", f"lacks={program('')}"]

    planned = orders.plan(suite.Suite(variants=tuple(map(suite.parse_cmd, both)), phases={"MODEL_LOAD": "load"}, repeats=1))

    assert [order.error is None for order in planned.orders] == [True, False]
    with pytest.raises(UsageError, match="there is no function laod in program"):
        words_of(*both, phases={"MODEL_LOAD": "laod"})


def test_an_allocators_knob_is_a_variable_of_the_command():
    planned = order("echo", set={"malloc_arenas": "1"})
    assert planned.env["MALLOC_ARENA_MAX"] == "1"


def test_several_models_need_a_place_in_the_command(tmp_path):
    models = []
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).write_bytes(b"model")
        models.append(str(tmp_path / name))
    with pytest.raises(UsageError, match="there are 2 of them"):
        words_of("x=echo", models=tuple(models))
    assert [words[1] for words in words_of("x=echo {model}", models=tuple(models))] == ["a.onnx", "b.onnx"]


def test_a_number_of_runs_that_no_command_takes_is_said():
    planned = orders.plan(suite.Suite(variants=(suite.parse_cmd("a=echo"),), runs=3, repeats=5))
    assert planned.remarks == ("a: runs has no effect, write {runs} into the command where the number goes",)
    assert planned.orders[0].job.runs == 0


def test_a_suite_file_holds_commands_too(tmp_path):
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
    assert first.command == Command((("MODEL_LOAD", "loaded"),))


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        ('name = "a"', "needs either a runtime or a cmd"),
        ('runtime = "onert"\ncmd = "./x"', "needs either"),
        ('cmd = "./x"\nset = {a = 1}', "for runtimes"),
    ],
)
def test_a_suite_file_that_says_too_much_or_too_little(tmp_path, variant, said):
    (tmp_path / "suite.toml").write_text(f"[[variant]]\n{variant}\n")
    with pytest.raises(InputError, match=said):
        suite.read(tmp_path / "suite.toml")


def test_runs_files_from_before_there_were_commands_are_still_read():
    old = json.loads(store.encode(made_run()))
    for name in ("argv", "cwd", "program", "phases", "phase_regexes"):
        del old["job"][name]
    del old["values"], old["processes"]

    run = store.decode(json.dumps(old).encode(), "an old file")

    assert (run.job.argv, run.values, run.processes) == ((), (), ())


# -- how they end


def test_a_program_without_phases_has_one_and_its_whole_timeline(tmp_path):
    run = ran_until_seen(32, tmp_path / "seen", program("hold(32 * MIB); usleep(200000); until(words[1]);"))

    assert run.outcome.ok
    (mark,) = run.marks
    assert (mark.phase, mark.rss_peak_exact) == ("RUN", True)  # wait4 tells
    assert 32 * MIB <= mark.rss_peak_bytes <= 36 * MIB
    assert mark.time_ns >= 200_000_000
    assert mark.cpu_ns > 0 and mark.minor_faults > 0
    assert run.timeline.rss_max_bytes >= 32 * MIB
    assert run.warnings == run.processes == ()
    assert run.job.runtime == "command"


@pytest.mark.parametrize(
    ("text", "word", "said"),
    [
        ("echo first; echo cannot open the model >&2; exit 3", "exit code 3", "ended with exit code 3 in RUN (cannot open the model)"),
        ("nosuchcommand", "exit code 127", "not found)"),
        ("exit 127", "exit code 127", "(its shell did not find the command)"),
        ("kill -SEGV $$", "SIGSEGV", "ended by SIGSEGV in RUN"),
        ("sleep 600", "timeout", "did not end in time (timeout 1 s) in RUN"),
    ],
)
def test_a_failure_is_told_with_the_programs_own_last_words(text, word, said):
    run = ran("sh", "-c", text, **({"timeout_ns": 10**9} if word == "timeout" else {}))

    assert run.outcome.word == word
    assert said in run.outcome.sentence
    assert said in table.render([run])


def test_a_program_for_another_machine_is_named_as_one(tmp_path):
    arm = tmp_path / "app"
    arm.write_bytes(b"\x7fELF\x02\x01\x01" + b"\0" * 9 + (2).to_bytes(2, "little") + (183).to_bytes(2, "little") + b"\0" * 100)
    arm.chmod(0o755)

    run = ran(arm)

    assert run.outcome.status == "start"
    assert f"Exec format error (a program for AArch64; this machine is {os.uname().machine})" in run.outcome.sentence


def test_a_script_without_an_interpreter_is_named_as_one(tmp_path):
    (tmp_path / "app").write_text("echo hello\n")
    (tmp_path / "app").chmod(0o755)

    assert "a script needs #!" in ran(tmp_path / "app").outcome.sentence


def test_a_command_has_an_empty_input_its_folder_and_its_variables(tmp_path):
    (tmp_path / "ünï dir").mkdir()
    run = ran("sh", "-c", 'cat; pwd > where; echo "$WORD" >> where', cwd=str(tmp_path / "ünï dir"), env={"WORD": "two  words"})

    assert run.outcome.ok
    assert (tmp_path / "ünï dir" / "where").read_text() == f"{tmp_path}/ünï dir\ntwo  words\n"


@WITHOUT_PROBE
@pytest.mark.parametrize("given", ["file", "pipe"])
def test_exec_hands_its_standard_input_on(memprof, tmp_path, given):
    (tmp_path / "in").write_text("b\na\n")
    words = ("exec", "-o", "r.jsonl", "--", "sh", "-c", "sort > out")

    with (tmp_path / "in").open() as file:
        done = memprof(*words, stdin=file) if given == "file" else memprof(*words, input="b\na\n")

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text() == "a\nb\n"


@WITHOUT_PROBE
def test_each_repeat_reads_a_file_from_where_it_stood_and_a_pipe_cannot_be_read_again(memprof, tmp_path):
    (tmp_path / "in").write_text("skipped\nb\na\n")
    words = ("exec", "--repeats", "2", "-o", "r.jsonl", "--append", "--", "sh", "-c", "sort >> out")

    with (tmp_path / "in").open("rb", buffering=0) as file:
        os.lseek(file.fileno(), len("skipped\n"), os.SEEK_SET)
        assert memprof(*words, stdin=file).returncode == 0
    piped = memprof(*words, input="c\n")

    assert (tmp_path / "out").read_text() == "a\nb\na\nb\n"
    assert piped.returncode == 0 and "standard input is not a file and can be read only once" in piped.stderr


@WITHOUT_PROBE
def test_under_gdb_a_program_reads_its_input_too(memprof, tmp_path):
    need_tool("gdb")
    path = tmp_path / "app.c"
    path.write_text(HEAD + "__attribute__((noinline)) int load(void) { return getchar(); } int main(void) { return load() != 'x'; }")
    done = memprof("exec", "--phase", "load=load", "-o", "r.jsonl", "--", built(path, "-g"), input="x")
    assert done.returncode == 0, done.stdout


def test_a_program_that_ends_at_once_is_still_a_run():
    run = ran("true")
    assert run.outcome.ok
    assert phases(run) == ["RUN"] or any(word.startswith("it ended before it could be looked at") for word in run.warnings)


# -- phases from what is printed

# After each line that ends a phase it waits until its high-water mark is reset: then the line has been read.
PRINTS = """
import mmap, sys, time
def spike(mib):
    memory = mmap.mmap(-1, mib << 20)
    for at in range(0, len(memory), 4096):
        memory[at] = 1
    time.sleep(0.05)
    memory.close()
def figure(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))
def until_read():
    for _ in range(12000):
        if figure("VmHWM") < figure("VmRSS") + 4096:
            return
        time.sleep(0.005)
spike(64); print("MODEL_LOAD takes 3 ms"); until_read()
spike(8); print("noise"); print("PREPARE takes", file=sys.stderr); until_read()
for number in range(3):
    spike(16); print("epoch", number); until_read()
"""
REGEXES = {"MODEL_LOAD": "MODEL_LOAD takes", "PREPARE": "^PREPARE", "EPOCH": r"^epoch \d$"}


def test_lines_end_phases_as_they_arrive():
    run = ran(sys.executable, "-I", "-S", "-c", PRINTS, phase_regexes=REGEXES)

    assert phases(run) == ["MODEL_LOAD", "PREPARE", "EPOCH"]
    load, prepare, epoch = run.marks
    assert load.rss_peak_bytes >= 64 * MIB > prepare.rss_peak_bytes  # reset from outside, or it would keep the 64
    assert len(epoch.times_ns) == 3
    assert all(time_ns >= 50_000_000 for time_ns in epoch.times_ns)  # line by line, though Python's output is no terminal of ours
    assert load.end_ns <= prepare.begin_ns <= prepare.end_ns <= epoch.begin_ns
    assert not any(mark.rss_peak_exact for mark in run.marks)
    assert run.warnings == ("phases end where a line arrived: their times and peaks are approximate",)
    assert prepare.anon_end_bytes > 0 and prepare.cpu_ns is not None


def test_a_c_programs_lines_arrive_one_by_one_though_it_never_flushes():
    # Its high-water mark is reset when the first line is read.
    body = """drop(hold(32 * MIB), 32 * MIB); printf("loaded\\n");
        for (int i = 0; i < 12000 && memprof_look().hwm > 16 * (long long)MIB; ++i) usleep(5000);
        usleep(50000); printf("prepared\\n");"""
    run = ran(program(body), phase_regexes={"A": "loaded", "B": "prepared"})

    assert phases(run) == ["A", "B"]
    assert run.mark("B").time_ns >= 50_000_000


def test_a_line_that_never_came_is_a_failed_measurement_that_names_the_regex(memprof):
    words = ("sh", "-c", "echo hello")
    run = ran(*words, phase_regexes={"A": "hello", "B": "nothing like it"})
    assert phases(run) == ["A"]
    assert (run.outcome.word, run.outcome.phase) == ("lost", "B")
    assert run.outcome.sentence == "no line that it printed matches 'nothing like it', the end of B"
    assert run.output_tail == "hello\r\n"
    none = ran_in_time(phases, "sh", "-c", "echo hello; sleep {s}", phase_regexes={"B": "nothing like it"})
    assert phases(none) == ["RUN"]
    assert not [said for said in none.warnings if "where a line arrived" in said]
    done = memprof("exec", "--phase-regex", "load=^nothing like it$", "--", *words)
    assert done.returncode == 4
    assert "'^nothing like it$', the end of MODEL_LOAD" in done.stdout


def test_a_failure_is_in_the_phase_whose_line_had_not_come():
    run = ran("sh", "-c", "echo loaded; echo bad tensor; exit 4", phase_regexes={"A": "loaded", "B": "prepared"})
    assert run.outcome.sentence == "ended with exit code 4 in B (bad tensor)"
    assert phases(run) == ["A"]


def test_marks_win_over_lines():
    run = ran(program('printf("loaded\\n"); fflush(stdout); memprof_begin("A"); memprof_end();'), phase_regexes={"LINE": "loaded"})
    assert phases(run) == ["STARTUP", "A"]
    assert run.warnings == ("its phases came by marks or by functions: its output was not searched for them",)


@pytest.mark.parametrize(("text", "said"), [("load", "write NAME=REGEX"), ("load=(", "missing \\)"), ("=x", "write NAME=REGEX")])
def test_what_is_no_regex(text, said):
    with pytest.raises(UsageError, match=said):
        commands.parse_regex(text)


# -- on the command line


def test_two_commands_are_two_columns_of_one_line(memprof, tmp_path):
    app = shlex.quote(program('memprof_begin("MODEL_LOAD"); hold((size_t)atoi(words[1]) * MIB); memprof_end();'))

    done = memprof("run", "--cmd", f"small={app} 8", "--cmd", f"large={app} 40", "--repeats", "2", "--name", "net", "-o", "runs.jsonl")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("net, 2 repeats\n")
    runs = runs_in(tmp_path / "runs.jsonl")
    assert [(run["job"]["variant"], run["job"]["repeat"]) for run in runs] == [("small", 1), ("large", 1), ("small", 2), ("large", 2)]
    compared = memprof("compare", "runs.jsonl", "runs.jsonl", "--json")
    assert compared.returncode == 0, compared.stderr


def test_what_cannot_be_started_is_a_failed_run_and_the_others_are_measured(memprof, tmp_path):
    done = memprof("run", "--cmd", "here=sleep 0.1", "--cmd", "gone=./nope", "--repeats", "2", "-o", "runs.jsonl")

    assert done.returncode == 4
    assert "- gone: failed in 2 of 2 repeats: in STARTUP: nope: no such file\n" in done.stdout
    assert [(run["job"]["variant"], run["outcome"]["status"]) for run in runs_in(tmp_path / "runs.jsonl")] == [
        ("here", "ok"),
        ("gone", "start"),
    ] * 2


def test_exec_measures_one_and_prints_json(memprof, tmp_path):
    done = memprof(
        "exec",
        "--json",
        "--variant",
        "it",
        "-o",
        "r.jsonl",
        "--",
        program('memprof_begin("A"); memprof_end(); return count - 2;'),
        "--json",
    )

    assert done.returncode == 0, done.stderr
    assert [(row["variant"], row["phase"]) for row in json.loads(done.stdout)] == [("it", "STARTUP"), ("it", "A"), ("it", "PEAK")]
    assert "too few" not in done.stderr


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
def test_what_the_commands_refuse(memprof, tmp_path, words, code, said):
    done = memprof(*words)

    assert done.returncode == code
    assert said in sentence(done)
    assert not list(tmp_path.glob("*.jsonl"))


def test_a_failed_command_is_exit_code_4(memprof):
    done = memprof("exec", "--", "sh", "-c", "exit 9")
    assert done.returncode == 4
    assert "exit code 9" in done.stdout


def test_beside_a_runtime_a_command_gets_the_same_model(memprof, scenario, tmp_path):
    scenario("net.json", load=[{"allocate": "weights", "bytes": 4 * MIB}])

    done = memprof(
        "run",
        "net.json",
        "-r",
        "synthetic",
        "--cmd",
        "native=cat {model}",
        "--repeats",
        "1",
        "--warmup",
        "0",
        "--runs",
        "1",
        "-o",
        "r.jsonl",
    )

    assert done.returncode == 0, done.stderr
    assert [(run["job"]["model"]["name"], run["job"]["variant"]) for run in runs_in(tmp_path / "r.jsonl")] == [
        ("net.json", "synthetic"),
        ("net.json", "native"),
    ]


def test_a_runtimes_own_children_are_no_tree(scenario):
    assert measured(scenario(load=[{"fork": 1, "for_s": 0.2}])).processes == ()


def test_json_has_values_and_processes_too(memprof):
    body = """memprof_begin("A"); memprof_value("arena_bytes", 4096); if (fork() == 0) { usleep(atoi(words[1])); _exit(0); } wait(NULL);
        memprof_end();"""

    def attempt(limit_ns):
        done = memprof("exec", "--json", "-o", f"{limit_ns}.jsonl", "--", program(body), str(limit_ns // 4000))
        return json.loads(done.stdout)

    first, *others = with_patience(attempt, lambda rows: rows[0].get("processes"))
    assert first["values"] == {"arena_bytes": 4096}
    assert [process["name"] for process in first["processes"]] == ["program", "program"]
    assert not any("values" in row for row in others)


def test_commands_are_measured_from_python_too():
    runs = memprof_package.measure(cmds=["a=true", "b=true"], repeats=2)
    assert [(run.job.variant, run.job.repeat) for run in runs] == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_functions_are_phases_of_the_program_alone(tmp_path):
    need_tool("gdb")
    source = "__attribute__((noinline)) void load(void) { drop(hold(32 * MIB), 32 * MIB); }"
    path = tmp_path / "app.c"
    path.write_text(HEAD + source + "int main(void) { load(); return 0; }")
    run = ran(built(path, "-g"), phases={"MODEL_LOAD": "load"})

    assert phases(run) == ["STARTUP", "MODEL_LOAD"]
    assert all(mark.rss_peak_exact for mark in run.marks)
    assert run.timeline.rss_max_bytes < 40 * MIB  # nothing of gdb, which is larger
    assert run.processes == ()
    assert run.job.argv == (built(path, "-g"),)


def test_words_that_are_no_text_are_refused(memprof):
    done = memprof("exec", "--", "echo", b"\xff".decode("utf-8", "surrogateescape"))
    assert done.returncode == 5
    assert done.stderr.splitlines()[-1].endswith("is not UTF-8")


@pytest.mark.parametrize(
    "name", ["PEAK", "peak", "STARTUP", "Startup", "RUN", "Run", "BASELINE", "baseline", "between_phases", "Between_Phases"]
)
def test_names_of_memprofs_own_figures_are_no_phases(name):
    with pytest.raises(UsageError, match=f"a phase cannot be called {name}: memprof has a figure of that name"):
        commands.parse_regex(f"{name}=done")
    with pytest.raises(UsageError, match=f"a phase cannot be called {name}: memprof has a figure of that name"):
        symbols.parse_phase(f"{name}=main")


def test_a_phase_between_phases_is_refused_with_a_space_too():
    with pytest.raises(UsageError, match="a phase cannot be called between_phases"):
        commands.parse_regex("between phases=done")


@pytest.mark.parametrize("name", ["Execute", "PREPARE", "peak.2", "rerun", "running", "between"])
def test_names_that_are_no_figures_are_phases(name):
    assert commands.parse_regex(f"{name}=done")[0] == symbols.parse_phase(f"{name}=main")[0] == name
