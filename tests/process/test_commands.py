"""Commands as variants: their words, their models, how they end, and phases that come from what they print."""

from __future__ import annotations

import json
import os
import shlex
import sys

import pytest
from conftest import need_tool
from support.native_programs import HEAD, built, order, phases, program, ran, ran_in_time, ran_until_seen
from support.recorder_runs import MIB, WITHOUT_PROBE, measured, runs_in, with_patience

import memprof as memprof_package
from memprof.base.errors import InputError, UsageError
from memprof.records import store
from memprof.reports.tables import table
from memprof.subjects import orders, suite

pytestmark = pytest.mark.usefixtures("recorder")


def words_of(*texts, **settings):
    """The argv of each order of these commands, without repeats."""
    planned = orders.plan(suite.Suite(variants=tuple(map(suite.parse_cmd, texts)), repeats=1, **settings))
    return [(order.job.variant, order.job.model.name, order.job.threads, order.argv[1:]) for order in planned.orders]


@WITHOUT_PROBE
def test_program_builds_in_separate_rows(tmp_path):
    made = []
    for text in ("exit 0", "exit 0 # changed"):
        path = tmp_path / "app"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        made.append(ran(path))

    apart, said = store.told_apart(made)

    assert len({run.job.variant for run in apart}) == 2
    assert "differ in program" in said[0]


@WITHOUT_PROBE
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
def test_plan_refuses_bad_commands(texts, settings, error, said):
    with pytest.raises(error, match=said):
        words_of(*texts, **settings)


@WITHOUT_PROBE
def test_phase_function_missing_in_one_program(tmp_path):
    need_tool("gdb")
    ours = tmp_path / "app.c"
    ours.write_text(HEAD + "__attribute__((noinline)) void load(void) { hold(MIB); } int main(void) { load(); return 0; }")
    both = [f"has={built(ours, '-g')}", f"lacks={program('')}"]

    planned = orders.plan(suite.Suite(variants=tuple(map(suite.parse_cmd, both)), phases={"MODEL_LOAD": "load"}, repeats=1))

    assert [order.error is None for order in planned.orders] == [True, False]
    with pytest.raises(UsageError, match="there is no function laod in program"):
        words_of(*both, phases={"MODEL_LOAD": "laod"})


@WITHOUT_PROBE
def test_allocator_knob_as_command_variable():
    planned = order("echo", set={"malloc_arenas": "1"})
    assert planned.env["MALLOC_ARENA_MAX"] == "1"


def test_program_without_phases(tmp_path):
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
def test_failure_with_last_program_output(text, word, said):
    run = ran("sh", "-c", text, **({"timeout_ns": 10**9} if word == "timeout" else {}))

    assert run.outcome.word == word
    assert said in run.outcome.sentence
    assert said in table.render([run])


def test_program_for_another_machine(tmp_path):
    arm = tmp_path / "app"
    arm.write_bytes(b"\x7fELF\x02\x01\x01" + b"\0" * 9 + (2).to_bytes(2, "little") + (183).to_bytes(2, "little") + b"\0" * 100)
    arm.chmod(0o755)

    run = ran(arm)

    assert run.outcome.status == "start"
    assert f"Exec format error (a program for AArch64; this machine is {os.uname().machine})" in run.outcome.sentence


def test_script_without_interpreter(tmp_path):
    (tmp_path / "app").write_text("echo hello\n")
    (tmp_path / "app").chmod(0o755)

    assert "a script needs #!" in ran(tmp_path / "app").outcome.sentence


def test_command_input_folder_and_variables(tmp_path):
    (tmp_path / "ünï dir").mkdir()
    run = ran("sh", "-c", 'cat; pwd > where; echo "$WORD" >> where', cwd=str(tmp_path / "ünï dir"), env={"WORD": "two  words"})

    assert run.outcome.ok
    assert (tmp_path / "ünï dir" / "where").read_text() == f"{tmp_path}/ünï dir\ntwo  words\n"


