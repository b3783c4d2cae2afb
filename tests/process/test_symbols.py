"""Phases from the functions of programs nobody has changed: what is measured, and what is said where that cannot be."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote

import pytest
from conftest import need_tool
from support.compiler import compiled
from support.recorder_runs import NEAR_MIB, Silent, script, unobserved, with_patience

from memprof.base.errors import InputError, UsageError
from memprof.base.runners import runners_path
from memprof.campaign import campaign
from memprof.programs import elf, symbols
from memprof.programs.runtimes import Runtime
from memprof.records import store
from memprof.records.recorder_order import CommandStart
from memprof.records.types import Job, Mark, Model, Run
from memprof.subjects.order import Order

MIB = 1 << 20
MS = 1_000_000

HEAD = r"""
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define OUT __attribute__((noinline))
static const size_t MIB = 1 << 20;
static void *hold(size_t mib) {
  void *p = mmap(nullptr, mib * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(p, 1, mib * MIB);
  return p;
}
static void give(void *p, size_t mib) { munmap(p, mib * MIB); }
static void spike(size_t mib, double ms = 0) { void *p = hold(mib); if (ms) usleep(ms * 1000); give(p, mib); }
static void wait_ms(double ms) { usleep(ms * 1000); }
"""
# Together a quarter of a second of g++'s time.
STD = {"std::runtime_error": "stdexcept", "std::string": "string", "std::thread": "thread", "std::vector": "vector"}


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Path]:
    need_tool("gdb")

    def build(source: str, *flags: str, **rest: str) -> Path:
        headers = "".join(f"#include <{header}>\n" for name, header in STD.items() if name in source)
        return compiled(tmp_path, headers + HEAD + source, *flags, **rest)

    return build


def measured(argv: list[str | Path], *phases: str, **words: object) -> Run:
    """The Run of a command with these phases, the whole way through a recorder."""
    command = [str(word) for word in argv]
    job = Job(Model("program", command[0], (), 0, ""), "command", "a", 1, 0, 0, timeout_ns=240_000 * MS, cache="asis", **words)
    wrapped = symbols.wrap(command, [symbols.parse_phase(phase) for phase in phases])
    (run,) = campaign.measure([Order(job, Runtime("command"), "", {}, None, argv=wrapped)], Silent(), lambda line: None)
    return run


def ended_well(run: Run) -> Run:
    assert run.outcome.ok, (run.outcome.sentence, run.output_tail)
    assert not run.warnings
    return run


def phase(run: Run, name: str) -> Mark:
    mark = run.mark(name)
    assert mark is not None, [mark.phase for mark in run.marks]
    return mark


def above(mark: Mark) -> float:
    """The peak above where the phase began, in MiB."""
    assert mark.rss_begin_bytes is not None
    return (mark.rss_peak_bytes - mark.rss_begin_bytes) / MIB


def notes(run: Run) -> str:
    assert run.about is not None
    return " / ".join(run.about.notes)


def test_phases_of_unchanged_program(build) -> None:
    program = build("""
        static void *kept;
        extern "C" OUT void model_load() { spike(20); kept = hold(8); }
        extern "C" OUT void model_prepare() { spike(12); }
        extern "C" OUT void model_run() { spike(4); wait_ms(5); }
        int main() { model_load(); spike(40); model_prepare(); for (int i = 0; i < 4; i++) model_run(); }
    """)
    run = ended_well(measured([program], "load=model_load", "prepare=model_prepare", "execute=model_run"))
    assert [mark.phase for mark in run.marks] == ["STARTUP", "MODEL_LOAD", "PREPARE", "EXECUTE"]
    for name, peak, end in (("MODEL_LOAD", 20, 8), ("PREPARE", 12, 0), ("EXECUTE", 4, 0)):
        mark = phase(run, name)
        assert mark.rss_peak_exact
        assert abs(above(mark) - peak) < NEAR_MIB, name
        assert abs((mark.rss_end_bytes - mark.rss_begin_bytes) / MIB - end) < NEAR_MIB, name
    assert phase(run, "STARTUP").rss_end_bytes < 8 * MIB, "that would be gdb's memory"
    assert run.timeline.rss_max_bytes < 60 * MIB
    times_ns = phase(run, "EXECUTE").times_ns
    assert len(times_ns) == 4 and all(time_ns >= 5 * MS for time_ns in times_ns)
    assert phase(run, "MODEL_LOAD").times_ns == ()
    assert phase(run, "MODEL_LOAD").minor_faults >= 28 * MIB // run.machine.page_bytes * 0.9 or run.machine.huge_pages == "always"
    assert phase(run, "MODEL_LOAD").cpu_ns > 0
    assert phase(run, "MODEL_LOAD").pss_end_bytes > 8 * MIB
    assert "were taken off" in notes(run)


VIRTUAL = """
    #include <memory>
    namespace api { struct Model { virtual int train(int mib) = 0; virtual int infer() = 0; virtual ~Model() = default; }; }
"""
NETWORK = """
    namespace own {
    struct Named { virtual void name() { wait_ms(0); } virtual ~Named() = default; };
    struct Network : Named, api::Model { int train(int mib) override; int infer() override { wait_ms(1); return 0; } };
    struct Deep : Network { int train(int mib) override; };
    struct Other { virtual int train(int mib); virtual ~Other() = default; };
    OUT int Network::train(int mib) { spike(mib); return 0; }
    OUT int Deep::train(int mib) { spike(mib + 2); return 0; }
    OUT int Other::train(int mib) { spike(mib); return 0; }
    }
"""
SCOPES = """
    namespace ml {
    struct Model {
      OUT void load(const std::string &path) { spike(path.size()); }
      OUT void load(int mib) { spike(mib); }
      OUT static void of(double) { spike(6); }
    };
    template <class T> OUT T prepare(T mib) { spike(mib); return mib; }
    struct Big { OUT void operator()(int mib) { spike(mib); } };
    }
    namespace { OUT void hidden() { spike(10); } }
    int main() {
      ml::Model m;
      m.load(8); m.load(std::string("1234")); m.of(1.0);
      ml::prepare<int>(12); ml::prepare<long>(18); ml::Big()(20); hidden();
      own::Other().train(18);
      std::unique_ptr<api::Model> network(new own::Network), deep(new own::Deep);
      network->train(5); deep->train(12);
    }
"""

PIE = ("-g", "-fPIE", "-pie")
NAMES = {
    "ml::Model::load": (8, 2),
    "Model::load(int)": (8, 1),
    "ml::Model::of(double)": (6, 1),
    "ml::prepare<int>": (12, 1),
    "ml::prepare<long>": (18, 1),
    "ml::Big::operator()": (20, 1),
    "hidden": (10, 1),
    "api::Model::train": (14, 2),  # by its overrides, and not by a class that only has a function of the same name
    "api::Model::train(int)": (14, 2),
}


def scopes(build: Callable[..., Path], flags: Sequence[str]) -> Path:
    return build(VIRTUAL + NETWORK + SCOPES, *flags)


@pytest.mark.parametrize("flags", [PIE, ("-fno-pie", "-no-pie")], ids=" ".join)
def test_names_written_as_in_source(build, flags: tuple[str, ...]) -> None:
    run = ended_well(measured([scopes(build, flags)], *(f"p{index}={name}" for index, name in enumerate(NAMES))))
    for index, (name, (mib, calls)) in enumerate(NAMES.items()):
        mark = phase(run, f"p{index}")
        assert abs(above(mark) - mib) < NEAR_MIB, name
        assert (len(mark.times_ns) or 1) == calls, name


def test_names_match_functions(build) -> None:
    symbols = elf.read(str(scopes(build, PIE)))
    assert symbols is not None
    counts = {
        "ml::Model::load": 2,
        "Model::load": 2,
        "load": 2,
        "ml::Model::load( int )": 1,
        "ml::Model::load(std::string const&)": 1,
        "ml::Model::load(const std::string &)": 1,
        "ml::prepare": 2,
        "ml::prepare<int>(int)": 1,
        "prepare< long >": 1,
        "l::prepare": 0,
        "repare": 0,
        "main": 1,
    }
    assert {name: len(elf.matching(name, symbols.functions)) for name in counts} == counts


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ml::Model::lod(int)", "did you mean ml::Model::load"),
        ("ml::Model::load(float)", r"there is no function ml::Model::load\(float\).*did you mean ml::Model::load"),
        ("api::Model::trian", r"no function api::Model::trian.*did you mean own::"),
    ],
)
def test_near_names_written_as_in_source(build, name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        symbols.wrap([str(scopes(build, PIE))], {"p": name})


def test_function_of_shared_library_within_main(build, tmp_path: Path) -> None:
    compiled(tmp_path, HEAD + 'extern "C" void lib_load() { spike(9); }', "-shared", "-fPIC", name="libmodel.so")
    source = 'extern "C" void lib_load(); int main() { lib_load(); spike(12); return 0; }'
    program = build(source, f"-L{tmp_path}", "-l:libmodel.so", f"-Wl,-rpath,{tmp_path}")
    run = ended_well(measured([program], "load=lib_load", "whole=main"))
    assert abs(above(phase(run, "MODEL_LOAD")) - 9) < NEAR_MIB
    assert abs(above(phase(run, "whole")) - 12) < NEAR_MIB
    assert "never returned" not in notes(run)


OPENS = """
    #include <dlfcn.h>
    int main(int, char **words) {
      void *library = dlopen(words[1], RTLD_NOW);
      for (int i = 2; words[i]; i++) ((void (*)())dlsym(library, words[i]))();
      _exit(0);
    }
"""


def test_functions_of_library_opened_later(build, tmp_path: Path) -> None:
    source = VIRTUAL + NETWORK + "namespace ml { template <class T> OUT void prepare() { spike(6); } }"
    source += """
        extern "C" void lib_load() { spike(9); }
        extern "C" void lib_prepare() { ml::prepare<int>(); }
        extern "C" void lib_train() { api::Model *m = new own::Network; m->train(4); }
    """
    library = compiled(tmp_path, HEAD + source, "-shared", "-fPIC", name="libmodel.so")
    command = [build(OPENS, "-ldl"), library, "lib_load", "lib_prepare", "lib_train"]
    run = ended_well(measured(command, "load=lib_load", "prepare=ml::prepare<int>", "train=api::Model::train"))
    for name, mib in (("MODEL_LOAD", 9), ("PREPARE", 6), ("train", 4)):
        assert abs(above(phase(run, name)) - mib) < NEAR_MIB, name


def test_suggestions_exclude_names_of_shell(build, tmp_path: Path) -> None:
    program = build('extern "C" OUT void model_load() { spike(8); } int main() { model_load(); return 0; }')
    started = script(tmp_path / "run.sh", f"#!{need_tool('bash')}\n'{program}'\nexit $?\n")
    run = measured([started], "load=load_histroy")  # bash has a load_history
    assert run.outcome.status == "refused" and "did you mean" not in run.outcome.sentence, run.outcome


def test_refusal_survives_unobserved_gdb_end(build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = build('extern "C" OUT void model_load() { spike(8); } int main() { model_load(); return 0; }')
    gdb = need_tool("gdb")
    follows = '[ "$5" = -x ]'  # else it is asked whether it has Python, by no recorder
    script(tmp_path / "gdb", f'#!/bin/sh\n{follows} || exec {gdb} "$@"\n' + unobserved(f'{gdb} "$@"'))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    run = measured([need_tool("bash"), "-c", f"'{program}'; exit $?"], "load=model_laod")
    assert run.outcome.status == "refused" and "did you mean model_load?" in run.outcome.sentence, (run.outcome, run.warnings)


def test_gdb_words_absent_from_output(build) -> None:
    main = 'int main(int count, char **) { if (count > 1) fputs("mine", stderr); return model_load(); }'
    program = build('extern "C" OUT int model_load() { return 3; }' + main)
    silent = measured([program], "load=model_load")
    assert (silent.outcome.exit_code, silent.output_tail or "") == (3, "")
    assert measured([program, "speak"], "load=model_load").output_tail == "mine"


def test_marks_of_program_reported_as_unheeded(build) -> None:
    body = """
        #include "memprof.h"
        extern "C" OUT void model_load() { spike(2); }
        int main(int count, char **) {
          if (count == 1) memprof_begin("OWN");
          model_load();
          if (count == 1) memprof_end();
          return 0;
        }
    """
    program = build(body, f"-I{runners_path() / 'native'}")
    run = ended_well(measured([program], "load=model_load"))
    assert [mark.phase for mark in run.marks] == ["STARTUP", "MODEL_LOAD"]
    assert "the program's own marks (memprof.h) were not heeded" in notes(run)
    assert "not heeded" not in notes(ended_well(measured([program, "silent"], "load=model_load")))


def test_phases_in_forked_child(build) -> None:
    program = build("""
        extern "C" OUT void model_load() { spike(16); }
        extern "C" OUT void model_run() { spike(4); }
        int main() {
          void *parents = hold(40);
          if (fork() == 0) { munmap(parents, 40 * MIB); model_load(); model_run(); model_run(); exit(0); }
          int status; wait(&status); return WEXITSTATUS(status);
        }
    """)
    run = ended_well(measured([program], "load=model_load", "execute=model_run"))
    assert abs(above(phase(run, "MODEL_LOAD")) - 16) < NEAR_MIB
    assert len(phase(run, "EXECUTE").times_ns) == 2
    assert phase(run, "MODEL_LOAD").rss_begin_bytes < 20 * MIB, "the parent's memory is not the child's"


KILLED_WHILE_HELD = """
import os, sys, time
import gdb
sys.path[:0] = [{native!r}, os.path.dirname({native!r})]
import traced
for setting in ("breakpoint always-inserted on", "detach-on-fork off", "schedule-multiple on", "follow-fork-mode parent", "confirm off"):
    gdb.execute("set " + setting, to_string=True)
gdb.events.exited.connect(lambda event: traced.exit_codes.setdefault(event.inferior.num, getattr(event, "exit_code", None)))
gdb.execute("break model_load", to_string=True)
gdb.execute("run", to_string=True)
held = {{inferior.num: inferior.pid for inferior in gdb.inferiors()}}
assert sorted(held) == [1, 2], held
for number in {killed}:
    os.kill(held[number], 9)
    while not traced._gone(held[number]):
        time.sleep(0.001)
stops = 0
while traced.resume():
    stops += 1
print("ended", stops < 5, sorted(traced.exit_codes), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("killed", [[1], [2], [1, 2]])
def test_process_ended_while_held_by_gdb(build, tmp_path: Path, killed) -> None:
    program = build("""
        extern "C" OUT void model_load() { spike(1); }
        int main() { if (fork() == 0) { model_load(); exit(0); } int status; wait(&status); return 0; }
    """)
    script = tmp_path / "held.py"
    script.write_text(KILLED_WHILE_HELD.format(native=str(runners_path() / "native"), killed=killed))
    done = subprocess.run(
        ["gdb", "-nx", "-batch", "-x", script, "--args", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert "ended True [1, 2]" in done.stdout, done.stdout + done.stderr


def test_phases_of_threads(build) -> None:
    program = build("""
        #include <atomic>
        #include <pthread.h>
        std::atomic<int> holding;  // none gives its memory back before all have it, however late the last begins
        extern "C" OUT void together() { void *p = hold(5); holding++; while (holding < 4) wait_ms(1); wait_ms(50); give(p, 5); }
        extern "C" OUT void leaves() { spike(10); pthread_exit(nullptr); }
        extern "C" OUT void *begins(void *) { spike(7); return nullptr; }
        extern "C" OUT void after() { spike(3); }
        int main() {
          std::vector<std::thread> all;
          for (int i = 0; i < 4; i++) all.emplace_back(together);
          for (auto &thread : all) thread.join();
          std::thread([] { leaves(); }).join();
          pthread_t t;
          pthread_create(&t, nullptr, begins, nullptr);
          pthread_join(t, nullptr);
          after();
        }
    """)
    run = ended_well(measured([program], "together=together", "leaves=leaves", "begins=begins", "after=after"))
    times_ns = phase(run, "together").times_ns
    assert len(times_ns) == 4 and all(time_ns >= 50 * MS for time_ns in times_ns)
    for name, mib in (("together", 20), ("leaves", 10), ("begins", 7), ("after", 3)):
        assert abs(above(phase(run, name)) - mib) < NEAR_MIB, name


def test_recursive_nested_and_alternating_functions(build) -> None:
    program = build("""
        extern "C" OUT int model_load(int depth) { spike(5); if (depth) return model_load(depth - 1) + 1; wait_ms(20); return 0; }
        extern "C" OUT void inner() { spike(8); asm volatile(""); }
        extern "C" OUT void outer() { spike(22); inner(); spike(3); asm volatile(""); }
        extern "C" OUT void forward() { spike(4); }
        extern "C" OUT void backward() { spike(6); }
        int main() {
          if (model_load(6) != 6) return 1;
          outer();
          for (int i = 0; i < 5; i++) { forward(); backward(); }
        }
    """)
    phases = ("load=model_load", "train=outer", "step=inner", "forward=forward", "backward=backward")

    run = ended_well(measured([program], *phases))

    assert [mark.phase for mark in run.marks] == ["STARTUP", "MODEL_LOAD", "step", "train", "forward", "backward"]
    load, train, step = (phase(run, name) for name in ("MODEL_LOAD", "train", "step"))
    assert load.times_ns == () and load.time_ns >= 20 * MS, "a recursion is one call"
    assert abs(above(load) - 5) < NEAR_MIB
    assert abs(above(train) - 22) < NEAR_MIB, "the reset of the inner phase must not take the outer one's peak"
    assert abs(above(step) - 8) < NEAR_MIB
    assert train.begin_ns < step.begin_ns < step.end_ns < train.end_ns
    assert phase(run, "forward").begin_ns < phase(run, "backward").begin_ns
    for name, mib in (("forward", 4), ("backward", 6)):
        assert len(phase(run, name).times_ns) == 5
        assert abs(above(phase(run, name)) - mib) < NEAR_MIB


def test_phases_left_by_longjmp_and_exception(build) -> None:
    program = build("""
        static jmp_buf place;
        static OUT void deep() { longjmp(place, 1); }
        extern "C" OUT void jumps() { spike(8); wait_ms(10); longjmp(place, 1); }
        extern "C" OUT void stays() { spike(5); if (!setjmp(place)) deep(); spike(14); wait_ms(20); }
        extern "C" OUT void throws(int n) { spike(9); if (n) throw std::runtime_error("no"); }
        extern "C" OUT void catches() { try { throw 1; } catch (int) { } spike(5); wait_ms(20); }
        int main(int n, char **) {
          if (!setjmp(place)) jumps();
          wait_ms(100); spike(16);
          stays(); stays();
          try { throws(n); spike(20); } catch (std::exception &) { }  // where it would return is not where it goes on
          wait_ms(100); spike(18);
          catches();
        }
    """)
    run = ended_well(measured([program], *(f"{name}={name}" for name in ("jumps", "stays", "throws", "catches"))))
    jumps, stays, throws, catches = (phase(run, name) for name in ("jumps", "stays", "throws", "catches"))
    assert jumps.time_ns >= 10 * MS
    assert stays.begin_ns - jumps.end_ns >= 100 * MS, "it ended where it jumped, not where that was noticed"
    assert catches.begin_ns - throws.end_ns >= 100 * MS, "it ended where it was thrown"
    assert len(stays.times_ns) == 2 and min(stays.times_ns) >= 20 * MS, "a jump inside ends nothing"
    assert catches.time_ns >= 20 * MS, "an exception that is caught inside ends nothing"
    for mark, mib in ((jumps, 8), (stays, 14), (throws, 9), (catches, 5)):
        assert abs(above(mark) - mib) < NEAR_MIB, mark.phase
    assert "jumps: jumps was left by longjmp" in notes(run) and "throws: throws was left by an exception" in notes(run)
    assert "stays" not in notes(run) and "catches" not in notes(run)
    assert "held the program" not in notes(run), "a few calls are no cost to speak of"


def test_program_ends_inside_phase(build) -> None:
    program = build("""
        extern "C" OUT void model_load() { spike(9); }
        extern "C" OUT void model_run(int end) {
          spike(12); hold(4);
          if (end == 'a') abort();
          if (end == 's') *(volatile int *)0 = 1;
          exit(end - '0');
        }
        int main(int, char **words) { model_load(); model_run(*words[1]); }
    """)
    phases = ("load=model_load", "execute=model_run")
    run = ended_well(measured([program, "0"], *phases))
    mark = phase(run, "EXECUTE")
    assert mark.rss_peak_exact and abs(above(mark) - 12) < NEAR_MIB
    assert abs((mark.rss_end_bytes - mark.rss_begin_bytes) / MIB - 4) < NEAR_MIB
    assert "never returned, the program ended inside it" in notes(run)
    for end, status, word in (("3", "exit", "exit code 3"), ("a", "signal", "SIGABRT"), ("s", "signal", "SIGSEGV")):
        run = measured([program, end], *phases)
        assert (run.outcome.status, run.outcome.word, run.outcome.phase) == (status, word, "EXECUTE"), run.outcome
        assert phase(run, "MODEL_LOAD").rss_peak_exact


def test_program_sees_nothing_of_gdb(build, tmp_path: Path) -> None:
    """It is started by a script, with its own arguments and variables; it starts helpers, gets signals, and closes all descriptors."""
    program = build("""
        #include <csignal>
        static volatile int seen;
        extern "C" OUT void model_load() { if (system("exit 0") != 0) _exit(9); spike(16); FILE *f = popen("echo hello", "r"); pclose(f); }
        extern "C" OUT void model_run() { raise(SIGUSR1); raise(SIGINT); raise(SIGTERM); spike(5); }
        int main(int, char **words) {
          FILE *f = fopen(words[1], "w");
          for (int i = 2; words[i]; i++) fprintf(f, "[%s]", words[i]);
          for (const char *n : {"LINES", "COLUMNS", "MEMPROF_MARKS"}) fprintf(f, "%s", getenv(n) ? n : "");
          fclose(f);
          model_load();
          for (int n : {SIGUSR1, SIGINT, SIGTERM, SIGALRM}) signal(n, [](int) { seen = seen + 1; });
          for (int i = 0; i < 256; i++) close(i);
          ualarm(10000, 0);
          model_run();
          while (seen < 4) usleep(1000);
          return 0;
        }
    """)
    started = script(tmp_path / "run it.sh", f"#!/bin/sh\nexec '{program}' \"$@\"\n")
    target = tmp_path / "said"
    words = ["two words", "a'b\"c", "$HOME", "*", "", "ü", "a\\b", ">x"]
    run = ended_well(measured([started, target, *words], "load=model_load", "execute=model_run"))
    assert target.read_text() == "".join(f"[{word}]" for word in words)
    assert abs(above(phase(run, "MODEL_LOAD")) - 16) < NEAR_MIB
    assert abs(above(phase(run, "EXECUTE")) - 5) < NEAR_MIB


def test_phase_option_on_command_line(build, memprof) -> None:
    program = build('extern "C" OUT void model_load() { spike(8); } int main() { model_load(); wait_ms(50); model_load(); return 0; }')
    done = memprof("exec", "--phase", "load=model_load", "-o", "runs.jsonl", "--", program)
    assert done.returncode == 0, done.stderr
    (run,) = store.load([program.parent / "runs.jsonl"]).runs
    ended_well(run)
    assert all(mark.rss_peak_exact for mark in run.marks) and run.processes == ()
    assert len(phase(run, "MODEL_LOAD").times_ns) == 2 and abs(above(phase(run, "MODEL_LOAD")) - 8) < NEAR_MIB
    assert run.timeline.rss_max_bytes < 30 * MIB, "that would be gdb's memory"
    missing = memprof("run", "--cmd", f"own={quote(str(program))}", "--phase", "load=model_laod", "-o", "none.jsonl")
    assert missing.returncode == 2 and "did you mean model_load?" in missing.stderr
    assert not (program.parent / "none.jsonl").exists()


def test_time_limit_ends_program_and_gdb(build, nothing_left) -> None:
    program = build("""
        extern "C" OUT void model_load() { spike(1); }
        extern "C" OUT void model_run() { for (;;) pause(); }
        int main() { model_load(); model_run(); }
    """)
    command = [str(program)]
    wrapped = symbols.wrap(command, [("MODEL_LOAD", "model_load"), ("EXECUTE", "model_run")])

    def attempt(limit_ns: int) -> Run:
        job = Job(Model("program", command[0], (), 0, ""), "command", "a", 1, 0, 0, timeout_ns=limit_ns, cache="asis")
        (run,) = campaign.measure([Order(job, Runtime("command"), "", {}, None, argv=wrapped)], Silent(), lambda line: None)
        return run

    run = with_patience(attempt, lambda run: run.outcome.phase == "EXECUTE")
    assert (run.outcome.status, run.outcome.phase) == ("timeout", "EXECUTE")
    assert run.mark("MODEL_LOAD") is not None


VERSIONS = 'extern "C" void lib_load(); int main() { lib_load(); return 0; }'


def two_builds(tmp_path: Path) -> tuple[Path, Path]:
    """Folders with two builds of one library."""
    folders = tmp_path / "old", tmp_path / "new"
    for folder, mib in zip(folders, (5, 8), strict=True):
        folder.mkdir()
        compiled(folder, HEAD + f'extern "C" void lib_load() {{ spike({mib}); }}', "-shared", "-fPIC", name="libmodel.so")
    return folders


def test_library_builds_compared(build, memprof, tmp_path: Path) -> None:
    old, new = two_builds(tmp_path)
    program = build(VERSIONS, f"-L{old}", "-l:libmodel.so")
    cmds = [word for path in (old, new) for word in ("--cmd", f"{path.name}=LD_LIBRARY_PATH={quote(str(path))} {quote(str(program))}")]
    done = memprof("run", *cmds, "--phase", "load=lib_load", "--repeats", "1", "-o", "runs.jsonl")
    assert done.returncode == 0, done.stderr
    peaks = {run.job.variant: above(phase(run, "MODEL_LOAD")) for run in store.load([program.parent / "runs.jsonl"]).runs}
    assert abs(peaks["old"] - 5) < NEAR_MIB and abs(peaks["new"] - 8) < NEAR_MIB
    wrong = memprof("run", *cmds, "--phase", "load=lib_laod", "--repeats", "1", "-o", "none.jsonl")
    assert wrong.returncode == 2 and "did you mean lib_load?" in wrong.stderr
    by_option = memprof("exec", "--env", f"LD_LIBRARY_PATH={new}", "--phase", "load=lib_load", "-o", "one.jsonl", "--", program)
    assert by_option.returncode == 0, by_option.stderr


def test_loader_folder_order_followed(build, tmp_path: Path) -> None:
    old, new = two_builds(tmp_path)
    (new / "libmodel.so").unlink()
    compiled(new, HEAD + 'extern "C" void lib_load() { spike(1); } extern "C" void lib_more() {}', "-shared", "-fPIC", name="libmodel.so")
    after = build(VERSIONS, f"-L{old}", "-l:libmodel.so", f"-Wl,--enable-new-dtags,-rpath,{old}")
    symbols.wrap([str(after)], {"MODEL_LOAD": "lib_more"}, env={"LD_LIBRARY_PATH": str(new)})  # it comes before DT_RUNPATH
    before = build(VERSIONS, f"-L{old}", "-l:libmodel.so", f"-Wl,--disable-new-dtags,-rpath,{old}")
    with pytest.raises(UsageError, match="no function lib_more"):  # DT_RPATH comes before it
        symbols.wrap([str(before)], {"MODEL_LOAD": "lib_more"}, env={"LD_LIBRARY_PATH": str(new)})


def test_function_expected_in_missing_library(build, tmp_path: Path) -> None:
    old, _ = two_builds(tmp_path)
    program = build(VERSIONS, f"-L{old}", "-l:libmodel.so")
    words = symbols.wrap([str(program)], {"MODEL_LOAD": "lib_load"})
    assert '["MODEL_LOAD", "lib_load", []]' in " ".join(words)
    run = measured([program], "load=lib_load")
    said = "the program failed with exit code 127, and there is no function lib_load in what it had loaded until then"
    assert (run.outcome.message or "").startswith(said), run.outcome


class Listening(Silent):
    """Keeps what is said, and in which order with the end of the run. Makes a file at the first sentence."""

    def __init__(self, heard: Path) -> None:
        self.said: list[str] = []
        self._heard = heard

    def say(self, sentence: str) -> None:
        self.said.append(sentence)
        self._heard.touch()

    def finished(self, run: Run) -> None:
        self.said.append("finished")


def test_function_called_often_reported_during_run(build, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    program = build(
        f'extern "C" OUT void tiny() {{ asm volatile(""); }} int main() {{ while (access("{heard}", F_OK)) tiny(); return 0; }}'
    )
    job = Job(Model("program", str(program), (), 0, ""), "command", "a", 1, 0, 0, timeout_ns=240_000 * MS, cache="asis")
    order = Order(
        job, Runtime("command"), "", {}, None, argv=symbols.wrap([str(program)], [("EXECUTE", "tiny")]), command=CommandStart(alone=True)
    )
    listening = Listening(heard)
    (run,) = campaign.measure([order], listening, lambda line: None)
    assert run.outcome.ok, "it ended when the sentence was heard"
    assert "EXECUTE: tiny was called" in listening.said[0] and "ms a call)" in listening.said[0], listening.said
    assert listening.said[-1] == "finished"


def test_startup_excludes_symbol_reading_time(build, tmp_path: Path) -> None:
    source = tmp_path / "many.s"
    names = (f"f{number}_{'x' * 20}" for number in range(20_000))
    source.write_text("".join(f".globl {name}\n.type {name},%function\n{name}:\n.byte 0\n" for name in names))
    library = tmp_path / "libmany.so"
    subprocess.run([need_tool("gcc"), "-shared", "-nostdlib", "-o", str(library), str(source)], check=True)
    program = build(
        'extern "C" OUT void model_load() { spike(8); } int main() { model_load(); return 0; }', "-Wl,--no-as-needed", str(library)
    )

    def stood_still_ns(run: Run) -> int:
        return phase(run, "STARTUP").begin_ns - store.unpack(run.timeline).t_ns[0]

    # The first sample may come late, and with it the begin of the time in which the program stood still.
    run = with_patience(lambda _: ended_well(measured([program], "load=model_load")), lambda run: stood_still_ns(run) > 15 * MS)
    startup = phase(run, "STARTUP")
    # gdb needs more CPU time than this for so many names, on any machine; the program stood still meanwhile.
    assert stood_still_ns(run) > 15 * MS
    assert startup.end_ns <= phase(run, "MODEL_LOAD").begin_ns
    assert "in which gdb read symbols" in notes(run)


def test_function_misspelt_refused_before_start(build, tmp_path: Path) -> None:
    target = tmp_path / "ran"
    program = build(f'extern "C" OUT void model_prepare() {{ fopen("{target}", "w"); }} int main() {{ model_prepare(); }}')
    with pytest.raises(UsageError, match=r"no function model_prepaer in program and the \d+ libraries.*did you mean model_prepare\?"):
        symbols.wrap([str(program)], {"PREPARE": "model_prepaer"})
    assert not target.exists()


def test_near_names_match_last_part() -> None:
    names = ["_ZN2nn13NeuralNetwork5trainEv", "_ZN2nn14computeStridesERKNS_3DimE", "_ZN2nn9Optimizer5trainEv", "nnfw_train_step", "brain"]
    assert elf.suggestions("NeuralNetwork::trian", names)[0] == "nn::NeuralNetwork::train"
    assert "nn::computeStrides" not in elf.suggestions("NeuralNetwork::trian", names)
    assert elf.suggestions("NeuralNetwerk::train", names)[0] == "nn::NeuralNetwork::train"
    assert elf.suggestions("train_step", names) == ["nnfw_train_step"]
    assert elf.suggestions("nothing_like_it", names) == []


def test_stripped_program_is_named(build) -> None:
    program = build('extern "C" OUT void model_load() { spike(9); } int main() { model_load(); }')
    subprocess.run([need_tool("strip"), str(program)], check=True)
    with pytest.raises(UsageError, match="is stripped, and only its exported functions have a name"):
        symbols.wrap([str(program)], {"MODEL_LOAD": "model_load"})


def test_function_inlined_everywhere(build) -> None:
    source = "static inline __attribute__((always_inline)) void model_load() { spike(9); } int main() { model_load(); }"
    with pytest.raises(UsageError, match=r"may have inlined it everywhere: .*noinline"):
        symbols.wrap([str(build(source, "-g"))], {"MODEL_LOAD": "model_load"})


INLINED = """
extern "C" inline __attribute__((always_inline, used)) void model_load(int mib) { spike(mib); }
extern "C" OUT void model_run() { wait_ms(5); asm volatile(""); }
static inline __attribute__((always_inline)) int first(int n) { spike(8); return n + 1; }
extern "C" OUT int begins(int n) { return first(n) * 3; }
"""


@pytest.mark.parametrize("flags", [("-g", "-O2"), ("-O2", "-fomit-frame-pointer")], ids=" ".join)
def test_function_inlined_at_each_call(build, flags: tuple[str, ...]) -> None:
    """With debug information gdb stops inside main too, where the function begins and has no return."""
    source = INLINED + "int main(int n, char **) { model_load(9); model_load(12); model_run(); return begins(n) == 6 ? 0 : 1; }"
    run = measured([build(source, *flags)], "load=model_load", "execute=model_run", "begins=begins")
    assert (run.outcome.status, run.outcome.phase) == ("refused", "MODEL_LOAD")
    why = (
        "it is inlined where it is called"
        if "-g" in flags
        else "the program does not call it in this run, or it is inlined where it is called"
    )
    assert f"model_load is there, but it was never entered ({why}): {elf.NOT_INLINED}" in run.outcome.sentence
    assert phase(run, "EXECUTE").time_ns >= 5 * MS and run.mark("MODEL_LOAD") is None
    assert abs(above(phase(run, "begins")) - 8) < NEAR_MIB and phase(run, "begins").times_ns == ()


def test_functions_of_optimised_program(build) -> None:
    """A function that is inlined at some calls; a constructor, which has several linker's names at one place and one more in debug information; a
    recursion that GCC inlines, whose inner calls are at no entry; and a tail call."""
    source = """
        namespace ml { struct Model { int n; inline __attribute__((always_inline)) Model(int k) : n(k) { spike(k); } }; }
        struct Session : ml::Model { OUT Session(int k) : ml::Model(k) { asm volatile(""); } };
        extern "C" OUT long again(long n) { spike(2); return n ? n * again(n - 1) + 1 : 1; }
        extern "C" OUT int inner(int n) { spike(8); return n; }
        extern "C" OUT int outer(int n) { spike(22); return inner(n); }
        void (*volatile load)(int) = model_load;
        int main(int n, char **) {
          for (int i = 0; i < 1000; i++) model_load(0);
          model_load(15); model_run(); load(5);
          ml::Model one(10); Session two(6);
          return one.n == two.n || again(n + 5) == 0 || outer(n - 1);
        }
    """
    functions = ("load=model_load", "execute=model_run", "session=Session::Session", "again=again", "outer=outer", "inner=inner")
    run = ended_well(measured([build(INLINED + source, "-g", "-O3")], *functions))
    assert [mark.phase for mark in run.marks][:4] == ["STARTUP", "EXECUTE", "MODEL_LOAD", "session"]
    for name, mib in (("MODEL_LOAD", 5), ("session", 6), ("again", 2), ("outer", 22), ("inner", 8)):
        assert abs(above(phase(run, name)) - mib) < NEAR_MIB and phase(run, name).times_ns == (), name
    assert "MODEL_LOAD: some calls of model_load are inlined where it is called, and are not seen" in notes(run)
    assert "session" not in notes(run)


@pytest.mark.parametrize("text", ["load", "=f", "load=", "lo ad=f", "load= "])
def test_parse_phase_refusals(text: str) -> None:
    with pytest.raises(UsageError, match="write NAME=FUNCTION"):
        symbols.parse_phase(text)


def test_parse_phase_usual_names() -> None:
    assert symbols.parse_phase("load=f") == ("MODEL_LOAD", "f")
    assert symbols.parse_phase("EPOCH=ns::f( int )") == ("EPOCH", "ns::f( int )")


def test_gdb_missing_suggests_alternative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(InputError, match=r"gdb, which is not installed; marks \(memprof.h\) or --phase-regex"):
        symbols.wrap(["true"], {"MODEL_LOAD": "f"})


def test_gdb_without_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gdb = tmp_path / "gdb"
    gdb.write_text("#!/bin/sh\necho 'Python scripting is not supported in this copy of GDB.'\n")
    gdb.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(InputError, match=r"a gdb with Python, and .* has none; marks"):
        symbols.wrap(["true"], {"MODEL_LOAD": "f"})


def test_ptrace_forbidden_suggests_alternative(monkeypatch: pytest.MonkeyPatch) -> None:
    need_tool("gdb")

    class Refusing:
        def ptrace(self, *words: object) -> int:
            return -1

    monkeypatch.setattr(symbols.ctypes, "CDLL", lambda *words, **rest: Refusing())
    monkeypatch.setattr(symbols.ctypes, "get_errno", lambda: 1)
    with pytest.raises(InputError, match=r"may not trace a program here .*Operation not permitted.*; marks"):
        symbols.wrap(["true"], {"MODEL_LOAD": "f"})


def test_command_cannot_be_started(tmp_path: Path) -> None:
    need_tool("gdb")
    text = tmp_path / "notes.txt"
    text.write_text("no program")
    folder = tmp_path / "folder"
    folder.mkdir()
    for command, said in ((str(tmp_path / "nowhere"), "no such command"), (str(text), "not executable"), (str(folder), "not executable")):
        with pytest.raises(InputError, match=said):
            symbols.wrap([command], {"MODEL_LOAD": "f"})
    text.chmod(0o755)
    with pytest.raises(InputError, match="is not an ELF file"):
        symbols.wrap([str(text)], {"MODEL_LOAD": "f"})


def test_program_for_other_machine(build) -> None:
    program = build("int main() {}")
    data = bytearray(program.read_bytes())
    data[18:20] = (22).to_bytes(2, "little")  # EM_S390
    program.write_bytes(data)
    with pytest.raises(InputError, match="is built for machine 22, and this is"):
        symbols.wrap([str(program)], {"MODEL_LOAD": "main"})


def test_setuid_program_refused(build) -> None:
    program = build("int main() {}")
    program.chmod(0o755 | stat.S_ISUID)
    with pytest.raises(InputError, match=r"setuid.* without that right; marks"):
        symbols.wrap([str(program)], {"MODEL_LOAD": "main"})


@pytest.mark.parametrize("size", [0, 3, 20, 63, 64, 200, 1000, 5000])
def test_torn_program_without_traceback(build, size: int) -> None:
    program = build("int main() {}")
    program.write_bytes(program.read_bytes()[:size])
    with pytest.raises(InputError):
        symbols.wrap([str(program)], {"MODEL_LOAD": "nothing_of_that_name"})
