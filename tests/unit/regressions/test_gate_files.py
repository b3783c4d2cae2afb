"""What a gate reads: baselines, budgets and runs files, whole and broken; each fault is one sentence and its exit code."""

from __future__ import annotations

import json
import os
import threading

import pytest
from msgspec.structs import replace
from support.gate_files import STEADY, files, memprof, write  # noqa: F401  (the fixtures)
from support.sample_runs import MIB, machine, of_program, run, runs

from memprof.base.errors import InputError, UsageError
from memprof.records import store
from memprof.records.types import PEAK, About, Outcome
from memprof.verdicts import baseline, budgets


def test_baseline_round_trip(tmp_path):
    before = baseline.entries(
        [*runs(), *runs("b", threads=2, where=machine("there")), *runs("c", exact=False)], ["rss_peak_bytes", "time_ns"]
    )
    baseline.update(tmp_path / "base.json", before)

    assert sorted(baseline.read(tmp_path / "base.json"), key=lambda entry: entry.variant) == sorted(before, key=lambda entry: entry.variant)


def test_baseline_small_with_line_diffs(tmp_path):
    path = tmp_path / "base.json"
    baseline.update(path, baseline.entries([*runs(), *runs("b")]))
    first = path.read_text()
    baseline.update(path, baseline.entries(runs("b", extra_mib=[0, 0.1, 0.2, 0.3, 9])))
    second = path.read_text()

    assert len(first) < 5000
    changed = [line for line in second.splitlines() if line not in first.splitlines()]
    assert 0 < len(changed) <= 10 and all('"values":[' in line for line in changed)
    assert second.count('"variant":"a"') == 1  # what the runs do not have stays


def test_baseline_keeps_former_machine(tmp_path):
    path = tmp_path / "base.json"
    baseline.update(path, baseline.entries(runs()))
    baseline.update(path, baseline.entries(runs("b", where=machine(kernel="7.0"))))

    assert [entry.machine.kernel for entry in baseline.read(path)] == ["6.18", "7.0"]


def test_gate_names_changed_packages_and_counts(memprof, tmp_path):
    def about(version):
        return About("1.0", "3.11.0", packages={"numpy": version})

    before = [replace(run, about=about("1.26.4")) for run in runs()]
    after = [replace(run, about=about("2.0.1")) for run in runs(extra_mib=[10 + extra for extra in STEADY], warmup=1)]
    baseline.update(tmp_path / "base.json", baseline.entries(before))
    write(tmp_path / "head.jsonl", after)

    done = memprof("gate", "head.jsonl", "--baseline", "base.json")

    assert done.returncode == 1
    assert "numpy differs: base 1.26.4, head 2.0.1: the baseline comes from elsewhere" in done.stdout
    assert "net.onnx, a: warm-up differs: base 5, head 1" in done.stdout
    assert "also changed: numpy 1.26.4 → 2.0.1, warm-up 5 → 1" in done.stdout
    assert memprof("gate", "head.jsonl", "--baseline", "base.json", "--strict").returncode == 5
    write(tmp_path / "base.jsonl", before)
    assert "numpy differs: base 1.26.4, head 2.0.1" in memprof("compare", "base.jsonl", "head.jsonl").stdout


@pytest.mark.parametrize(
    ("model", "words"), [("engine", "the program"), ("net.gguf", "the program or the model's file"), (None, "the model's file")]
)
def test_gate_names_changed_file(memprof, tmp_path, model, words):
    """The hash of a program without a model is its own, and so it is the program that has changed."""
    sides = [runs(model=model or "net.onnx"), runs(model=model or "net.onnx", extra_mib=[10 + extra for extra in STEADY])]
    before, after = (
        of_program(made, "engine", content)
        if model
        else [replace(run, job=replace(run.job, model=replace(run.job.model, sha256=content * 64))) for run in made]
        for made, content in zip(sides, "12", strict=True)
    )
    baseline.update(tmp_path / "base.json", baseline.entries(before))
    write(tmp_path / "head.jsonl", after)

    done = memprof("gate", "head.jsonl", "--baseline", "base.json")

    assert done.returncode == 1
    assert f"also changed: {words}. It explains" in done.stdout