@WITHOUT_PROBE
@pytest.mark.parametrize("given", ["file", "pipe"])
def test_exec_passes_standard_input(memprof, tmp_path, given):
    (tmp_path / "in").write_text("b\na\n")
    words = ("exec", "-o", "r.jsonl", "--", "sh", "-c", "sort > out")

    with (tmp_path / "in").open() as file:
        done = memprof(*words, stdin=file) if given == "file" else memprof(*words, input="b\na\n")

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text() == "a\nb\n"


@WITHOUT_PROBE
@pytest.mark.parametrize("all_tables", [False, True])
def test_exec_prints_as_much_as_run(memprof, all_tables):
    words = ["-o", "r.jsonl", "--", sys.executable, "-c", "pass"]
    done = memprof("exec", *(["--all"] if all_tables else []), *words)

    titles = [line for line in done.stdout.splitlines() if line.endswith((" (MiB)", " (ms)", " (s)"))]
    assert done.returncode == 0 and len(titles) == 2 if all_tables else titles == ["RSS peak (MiB)"], done.stdout


@WITHOUT_PROBE
def test_exec_input_at_each_repeat(memprof, tmp_path):
    (tmp_path / "in").write_text("skipped\nb\na\n")
    words = ("exec", "--repeats", "2", "-o", "r.jsonl", "--append", "--", "sh", "-c", "sort >> out")

    with (tmp_path / "in").open("rb", buffering=0) as file:
        os.lseek(file.fileno(), len("skipped\n"), os.SEEK_SET)
        assert memprof(*words, stdin=file).returncode == 0
    piped = memprof(*words, input="c\n")

    assert (tmp_path / "out").read_text() == "a\nb\na\nb\n"
    assert piped.returncode == 0 and "standard input is not a file and can be read only once" in piped.stderr


@WITHOUT_PROBE
def test_exec_input_under_gdb(memprof, tmp_path):
    need_tool("gdb")
    path = tmp_path / "app.c"
    path.write_text(HEAD + "__attribute__((noinline)) int load(void) { return getchar(); } int main(void) { return load() != 'x'; }")
    done = memprof("exec", "--phase", "load=load", "-o", "r.jsonl", "--", built(path, "-g"), input="x")
    assert done.returncode == 0, done.stdout


def test_program_ending_at_once():
    run = ran("true")
    assert run.outcome.ok
    assert phases(run) == ["RUN"] or any(word.startswith("it ended before it could be looked at") for word in run.warnings)


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


def test_lines_end_phases_on_arrival():
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


def test_lines_of_unflushed_c_program():
    # Its high-water mark is reset when the first line is read.
    body = """drop(hold(32 * MIB), 32 * MIB); printf("loaded\\n");
        for (int i = 0; i < 12000 && memprof_look().hwm > 16 * (long long)MIB; ++i) usleep(5000);
        usleep(50000); printf("prepared\\n");"""
    run = ran(program(body), phase_regexes={"A": "loaded", "B": "prepared"})

    assert phases(run) == ["A", "B"]
    assert run.mark("B").time_ns >= 50_000_000


def test_line_missing_names_regex(memprof):
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


def test_failure_in_phase_without_line():
    run = ran("sh", "-c", "echo loaded; echo bad tensor; exit 4", phase_regexes={"A": "loaded", "B": "prepared"})
    assert run.outcome.sentence == "ended with exit code 4 in B (bad tensor)"
    assert phases(run) == ["A"]


def test_marks_win_over_lines():
    run = ran(program('printf("loaded\\n"); fflush(stdout); memprof_begin("A"); memprof_end();'), phase_regexes={"LINE": "loaded"})
    assert phases(run) == ["STARTUP", "A"]
    assert run.warnings == ("its phases came by marks or by functions: its output was not searched for them",)


