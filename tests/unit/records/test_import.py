"""Logs of other tools as Runs: their figures come out as they stand, what they do not say stays absent, and no file is a traceback."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from support.examples import examples

from memprof.base.errors import InputError, MemprofError, UsageError
from memprof.recording import importing
from memprof.recording.importing import mprof
from memprof.records import metrics, store, summary
from memprof.records.types import EXECUTE, MODEL_LOAD, PREPARE, RUN, Mark, Run
from memprof.reports.pictures import peaks, timeline

DATA = Path(__file__).parents[2] / "data"
LOGS = {name: DATA / f"onert-{name}.log" for name in ("master", "option1", "option2")}
KIB, MIB, MS = 1 << 10, 1 << 20, 1_000_000
SAMPLES = sorted(path for path in DATA.iterdir() if path.suffix in (".log", ".csv", ".dat", ".json", ".txt") and "onert-" not in path.name)
SAMPLES += list(LOGS.values())


def imported(path: Path, **words: str) -> Run:
    (run,) = importing.runs([(None, path)], **words)
    return run


def phase(run: Run, name: str) -> Mark:
    mark = run.mark(name)
    assert mark is not None
    return mark


def written(tmp_path: Path, text: str, name: str = "a.log") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_onert_log_figures() -> None:
    run = imported(LOGS["master"])
    assert [mark.phase for mark in run.marks] == [MODEL_LOAD, PREPARE, EXECUTE]
    load, prepare, execute = run.marks
    assert (load.time_ns, prepare.time_ns, execute.times_ns) == (419_034_000, 288_840_000, (1_283_270_000,))
    assert (load.rss_peak_bytes, prepare.rss_peak_bytes, execute.rss_peak_bytes) == (191704 * KIB, 203244 * KIB, 134940 * KIB)
    assert (load.hwm_bytes, prepare.hwm_bytes, execute.hwm_bytes) == (194080 * KIB, 203808 * KIB, 203808 * KIB)
    assert not any(mark.rss_peak_exact for mark in run.marks)
    absent = ("rss_end_bytes", "anon_end_bytes", "file_end_bytes", "vms_end_bytes", "pss_end_bytes", "minor_faults", "cpu_ns")
    assert all(getattr(mark, name) is None for mark in run.marks for name in absent)
    assert (run.job.runtime, run.job.model.name, run.machine.arch) == ("onert", "inception_v3_2018_04_27", "armv7l")
    assert run.job.argv[0].endswith("nnpackage_run") and run.timeline.samples == 0
    assert dict(run.job.env) == {"BACKENDS": "cpu"} and run.imported
    assert metrics.value(run, "PEAK", metrics.METRICS["rss_peak_bytes"]) == 203244 * KIB


def test_onert_logs_load_table(memprof, tmp_path: Path) -> None:
    done = memprof("import", *(f"{name}={path}" for name, path in LOGS.items()), "-o", "runs.jsonl")
    assert done.returncode == 0, done.stderr
    table = memprof("table", "runs.jsonl", "--style", "load").stdout
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")]
    assert rows[0] == ["Runtime", "Memory", "Load time", "Prepare time"]
    assert rows[2:] == [
        ["master", "187 MB", "419 ms", "288 ms"],
        ["option1", "100 MB", "253 ms", "254 ms"],
        ["option2", "14 MB", "6 ms", "295 ms"],
    ]
    assert [line for line in table.splitlines() if line.startswith("- ")] == [
        "- Memory: the peak of RSS in MODEL_LOAD; medians over repeats, times in whole milliseconds.",
        "- MB means 1024 * 1024 bytes here, as in onert's tables.",
        "- all: imported from nnpackage_run",
        "- all: RSS was polled, its peaks may have been higher",
    ]
    assert "- ~ not exact: the peak is what the imported log says; it may have been higher.\n" in done.stdout
    assert "high-water mark" not in done.stdout
    assert "| master  | 187 MiB |" in memprof("table", "runs.jsonl", "--style", "load", "--unit", "MiB").stdout
    assert memprof("table", "runs.jsonl", "--style", "load", "--unit", "stone").returncode == 2


def test_onert_newer_log_of_several_runs(tmp_path: Path) -> None:
    new = """