def test_baseline_of_schema_1_compared(memprof, files):
    baseline = json.loads((files / "base.json").read_text())
    baseline["memprof_baseline"] = 1
    for entry in baseline["entries"]:
        entry["settings"] = {"arena": "off"}
        entry.update(runtime="onnxruntime", runtime_version="0.9", python_version=None, cache="warm")
    (files / "old.json").write_text(json.dumps(baseline))

    said = memprof("gate", "base.jsonl", "--baseline", "old.json").stdout

    differing = [line for line in said.splitlines() if " differs: " in line]
    assert [line.split(" differs: ")[1].split(":")[0] for line in differing] == ["base 0.9, head 1.0", "base off, head default"]


def test_runs_split_by_packages():
    def with_packages(**packages):
        return [replace(run, about=replace(run.about, packages=packages)) for run in runs()]

    apart, said = store.told_apart([*with_packages(numpy="1.26"), *with_packages(numpy="2.0")])
    assert {run.job.variant for run in apart} == {"a (numpy 1.26)", "a (numpy 2.0)"}
    assert said == ["net.onnx, a: runs that differ in packages are separate rows"]
    assert store.told_apart([*with_packages(numpy="1.26"), *runs()])[1] == []


def test_model_renamed_found_by_content(memprof, files):
    def of(content, name):
        made = runs(model=name)
        return [replace(run, job=replace(run.job, model=replace(run.job.model, sha256=content * 32))) for run in made]

    write(files / "base.jsonl", of("aa", "old.onnx"), of("bb", "stays.onnx"))
    write(files / "head.jsonl", of("aa", "new.onnx"), of("bb", "stays.onnx"), of("cc", "fresh.onnx"))

    done = memprof("gate", "head.jsonl", "--baseline", "base.jsonl", "--json")

    content = json.loads(done.stdout)
    assert done.returncode == 0
    assert "new.onnx is base's old.onnx under another name" in content["remarks"]
    assert {row["model"] for row in content["rows"] if row["verdict"] == "ok"} == {"new.onnx", "stays.onnx"}


def test_baseline_of_failed_runs_refused(tmp_path):
    with pytest.raises(InputError, match="every run failed"):
        baseline.update(tmp_path / "base.json", baseline.entries([run(outcome=Outcome("signal", "PREPARE", signal="SIGSEGV"))]))
    assert not (tmp_path / "base.json").exists()


def test_baseline_update_changes_and_refusals(memprof, files):
    done = memprof("baseline", "update", "head.jsonl", "-o", "base.json")
    assert done.returncode == 0, done.stderr
    assert "- net.onnx, a, PEAK, RSS peak: 270.2 MiB → 280.2 MiB" in done.stdout
    assert memprof("gate", "head.jsonl", "--baseline", "base.json").returncode == 0
    assert json.loads(memprof("baseline", "update", "head.jsonl", "-o", "base.json", "--json").stdout) == {"changed": []}

    (files / "notes.json").write_text("{}")
    (files / "empty.json").write_text("")
    assert memprof("baseline", "update", "head.jsonl", "-o", "empty.json").stderr == "memprof: empty.json is empty\n"
    for target, code in (("notes.json", 5), ("head.jsonl", 5), ("nowhere/base.json", 5)):
        refused = memprof("baseline", "update", "base.jsonl", "-o", target)
        assert (refused.returncode, refused.stdout) == (code, "")
    assert (files / "notes.json").read_text() == "{}"
    assert memprof("baseline", "update", "base.json", "-o", "new.json").returncode == 2
    assert memprof("baseline", "update", "base.jsonl", "-o", "new.json", "--metric", "rss").returncode == 2


