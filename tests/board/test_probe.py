"""The recorder in C on a board without Python, whose kernel keeps memory counters by thread and whose swap is zram."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Memprof
from msgspec.structs import replace
from support.compiler import once_compiled
from support.native_programs import HEAD, HEADER, SWAPPED_OUT, folded, swapped_out

from memprof.base.counter_bounds import peak_bound
from memprof.base.errors import InputError
from memprof.places.machine import this_machine
from memprof.programs import recorder_build
from memprof.recording.order import lines
from memprof.records import store
from memprof.records.recorder_order import CommandStart, Hold, Message, Start
from memprof.records.types import COMMAND, Job, Model, Run

from .booting import Board
from .making import CACHE
from .test_places import Words, on, reach  # noqa: F401  (the fixtures)

MIB = 1 << 20
# The polling period where all that is to be seen stays for a tenth of a second or longer: polls each millisecond keep an emulated CPU busy.
STEADY_NS = 20 * 10**6
BOARD = replace(this_machine(), name="board", arch="aarch64", kernel="6.1.0", cpus=2, swap_bytes=0)
Measured = Callable[..., Run]


def compiled(body: str) -> bytes:
    """A program of this main for the board."""
    source = HEAD + "int main(int count, char **words) { (void)count; (void)words; (void)hold; (void)drop;\n" + body + "\nreturn 0; }"
    return once_compiled("aarch64-linux-gnu-gcc", "program.c", source, f"-I{HEADER.parent}", "-static").read_bytes()


@pytest.fixture(scope="session")
def program() -> bytes:
    """The recorder, compiled once and kept beside the board."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(CACHE / "programs"))
        try:
            return recorder_build.built("aarch64").read_bytes()
        except InputError as reason:
            pytest.skip(str(reason))


@pytest.fixture
def measured(board: Board, program: bytes) -> Measured:
    """measured("/bin/program", "word") -> its Run by the recorder on the board; `body` is a program that is put there first."""

    def measure(*argv: str, body: str = "", **start: object) -> Run:
        if body:
            argv = (board.keep(compiled(body)), *argv)
        job = Job(Model("m", "/m", (), 0, ""), COMMAND, "v", 1, 0, 1)
        begin = Start(argv=argv, command=CommandStart(), **start)  # type: ignore[arg-type]
        message = Message(job, begin, 60 * 10**9, {"": STEADY_NS})
        return folded(message, board.answer(board.keep(program), lines(message, BOARD)), BOARD)

    return measure


def test_recorder_reports_board_facts(measured: Measured) -> None:
    run = measured("/bin/busybox", "true")

    assert run.outcome.ok, run
    assert run.machine.peak_bound_bytes == peak_bound(run.machine.kernel, 4096, 2, 2) == 67 * 16 * 4096


def test_transient_peak_within_thread_bound(measured: Measured) -> None:
    run = measured(body='memprof_begin("SPIKE"); drop(hold(40 * MIB), 40 * MIB); memprof_end();')

    mark = run.mark("SPIKE")
    assert mark is not None and mark.rss_peak_exact and mark.rss_peak_bytes is not None
    # 67 pages of anonymous memory may be missing; the program itself has less than a mebibyte besides.
    assert -67 * 4096 <= mark.rss_peak_bytes - 40 * MIB <= MIB


def test_phase_end_exact_despite_status_lag(measured: Measured) -> None:
    """512 pages of a file, which 32 faults bring in: status has none of them yet."""
    body = """
    int file = open("/proc/self/exe", O_RDONLY);
    volatile char *mapped, sum = 0;
    int at;
    memprof_begin("BEFORE"); memprof_end();
    memprof_begin("MAP");
    mapped = (volatile char *)mmap(NULL, 512 * 1024, PROT_READ, MAP_SHARED, file, 0);
    for (at = 0; at < 512 * 1024; at += 4096) sum += mapped[at];
    memprof_end();
    """
    run = measured(body=body)

    before, after = run.mark("BEFORE"), run.mark("MAP")
    assert before is not None and after is not None, run
    assert after.file_end_bytes is not None and before.file_end_bytes is not None
    assert after.file_end_bytes - before.file_end_bytes >= 512 * 1024
    assert after.rss_end_bytes == (after.anon_end_bytes or 0) + after.file_end_bytes + (after.shmem_end_bytes or 0)


def test_run_pinned_to_cpu(measured: Measured) -> None:
    assert measured("/bin/sh", "-c", "test $(nproc) = 1", cpus=(1,)).outcome.ok
    assert measured("/bin/sh", "-c", "test $(nproc) = 2").outcome.ok
    refused = measured("/bin/true", cpus=(0, 7))
    assert refused.outcome.status == "start" and "one of them is not there" in (refused.outcome.message or "")


