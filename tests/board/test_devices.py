"""Memory outside of all resident sets on a board: real dma-bufs of known sizes, and huge pages, with either recorder.

vgem is a DRM driver without hardware: an object of it that is exported is a dma-buf as any other. As many drivers of Linux 6.1, it writes no lines
drm-... into fdinfo. Both ends of a phase are read right after its mark has come, so a pause follows each of them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest
from support.compiler import once_compiled
from support.native_programs import HEAD, HEADER, folded
from support.recorder_runs import with_patience

from memprof.doctor import devices
from memprof.programs.source_zips import recorder_zip
from memprof.recording.order import lines
from memprof.records.recorder_order import CommandStart, Message, Start
from memprof.records.types import COMMAND, Job, Model, Run

from .booting import Board
from .test_probe import BOARD, MIB, program  # noqa: F401  (the fixture)

VGEM = r"""
#include <drm/drm.h>
#include <sys/ioctl.h>
#include <linux/dma-heap.h>
#include <linux/memfd.h>
#include <linux/udmabuf.h>
#include <sys/socket.h>
#include <sys/syscall.h>
static int card, pause_us;
/* A dma-buf of so many MiB, which lives as long as a descriptor or a mapping of it. */
static int make(unsigned mib) {
    struct drm_mode_create_dumb object = {.width = 1024, .height = mib * 256, .bpp = 32};
    struct drm_prime_handle prime = {.flags = DRM_CLOEXEC | DRM_RDWR};
    struct drm_gem_close closed = {0};
    if (ioctl(card, DRM_IOCTL_MODE_CREATE_DUMB, &object) || object.size != mib * MIB) exit(11);
    prime.handle = closed.handle = object.handle;
    if (ioctl(card, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime) || ioctl(card, DRM_IOCTL_GEM_CLOSE, &closed)) exit(12);
    return prime.fd;
}
static char *map(int buffer, unsigned mib) {
    char *memory = (char *)mmap(NULL, mib * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, buffer, 0);
    if (memory == MAP_FAILED) exit(13);
    memset(memory, 1, MIB);
    return memory;
}
static void pass(int to, int buffer) {
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET; head->cmsg_type = SCM_RIGHTS; head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &buffer, sizeof buffer);
    if (sendmsg(to, &message, 0) != 1) exit(14);
}
static void take(int from) {
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (recvmsg(from, &message, 0) != 1 || CMSG_FIRSTHDR(&message) == NULL) exit(15);
}
static void begin(const char *phase) { memprof_begin(phase); usleep(pause_us); }
static void end(void) { memprof_end(); usleep(pause_us); }
"""

BUFFERS = r"""
    int small, large, other, ends[2];
    char *memory;
    card = open("/dev/dri/card0", O_RDWR | O_CLOEXEC);
    if (card < 0) return 10;
    begin("MAKE"); small = make(1); large = make(200); end();
    begin("MAP"); memory = map(large, 200); end();
    begin("CLOSE"); close(large); end();
    begin("UNMAP"); munmap(memory, 200 * MIB); end();
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 16;
    if (fork() == 0) {
        int descriptor;
        char byte;
        for (descriptor = 3; descriptor < 200; ++descriptor) if (descriptor != ends[1]) close(descriptor);
        take(ends[1]);                           /* never mapped */
        if (write(ends[1], "t", 1) != 1) _exit(1);
        if (read(ends[1], &byte, 1) != 1) _exit(1);
        _exit(0);
    }
    other = make(7);
    begin("SHARE"); pass(ends[0], other); if (read(ends[0], &count, 1) != 1) return 17; end();
    begin("PASS"); close(other); close(small); end();
    begin("GONE"); if (write(ends[0], "g", 1) != 1) return 18; wait(NULL); end();
"""
HEAP = r"""
    struct dma_heap_allocation_data allocation = {.len = 16 * MIB, .fd_flags = O_RDWR | O_CLOEXEC};
    int heap = open("/dev/dma_heap/system", O_RDONLY | O_CLOEXEC);
    char *memory;
    begin("MAKE"); if (ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &allocation)) return 11; end();
    begin("MAP"); memory = map((int)allocation.fd, 16); close((int)allocation.fd); end();
    begin("FREE"); munmap(memory, 16 * MIB); end();