def first_entry(text, harm):
    """A baseline with this done to its first entry."""
    content = json.loads(text)
    harm(content["entries"][0])
    return json.dumps(content)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (None, "No such file or directory; memprof baseline update RUNS.jsonl -o bad.json makes one"),
        (lambda text: "", "is empty"),
        (lambda text: "hello\n", "is neither a runs file nor a baseline"),
        (lambda text: "{}", "is neither a runs file nor a baseline"),
        (lambda text: text[: len(text) // 2], "is torn"),
        (lambda text: '{\n "memprof_ba', "is torn"),
        (
            lambda text: json.dumps({**json.loads(text), "memprof_baseline": 99, "more": 1}),
            "written by a newer memprof (schema 99; this one reads up to 2)",
        ),
        (
            lambda text: first_entry(text, lambda entry: entry.update(colour="red")),
            "Object contains unknown field `colour` - at `$.entries[0]`",
        ),
        (
            lambda text: first_entry(text, lambda entry: entry["rows"][0]["values"].insert(0, "many")),
            "Expected `float`, got `str` - at `$.entries[0].rows[0].values[0]`",
        ),
        (lambda text: text.replace("rss_peak_bytes", "rss"), "rss is not a metric of this memprof"),
        (lambda text: text.replace('"machine":"here"', '"machine":"mars"'), "comes from the machine 'mars', which is not described"),
        (lambda text: json.dumps({**json.loads(text), "entries": []}), "is a baseline without a row"),
        (
            lambda text: first_entry(text, lambda entry: entry["rows"][0].update(values=list(range(2001)))),
            "2001 repeats are more than can be judged; 2000 are the most",
        ),
        *(
            (lambda text, value=value: text.replace('"values":[', f'"values":[{value},', 1), "larger than any")
            for value in ("-1", "1e308", "9" * 30)
        ),
    ],
)
def test_baseline_bad_content_refused(memprof, files, harm, says):
    if harm is not None:
        (files / "bad.json").write_text(harm((files / "base.json").read_text()))

    done = memprof("gate", "head.jsonl", "--baseline", "bad.json")

    assert (done.returncode, done.stdout) == (5, "")
    assert says in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_gate_runs_and_baseline_alike(memprof, files):
    by_runs, by_baseline = (memprof("gate", "head.jsonl", "--baseline", name, "--json") for name in ("base.jsonl", "base.json"))

    assert by_runs.returncode == by_baseline.returncode == 1, by_runs.stderr
    assert json.loads(by_runs.stdout)["rows"] == json.loads(by_baseline.stdout)["rows"]


def test_gate_improvement_suggests_update(memprof, files):
    baseline.update(files / "high.json", baseline.entries(runs(extra_mib=[50 + extra for extra in STEADY])))

    done = memprof("gate", "head.jsonl", "--baseline", "high.json")

    assert done.returncode == 0
    assert "    memprof baseline update head.jsonl -o high.json" in done.stdout
    assert "    memprof" not in memprof("gate", "base.jsonl", "--baseline", "base.json").stdout


def test_gate_formats_side_by_side(memprof, files):
    words = ["--also", "junit=gate.xml", "--also", "github=notes.txt", "--also", "json=gate.json", "--also", "markdown=gate.md"]
    done = memprof("gate", "head.jsonl", "--baseline", "base.json", *words)

    assert done.returncode == 1
    assert (files / "gate.md").read_text() == done.stdout
    assert json.loads((files / "gate.json").read_text())["counts"]["regressed"] == 9
    assert (files / "gate.xml").read_text().startswith("<?xml")
    assert (files / "notes.txt").read_text().startswith("::error ")
    assert memprof("gate", "head.jsonl", "--baseline", "base.json", "--also", "json=head.jsonl").returncode == 5
    assert memprof("gate", "head.jsonl", "--baseline", "base.json", "--also", "xml=a.xml").returncode == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--also", "junit=nowhere/gate.xml"], "nowhere/gate.xml cannot be written: there is no folder nowhere"),
        (["--also", "json=."], ". cannot be written: it is a folder"),
        (["--prove", "-o", "nowhere/new.jsonl"], "nowhere/new.checks.jsonl cannot be written: there is no folder nowhere"),
    ],
)
def test_gate_unwritable_output_refused_first(memprof, files, words, says):
    done = memprof("gate", "head.jsonl", "--baseline", "base.json", *words)

    assert (done.returncode, done.stdout, done.stderr) == (5, "", f"memprof: {says}\n")


def test_too_few_repeats_never_decide(memprof, files):
    write(files / "few.jsonl", runs(extra_mib=(99, 99, 99, 99)))

    done = memprof("gate", "few.jsonl", "--baseline", "base.json")

    assert done.returncode == 3
    assert "4 repeats can never decide: 5 a side are the least" in done.stdout


