"""A gate that measures: a suite beside a baseline, both sides of a git ref, and again what is to be confirmed or proven."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from support import sample_runs
from support.checkout import ENGINE, QUICK, RUNTIME, SUITE, Checkout, package_checkout, quick_venv
from support.native_programs import program
from support.recorder_runs import NEAR, processes, wait_for
from support.sample_runs import MIB, job

from memprof.base import leftovers
from memprof.base.cache import cache_folder
from memprof.campaign import campaign
from memprof.records import store
from memprof.records.summary import VariantKey
from memprof.regressions.gate import interleaving
from memprof.regressions.gate.confirmation import orders_again
from memprof.subjects.order import Order
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite as Wanted
from memprof.subjects.suite import Variant
from memprof.versions import worktrees

STEPS = {"load": [{"allocate": "w", "bytes": 20 << 20}], "execute": [{"spike": 10 << 20}]}


@pytest.fixture
def suite(scenario, tmp_path):
    """Write suite.toml: a scenario that holds 20 MiB, and this many more."""

    def write(more="0"):
        scenario(**STEPS)
        (tmp_path / "suite.toml").write_text(
            f'models = ["scenario.json"]\n{QUICK}[[variant]]\nname = "plain"\nruntime = "synthetic"\nset = {{ extra = "{more}" }}\n'
        )

    write()
    return write


@pytest.mark.long
def test_gate_run_against_baseline(memprof, suite, tmp_path):
    assert memprof("run", "--suite", "suite.toml", "-o", "base.jsonl").returncode == 0
    assert memprof("baseline", "update", "base.jsonl", "-o", "base.json").returncode == 0

    same = memprof("gate", "--run", "suite.toml", "--baseline", "base.json", "-o", "same.jsonl", "--prove", "--json")
    assert same.returncode == 0, same.stderr
    proof = json.loads(same.stdout)["proof"]
    assert (proof["seen"], proof["silent"]) == (True, True)
    assert proof["added_bytes"] == pytest.approx(0.05 * 42 * MIB, rel=0.1)
    checks = store.load([tmp_path / "same.checks.jsonl"]).runs
    assert len(checks) == 15
    assert {run.job.heading for run in checks} == {"plain (as it is)", "plain (measured again)", "plain (5% more)"}

    suite("4MiB")
    worse = memprof("gate", "--run", "suite.toml", "--baseline", "base.json", "-o", "worse.jsonl", "--confirm")
    assert worse.returncode == 1, worse.stderr
    assert re.search(r"; confirmed: \+[34]\.\d MiB", worse.stdout)
    assert "extra differs: base 0, head 4194304" in worse.stdout
    assert len(store.load([tmp_path / "worse.jsonl"]).runs) == 5


def test_budget_without_match_refused_early(memprof, suite, tmp_path):
    (tmp_path / "budgets.toml").write_text('[[budget]]\nvariant = "plan"\npeak = "1 GiB"\n')

    done = memprof("gate", "--run", "suite.toml", "--budgets", "budgets.toml", "-o", "new.jsonl")

    assert (done.returncode, done.stdout) == (2, "")
    assert "no variant that is measured matches plan; did you mean plain?" in done.stderr
    assert not (tmp_path / "new.jsonl").exists()


def test_confirm_clears_unrepeated_regression(memprof, suite, tmp_path):
    memprof("run", "--suite", "suite.toml", "-o", "base.jsonl")
    runs = store.load([tmp_path / "base.jsonl"]).runs
    marks = [tuple(replace(mark, rss_peak_bytes=mark.rss_peak_bytes + 9 * MIB) for mark in run.marks) for run in runs]
    raised = [replace(run, marks=more) for run, more in zip(runs, marks, strict=True)]
    (tmp_path / "head.jsonl").write_bytes(b"".join(map(store.encode, raised)))

    assert memprof("gate", "head.jsonl", "--baseline", "base.jsonl").returncode == 1
    done = memprof("gate", "head.jsonl", "--baseline", "base.jsonl", "--confirm", "-o", "new.jsonl", "--json", "--trust-runs")

    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert any("but not confirmed" in row["reason"] for row in content["rows"])
    assert any("not confirmed by a fresh measurement: " in remark and "PEAK rss_peak_bytes" in remark for remark in content["remarks"])
    assert len(store.load([tmp_path / "new.checks.jsonl"]).runs) == 5  # once for all rows of the variant


def test_gate_fails_on_crashed_runs(memprof, suite, scenario, tmp_path):
    memprof("run", "--suite", "suite.toml", "-o", "base.jsonl")
    scenario(load=[{"crash": "SIGSEGV"}])

    done = memprof("gate", "--run", "suite.toml", "--baseline", "base.jsonl", "-o", "new.jsonl", "--prove")

    assert done.returncode == 1, done.stderr
    assert "1 of 1 run failed: ended by SIGSEGV in MODEL_LOAD" in done.stdout
    assert "the positive control could not be made" in done.stdout


def test_ballast_weight(memprof, suite, tmp_path):
    memprof("run", "--suite", "suite.toml", "-o", "plain.jsonl", "--repeats", "1")
    memprof("run", "--suite", "suite.toml", "-o", "heavy.jsonl", "--repeats", "1", "--set", "ballast=7MiB")

    plain, heavy = (store.load([tmp_path / name]).runs[0] for name in ("plain.jsonl", "heavy.jsonl"))
    for phase, more in (("STARTUP", 0), ("MODEL_LOAD", 7), ("EXECUTE", 7)):
        assert heavy.mark(phase).rss_peak_bytes - plain.mark(phase).rss_peak_bytes == pytest.approx(more * MIB, abs=2 * NEAR)


def order(side, variant, repeat):
    return Order(job(variant=variant, repeat=repeat, env={"side": side}), None, "python", {}, None)


def test_sides_interleaved_in_turns():
    base = [order("base", "old", repeat) for repeat in (1, 2)]
    head = [order("head", variant, repeat) for repeat in (1, 2) for variant in ("old", "new")]

    planned = [
        (name, order.job.env["side"], order.job.variant, order.job.repeat)
        for name, order in interleaving.interleaved({"base": base, "head": head})
    ]

    assert planned == [
        ("base", "base", "old", 1),
        ("head", "head", "old", 1),
        ("head", "head", "new", 1),
        ("head", "head", "old", 2),
        ("base", "base", "old", 2),
        ("head", "head", "new", 2),
    ]


def test_orders_again_equal_original_orders(tmp_path, scenario):
    path = scenario(**STEPS)
    variant = Variant("synthetic", "a", {"extra": "1MiB", "malloc_arenas": "1"}, (2,), env={"A": "b"})
    wanted = Wanted(models=(str(path),), variants=(variant,), warmup=0, runs=3, repeats=6, cache="cold", timeout_ns=10**9, name="net")
    orders = plan(wanted).orders
    runs = [replace(sample_runs.run(), job=order.job) for order in orders]

    again = orders_again(runs, VariantKey("net", "a", 2))

    assert [replace(order, subject=Wanted()) for order in again] == [replace(order, subject=Wanted()) for order in orders]


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path / "a checkout, é")


def quick(checkout, command="true"):
    return f"{SUITE}[build]\npython = {str(checkout.folder / 'quick-python')!r}\ncommand = {command!r}\n"


# A runtime in the repository, whose engine lies beside it: nothing needs to be installed.
def test_sides_with_own_code(memprof, checkout):
    checkout.commit(runtime_dot_py=RUNTIME, engine_dot_py=ENGINE.format(6), bench__suite_dot_toml=quick(checkout), bench__net_dot_bin="1")
    checkout.write(engine_dot_py=ENGINE.format(10))  # not committed

    done = memprof("gate", "--run", "bench/suite.toml", "--base-ref", "HEAD", "-o", "out.jsonl", "--json", cwd=checkout.folder)

    assert done.returncode == 1, done.stderr
    rows = {(row["phase"], row["metric"]): row for row in json.loads(done.stdout)["rows"]}
    assert rows["PREPARE", "rss_peak_bytes"]["difference"] == pytest.approx(4 * MIB, abs=NEAR)
    assert rows["STARTUP", "rss_peak_bytes"]["verdict"] == "ok"
    assert len(store.load([checkout.folder / "out.jsonl"]).runs) == len(store.load([checkout.folder / "out.base.jsonl"]).runs) == 5
    assert checkout.is_clean()
    assert "repeat 1: peaks engine (base) " in done.stderr


@pytest.mark.parametrize(
    ("command", "both"), [("true", "pip install onnxruntime"), ("touch built", "touch built && pip install onnxruntime")]
)
def test_runtime_missing_in_built_environment(memprof, checkout, command, both):
    """The environment is gone after the gate: what fills it next time is the suite's own word."""
    suite = quick(checkout, command).replace("../runtime.py", "onnxruntime").replace("net.bin", "net.onnx")
    checkout.commit(bench__suite_dot_toml=suite, bench__net_dot_onnx="1")

    done = memprof("gate", "--run", "bench/suite.toml", "--base-ref", "HEAD", "-o", "o.jsonl", cwd=checkout.folder)

    assert done.returncode == 5
    assert done.stderr.splitlines()[-1] == (
        f'memprof: onnxruntime is not in the environment that [build] fills with command = "{command}": command = "{both}" installs it too'
    )
    here = memprof("gate", "--run", "bench/suite.toml", "--budget", "1GiB", "-o", "h.jsonl", cwd=checkout.folder)
    assert "this checkout is measured as it is: the suite's [build] runs for --base-ref alone, in the tree of each side" in here.stderr