... warmup 0 takes 9.5 ms
... run 0 takes 4 ms
... run 1 takes 6 ms
===================================
MODEL_LOAD   takes 10.500 ms
PREPARE      takes 2.250 ms
EXECUTE      takes 5.000 ms
- MEAN     :  5.000 ms
- MAX      :  6.000 ms
- MIN      :  4.000 ms
- GEOMEAN  :  4.899 ms
===================================
RSS
- MODEL_LOAD   takes 1000 kb
- PREPARE      takes 2000 kb
- EXECUTE      takes 3000 kb
- PEAK         takes 3000 kb
===================================
PSS
- MODEL_LOAD   takes 500 kb
- PREPARE      takes 600 kb
- EXECUTE      takes 700 kb
- PEAK         takes 700 kb
===================================
"""
    first, second = importing.read(written(tmp_path, new + new.replace("10.500", "20.5").replace("run 0 takes 4", "run 0 takes 3")))
    assert [run.warmup for run in (first, second)] == [1, 1]
    assert [mark.time_ns for mark in first.marks] == [10_500_000, 2_250_000, 10 * MS]
    assert [first.marks[-1].times_ns, second.marks[-1].times_ns] == [(4 * MS, 6 * MS), (3 * MS, 6 * MS)]
    assert second.marks[0].time_ns == 20_500_000
    assert [mark.pss_end_bytes for mark in second.marks] == [500 * KIB, 600 * KIB, 700 * KIB]


def test_onert_log_without_memory(tmp_path: Path) -> None:
    run = imported(written(tmp_path, "MODEL_LOAD takes 1.5 ms\nPREPARE takes 2 ms\nEXECUTE takes 3 ms\n"))
    assert [mark.rss_peak_bytes for mark in run.marks] == [None, None, None]
    assert [mark.hwm_bytes for mark in run.marks] == [None, None, None]
    assert metrics.value(run, "PEAK", metrics.METRICS["rss_peak_bytes"]) is None


def test_onert_csv_figures_by_column_name(tmp_path: Path) -> None:
    path = DATA / "nnpackage_run-inception_v3-cpu.csv"
    run = imported(path)
    assert (run.job.model.name, run.job.variant, dict(run.job.knobs)) == ("inception_v3", "cpu", {"backend": "cpu"})
    assert phase(run, MODEL_LOAD).time_ns == 419_034_000
    assert phase(run, PREPARE).rss_peak_bytes == 203244 * KIB and phase(run, PREPARE).hwm_bytes == 203808 * KIB
    assert phase(run, EXECUTE).time_ns == 1_286_100_000 and phase(run, EXECUTE).pss_end_bytes == 133000 * KIB
    assert {value.name: value.value for value in run.values} == {
        "execute_min_ns": 1_283_270_000,
        "execute_max_ns": 1_290_500_000,
        "execute_mean_ns": 1_286_100_000,
    }
    header, row = path.read_text().splitlines()
    swapped = "\n".join(",".join(reversed(line.split(","))) for line in (header, row))
    assert imported(written(tmp_path, swapped, "b.csv")).marks == run.marks
    zeros = re.sub(r"(?<=,)\d{5,6}\b", "0", row)
    assert [mark.rss_peak_bytes for mark in imported(written(tmp_path, f"{header}\n{zeros}\n", "c.csv")).marks] == [None] * 3


def test_benchmark_model_log_phases() -> None:
    run = imported(DATA / "tflite_benchmark.log")
    assert (run.job.runtime, run.job.model.name, run.job.threads) == ("tflite", "mobilenet_v2.tflite", 4)
    assert (run.job.warmup, run.job.runs) == (153, 337)
    assert phase(run, MODEL_LOAD).time_ns == 6_395_000
    assert phase(run, EXECUTE).time_ns == 2_942_270
    assert phase(run, MODEL_LOAD).rss_peak_bytes == round(39.4531 * MIB)
    assert phase(run, EXECUTE).rss_peak_bytes == round(40.8281 * MIB)
    assert phase(run, "WARMUP").rss_peak_bytes is None
    values = {value.name: value.value for value in run.values}
    assert values["execute_max_ns"] == 20_356_000 and values["monitored_peak_bytes"] == round(54.7188 * MIB)
    assert run.about is not None and any("MODEL_LOAD includes PREPARE" in note for note in run.about.notes)


def test_benchmark_model_from_logcat_or_older(tmp_path: Path) -> None:
    lines = (DATA / "tflite_benchmark.log").read_text().replace("INFO: ", "07-08 15:34:26.202 I/tflite  ( 5395): ")
    lines = lines.replace("Memory footprint delta from the start of the tool", "Peak memory footprint")
    run = imported(written(tmp_path, lines))
    assert phase(run, MODEL_LOAD).rss_peak_bytes == round(39.4531 * MIB)
    assert run.job.model.name == "mobilenet_v2.tflite"


def test_onnxruntime_profile() -> None:
    path = DATA / "onnxruntime_profile.json"
    events = json.loads(path.read_text())
    run = imported(path, name="mnist.onnx")
    assert [mark.phase for mark in run.marks] == [MODEL_LOAD, PREPARE, EXECUTE]
    durations = {event["name"]: event["dur"] * 1000 for event in events if event["cat"] == "Session"}
    assert phase(run, MODEL_LOAD).time_ns == durations["model_loading_uri"]
    assert phase(run, PREPARE).time_ns == durations["session_initialization"]
    assert len(phase(run, EXECUTE).times_ns) == 3
    assert all(mark.rss_peak_bytes is None for mark in run.marks)
    nodes = [event["args"] for event in events if event["cat"] == "Node"]
    held = [value.value for value in run.values if value.name == "arena_held_bytes"]
    assert max(held) == max(int(node["mem_arena_held"]) for node in nodes)
    assert len(held) == len(nodes) // 3, "one figure a node of the first run"
    (peak,) = [value.value for value in run.values if value.name == "arena_peak_bytes"]
    assert peak == max(int(node["mem_in_use_peak"]) for node in nodes)


def test_onnxruntime_profile_torn(tmp_path: Path) -> None:
    text = (DATA / "onnxruntime_profile.json").read_text()
    cut = text[: text.rindex("model_run") - 30]
    assert len(phase(imported(written(tmp_path, cut, "p.json")), EXECUTE).times_ns) == 2


def test_mprof_samples_and_functions(tmp_path: Path) -> None:
    run = imported(DATA / "mprof.dat")
    mark = phase(run, RUN)
    assert mark.rss_peak_bytes == round(1.734375 * MIB) and not mark.rss_peak_exact
    assert mark.samples == run.timeline.samples == 8
    assert mark.rss_begin_bytes == round(0.183594 * MIB)
    assert abs(mark.time_ns - 368_800_000) < MS
    assert list(store.unpack(run.timeline).rss)[:2] == [round(0.183594 * MIB), round(1.734375 * MIB)]
    text = "CMDLINE python train.py\n"
    text += "".join(f"MEM {10 + place} {100 + place / 10}\n" for place in range(20))
    text += "CHLD 0 5.0 100.52\nFUNC __main__.step 12 100.2 14 100.4 1\nFUNC __main__.step 15 100.5 17 100.7 1\n"
    text += "FUNC __main__.load 10 100.0 11 100.1 1\n"
    functions = imported(written(tmp_path, text, "f.dat"))
    assert [mark.phase for mark in functions.marks] == ["__main__.load", "__main__.step"]
    step = phase(functions, "__main__.step")
    assert len(step.times_ns) == 2 and step.rss_peak_bytes == 20 * MIB, "a child is added to the sample before it"
    assert functions.job.model.name == "train.py"


def test_psrecord_log_single_phase() -> None:
    run = imported(DATA / "psrecord.log")
    mark = phase(run, RUN)
    assert mark.rss_peak_bytes == round(1.66 * MIB) and mark.vms_peak_bytes == round(2.531 * MIB)
    assert mark.samples == 4 and mark.end_ns == 308 * MS


PLAIN = "# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n 0.0 0.0 338.922 900.0\n 0.1 1.0 340.922 901.0\n"


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        "# Timestamp   Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n 17e8 0.0 0.0 338.922 900.0\n 17e8 0.1 1.0 340.922 901.0\n",
        "# Real (MB)   Elapsed time   Virtual (MB)\n 338.922 0.0 900.0\n 340.922 0.1 901.0\n",
        "elapsed_time,nproc,cpu,mem_real,mem_virtual\n0.0,2,0.0,338.922,900.0\n0.1,2,1.0,340.922,901.0\n",
        "elapsed_time,cpu,mem_real,mem_virtual,read_count\n0.0,0.0,338.922,900.0,5\n0.1,1.0,340.922,901.0,5\n",
    ],
    ids=["plain", "timestamp", "other order", "csv", "csv with io"],
)
def test_psrecord_columns_by_title(tmp_path: Path, text: str) -> None:
    mark = phase(imported(written(tmp_path, text)), RUN)
    assert (mark.rss_peak_bytes, mark.vms_peak_bytes, mark.end_ns) == (round(340.922 * MIB), 901 * MIB, 100 * MS)


def test_psrecord_rows_unlike_heading(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="psrecord's heading has 4 columns, and its rows have 5"):
        importing.read(written(tmp_path, PLAIN.replace(" 0.0 0.0", " 0 0.0 0.0").replace(" 0.1 1.0", " 0 0.1 1.0")))


def test_benchmark_model_runs_by_backend(tmp_path: Path) -> None:
    cpu = "INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n"
    log = "INFO: STARTING!\n" + (DATA / "tflite_benchmark.log").read_text().partition("STARTING!\n")[2].replace(cpu, "")

    def rows(*flags: str, name: str | None = None) -> list[str]:
        text = "".join(log.replace("STARTING!\n", f"STARTING!\n{flag}\n") for flag in flags)
        return [run.job.variant for run in importing.runs([(name, written(tmp_path, text))])]

    assert rows("INFO: Use gpu: [0]", "INFO: Use gpu: [1]") == ["cpu", "gpu"]
    assert rows("INFO: Use gpu: [0]", "INFO: Use gpu: [1]", name="phone") == ["phone cpu", "phone gpu"]
    assert rows("INFO: Use NNAPI: [1]\nINFO: Use xnnpack: [1]", cpu) == ["nnapi+xnnpack", "cpu"]
    assert rows("", "INFO: Use gpu: [1]") == ["a 1", "gpu"], "a run that names no backend has its number"
    assert rows("INFO: Use gpu: [1]") == ["a"], "a log of one run has its file's name"


def test_dumpsys_meminfo_timeline() -> None:
    run = imported(DATA / "dumpsys_meminfo.txt")
    mark = phase(run, RUN)
    assert (run.job.model.name, mark.end_ns, mark.samples) == ("org.example.vision", 2500 * MS, 2)
    assert list(store.unpack(run.timeline).rss) == [65300 * KIB, 55300 * KIB]
    assert (mark.rss_peak_bytes, mark.rss_end_bytes) == (65300 * KIB, 55300 * KIB)
    assert (mark.pss_end_bytes, mark.uss_end_bytes) == (35100 * KIB, 32000 * KIB), "what is swapped out is no part of PSS"
    assert mark.swap_end_bytes is None, "SwapPss is a share, and not all that is swapped out"
    assert (mark.heap_used_end_bytes, mark.heap_free_end_bytes) == (18000 * KIB, 19000 * KIB)
    assert [value.value for value in run.values if value.name == "native_heap_pss_bytes"] == [30000 * KIB, 20000 * KIB]
    values = {value.name: value.value for value in run.values}
    assert values["gl_mtrack_pss_bytes"] == 8000 * KIB and values["summary_native_heap_bytes"] == 29000 * KIB
    assert "summary_unknown_bytes" not in values, "the App Summary has no PSS of it"
    assert run.about is not None and any("7.8 MiB of the graphics driver (mtrack)" in note for note in run.about.notes)


_NATIVE_DUMP = """Applications Memory Usage (in Kilobytes):
Uptime: 5 Realtime: 5
                   Pss      Pss   Shared  Private   Shared  Private     Swap      Rss
                 Total    Clean    Dirty    Dirty    Clean    Clean    Dirty    Total
                ------   ------   ------   ------   ------   ------   ------   ------
  Native Heap     1760        0        0     1760        0        0        4     1764
        TOTAL     3792        0        0     2644        0      892        4     8580