def test_gate_metric_chosen_or_absent(memprof, files):
    assert (
        json.loads(memprof("gate", "head.jsonl", "--baseline", "base.jsonl", "--metric", "time_ns", "--json").stdout)["counts"]["ok"] == 5
    )
    lacking = memprof("gate", "head.jsonl", "--baseline", "base.json", "--metric", "time_ns")
    assert (lacking.returncode, "the baseline has no time_ns: memprof baseline update" in lacking.stderr) == (5, True)
    absent = memprof("gate", "head.jsonl", "--baseline", "base.jsonl", "--metric", "pss_end_bytes")
    assert (absent.returncode, "nothing that was measured has it" in absent.stderr) == (2, True)
    assert memprof("gate", "head.jsonl", "--baseline", "base.jsonl", "--metric", "rss").returncode == 2


def test_gate_threshold_widened(memprof, files):
    assert memprof("gate", "head.jsonl", "--baseline", "base.json", "--threshold", "10%").returncode == 0
    assert memprof("gate", "head.jsonl", "--baseline", "base.json", "--threshold", "much").returncode == 2


def test_baseline_from_elsewhere_and_strict(memprof, files):
    write(files / "there.jsonl", runs(where=machine("there")))

    lenient = memprof("gate", "there.jsonl", "--baseline", "base.json")
    strict = memprof("gate", "there.jsonl", "--baseline", "base.json", "--strict")

    assert lenient.returncode == 0
    assert "machine differs: base here (a CPU, 2 CPUs), head there (a CPU, 2 CPUs): the baseline comes from elsewhere" in lenient.stdout
    assert (strict.returncode, strict.stdout) == (5, "")
    assert "--strict: the baseline does not come from here: machine differs" in strict.stderr


def test_baseline_from_other_machine_kind(memprof, files):
    write(files / "there.jsonl", runs(where=machine("there", cpus=4)))

    said = memprof("gate", "there.jsonl", "--baseline", "base.json")

    assert said.returncode == 3 and "base is from another machine (CPUs 2 against 4)" in said.stdout
    assert memprof("gate", "there.jsonl", "--baseline", "base.json", "--across-machines").returncode == 0
    refused = memprof("gate", "there.jsonl", "--baseline", "base.json", "--across-machines", "--strict")
    assert refused.returncode == 2 and "--across-machines goes with --baseline, and without --strict" in refused.stderr
    both = memprof("compare", "head.jsonl", "there.jsonl")
    assert both.returncode == 3 and "CPUs 2 against 4" in both.stderr and both.stderr.count("\n") == 1
    assert memprof("compare", "head.jsonl", "there.jsonl", "--across-machines").returncode == 0


def test_gate_without_common_rows(memprof, files):
    other = [replace(run, job=replace(run.job, model=replace(run.job.model, sha256="aa" * 32))) for run in runs(model="other.onnx")]
    write(files / "other.jsonl", other)
    (files / "budgets.toml").write_text('peak = "1 GiB"\n')

    done = memprof("gate", "other.jsonl", "--baseline", "base.json", "--budgets", "budgets.toml")

    assert done.returncode == 3
    assert "11 rows gone, 11 new rows, 1 fine" in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "remark"),
    [
        (("app", "app5"), ("app", "app"), "app: base's app5 is this program, which --name now names wholly"),
        (("app5", "app5"), ("app", "app"), "app is base's app5 under another name"),
        (("app", "app"), ("app", "app"), None),
    ],
)
def test_program_named_otherwise_found(memprof, files, old, new, remark):
    for name, (model, variant) in (("old", old), ("new", new)):
        write(files / f"{name}.jsonl", runs(variant, model=model, runtime="command", argv=("./app5",)))

    content = json.loads(memprof("gate", "new.jsonl", "--baseline", "old.jsonl", "--json").stdout)

    assert {row["verdict"] for row in content["rows"]} == {"ok"}
    assert content["remarks"] == ([remark] if remark else [])


def test_two_programs_of_one_name_stay_apart(memprof, files):
    write(files / "old.jsonl", *(runs(variant, model="app", runtime="command", argv=("./a",)) for variant in ("one", "two")))
    write(files / "new.jsonl", runs("app", model="app", runtime="command", argv=("./a",)))

    content = json.loads(memprof("gate", "new.jsonl", "--baseline", "old.jsonl", "--json").stdout)

    assert {row["verdict"] for row in content["rows"]} == {"gone", "new"}