"""
UDMABUF = r"""
    struct udmabuf_create create = {.flags = UDMABUF_FLAGS_CLOEXEC, .size = 8 * MIB};
    int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), buffer;
    char *memory;
    begin("MAKE");
    create.memfd = (unsigned)syscall(SYS_memfd_create, "it", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    if (ftruncate((int)create.memfd, 8 * MIB) || fcntl((int)create.memfd, 1033 /* F_ADD_SEALS */, 2 /* F_SEAL_SHRINK */)) return 11;
    buffer = ioctl(device, UDMABUF_CREATE, &create);
    if (buffer < 0) return 12;
    end();
    begin("CLOSE"); close((int)create.memfd); end();
    begin("MAP"); memory = map(buffer, 8); close(buffer); end();
    begin("FREE"); munmap(memory, 8 * MIB); end();
"""
SHORT = r"""
    int buffer;
    card = open("/dev/dri/card0", O_RDWR | O_CLOEXEC);
    begin("SHORT"); buffer = make(50); usleep(pause_us > 100000 ? 2 * pause_us : pause_us / 5); close(buffer); end();
"""
HUGE = r"""
    char *memory;
    int ends[2], shared;
    begin("HUGE");
    memory = (char *)mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (memory == MAP_FAILED) return 10;
    memset(memory, 1, 8 * MIB);
    end();
    begin("FREE"); munmap(memory, 8 * MIB); end();
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 16;
    begin("SHARE");
    shared = (int)syscall(SYS_memfd_create, "it", MFD_HUGETLB);
    if (shared < 0 || ftruncate(shared, 4 * MIB)) return 11;
    memory = (char *)mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    if (memory == MAP_FAILED) return 12;
    memset(memory, 1, 4 * MIB);
    if (fork() == 0) {
        char byte = memory[0];
        close(ends[0]);
        memset(memory, 1, 4 * MIB);
        if (write(ends[1], &byte, 1) != 1 || read(ends[1], &byte, 1) < 0) _exit(1);
        _exit(0);
    }
    close(ends[1]);
    if (read(ends[0], &count, 1) != 1) return 17;
    end();
    begin("UNMAP"); munmap(memory, 4 * MIB); end();
    begin("GONE"); close(ends[0]); wait(NULL); close(shared); end();
"""
Measured = Callable[..., Run]
Figures = dict[str, tuple[float, float]]  # (peak, end) in MiB by phase


@pytest.fixture(params=["c", "python"])
def there(request: pytest.FixtureRequest) -> Board:
    """The board of a recorder."""
    board: Board = request.getfixturevalue("board" if request.param == "c" else "wide_board")
    return board


@pytest.fixture
def measured(there: Board, program: bytes) -> Measured:
    """measured(body, wanted) -> the Run of a program with this main, whose pauses are long enough for these figures if any are."""
    command = there.keep(program) if there.cpus == 2 else f"python3 -I -S {there.keep(recorder_zip().read_bytes())}"

    def measure(body: str, wanted: Figures) -> Run:
        source = (
            HEAD
            + VGEM
            + "int main(int count, char **words) { (void)hold; (void)drop; (void)make; (void)map; (void)pass; (void)take; (void)until;\n"
        )
        source += f"if (count != 2) return 9;\npause_us = atoi(words[1]);\n{body}\nreturn 0; }}"
        it = there.keep(once_compiled("aarch64-linux-gnu-gcc", "program.c", source, f"-I{HEADER.parent}", "-static").read_bytes())

        def attempt(limit_ns: int) -> Run:
            job = Job(Model("m", "/m", (), 0, ""), COMMAND, "v", 1, 0, 1)
            message = Message(job, Start(argv=(it, str(limit_ns // 10**4)), command=CommandStart()), 200 * 10**9, {"": 5 * 10**6})
            return folded(message, there.answer(command, lines(message, BOARD)), BOARD)

        for _ in range(2):  # QEMU beside much else takes CPU time from the recorder, which then has none left for a reading
            run = with_patience(attempt, lambda run: figures(run) == wanted)
            if figures(run) == wanted:
                break
        assert run.outcome.ok, run.outcome
        assert figures(run) == wanted
        return run

    return measure


def figures(run: Run) -> Figures:
    return {mark.phase: ((mark.device_peak_bytes or 0) / MIB, (mark.device_end_bytes or 0) / MIB) for mark in run.marks}


def test_dma_bufs_known_to_the_page(measured: Measured) -> None:
    wanted = {"STARTUP": (0, 0), "MAKE": (201, 201), "MAP": (201, 201), "CLOSE": (201, 201), "UNMAP": (201, 1)}
    run = measured(BUFFERS, wanted | {"SHARE": (8, 8), "PASS": (8, 7), "GONE": (7, 0)})

    kinds = {kind.kind for mark in run.marks for kind in mark.devices}
    assert kinds == {"page tables", "dma-buf drm"}  # the driver's helpers export its objects
    mark = run.mark("MAP")
    assert mark is not None and (mark.rss_peak_bytes or 0) < 4 * MIB  # of which no resident set has any
    assert "drivers that tell of no memory here, so that it is in no figure: one without a name" in run.warnings


@pytest.mark.parametrize(
    ("file", "body", "exporter", "mib"), [("/dev/dma_heap/system", HEAP, "system", 16), ("/dev/udmabuf", UDMABUF, "udmabuf", 8)]
)
def test_dma_bufs_where_the_kernel_makes_them(measured: Measured, there: Board, file: str, body: str, exporter: str, mib: int) -> None:
    """Debian's kernel for arm64 has udmabuf from 6.12 on. A buffer of udmabuf counts once with its memfd, which is open where it is made."""
    if not there.run(f"ls {file} 2>/dev/null || true"):
        pytest.skip(f"this board's kernel has no {file} (CONFIG_UDMABUF, CONFIG_DMABUF_HEAPS_SYSTEM)")
    phases = {"MAKE": (mib, mib), "CLOSE": (mib, mib), "MAP": (mib, mib), "FREE": (mib, 0)}
    wanted = {"STARTUP": (0, 0), **{phase: size for phase, size in phases.items() if f'begin("{phase}")' in body}}
    run = measured(body, wanted)

    assert f"dma-buf {exporter}" in {kind.kind for mark in run.marks for kind in mark.devices}


def test_buffer_of_20_ms_is_seen(measured: Measured) -> None:
    """On an idle machine. A busy one emulates the board slowly, and the recorder's share of its CPU is a few readings: then it lives for seconds."""
    measured(SHORT, {"STARTUP": (0, 0), "SHORT": (50, 0)})


def test_huge_pages_known_to_the_page(measured: Measured, there: Board) -> None:
    with there.memory():
        there.run("echo 4 > /proc/sys/vm/nr_hugepages")
        try:
            wanted = {"STARTUP": (0, 0), "HUGE": (8, 8), "FREE": (8, 0)}
            measured(HUGE, wanted | {"SHARE": (4, 4), "UNMAP": (4, 4), "GONE": (4, 0)})  # two processes have mapped the same pages
        finally:
            there.run("echo 0 > /proc/sys/vm/nr_hugepages")


def test_doctor_says_what_the_board_tells(board: Board) -> None:
    facts = devices.facts_of(board.run(f"sh -c {shlex.quote(devices._LOOK)}").decode())
    release = board.run("uname -r").decode().strip()
    assert devices.dma_bufs(facts, release)[:2] == (
        "limited",
        f"Linux {release}, no list of all buffers (CONFIG_DMABUF_SYSFS_STATS, debugfs)",
    )
    assert devices.drm_clients(facts)[:2] == ("limited", "renderD128: a driver without a name; tells of no memory: /dev/dri/renderD128")
    assert devices.kernel_parts(facts)[0] == devices.closed_drivers(facts)[0] == "ok"