SHAPED = """
class Runtime:
    version = "1"
    def load(self, model, options):
        self.held = bytearray(b"x" * (options.shapes["x"][0] << 20))
    def prepare(self):
        pass
    def execute(self):
        pass
"""


def test_sides_with_own_suite_shapes(memprof, checkout):
    """A suite's [[model]] says the shapes: a change of them is named beside what it made. A model that git does not track is the checkout's."""
    suite = quick(checkout).replace('models = ["net.bin"]', "").replace("repeats = 5", "repeats = 1")
    suite += "[[model]]\npath = 'net.bin'\nshape.x = [{}]\n[[model]]\npath = 'large.bin'\nshape.x = [20]\n"
    checkout.commit(
        runtime_dot_py=SHAPED, bench__suite_dot_toml=suite.format(30), bench__net_dot_bin="1", _dot_gitignore="large.bin\nquick-python\n"
    )
    checkout.commit(bench__suite_dot_toml=suite.format(36))
    checkout.write(bench__large_dot_bin="2")

    done = memprof("gate", "--run", "bench/suite.toml", "--base-ref", "HEAD~1", "-o", "o.jsonl", "--json", cwd=checkout.folder)

    sides = [store.load([checkout.folder / name]).runs for name in ("o.base.jsonl", "o.jsonl")]
    shapes = [{(run.job.model.name, run.job.shapes["x"]) for run in runs} for runs in sides]
    assert shapes == [{("net.bin", (30,)), ("large.bin", (20,))}, {("net.bin", (36,)), ("large.bin", (20,))}], done.stderr
    content = json.loads(done.stdout)
    assert "net.bin, engine: shape of x differs: base 30, head 36" in content["remarks"]
    ran = {(row["side"], row["model"], *row["shapes"]["x"]) for row in content["inputs"]}
    assert ran == {("base", "net.bin", 30), ("base", "large.bin", 20), ("head", "net.bin", 36), ("head", "large.bin", 20)}