def test_variant_renamed_hinted(memprof, files):
    write(files / "renamed.jsonl", runs("b"))
    write(files / "two.jsonl", runs("b"), runs("c"))
    hint = "net.onnx: variant a is gone and variant b is new: this may be one variant under another name"

    renamed, two = (
        json.loads(memprof("gate", name, "--baseline", "base.json", "--json").stdout) for name in ("renamed.jsonl", "two.jsonl")
    )

    assert hint in renamed["remarks"]
    assert not any("under another name" in remark for remark in two["remarks"])


def test_gate_shapes_below_outcome(memprof, files):
    ones = {"x": (1, 3, 1, 1)}
    write(files / "ones.jsonl", runs(assumed=ones))
    write(files / "given.jsonl", runs(inputs="/data/in.npz", given={"x": (1, 3, 48, 320)}))
    write(files / "asked.jsonl", runs(shapes={"x": (1, 3, 640, 640)}))
    baseline.update(files / "ones.json", baseline.entries(runs(assumed=ones)))

    def heading(*words):
        return memprof("gate", *words).stdout.splitlines()[6]

    taken = "x=1x3x1x1 (open dimensions taken as 1: --shape)"
    assert heading("ones.jsonl", "--baseline", "ones.json") == f"Inputs: {taken}."
    assert heading("ones.jsonl", "--baseline", "ones.jsonl") == f"Inputs: {taken}."
    assert heading("given.jsonl", "--baseline", "ones.jsonl") == f"Inputs of base: {taken}. Inputs of head: x=1x3x48x320."
    assert heading("asked.jsonl", "--baseline", "ones.json") == "Inputs of head: x=1x3x640x640."
    fields = json.loads(memprof("gate", "ones.jsonl", "--baseline", "ones.json", "--json").stdout)["inputs"]
    assert fields == [
        {
            "side": "both",
            "model": "net.onnx",
            "variant": "a",
            "threads": None,
            "shapes": {"x": [1, 3, 1, 1]},
            "assumed": ["x"],
            "file": None,
        }
    ]
    assert "Inputs" not in memprof("gate", "base.jsonl", "--baseline", "base.json").stdout


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["head.jsonl"],
        ["head.jsonl", "--base-ref", "main"],
        ["head.jsonl", "--run", "suite.toml", "--baseline", "base.json"],
        ["--run", "suite.toml", "--base-ref", "main", "--baseline", "base.json"],
        ["head.jsonl", "--baseline", "base.json", "--repeats", "9"],
        ["head.jsonl", "--baseline", "base.json", "--json", "--format", "junit"],
    ],
)
def test_gate_usage_errors(memprof, files, words):
    done = memprof("gate", *words)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_gate_pipe_in_and_out(memprof, files):
    os.mkfifo(files / "pipe")
    done = memprof("gate", "head.jsonl", "--baseline", "pipe")
    assert (done.returncode, "pipe is a pipe" in done.stderr) == (5, True)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((files / "pipe").read_text()), daemon=True)
    reader.start()
    done = memprof("gate", "head.jsonl", "--baseline", "base.json", "--also", "json=pipe")
    reader.join(120)
    assert done.returncode == 1
    assert json.loads(read[0])["rows"]
    done = memprof("gate", "head.jsonl", "--baseline", "base.json", "--also", "json=-")
    assert (done.returncode, (files / "-").exists()) == (2, False)


@pytest.mark.parametrize("content", ["x = " + "[" * 5000, "x = " + "9" * 5000, "a." * 20_000 + "b = 1", "#" * (1 << 20)])
def test_toml_too_deep_or_long(memprof, files, content):
    (files / "bad.toml").write_text(content + "\n")

    for words, code in ((["head.jsonl", "--budgets", "bad.toml"], 2), (["--run", "bad.toml", "--baseline", "base.json"], 5)):
        done = memprof("gate", *words)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr


def acknowledge(folder, until="2999-12-31", where='model = "net*"\n', reason="a larger cache"):
    (folder / "ack.toml").write_text(f'[[acknowledged]]\n{where}reason = "{reason}"\nuntil = {until}\n')


