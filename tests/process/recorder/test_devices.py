"""Memory outside of all resident sets as either recorder reads it: memfds of known sizes, what cannot be read, and what it costs."""

from __future__ import annotations

import os
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from conftest import need_tool
from support.attacks.buffers import sees_mapped_files
from support.compiler import once_compiled

from memprof.recorder import devices, procfs

from .harness import MIB, Event, Recorder, Recording, escaped, order, python

RULES = ["1000000 0 0 begin", "1000000 0 0 end"]  # at a mark with one of these words all is read
AGAIN = (
    "[(mark('begin'), time.sleep(0.02)) for _ in range(50)]"  # a busy machine reads late, and a process that has ended has no descriptors
)
MAKE = "def make(mib):\n    file = os.memfd_create('it'); os.write(file, bytes(mib << 20)); return file\n"


def buffers(event: Event) -> list[tuple[str, int, int, int]]:
    """(kind, size, mapped, resident) in MiB of each buffer."""
    fields = [field.split(":") for field in event.fields[3:] if field]
    return [(kind, *(int(size) // MIB for size in sizes)) for kind, _, _, *sizes in fields]  # type: ignore[misc]


def last(recording: Recording, mark: str) -> list[tuple[str, int, int, int]]:
    """What was read last before a mark."""
    place = recording.events.index(recording.wait_mark(mark))
    found = [event for event in recording.events[:place] if event.kind == "buffers"]
    return buffers(found[-1]) if found else []


def test_memfd_by_descriptor_mapping_and_neither(recorder: Recorder) -> None:
    code = (
        "import mmap\n"
        + MAKE
        + "file = make(8); mark('begin 1'); go()\nview = mmap.mmap(file, 8 << 20); view[: 3 << 20] = bytes(3 << 20)\n"
        "mark('begin 2'); go(); os.close(file); mark('begin 3'); go(); view.close(); mark('begin 4'); go(); mark('end')"
    )
    with recorder.run(python(code), rule=RULES) as recording:
        seen = []
        for number in range(1, 5):
            seen.append(last(recording, f"begin {number}"))
            recording.go()
        recording.finish()

    # mmap has a descriptor of its own, and what is mapped is known by its address where the kernel lets it be looked at.
    assert seen == [[("memfd", 8, 0, 0)], [("memfd", 8, 8, 3)], [("memfd", 8, 8, 3)], []]


def test_descriptor_passed_by_socket_is_the_same(recorder: Recorder) -> None:
    code = (
        "import socket\n" + MAKE + "here, there = socket.socketpair()\n"
        "if os.fork() == 0:\n    here.close(); socket.recv_fds(there, 1, 1); mark('begin child'); there.recv(1); os._exit(0)\n"
        "there.close(); file = make(8); socket.send_fds(here, [b'x'], [file]); go()"
    )
    with recorder.run(python(code), rule=RULES, tree=1) as recording:
        recording.wait_mark("begin child")
        recording.go()
        events = recording.finish()

    found = {event[2]: event.fields[3] for event in events if event.kind == "buffers" and "memfd" in event.fields[-1]}
    assert len(found) == 2
    assert len(set(found.values())) == 1  # kind, inode and size are the same in both


def test_buffer_mapped_and_closed_before_any_look(recorder: Recorder) -> None:
    """Nothing but what is mapped tells of it: the process was never seen with a device's file."""
    code = (
        "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.mmap.restype = ctypes.c_void_p\n" + MAKE + "file = make(8)\n"
        "where = libc.mmap(None, ctypes.c_size_t(8 << 20), 3, 1, file, ctypes.c_long(0)); os.close(file)\n"
        "ctypes.memset(where, 1, 3 << 20); mark('begin'); go()"
    )
    with recorder.run(python(code), rule=RULES, interval=10**9) as recording:
        seen = last(recording, "begin")
        recording.go()
        recording.finish()

    assert seen == [("memfd", 8 if sees_mapped_files() else 0, 8, 3)]


def test_process_of_the_last_moment_is_read(recorder: Recorder) -> None:
    code = (
        MAKE + "read, write = os.pipe()\nif os.fork() == 0:\n    file = make(8); os.write(write, b'x'); wait()\n"
        "os.read(read, 1); mark('begin'); go()"
    )
    with recorder.run(python(code), rule=RULES, interval=10**9, tree=1) as recording:
        seen = last(recording, "begin")
        recording.go()
        recording.finish()

    assert seen == [("memfd", 8, 0, 0)]


def test_memfd_of_20_ms_seen_from_the_first_on(recorder: Recorder) -> None:
    """The kernel counts descriptors from 6.2 on; before, only a process that is known to use devices is looked at so often."""
    code = MAKE + "mark('begin')\nfor _ in range(5):\n    file = make(8); time.sleep(0.02); os.close(file); time.sleep(0.05)\nmark('end')"
    for attempt in range(4):  # a busy machine may not let the recorder run in time
        with recorder.run(python(code), rule=RULES) as recording:
            recording.finish()
        seen = [event for event in recording.of("buffers") if buffers(event) == [("memfd", 8, 0, 0)]]
        if len(seen) == 5 or attempt == 3:
            break
    assert len(seen) == 5


def test_page_tables_of_a_process_without_devices(recorder: Recorder) -> None:
    code = (
        "block = b'x' * (64 << 20)\n"
        "mark('begin ' + next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmPTE')))\ngo()"
    )
    with recorder.run(python(code), rule=RULES) as recording:
        size = recording.wait("mark").text(2).split()[1]
        tables = recording.of("tables")[-1]
        recording.go()
        recording.finish()

    assert tables.fields[3:] == (size, "0", "0")
    assert not recording.of("buffers") and not recording.of("clients")


# -- what cannot be read, or only seldom


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as somebody else")
@pytest.mark.parametrize("dropped", ["-all", "-sys_ptrace"])
def test_hidden_descriptors_are_told(recorder: Recorder, dropped: str) -> None:
    """Without CAP_SYS_PTRACE alone, as in a container of Docker's, their numbers may be read and their links may not."""
    need_tool("setpriv")
    with subprocess.Popen(["sleep", "60"], user=65534) as process:
        text = order([f"attach {process.pid} 0"], timeout=3 * 10**8)
        with recorder.started(text, wrap=["setpriv", "--bounding-set", dropped, "--inh-caps", dropped]) as running:
            assert running.stdout is not None
            told = running.stdout.read().decode().splitlines()
        process.kill()

    hidden = [line.split() for line in told if line.startswith("buffers ")]
    assert [words[3:] for words in hidden] == [[str(process.pid), "-"]]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a /dev of its own")
def test_hidden_fdinfo_is_told(recorder: Recorder) -> None:
    """A file stands for the DRM driver. Nobody may open a device's node on a file system without devices, and these nodes stand for fdinfo."""
    need_tool("unshare")
    make = 'mount -t tmpfs it /dev && mknod /dev/null c 1 3 && mkdir /dev/dri && touch /dev/dri/renderD128 && exec "$@"'
    hide = "mount -t tmpfs -o nodev it /proc/%d/fdinfo && for name in 0 1 2 3 4 5 6 7 8 9; do mknod /proc/%d/fdinfo/$name c 1 3; done"
    code = f"file = open('/dev/dri/renderD128'); assert os.system({hide!r} % (os.getpid(), os.getpid())) == 0; " + AGAIN
    text = order([f"argv {escaped(word)}" for word in python(code)], rule=RULES)
    with recorder.started(text, wrap=["unshare", "-m", "sh", "-c", make, "sh"]) as running:
        assert running.stdout is not None
        told = running.stdout.read().decode().splitlines()

    assert ["-"] in [line.split()[4:] for line in told if line.startswith("buffers ")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a /dev of its own")
def test_silent_drivers_are_told(recorder: Recorder) -> None:
    """Files of their names stand for the devices: what such a driver has is told nowhere."""
    need_tool("unshare")
    make = 'mount -t tmpfs it /dev && mknod /dev/null c 1 3 && touch /dev/mali0 /dev/nvidiactl /dev/nvidia0 && exec "$@"'
    code = "files = [open('/dev/' + name) for name in ('mali0', 'nvidiactl', 'nvidia0')]; " + AGAIN
    text = order([f"argv {escaped(word)}" for word in python(code)], rule=RULES)
    with recorder.started(text, wrap=["unshare", "-m", "sh", "-c", make, "sh"]) as running:
        assert running.stdout is not None
        told = running.stdout.read().decode().splitlines()

    assert ["mali,-,-", "nvidia,-,-"] in [line.split()[4:] for line in told if line.startswith("clients ")]


def test_readings_left_out_with_thousands_of_descriptors(recorder: Recorder) -> None:
    code = (
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (9000, 9000))\n" + MAKE + "file = make(1); mark('begin')\n"
        "for _ in range(8000): os.dup(file)\n"
        "end = time.monotonic() + 3\nwhile time.monotonic() < end: os.close(os.dup(0)); time.sleep(0.002)"
    )
    with recorder.run(python(code), rule=RULES) as recording:
        events = recording.finish()

    assert [event for event in events if event.kind == "fault" and event.fields[1] == "devices" and event[2] > 0]
    assert any(buffers(event) == [("memfd", 1, 0, 0)] for event in recording.of("buffers"))


def test_cost_with_a_hundred_descriptors(recorder: Recorder) -> None:
    """docs/evidence/claims.md has the figures; here is ten times what is allowed, as on a busy machine any time is longer."""
    code = MAKE + "file = make(1)\nfor _ in range(100): os.dup(0)\nmark('begin'); go()"
    with recorder.run(python(code), rule=RULES) as recording:
        recording.wait_mark("begin")
        process = psutil.Process(recording.process.pid)
        before, begin_ns = sum(process.cpu_times()[:2]), time.monotonic_ns()
        recording.wait(".", lambda event: event[3] > 1500)
        spent, took_ns = sum(process.cpu_times()[:2]) - before, time.monotonic_ns() - begin_ns
        recording.go()
        recording.finish()

    assert spent / took_ns * 1e9 < 0.1 + 0.1


def test_counts_are_read_seldom_without_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulated minute of a process that opens nothing: every 16 ms at first and after a phase's border, later every 100 ms."""
    process = SimpleNamespace(statm=SimpleNamespace(task=1, fields=b"1 1 1"), devices=devices.DeviceFiles(False), twin=None, pid=1)
    processes = SimpleNamespace(members=lambda: [process], tree=False, poll=lambda: None)
    reader, looks, clock = devices.DeviceReader(None, processes, 1), list[int](), [1]
    monkeypatch.setattr(devices, "_clock", lambda: clock[0])
    monkeypatch.setattr(devices, "_signature", lambda task, used: looks.append(clock[0]) or 5)
    monkeypatch.setattr(reader, "_read", lambda process, files, now: setattr(files, "signature", 5))
    process.devices.signature, process.devices.whole_ns = 5, 10**15

    def gaps(until_ms: int) -> list[int]:
        looks.clear()
        while clock[0] < until_ms * 10**6:
            reader.step(clock[0])
            clock[0] += 10**6
        return [(after - before) // 10**6 for before, after in pairwise(looks)]

    assert set(gaps(1000)) == {16}
    assert set(gaps(60_000)[-100:]) == {100}
    reader.look(must=True)
    assert set(gaps(61_000)[1:]) == {16}
    process.devices.signature = 4  # a descriptor more than when it was read last
    gaps(62_000)
    assert reader._moved_ns > 61_000 * 10**6


# -- clients of DRM drivers: fdinfo in the form that is documented for each driver; none of it was read on such a device but vgem's, which was on the
# board. i915: proc_pid_fdinfo(5). xe: xe_drm_client.c. panthor, panfrost: Documentation/gpu. amdgpu: amdgpu_fdinfo.c of Linux 6.1. msm, v3d, etnaviv:
# drm_show_memory_stats of drm_file.c, which leaves out what a driver does not know.

FDINFO = sorted((Path(__file__).parents[2] / "data" / "fdinfo").glob("*.txt"))
CLIENTS = {
    "amdgpu": "amdgpu,0000:03:00.0,185,vram/-/-/-/-/61501440,gtt/-/-/-/-/2097152,cpu/-/-/-/-/0",
    "etnaviv": "etnaviv,-,7,memory/12582912/-/0/-/-",
    "i915": "i915,0000:00:02.0,39,system0/6189056/6189056/0/1728512/-,stolen-system0/0/0/0/0/-",
    "msm": "msm,-,3,memory/41943040/33554432/1048576/0/-",
    "panfrost": "panfrost,-,3,memory/8388608/4194304/0/131072/-",
    "panthor": "panthor,-,10,memory/16875520/16875520/0/0/-",
    "v3d": "v3d,-,23,memory/76660736/44302336/32358400/0/-",
    "vgem": "-,-,-",
    "xe": "xe,0000:03:00.0,3,system/0/0/0/0/-,gtt/196608/196608/0/-/-,vram0/24567808/24567808/16777216/-/-,stolen/0/0/0/-/-",
}
ODD = "pos:\t0\ndrm-driver:\t\ndrm-client-id:\tx y,z\ndrm-total-a/b:\t3 KiB\ndrm-total-:\t1\ndrm-total-c:\tmany\ndrm-memory-d:\t7 MiB\nno colon\n"
# The C recorder's own reading: of a client's fdinfo on standard input, or of a buffer by its inode on the machine whose root is the first word.
READER = """
#include "base.h"
static const char *machine = "";
static int open_there(const char *path, int flags) {
    char there[4096];
    add_text(add_text(there, machine), path);
    return open(there, flags);
}
#define open open_there
#include "devices.c"
int main(int count, char **words) {
    static char text[65536];
    if (count == 3) {
        struct buffer buffer = {.inode = read_int(words[2], NULL), .kind = 'b'};
        machine = words[1];
        take_from_machine(&buffer);
        add_field(buffer.exporter);
        add_number(" ", buffer.size);
    } else {
        read_whole(0, text, sizeof text);
        add_client(text);
    }
    return write(1, devices.line.items, devices.line.count) != (ssize_t)devices.line.count;
}
"""


def in_c(*words: str, text: bytes = b"") -> bytes:
    """What devices.c, compiled with the rest of the recorder, reads."""
    folder = Path(devices.__file__).parent / "c"
    others = [str(path) for path in sorted(folder.glob("*.c")) if path.name not in ("devices.c", "main.c")]
    reader = once_compiled("cc", "reader.c", READER, f"-I{folder}", "-std=c99", "-D_GNU_SOURCE", *others)
    return subprocess.run([str(reader), *words], input=text, capture_output=True, check=True).stdout


@pytest.mark.parametrize("driver", sorted(CLIENTS))
def test_client_by_recorded_fdinfo(driver: str) -> None:
    assert sorted(CLIENTS) == [path.stem for path in FDINFO]
    text = next(path for path in FDINFO if path.stem == driver).read_bytes()
    assert devices.client(text).decode() == CLIENTS[driver]


def test_clients_alike_in_both_recorders() -> None:
    for text in [*(path.read_bytes() for path in FDINFO), ODD.encode()]:
        assert in_c(text=text) == devices.client(text)


# -- a dma-buf that is mapped and has no descriptor, as the machine shows it: texts in the documented form, which nobody read on such a machine here.
# /sys/kernel/dmabuf/buffers: Documentation/ABI/testing/sysfs-kernel-dmabuf-buffers. bufinfo of debugfs: dma_buf_debug_show of
# drivers/dma-buf/dma-buf.c, of Linux 6.1, and of Linux 4.19, whose lines have no inode.

SYSFS = {
    "/sys/kernel/dmabuf/buffers/121/exporter_name": "system\n",
    "/sys/kernel/dmabuf/buffers/121/size": "8294400\n",
    "/sys/kernel/dmabuf/buffers/122/exporter_name": "panfrost: a/b\n",
    "/sys/kernel/dmabuf/buffers/122/size": "4096\n",
}
BUFINFO = {
    "/sys/kernel/debug/dma_buf/bufinfo": """
Dma-buf Objects:
size    \tflags   \tmode    \tcount   \texp_name\tino     \tname
08294400\t00080002\t00000007\t00000003\tvc4\t00000121\tscreen 1
\tAttached Devices:
\tgpu:gpu
Total 1 devices attached

00004096\t00080002\t00080007\t00000002\tdrm\t00000123\t<none>
\tkernel fence: panfrost js-0-2 seq 121 signalled
\tAttached Devices:
\tfe400000.gpu
\t121
Total 2 devices attached


Total 2 objects, 8298496 bytes
"""
}
BEFORE_INODES = {
    "/sys/kernel/debug/dma_buf/bufinfo": """
Dma-buf Objects:
size    \tflags   \tmode    \tcount   \texp_name
00000121\t00000002\t00000007\t00000003\tion
\tAttached Devices:
Total 0 devices attached


Total 1 objects, 121 bytes
"""
}
SHOWN = [
    (SYSFS, 121, ("system", 8294400)),
    (SYSFS, 122, ("panfrost:_a_b", 4096)),
    (BUFINFO, 121, ("vc4", 8294400)),
    (BUFINFO, 123, ("drm", 4096)),
    (SYSFS | BUFINFO, 121, ("system", 8294400)),
    (SYSFS | BUFINFO, 123, ("drm", 4096)),
    (BUFINFO, 122, None),
    (BEFORE_INODES, 121, None),
    ({}, 121, None),
]


@pytest.mark.parametrize(("texts", "inode", "shown"), SHOWN)
def test_buffer_shown_by_the_machine(
    texts: dict[str, str], inode: int, shown: tuple[str, int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, text in texts.items():
        file = Path(f"{tmp_path}{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    read = procfs.read
    monkeypatch.setattr(procfs, "read", lambda path: read(f"{tmp_path}{path}"))
    found = devices._shown(inode)
    assert (found and (found[0].decode(), found[1])) == shown

    assert in_c(str(tmp_path), str(inode)).decode() == (f"{shown[0]} {shown[1]}" if shown else " 0")