def test_sides_with_own_environment(memprof, checkout, monkeypatch):
    """A real virtual environment a side, the engine installed into it by the build command, and a PYTHONPATH that would have misled both."""
    do = worktrees._do  # nothing here needs pip, and venv takes seconds to put it there
    monkeypatch.setattr(worktrees, "_do", lambda command, *rest: do([*command, "--without-pip"] if "venv" in command else command, *rest))
    build = "[build]\ncommand = 'sh build.sh'\n"
    script = 'cp lib/engine.py "$(python -c \'import sysconfig; print(sysconfig.get_path("purelib"))\')"\n'
    (checkout.folder / "lib").mkdir()
    checkout.commit(
        runtime_dot_py=RUNTIME,
        lib__engine_dot_py=ENGINE.format(6),
        build_dot_sh=script,
        bench__suite_dot_toml=SUITE + build,
        bench__net_dot_bin="1",
    )
    checkout.commit(lib__engine_dot_py=ENGINE.format(7))
    checkout.commit(lib__engine_dot_py=ENGINE.format(11))
    monkeypatch.setenv("PYTHONPATH", str(checkout.folder / "lib"))
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as inside a git hook

    done = memprof("gate", "--run", "bench/suite.toml", "--base-ref", "HEAD~2", "--confirm", "-o", "o.jsonl", "--json", cwd=checkout.folder)

    monkeypatch.delenv("GIT_DIR")
    assert done.returncode == 1, done.stderr
    content = json.loads(done.stdout)
    row = next(row for row in content["rows"] if (row["phase"], row["metric"]) == ("PREPARE", "rss_peak_bytes"))
    assert row["difference"] == pytest.approx(5 * MIB, abs=NEAR)
    assert re.search(r"; confirmed: \+[45]\.\d MiB", row["reason"])  # as near as the first
    assert "head (this checkout) against base (HEAD~2, " in content["title"]
    prefixes = [{run.about.notes[0] for run in store.load([checkout.folder / name]).runs} for name in ("o.base.jsonl", "o.jsonl")]
    assert [Path(prefix.pop()).name for prefix in prefixes] == ["base-env", "head-env"]
    assert checkout.is_clean()