def test_acknowledged_regression_passes_until_date(memprof, files):
    words = ["gate", "head.jsonl", "--baseline", "base.json", "--acknowledged", "ack.toml"]
    acknowledge(files)
    accepted = memprof(*words)
    assert accepted.returncode == 0
    assert "9 acknowledged regressions" in accepted.stdout
    assert "acknowledged until 2999-12-31: a larger cache" in accepted.stdout

    acknowledge(files, where='phase = "PEAK"\n')
    assert memprof(*words).returncode == 1  # of the other rows

    acknowledge(files, until="2001-01-01")
    expired = memprof(*words)
    assert expired.returncode == 1
    assert "no longer acknowledged since 2001-01-01: model net\\* (a larger cache)" in expired.stdout.replace("net*", "net\\*")

    acknowledge(files, where='model = "other*"\n')
    assert "acknowledged, and no regression any more: model other" in memprof(*words).stdout


@pytest.mark.parametrize(
    ("content", "code", "says"),
    [
        (None, 5, "No such file"),
        ("[[acknowledged]]\nreason = 'x'\n", 2, "missing required field `until`"),
        ("[[acknowledged]]\nuntil = 2027-01-01\nreason = ' '\n", 2, "give a reason"),
        ("[[acknowledged]]\nuntil = 'soon'\nreason = 'x'\n", 2, "Expected `date`, got `str`"),
        ("[[acknowledged]]\nuntil = 2027-01-01\nreason = 'x'\nphases = 'a'\n", 2, "unknown field `phases`"),
        ("x = " + "[" * 5000, 2, "nested too deeply"),
        ("x = " + "9" * 5000, 2, "acknowledged ack.toml"),
    ],
)
def test_acknowledged_list_bad_refused(memprof, files, content, code, says):
    if content is not None:
        (files / "ack.toml").write_text(content)

    done = memprof("gate", "head.jsonl", "--baseline", "base.json", "--acknowledged", "ack.toml")

    assert (done.returncode, says in done.stderr, done.stderr.count("\n")) == (code, True, 1), done.stderr


def entries(**rest):
    names = ["rss_peak_bytes", "anon_end_bytes", "time_ns", "minor_faults"]
    return baseline.entries([*runs("onert", **rest), *runs("onert-mapped", **rest)], names)


def limits(tmp_path, text):
    path = tmp_path / "budgets.toml"
    path.write_text(text)
    return budgets.read(path)


def test_budget_limits_every_repeat(tmp_path):
    rows = budgets.judge(limits(tmp_path, 'peak = "270.3 MiB"'), entries())

    assert [(row.phase, row.metric, row.verdict) for row in rows] == [(PEAK, "rss_peak_bytes", "over")] * 2
    assert rows[0].reason == "270.4 MiB, the worst of 5, is above the budget of 270.3 MiB by 102.4 KiB"
    assert rows[0].budget == int(270.3 * MIB)


def test_budget_row_shows_excess(memprof, files):
    (files / "budgets.toml").write_text('peak = "270.38 MiB"\n')

    done = memprof("gate", "base.jsonl", "--budgets", "budgets.toml")

    assert done.returncode == 1, done.stderr
    assert "RSS peak (budget); 270.4 MiB, the worst of 5, is above the budget of 270.4 MiB by 20.5 KiB" in done.stdout
    table = next(line for line in done.stdout.splitlines() if line.startswith("| net.onnx"))
    assert [cell.strip() for cell in table.split("|")[5:11]] == ["≤ 270.4 MiB", "270.4 MiB", "-", "-", "worst of 5", "✗ over budget"]


def test_budget_without_baseline_one_repeat(memprof, tmp_path):
    write(tmp_path / "one.jsonl", runs(extra_mib=(0,)))
    (tmp_path / "budgets.toml").write_text('peak = "260 MiB"\n[[budget]]\nphase = "EXECUTE"\ntime_ns = "1 s"\n')

    done = memprof("gate", "one.jsonl", "--budgets", "budgets.toml")

    assert done.returncode == 1, done.stderr
    assert "**✗ over budget** net.onnx, a, PEAK, RSS peak (budget); 270.0 MiB is above the budget of 260.0 MiB by 10.0 MiB" in done.stdout
    assert done.stdout.count("✓ ok") == 1