def looked_at(there: Board, recorder: str, held: bool) -> bool:
    """Whether a process that this recorder there measures may be looked at by one of the same user that is not above it, where Yama is strict."""
    look = "at=$(sed -n 's/-.*//; 1p' /proc/$$/maps); dd if=/proc/$$/mem of=/dev/null bs=1 count=1 skip=$((0x$at)); exit $?"  # one below it
    start = Start(argv=("/bin/sh", "-c", look), command=CommandStart())
    job = Job(Model("m", "/m", (), 0, ""), COMMAND, "v", 1, 0, 1)
    message = Message(job, start, 60 * 10**9, {"": 10**6}, hold=Hold(10**9, {}, {}) if held else None)
    with there.memory():  # one test at a time has this setting
        there.run("echo 1 > /proc/sys/kernel/yama/ptrace_scope")
        try:
            out = there.answer(f"su nobody -s /bin/sh -c '{recorder}'", lines(message, BOARD))
        finally:
            there.run("echo 0 > /proc/sys/kernel/yama/ptrace_scope")
    return folded(message, out, BOARD).outcome.ok


def test_held_process_inspectable_under_yama(board: Board, program: bytes) -> None:
    recorder = board.keep(program)
    assert looked_at(board, recorder, held=True)
    assert not looked_at(board, recorder, held=False)


@pytest.fixture
def zram(board: Board) -> Iterator[None]:
    """The board's zram as its swap."""
    with board.memory():
        board.run("echo 128M > /sys/block/zram0/disksize && mkswap /dev/zram0 && swapon /dev/zram0")
        yield
        board.run("swapoff /dev/zram0 && echo 1 > /sys/block/zram0/reset")


def test_zram_pages_counted(measured: Measured, zram: None) -> None:
    swapped_out(measured(body=SWAPPED_OUT))


def test_no_swap_run_has_exact_peak(memprof: Memprof, on: Words, tmp_path: Path, zram: None) -> None:
    (tmp_path / "it").write_bytes(compiled(SWAPPED_OUT))
    (tmp_path / "it").chmod(0o755)

    done = memprof("exec", *on, "--no-swap", "-o", "r.jsonl", "--", "./it")

    assert done.returncode == 0, done.stderr
    (run,) = store.load([tmp_path / "r.jsonl"]).runs
    mark = run.mark("HOLD")
    assert run.job.no_swap and run.charged is not None and mark is not None
    assert mark.swapped_bytes == 0 and mark.rss_peak_exact
    assert mark.rss_peak_bytes is not None and 112 * MIB - 67 * 4096 <= mark.rss_peak_bytes < 120 * MIB


# -- the bound of the high-water mark

LAG = r"""
    /* By how much status lacks what threads have just touched, in pages: of anonymous memory, then of a mapped file. */
    for (kind = 0; kind < 2; ++kind) {
        worst = 0;
        for (pages = 512; pages < 1536; pages += 256) {
            pthread_t threads[4];
            pthread_barrier_init(&touched, NULL, 5);
            pthread_barrier_init(&seen, NULL, 5);
            for (at = 0; at < 4; ++at) pthread_create(&threads[at], NULL, touch, (void *)(long)at);
            pthread_barrier_wait(&touched);
            { long lag = (field("/proc/self/smaps_rollup", "\nRss:") - field("/proc/self/status", "VmRSS:")) / 4; if (lag > worst) worst = lag; }
            pthread_barrier_wait(&seen);
            for (at = 0; at < 4; ++at) pthread_join(threads[at], NULL);
        }
        printf("%ld\n", worst);
    }
"""
LAGS = r"""
static pthread_barrier_t touched, seen;
static int kind;
static long pages, worst;
static long field(const char *path, const char *name) {
    static char text[8192];
    int descriptor = open(path, O_RDONLY);
    long filled = 0, count;
    while ((count = read(descriptor, text + filled, sizeof text - 1 - filled)) > 0) filled += count;
    close(descriptor);
    text[filled] = 0;
    return atol(strstr(text, name) + strlen(name));
}
static void *touch(void *number) {
    int file = open("/tmp/lag.data", O_RDONLY);
    size_t size = (size_t)pages * 4096;
    volatile char *memory = kind ? mmap(NULL, size, PROT_READ, MAP_SHARED, file, (long)number * (6 << 20))
                                 : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char sum = 0;
    long at;
    for (at = 0; at < pages; ++at) { if (kind) sum += memory[at * 4096]; else memory[at * 4096] = 1; }
    pthread_barrier_wait(&touched);
    pthread_barrier_wait(&seen);
    munmap((void *)memory, size);
    close(file);
    return NULL;
}
"""


@pytest.mark.parametrize("kind", ["board", "wide_board"])
@pytest.mark.long
def test_status_lag_by_thread_not_cpus(kind: str, request: pytest.FixtureRequest) -> None:
    there: Board = request.getfixturevalue(kind)
    source = HEAD + LAGS + "int main(void) { int at; (void)hold; (void)drop;\n" + LAG + "\nreturn 0; }"
    lags = once_compiled("aarch64-linux-gnu-gcc", "program.c", source, f"-I{HEADER.parent}", "-static").read_bytes()
    command = f"dd if=/dev/zero of=/tmp/lag.data bs=1M count=24 2> /dev/null; {there.keep(lags)}; rm /tmp/lag.data"
    anon, file = map(int, there.run(command).split())

    most = peak_bound("6.1.0", 4096, 2, 2, threads=5) // 4096
    assert 4 * 60 < anon < file
    assert 4 * 800 < file <= most