# It holds its memory until memprof has seen it: nobody knows the peak of a program that ended before.
PROGRAM = """
import mmap, os, pathlib, time
held = mmap.mmap(-1, {mib} << 20)
for at in range(0, len(held), 4096):
    held[at] = 1
unseen = pathlib.Path({folder!r}, str(os.getpid()))
draft = unseen.with_suffix(".draft")
draft.write_text(str(int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")))
draft.rename(unseen)
while unseen.exists():
    time.sleep(0.01)
"""


@pytest.fixture
def unseen(tmp_path, monkeypatch):
    """A folder where a program puts a file with its resident set, which is gone once memprof has seen the program at that size."""
    folder, ask = tmp_path / "unseen", campaign.ask
    folder.mkdir()

    def noticing(job, message, token, live, *rest, **more):
        def seen(phase, rss_bytes):
            for file in folder.glob("*[0-9]"):
                if rss_bytes >= int(file.read_text()) - NEAR:
                    file.unlink()
            live(phase, rss_bytes)

        return ask(job, message, token, seen, *rest, **more)

    monkeypatch.setattr(campaign, "ask", noticing)
    return folder


def test_sides_run_commands_in_own_tree(memprof, checkout, unseen):
    """What a build command makes of each side is run there: an engine in C++ has no runtime file."""
    base, head = (PROGRAM.format(mib=mib, folder=str(unseen)) for mib in (4, 8))
    suite = f"{QUICK}[[variant]]\nname = 'app'\ncmd = ['{sys.executable}', 'built.py']\n"
    suite += quick(checkout, "cp program.py built.py").partition(SUITE)[2]
    checkout.commit(suite_dot_toml=suite, program_dot_py=base, _dot_gitignore="built.py\nquick-python\n")
    checkout.commit(program_dot_py=head)

    done = memprof("gate", "--run", "suite.toml", "--base-ref", "HEAD~1", "--json", cwd=checkout.folder)

    assert done.returncode == 1, done.stderr
    rows = {(row["phase"], row["metric"]): row for row in json.loads(done.stdout)["rows"]}
    assert rows["PEAK", "rss_peak_bytes"]["difference"] == pytest.approx(4 * MIB, abs=NEAR)


def test_entries_unknown_to_base_new(memprof, checkout):
    checkout.commit(runtime_dot_py=RUNTIME, engine_dot_py=ENGINE.format(2), bench__suite_dot_toml=quick(checkout), bench__net_dot_bin="1")
    more = quick(checkout).replace('["net.bin"]', '["net.bin", "new.bin"]')
    more += '[[variant]]\nname = "other"\nruntime = "../other.py"\n'
    checkout.commit(bench__suite_dot_toml=more, bench__new_dot_bin="2", other_dot_py=RUNTIME)

    words = ["--base-ref", "HEAD~1", "-o", "o.jsonl", "--json", "--repeats", "1"]
    done = memprof("gate", "--run", "bench/suite.toml", *words, cwd=checkout.folder)

    assert done.returncode == 3, done.stderr  # of one repeat
    assert rows_of(done) == {
        ("net.bin", "engine"): {"undecided"},
        ("new.bin", "engine"): {"new"},
        ("net.bin", "other"): {"new"},
        ("new.bin", "other"): {"new"},
    }


def rows_of(done):
    verdicts = {}
    for row in json.loads(done.stdout)["rows"]:
        verdicts.setdefault((row["model"], row["variant"]), set()).add(row["verdict"])
    return verdicts