def test_budget_most_specific_wins(tmp_path):
    text = """
        peak = "400 MiB"
        [[budget]]
        model = "net.*"
        variant = "onert*"
        peak = "300 MiB"
        [[budget]]
        model = "net.onnx"
        peak = "290 MiB"
        [[budget]]
        model = "net.*"
        variant = "onert-mapped"
        peak = "200 MiB"
        [[budget]]
        variant = "onert"
        phase = "PRE*"
        "*_peak_bytes" = "10 MiB"
        minor_faults = 9
        [[budget]]
        variant = "onert"
        phase = "PREPARE"
        rss_peak_bytes = "11 MiB"
    """
    limit_of = {(row.key.variant, row.phase, row.metric): row.budget for row in budgets.judge(limits(tmp_path, text), entries())}

    assert limit_of == {
        ("onert", PEAK, "rss_peak_bytes"): 290 * MIB,
        ("onert-mapped", PEAK, "rss_peak_bytes"): 290 * MIB,  # a model by name beats a variant by name
        ("onert", "PREPARE", "rss_peak_bytes"): 11 * MIB,
        ("onert", "PREPARE", "minor_faults"): 9,
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('peak = "120 ms"', "'120 ms' is not a size"),
        ("peak = 120", "write a size such as"),
        ('time_ns = "3 MiB"', "'3 MiB' is not a duration"),
        ('minor_faults = "3 MiB"', "write a number from 0 on"),
        ("minor_faults = true", "write a number from 0 on"),
        ('"*_ns" = "3 ms"\n"*s" = "3 MiB"', "different units"),
        ('peek = "3 MiB"', "peek is not a metric; did you mean peak?"),
        ("", "there is no limit in it"),
        ('[[budget]]\nmodel = "a"', "a budget names no limit"),
        ('[[budget]]\nmodel = 3\npeak = "1 MiB"', "write a name or a glob in quotes"),
        ('[budget]\npeak = "1 MiB"', "write [[budget]] above"),
    ],
)
def test_budget_usage_errors(tmp_path, text, says):
    with pytest.raises(UsageError) as error:
        limits(tmp_path, text)
    assert says in str(error.value)


def test_budget_without_match_refused(memprof, files):
    (files / "budgets.toml").write_text('[[budget]]\nmodel = "other*"\npeak = "1 GiB"\n')

    done = memprof("gate", "head.jsonl", "--baseline", "base.json", "--budgets", "budgets.toml")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "memprof: budgets budgets.toml: rss_peak_bytes = '1 GiB' (model other*, phase PEAK) guards nothing: "
        "no model that is measured matches other*; there is net.onnx\n"
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[budget]]\nmodel = "net.onx"\npeak = "1 GiB"', "no model that is measured matches net.onx; did you mean net.onnx?"),
        ('[[budget]]\nvariant = "tflite"\npeak = "1 GiB"', "no variant that is measured matches tflite; there are onert; onert-mapped"),
        ('[[budget]]\nphase = "PREPAER"\ntime_ns = "1 s"', "no phase that is measured matches PREPAER; did you mean PREPARE?"),
        ('[[budget]]\nphase = "PEAK"\ntime_ns = "1 s"', "no metric that is measured matches time_ns; there is rss_peak_bytes"),
    ],
)
def test_budget_refusal_names_candidates(tmp_path, text, says):
    with pytest.raises(UsageError) as error:
        budgets.judge(limits(tmp_path, text), entries())
    assert str(error.value).startswith(f"budgets {tmp_path / 'budgets.toml'}: ") and str(error.value).endswith(says)


def test_budget_of_crashed_variant(memprof, tmp_path):
    write(tmp_path / "crashed.jsonl", [run(outcome=Outcome("signal", "STARTUP", signal="SIGSEGV"))])
    (tmp_path / "budgets.toml").write_text('peak = "1 GiB"\n')

    done = memprof("gate", "crashed.jsonl", "--budgets", "budgets.toml")

    assert (done.returncode, "1 of 1 run failed" in done.stdout) == (4, True)


def test_budgets_file_missing_or_torn(memprof, files):
    missing = memprof("gate", "head.jsonl", "--budgets", "none.toml")
    (files / "torn.toml").write_text('peak = "12')
    torn = memprof("gate", "head.jsonl", "--budgets", "torn.toml")

    assert (missing.returncode, missing.stderr) == (5, "memprof: budgets none.toml: No such file or directory\n")
    assert (torn.returncode, torn.stderr.count("\n")) == (2, 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_baseline_unreadable_refused(memprof, files):
    (files / "base.json").chmod(0)
    assert memprof("gate", "head.jsonl", "--baseline", "base.json").returncode == 5