@WITHOUT_PROBE
def test_run_two_commands_side_by_side(memprof, tmp_path):
    app = shlex.quote(program('memprof_begin("MODEL_LOAD"); hold((size_t)atoi(words[1]) * MIB); memprof_end();'))

    done = memprof("run", "--cmd", f"small={app} 8", "--cmd", f"large={app} 40", "--repeats", "2", "--name", "net", "-o", "runs.jsonl")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2] == "net, 2 repeats"
    runs = runs_in(tmp_path / "runs.jsonl")
    assert [(run["job"]["variant"], run["job"]["repeat"]) for run in runs] == [("small", 1), ("large", 1), ("small", 2), ("large", 2)]
    compared = memprof("compare", "runs.jsonl", "runs.jsonl", "--json")
    assert compared.returncode == 0, compared.stderr


@WITHOUT_PROBE
def test_run_with_one_unstartable_command(memprof, tmp_path):
    done = memprof("run", "--cmd", "here=sleep 0.1", "--cmd", "gone=./nope", "--repeats", "2", "-o", "runs.jsonl")

    assert done.returncode == 4
    assert "- gone: failed in 2 of 2 repeats: in STARTUP: nope: no such file\n" in done.stdout
    assert [(run["job"]["variant"], run["outcome"]["status"]) for run in runs_in(tmp_path / "runs.jsonl")] == [
        ("here", "ok"),
        ("gone", "start"),
    ] * 2


@WITHOUT_PROBE
def test_exec_prints_json(memprof, tmp_path):
    app = program('memprof_begin("A"); memprof_end(); return count - 2;')

    done = memprof("exec", "--json", "--variant", "it", "-o", "r.jsonl", "--", app, "--json")

    assert done.returncode == 0, done.stderr
    assert [(row["variant"], row["phase"]) for row in json.loads(done.stdout)] == [("it", "STARTUP"), ("it", "A"), ("it", "PEAK")]
    assert "too few" not in done.stderr


@WITHOUT_PROBE
def test_exec_exit_code_of_failed_command(memprof):
    done = memprof("exec", "--", "sh", "-c", "exit 9")
    assert done.returncode == 4
    assert "exit code 9" in done.stdout


@WITHOUT_PROBE
def test_command_model_beside_runtime(memprof, scenario, tmp_path):
    scenario("net.json", load=[{"allocate": "weights", "bytes": 4 * MIB}])

    words = ("--cmd", "native=cat {model}", "--repeats", "1", "--warmup", "0", "--runs", "1", "-o", "r.jsonl")

    done = memprof("run", "net.json", "-r", "synthetic", *words)

    assert done.returncode == 0, done.stderr
    assert [(run["job"]["model"]["name"], run["job"]["variant"]) for run in runs_in(tmp_path / "r.jsonl")] == [
        ("net.json", "synthetic"),
        ("net.json", "native"),
    ]


def test_runtime_children_without_process_tree(scenario):
    assert measured(scenario(load=[{"fork": 1, "for_s": 0.2}])).processes == ()


def test_exec_json_values_and_processes(memprof):
    body = """memprof_begin("A"); memprof_value("arena_bytes", 4096); if (fork() == 0) { usleep(atoi(words[1])); _exit(0); } wait(NULL);
        memprof_end();"""

    def attempt(limit_ns):
        done = memprof("exec", "--json", "-o", f"{limit_ns}.jsonl", "--", program(body), str(limit_ns // 4000))
        return json.loads(done.stdout)

    first, *others = with_patience(attempt, lambda rows: rows[0].get("processes"))
    assert first["values"] == {"arena_bytes": 4096}
    assert [process["name"] for process in first["processes"]] == ["program", "program"]
    assert not any("values" in row for row in others)


@WITHOUT_PROBE
def test_measure_commands_from_python():
    runs = memprof_package.measure(cmds=["a=true", "b=true"], repeats=2)
    assert [(run.job.variant, run.job.repeat) for run in runs] == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_function_phases_without_gdb_memory(tmp_path):
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


@WITHOUT_PROBE
def test_exec_refuses_non_utf8_words(memprof):
    done = memprof("exec", "--", "echo", b"\xff".decode("utf-8", "surrogateescape"))
    assert done.returncode == 5
    assert done.stderr.splitlines()[-1].endswith("is not UTF-8")