def test_entries_removed_from_suite_gone(memprof, checkout):
    other = '[[variant]]\nname = "other"\nruntime = "../runtime.py"\n'
    both = quick(checkout).replace('["net.bin"]', '["net.bin", "old.bin"]') + other
    files = {"bench__net_dot_bin": "1", "bench__old_dot_bin": "2", "runtime_dot_py": RUNTIME, "engine_dot_py": ENGINE.format(2)}
    checkout.commit(bench__suite_dot_toml=both, **files)
    checkout.git("rm", "-q", "bench/old.bin")
    checkout.commit(bench__suite_dot_toml=quick(checkout))

    words = ["--run", "bench/suite.toml", "--base-ref", "HEAD~1", "--threshold", "50%", "--json"]
    done = memprof("gate", *words, "-o", "a.jsonl", cwd=checkout.folder)
    allowed = memprof("gate", *words, "-o", "b.jsonl", "--allow-gone", cwd=checkout.folder)

    assert (done.returncode, allowed.returncode) == (3, 0), done.stderr
    gone = {("net.bin", "other"): {"gone"}, ("old.bin", "engine"): {"gone"}, ("old.bin", "other"): {"gone"}}
    assert rows_of(done) == rows_of(allowed) == {("net.bin", "engine"): {"ok"}, **gone}


def test_renamed_files_matched_by_content(memprof, checkout):
    suite = quick(checkout).replace('name = "engine"\n', "")
    files = {"bench__net_dot_bin": "1", "runtime_dot_py": RUNTIME, "engine_dot_py": ENGINE.format(2)}
    checkout.commit(bench__suite_dot_toml=suite, **files)
    checkout.git("mv", "bench/net.bin", "bench/better.bin")
    checkout.git("mv", "runtime.py", "mine.py")
    renamed = suite.replace("net.bin", "better.bin").replace("runtime.py", "mine.py")
    checkout.commit(bench__suite_dot_toml=renamed, budgets_dot_toml='peak = "5 MiB"\n')

    words = ["--run", "bench/suite.toml", "--base-ref", "HEAD~1", "--threshold", "50%", "--json", "-o", "a.jsonl"]
    done = memprof("gate", *words, "--budgets", "budgets.toml", cwd=checkout.folder)

    assert done.returncode == 1, done.stderr
    assert rows_of(done) == {("better.bin", "mine"): {"ok", "over"}}
    assert {"better.bin is base's net.bin under another name", "mine is base's runtime under another name"} <= set(
        json.loads(done.stdout)["remarks"]
    )


def test_entries_unmeasurable_in_base_undecided(memprof, checkout):
    files = {"bench__net_dot_bin": "1", "runtime_dot_py": RUNTIME, "engine_dot_py": ENGINE.format(2)}
    broken = quick(checkout) + '[[variant]]\nname = "other"\nruntime = "../missing.py"\n'
    checkout.commit(bench__suite_dot_toml=broken, **files)
    checkout.commit(missing_dot_py=RUNTIME)

    words = ["--run", "bench/suite.toml", "--base-ref", "HEAD~1", "--threshold", "50%", "--json", "-o", "a.jsonl"]
    done = memprof("gate", *words, cwd=checkout.folder)

    assert done.returncode == 3, done.stderr
    assert rows_of(done) == {("net.bin", "engine"): {"ok"}, ("net.bin", "other"): {"new", "undecided"}}


@pytest.mark.parametrize("command", ["true", "sh tools/build.sh"])
def test_suite_absent_in_base_all_new(memprof, checkout, command):
    checkout.commit(engine_dot_py=ENGINE.format(2))
    (checkout.folder / "tools").mkdir()
    files = {"bench__suite_dot_toml": quick(checkout, command), "bench__net_dot_bin": "1", "tools__build_dot_sh": "true\n"}
    checkout.commit(runtime_dot_py=RUNTIME, **files)

    words = ["--base-ref", "HEAD~1", "-o", "o.jsonl", "--json", "--repeats", "1"]
    done = memprof("gate", "--run", "bench/suite.toml", *words, cwd=checkout.folder)

    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert {row["verdict"] for row in content["rows"]} == {"new"}
    (remark,) = [remark for remark in content["remarks"] if "has no bench/suite.toml yet, so all rows are new" in remark]
    assert "measures it and the commits since: memprof bisect --suite bench/suite.toml --good " in remark
    assert not (checkout.folder / "o.base.jsonl").exists() and checkout.is_clean()