"""
_OLD_DUMP = """** MEMINFO in pid 9 [old] **
                   Pss  Private  Private  Swapped     Heap     Heap     Heap
                 Total    Dirty    Clean    Dirty     Size    Alloc     Free
  Native Heap     2145     1040        0        0    28160    26530     1629
        TOTAL     8828     2700       10        0
"""
_LISTS = """Applications Memory Usage (in Kilobytes):
Uptime: 5 Realtime: 5

Total RSS by process:
    311,504K: system (pid 1479)
     11,000K: app (pid 7 / activities)

Total RSS by OOM adjustment:
    900,000K: Native
        800,000K: zygote (pid 874)

Total PSS by process:
    151,234K: system (pid 1479)                    (    1,234K in swap)
      9,000K: app (pid 7 / activities)             (        0K in swap)

Total PSS by category:
    500,000K: Native
"""


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (_NATIVE_DUMP, [("a", 8580, 3792, 3536)]),
        (_OLD_DUMP, [("old", None, 8828, 2710)]),
        (_LISTS, [("system", 311504, 150000, None), ("app", 11000, 9000, None)]),
        (_OLD_DUMP + _OLD_DUMP.replace("pid 9 [old]", "pid 10 [other]"), [("old", None, 8828, 2710), ("other", None, 8828, 2710)]),
    ],
    ids=["native program", "without RSS", "all processes", "two processes"],
)
def test_dumpsys_meminfo_by_process(tmp_path: Path, text: str, rows: list[tuple[object, ...]]) -> None:
    runs = importing.runs([(None, written(tmp_path, text))])
    kib = [
        (run.job.model.name, *(size and size // KIB for size in (mark.rss_peak_bytes, mark.pss_end_bytes, mark.uss_end_bytes)))
        for run in runs
        for mark in run.marks
    ]
    assert kib == rows
    assert [run.job.variant for run in runs] == (["a"] if len(rows) == 1 else [row[0] for row in rows])


def test_dumpsys_meminfo_restarted_process_repeats(tmp_path: Path) -> None:
    runs = importing.runs([(None, written(tmp_path, _OLD_DUMP + _OLD_DUMP.replace("pid 9", "pid 10")))])
    assert [(run.job.variant, run.job.repeat) for run in runs] == [("old", 1), ("old", 2)]


def test_llamacpp_breakdown_figures(memprof) -> None:
    path = DATA / "llamacpp_breakdown.txt"
    run = imported(path)
    values = {value.name.removesuffix("_bytes"): value.value for value in run.values}
    assert run.job.model.name == "small-q4_0.gguf" and phase(run, RUN).rss_peak_bytes is None
    assert {name: values[name] for name in ("cuda0_total", "cuda0_free", "cuda0_self", "cuda0_model", "cuda0_unaccounted")} == {
        "cuda0_total": 8000 * MIB,
        "cuda0_free": 4000 * MIB,
        "cuda0_self": 3500 * MIB,
        "cuda0_model": 2000 * MIB,
        "cuda0_unaccounted": 499 * MIB,
    }
    assert [values[f"host_{name}"] for name in ("self", "model", "context", "compute")] == [764 * MIB, 224 * MIB, 27 * MIB, 513 * MIB]
    assert "vulkan0_unaccounted" not in values and "host_total" not in values
    assert run.about is not None
    (note,) = [note for note in run.about.notes if "unaccounted" in note]
    assert note == (
        "unaccounted of Vulkan0 (Phone) is left out, because it is no size: total - (free + self) is -1500 MiB, and llama.cpp printed "
        "17592186042916 MiB"
    )
    assert "Latency" not in memprof("import", path, "-o", "runs.jsonl").stdout, "the log has no times"


def test_llamacpp_breakdown_of_other_columns(tmp_path: Path) -> None:
    text = (DATA / "llamacpp_breakdown.txt").read_text().replace("   unaccounted |", "   spare |")
    with pytest.raises(InputError, match="the columns of this breakdown are not those"):
        importing.read(written(tmp_path, text))


def test_proc_files_figures(tmp_path: Path) -> None:
    run = imported(DATA / "proc_files.txt")
    mark = phase(run, RUN)
    assert run.job.model.name == "app" and {value.name: value.value for value in run.values} == {
        "lib_one_so_rss_bytes": 2600 * KIB,
        "heap_rss_bytes": 1500 * KIB,
    }
    assert (mark.rss_peak_bytes, mark.hwm_bytes, mark.rss_end_bytes) == (9000 * KIB, 9000 * KIB, 4100 * KIB), "smaps is exact"
    assert (mark.pss_end_bytes, mark.uss_end_bytes, mark.swap_end_bytes) == (2800 * KIB, 1600 * KIB, 64 * KIB)
    assert (mark.anon_end_bytes, mark.vms_end_bytes) == (1500 * KIB, 80000 * KIB)
    smaps = (DATA / "proc_files.txt").read_text().partition("Threads:\t1\n")[2]
    twice = phase(imported(written(tmp_path, smaps.replace("1500", "9500") + smaps)), RUN)
    assert (twice.rss_peak_bytes, twice.rss_end_bytes, twice.samples) == (12100 * KIB, 4100 * KIB, 2), (
        "addresses that begin again are a copy"
    )
    rollup = "00400000-7ffd5000 ---p 00000000 00:00 0    [rollup]\nRss: 900 kB\nPss: 400 kB\nPrivate_Dirty: 300 kB\n"
    of_rollup = imported(written(tmp_path, rollup))
    mark = phase(of_rollup, RUN)
    assert (mark.rss_peak_bytes, mark.pss_end_bytes, mark.uss_end_bytes, of_rollup.values) == (900 * KIB, 400 * KIB, 300 * KIB, ())


@pytest.mark.parametrize(
    "text",
    [
        _NATIVE_DUMP.replace("Realtime: 5", "Realtime: 999999999999999999"),
        _NATIVE_DUMP.replace("8580", "9" * 30) + _NATIVE_DUMP.replace("Realtime: 5", "Realtime: 4000000000000"),
        "".join(f"{place}000-{place}fff rw-p 00000000 00:00 0\nRss: 4000000000000000 kB\n" for place in range(1, 9)),
        "| memory breakdown [MiB] | total free self model context compute unaccounted |\n|  - A | "
        + " ".join(["999999999999999999"] * 7)
        + " |\n",
    ],
    ids=["time", "size", "sum", "breakdown"],
)
def test_figures_beyond_any_machine(tmp_path: Path, text: str) -> None:
    try:
        runs = importing.runs([(None, written(tmp_path, text))])
    except InputError as error:
        assert "\n" not in str(error)
        return
    for run in runs:
        assert store.decode(store.encode(run), "here") == run


def test_proc_files_of_several_processes(tmp_path: Path) -> None:
    text = (DATA / "proc_files.txt").read_text()
    runs = importing.runs([(None, written(tmp_path, text + text.replace("Pid:\t77", "Pid:\t78")))])
    assert [run.job.variant for run in runs] == ["app 77", "app 78"]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_tables_of_imported_runs(memprof, tmp_path: Path, path: Path) -> None:
    run = imported(path)
    assert store.decode(store.encode(run), "here") == run
    (tmp_path / "runs.jsonl").write_bytes(store.encode(run))
    for style in ("phases", "load"):
        done = memprof("table", "runs.jsonl", "--style", style)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), (style, done.stderr)
    swap = memprof("table", "runs.jsonl", "--style", "swap")
    if run.timeline.samples:
        assert swap.returncode == 0 and "RSS over the run" in swap.stdout and "anonymous over" not in swap.stdout
    else:
        assert (swap.returncode, swap.stdout) == (5, "")
        assert "--style swap is made of memory over time, and no run here that ended well has any" in swap.stderr
    assert summary.summarise([run]) or path.name == "llamacpp_breakdown.txt", "a breakdown has values alone"


@pytest.mark.parametrize("name", ["tflite_benchmark.log", "mprof.dat"])
def test_pictures_and_pages_of_imports(memprof, tmp_path: Path, name: str) -> None:
    (tmp_path / "runs.jsonl").write_bytes(store.encode(imported(DATA / name)))
    for words in (
        ("plot", "timeline", "runs.jsonl", "-o", "a.png"),
        ("page", "runs.jsonl", "-o", "a.html"),
        ("trace", "runs.jsonl", "-o", "a.json"),
    ):
        done = memprof(*words)
        assert "Traceback" not in done.stderr and done.returncode in (0, 2, 5), (words, done.stderr)
        assert done.returncode == 0 or done.stderr.startswith("memprof: ")


def test_pictures_claim_only_logged_figures() -> None:
    text = pytest.importorskip("matplotlib.text").Text
    run = imported(DATA / "mprof.dat")
    for picture in (peaks, timeline):
        texts = [written_text.get_text() for written_text in picture.render([run]).findobj(text)]
        assert "RSS, as the log says" in texts
        claims = ("high-water mark", "anonymous", "polling saw", "not polled")
        assert not [written_text for written_text in texts if any(claim in written_text for claim in claims)]


def test_compare_two_logs(memprof, tmp_path: Path) -> None:
    for name in ("master", "option2"):
        assert memprof("import", f"onert={LOGS[name]}", "-o", f"{name}.jsonl").returncode == 0
    done = memprof("compare", "master.jsonl", "option2.jsonl")
    assert "Traceback" not in done.stderr and "MODEL_LOAD" in done.stdout, done.stderr


def test_logs_of_same_name_repeats(memprof, tmp_path: Path) -> None:
    runs = importing.runs([("onert", LOGS["master"]), ("onert", LOGS["option1"])])
    assert [run.job.repeat for run in runs] == [1, 2]
    assert len(summary.groups(runs)) == 1


def test_import_appends_only_when_asked(memprof, tmp_path: Path) -> None:
    first = memprof("import", LOGS["master"], "-o", "runs.jsonl", "--machine", "odroid")
    assert first.returncode == 0 and "onert-master" in first.stdout and "runs.jsonl holds the runs" in first.stderr
    assert memprof("import", LOGS["master"], "-o", "runs.jsonl").returncode == 5
    assert memprof("import", LOGS["option1"], "-o", "runs.jsonl", "--append").returncode == 0
    loaded = store.load([tmp_path / "runs.jsonl"]).runs
    assert [run.machine.name for run in loaded] == ["odroid", "imported"]
    rows = json.loads(memprof("import", DATA / "psrecord.log", "-o", "other.jsonl", "--json").stdout)
    assert rows[0]["phase"] == RUN and rows[0]["rss_peak_bytes"] == round(1.66 * MIB)
    assert "rss_end_bytes" in rows[0] and "anon_end_bytes" not in rows[0]


def test_import_words_with_name(tmp_path: Path) -> None:
    assert importing.words("a=b.log") == ("a", Path("b.log"))
    assert importing.words("dir/b.log") == (None, Path("dir/b.log"))
    odd = tmp_path / "a=b.log"
    odd.touch()
    assert importing.words(str(odd)) == (None, odd)
    with pytest.raises(UsageError):
        importing.words("some/where=b.log")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a log of a tool"),
        (b"hello\nworld\n", "not a log of a tool"),
        (bytes(range(256)) * 50, "not a log of a tool"),
        (b'{"memprof":1}', "not a log of a tool"),
        (b"MODEL_LOAD takes a while\n", "no figure of a phase"),
        (b"MEM x y\nCMDLINE a", "not a log of a tool"),
        (b"CMDLINE a\nMEM -5 1.0\n", "no figure of a phase"),
        (b"# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n nan nan nan nan\n", "no figure of a phase"),
        (b"Applications Memory Usage (in Kilobytes):\nUptime: 1 Realtime: 1\n\n** MEMINFO in pid 1 [a] **\n", "no figure of a phase"),
        (b"| memory breakdown [MiB] | total   free    self   model   context   compute    unaccounted |\n", "no figure of a phase"),
        (b"VmRSS:\t many kB\n", "no figure of a phase"),
        (b"\x89PNG\r\n\x1a\n" + bytes(99), "is a PNG picture, and not a log of a tool"),
        (b"\x7fELF" + bytes(99), "is an ELF program or library, and not a log of a tool"),
        (b"heap_v2/524288\n", "is a heap profile of jemalloc, and not a log of a tool .*; `memprof heap show` is for heap profiles$"),
        (b"Model,Backend,ModelLoad_Time,Prepare_Time\n", "no figure of a phase"),
        (b'[{"name": "model_run"', "no figure of a phase"),
        (b'[{"name": "model_run", "cat": "Session", "ts": 1e400, "dur": {}}]', "no figure of a phase"),
        (b'"model_run"' + b"[" * 200_000, "not a log of a tool"),
        (b"[" * 200_000 + b'"model_run"', "no figure of a phase|nested too deeply"),
    ],
)
def test_foreign_and_damaged_files_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=reason):
        importing.read(path)


def test_unreadable_files_refused(memprof, tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        done = memprof("import", path)
        assert done.returncode == 5 and done.stderr.startswith("memprof: ") and done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("memprof-*")), "nothing is left behind"


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_cut_log_gives_whole_phases(tmp_path: Path, path: Path) -> None:
    data = path.read_bytes()
    whole = imported(path)
    for part in range(1, 20):
        torn = tmp_path / path.name
        torn.write_bytes(data[: len(data) * part // 20])
        try:
            run = imported(torn)
        except InputError:
            continue
        assert {mark.phase for mark in run.marks} <= {mark.phase for mark in whole.marks}
        assert store.decode(store.encode(run), "here") == run


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_cut_log_noted(tmp_path: Path, path: Path) -> None:
    text = path.read_text()

    def notes(text: str) -> list[str]:
        about = imported(written(tmp_path, text, path.name)).about
        assert about is not None
        return [note for note in about.notes if note.startswith("the log is cut off: ")]

    assert notes(text) == []
    assert len(notes(text[: text.rindex("kb") if "onert-" in path.name else -3])) == 1, "within the last line"
    ends = {".log": "Memory footprint" if "benchmark" in path.name else "- PEAK", ".json": '"model_run"'}
    if path.suffix in ends and path.name != "psrecord.log":
        assert len(notes(text[: text.rindex(ends[path.suffix])])) == 1, "a line earlier"


def test_cut_line_without_sample(tmp_path: Path) -> None:
    run = imported(written(tmp_path, (DATA / "mprof.dat").read_text() + "MEM 1.7 17", "a.dat"))
    assert (run.timeline.samples, phase(run, RUN).time_ns // 10**9) == (8, 0)  # 17 s after 1970 is no time of it


def _mutated(data: bytes, cuts: list[tuple[int, int, bytes]]) -> bytes:
    for place, length, new in cuts:
        at = place % (len(data) + 1)
        data = data[:at] + new + data[at + length :]
    return data


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_mutated_log_runs_or_sentence(tmp_path: Path, path: Path) -> None:
    data = path.read_bytes()[:6000]
    words = st.sampled_from(
        [b"", b"-", b"e", b"9" * 400, b"nan", b"inf", b"1e999", b"-1", b"\xff\x00", b"\n", b",", b'"', b"[", b"{", b"MODEL_LOAD"]
    )
    target = tmp_path / "mutated"

    @examples(60, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 60), words | st.binary(max_size=8)), max_size=8))
    def check(cuts: list[tuple[int, int, bytes]]) -> None:
        target.write_bytes(_mutated(data, cuts))
        try:
            runs = importing.runs([(None, target)])
        except MemprofError as error:
            assert "\n" not in str(error)
            return
        for run in runs:
            assert run.marks
            assert store.decode(store.encode(run), "here") == run
            for mark in run.marks:
                assert mark.end_ns >= mark.begin_ns >= 0
                assert mark.rss_peak_bytes is None or mark.rss_peak_bytes >= 0
                assert not mark.rss_peak_exact

    check()


@examples(50)
@given(st.text(max_size=400))
def test_formats_read_any_text(text: str) -> None:
    for form in importing.FORMATS:
        for head in (
            "",
            "MODEL_LOAD takes 1 ms\n",
            "CMDLINE x\nMEM 1 1\n",
            "[",
            "ModelLoad_Time,Prepare_Time\n",
            "# Elapsed time  Real (MB)  Virtual (MB)\n",
            "elapsed_time,mem_real,mem_virtual\n",
            "** MEMINFO in pid 1 [a] **\n Pss\n Total\n",
            "Total PSS by process:\n",
            "| memory breakdown [MiB] | total free self model context compute unaccounted |\n",
            "VmRSS:\t1 kB\n",
        ):
            if form.knows(head + text):
                with suppress(InputError):
                    form.read(head + text, "file")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ModelLoad_Time,Prepare_Time\n" + "1,1\n" * 10_001, "onert_run --write_report has more than 10,000 measurements"),
        ("MODEL_LOAD takes 1 ms\n" * 10_001, "onert_run has more than 10,000 measurements"),
        (
            "STARTING!\nInference timings in us: Init: 1, First inference: 1, Warmup (avg): 1, Inference (avg): 1\n" * 10_001,
            "10,000 measurements",
        ),
    ],
)
def test_log_with_too_many_measurements(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        importing.read(written(tmp_path, text))


def test_large_logs_read_in_time(tmp_path: Path) -> None:
    """A megabyte takes at most 10 s of the processor, and these took minutes: each is read in less than one."""
    timings = "Inference timings in us: Init: 1, First inference: 1, Warmup (avg): 1, Inference (avg): 1\n"
    texts = [timings + word * (1_000_000 // len(word)) for word in ("Graph: [", "Loaded model ", "Loaded model x" + " " * 100)]
    texts.append("$ onert_run " + "x" * 1_000_000 + "\nMODEL_LOAD takes 1 ms\nPREPARE takes 1 ms\nEXECUTE takes 1 ms\n")
    texts.append("".join(f"MEM 1.5 {second}\n" for second in range(30_000)) + "FUNC f 1 0 1 29999\n" * 30_000)
    for text in texts:
        path = written(tmp_path, text)
        begin_s = time.process_time()
        (run,) = importing.read(path)
        assert time.process_time() - begin_s < 10
    assert (run.marks[0].samples, len(run.marks[0].times_ns)) == (30_000 * 30_000, 30_000)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=40), st.data())
def test_highest_within_range(values: list[int], data: st.DataObject) -> None:
    highest = mprof._Highest(values)
    begin, end = data.draw(st.integers(0, len(values))), data.draw(st.integers(0, len(values)))
    assert highest.within(begin, end) == max(values[begin:end], default=None)


def test_peaks_picture_without_peaks(memprof, tmp_path: Path) -> None:
    """onnxruntime's profile speaks of its arena, never of the process's memory."""
    assert memprof("import", DATA / "onnxruntime_profile.json", "-o", "p.jsonl").returncode == 0
    done = memprof("plot", "peaks", "p.jsonl", "-o", "p.png")
    assert (done.returncode, done.stderr.strip()) == (
        5,
        "memprof: no run here has a memory peak of a phase: the logs that they were imported from do not say it",
    )