def test_untracked_model_taken_from_checkout(memprof, checkout):
    checkout.commit(runtime_dot_py=RUNTIME, engine_dot_py=ENGINE.format(2), bench__suite_dot_toml=quick(checkout), _dot_gitignore="*.bin\n")
    checkout.write(bench__net_dot_bin="downloaded")

    done = memprof("gate", "--run", "bench/suite.toml", "--base-ref", "main", "-o", "o.jsonl", "--repeats", "1", cwd=checkout.folder)

    assert done.returncode == 3, done.stderr
    assert {run.job.model.path for name in ("o.jsonl", "o.base.jsonl") for run in store.load([checkout.folder / name]).runs} == {
        str(checkout.folder / "bench/net.bin")
    }


@pytest.fixture
def trees(checkout, tmp_path, monkeypatch):
    """The trees of both sides, with a cache of their own: trees(ref, the command that builds the head)."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def made(ref="HEAD", command="true"):
        build = worktrees.Build(command, str(checkout.folder / "quick-python"))
        return worktrees.trees(worktrees.Repository.of(checkout.folder / "bench/suite.toml"), ref, build, lambda sentence: None)

    return made


def test_head_tree_follows_uncommitted_files(checkout, trees):
    checkout.commit(
        kept_dot_txt="1", gone_dot_txt="1", changed_dot_txt="1", _dot_gitignore="*.log\n", bench__suite_dot_toml=quick(checkout)
    )
    checkout.write(changed_dot_txt="2", new_dot_txt="1", a_dot_log="1")
    (checkout.folder / "gone.txt").unlink()
    (checkout.folder / "link.txt").symlink_to("new.txt")

    with trees(command="touch made.txt") as (base, head):
        names = {path.name: path.read_text() for path in head.folder.glob("*.txt")}
        assert names == {"kept.txt": "1", "changed.txt": "2", "new.txt": "1", "link.txt": "1", "made.txt": ""}
        assert {path.name for path in base.folder.glob("*.txt")} == {"kept.txt", "gone.txt", "changed.txt"}  # its own suite makes nothing
        assert not (head.folder / "a.log").exists()
    assert not base.folder.parent.exists()
    assert not (checkout.folder / "made.txt").exists()


def test_base_label_names_commit_once(checkout, trees):
    checkout.commit(bench__suite_dot_toml=quick(checkout))
    commit = checkout.git("rev-parse", "HEAD").strip()

    for ref, label in ((commit, f"base ({commit[:9]})"), ("main", f"base (main, {commit[:9]})")):
        with trees(ref) as (base, _):
            assert base.label == label


def test_head_tree_without_environments_and_runs(checkout, trees):
    checkout.commit(bench__suite_dot_toml=quick(checkout), kept_dot_jsonl=store.encode(sample_runs.run()).decode())
    for folder in ("env/lib", "nested", "work/env"):
        (checkout.folder / folder).mkdir(parents=True)
    runs = store.encode(sample_runs.run()).decode()
    checkout.write(env__pyvenv_dot_cfg="home = /usr", env__lib__a_dot_py="1", work__env__pyvenv_dot_cfg="", work__b_dot_py="1")
    checkout.write(kept_dot_jsonl=runs * 2, out_dot_jsonl=runs, work__lines_dot_jsonl="{}", nested__c_dot_py="1")
    subprocess.run(["git", "init", "-q", str(checkout.folder / "nested")], check=True)

    with trees() as (_, head):
        copied = {str(path.relative_to(head.folder)) for path in head.folder.rglob("*") if path.is_file()} - {".git"}
        assert copied == {"bench/suite.toml", "kept.jsonl", "quick-python", "work/b.py", "work/lines.jsonl"}
        assert (head.folder / "kept.jsonl").read_text() == runs * 2  # git tracks it: it is the checkout's


@pytest.mark.parametrize(
    ("ref", "command", "code", "says"),
    [
        ("no-such-branch", "true", 2, "--base-ref no-such-branch: git knows no such commit"),
        ("", "true", 2, "--base-ref is empty: name a branch, a tag or a commit"),
        ("--upload-pack=x", "true", 2, "git knows no such commit"),
        (
            "HEAD",
            "echo ERROR: no matching wheel; exit 7",
            5,
            ") cannot be built: `echo ERROR: no matching wheel; exit 7` ended with exit code 7",
        ),
        ("HEAD", "no-such-command", 5, "exit code 127"),
    ],
)
def test_unavailable_side_in_one_sentence(memprof, checkout, ref, command, code, says):
    checkout.commit(
        runtime_dot_py=RUNTIME, engine_dot_py=ENGINE.format(1), bench__suite_dot_toml=quick(checkout, command), bench__net_dot_bin="1"
    )

    done = memprof("gate", "--run", "bench/suite.toml", f"--base-ref={ref}", "-o", "o.jsonl", cwd=checkout.folder)

    assert (done.returncode, done.stdout) == (code, "")
    said = [line for line in done.stderr.splitlines() if line.startswith("memprof: ")]
    assert len(said) == 1 and says in said[0], done.stderr
    assert checkout.is_clean()
    assert not list(checkout.folder.glob("*.jsonl"))


def test_existing_output_refused_before_build(memprof, checkout):
    checkout.commit(bench__suite_dot_toml=quick(checkout, "touch /nowhere/at/all"), bench__net_dot_bin="1")
    for name in ("o.jsonl", "o.base.jsonl", "o.checks.jsonl"):
        (checkout.folder / name).write_text("mine")

        done = memprof("gate", "--run", "bench/suite.toml", "--base-ref", "HEAD", "--prove", "-o", "o.jsonl", cwd=checkout.folder)

        assert (done.returncode, done.stderr) == (5, f"memprof: {name} exists; -o names another\n")
        assert (checkout.folder / name).read_text() == "mine"
        (checkout.folder / name).unlink()


def test_suite_outside_repository_refused(memprof, suite):
    done = memprof("gate", "--run", "suite.toml", "--base-ref", "main")
    assert (done.returncode, "suite.toml lies in no git repository" in done.stderr) == (5, True)
    assert memprof("gate", "--run", "none.toml", "--base-ref", "main").returncode == 5


def test_shallow_clone_hint_to_fetch(memprof, checkout, tmp_path):
    checkout.commit(bench__suite_dot_toml=quick(checkout))
    checkout.commit(bench__net_dot_bin="1")
    subprocess.run(["git", "clone", "-q", "--depth", "1", checkout.folder.as_uri(), str(tmp_path / "shallow")], check=True)

    done = memprof("gate", "--run", "bench/suite.toml", "--base-ref", "HEAD~1", cwd=tmp_path / "shallow")

    assert (done.returncode, "this clone is shallow: fetch the ref first" in done.stderr) == (2, True)


def building(checkout, *words):
    """A gate of two sides whose build has come to this program, and stays there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "memprof", "gate", "--run", "bench/suite.toml", "--base-ref", "HEAD"],
        cwd=checkout.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    process.stderr.readline()  # "base (HEAD, ...): sleep 300"
    wait_for(lambda: processes(*words))
    return process


def test_interrupted_gate_leaves_nothing(checkout, nothing_left):
    checkout.commit(bench__suite_dot_toml=quick(checkout, "sleep 300"), bench__net_dot_bin="1")
    process = building(checkout, "sleep", "300")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)

    assert (process.returncode, said.strip()) == (130, "memprof: interrupted")
    assert checkout.is_clean()


def test_killed_gate_leftovers_removed(checkout, nothing_left, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    checkout.commit(
        bench__suite_dot_toml=quick(checkout, "mktemp; sleep 614"), bench__net_dot_bin="1", runtime_dot_py=RUNTIME, engine_dot_py=""
    )
    process = building(checkout, "sleep", "614")
    process.kill()
    process.wait()
    left = checkout.git("worktree", "list").splitlines()
    assert len(left) == 2

    leftovers.end_leftovers()  # of any command, not only of a gate

    assert not list(cache_folder("logs").glob(f"build-{process.pid}.log"))
    assert checkout.is_clean()
    assert not list((tmp_path / "tmp").iterdir())
    assert not processes("sleep", "614")
    process.communicate()


def test_worktree_without_folder_forgotten(checkout, tmp_path):
    checkout.commit(bench__suite_dot_toml=quick(checkout))
    folder = tmp_path / "memprof-gate-0123456789abcdef"
    checkout.git("worktree", "add", "--detach", str(folder / "base"), "HEAD")
    shutil.rmtree(folder)
    assert not checkout.is_clean()

    worktrees.forget_leftovers(worktrees.Repository.of(checkout.folder / "bench" / "suite.toml"))

    assert checkout.is_clean()


@pytest.mark.parametrize("again", [False, True], ids=["suite", "runs"])
def test_prove_of_program(memprof, tmp_path, again, nothing_left):
    commands_suite(tmp_path, str(program("hold(20 * MIB); usleep(20000);")))
    words = ["--run", "suite.toml"]
    if again:
        memprof("run", "--suite", "suite.toml", "-o", "head.jsonl")
        words = ["head.jsonl", "--trust-runs"]

    done = memprof("gate", *words, "--budgets", "budgets.toml", "--prove", "-o", "new.jsonl", "--json")

    proof = json.loads(done.stdout)["proof"]
    assert (done.returncode, proof["seen"], proof["silent"]) == (0, True, True), done.stderr
    assert proof["added_bytes"] == pytest.approx(1 << 20, rel=0.2)


def test_prove_refuses_server_under_load(memprof, tmp_path):
    runs = [
        replace(run, job=replace(run.job, runtime="command", argv=("./server",), drive="GET /, 1 at once")) for run in sample_runs.runs()
    ]
    (tmp_path / "head.jsonl").write_bytes(b"".join(map(store.encode, runs)))
    (tmp_path / "budgets.toml").write_text('[[budget]]\npeak = "1 GiB"\n')

    done = memprof("gate", "head.jsonl", "--trust-runs", "--budgets", "budgets.toml", "--prove", "-o", "new.jsonl")

    assert done.returncode == 3 and "its runs do not tell all of that load" in done.stdout, done.stderr


def commands_suite(folder: Path, engine: str) -> None:
    (folder / "suite.toml").write_text(f'repeats = 5\n[[variant]]\nname = "engine"\ncmd = "{engine}"\n')
    (folder / "budgets.toml").write_text('[[budget]]\npeak = "1 GiB"\n')


def test_project_without_build(memprof, checkout):
    suite = 'repeats = 1\n[[variant]]\nname = "app"\ncmd = "sleep 0.5"\n'
    checkout.commit(bench__suite_dot_toml=suite)
    words = ("gate", "--run", "bench/suite.toml", "--base-ref", "HEAD", "-o", "o.jsonl")

    refused = memprof(*words, cwd=checkout.folder)
    checkout.write(bench__suite_dot_toml=f'{suite}[build]\ncommand = "true"\npython = "../quick-python"\n')
    judged = memprof(*words, cwd=checkout.folder)

    assert refused.returncode == 5
    assert "base (HEAD, " in refused.stderr and ") has no pyproject.toml that `pip install .` could install: " in refused.stderr
    assert "head (this checkout) against base (HEAD, " in judged.stdout
    assert "has no effect" not in judged.stderr


@pytest.mark.parametrize(
    ("cmd", "build", "code", "says"),
    [
        ("imgtool", "pip install -q .", 3, ""),
        ("python -c 'import imglib'", "python -m pip install -q .", 3, ""),
        (sys.executable + " -c 'import imglib'", "pip install -q .", 2, "installs into an environment for each side"),
        ("{python} -c 'import imglib'", "touch built", 2, "write python; with --base-ref that is the Python of each side's environment"),
    ],
)
def test_suite_command_runs_in_environment_of_side(memprof, tmp_path, cmd, build, code, says):
    """What pip itself does, test_gate_installs_each_side_for_itself shows."""
    suite = f'repeats = 1\n[[variant]]\nname = "tool"\ncmd = "{cmd}"\n[build]\ncommand = "{build}"\n'
    suite += f'python = "{quick_venv(tmp_path / "python")}"\n'
    made = package_checkout(tmp_path / "lib", bench__suite_dot_toml=suite)

    done = memprof("gate", "--run", "bench/suite.toml", "--base-ref", "main", "-o", "head.jsonl", cwd=made.folder)

    assert (done.returncode, says in done.stderr + done.stdout) == (code, True), done.stderr
    if code == 3:  # one repeat never decides
        (base,), (head,) = (store.load([made.folder / name]).runs for name in ("head.base.jsonl", "head.jsonl"))
        assert head.height_bytes - base.height_bytes == pytest.approx(8 << 20, abs=1 << 20)
