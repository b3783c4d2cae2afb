"""Readings of memory that no resident set counts: buffers that devices share, clients of DRM drivers, memfds, page tables and huge pages.

/proc/PID/fd, a link for each descriptor (proc_pid_fd(5)):

    /dmabuf:NAME       a dma-buf, from Linux 5.3 on (drivers/dma-buf/dma-buf.c): its fdinfo has size:, exp_name: and, from 5.19 on, ino:
    /memfd:NAME        a memfd: its blocks are there, mapped or not
    /dev/dri/NAME      a client of a DRM driver, as is /dev/accel/NAME: its fdinfo has lines drm-... (Documentation/gpu/drm-usage-stats.rst)
    /dev/mali0         as some others, a client of a closed driver; and so is anon_inode:dmabuf, a dma-buf before Linux 5.3

A mapping keeps a buffer when its descriptors are closed. /proc/PID/smaps (proc_pid_smaps(5)) has its inode, and how much of it is resident.
"""

import os
import time

from . import procfs
from .looks import LookBudget

_clock, _cpu = time.monotonic_ns, time.thread_time_ns
_POLLS, _BORDERS = (0.008, 50_000_000), (0.02, 500_000_000)
_PART_NS, _WHOLE_NS = 8_000_000, 100_000_000  # between two readings of a process, in part and in whole
# The same where no process has a device's file. A change of the count tells of a new descriptor, so that a first buffer of 20 ms is seen too; where
# no count has changed for long, and no phase has begun or ended, the counts are read as seldom as after this part of that time.
_COUNT_NS, _IDLE_NS, _QUIET = 16_000_000, 1_000_000_000, 64
_MOST_KNOWN = 1 << 14
_DMABUF, _MEMFD, _DRM = "/dmabuf:", "/memfd:", ("/dev/dri/", "/dev/accel/")
_CLOSED = {
    "/dev/mali": b"mali",
    "/dev/kgsl": b"kgsl",
    "/dev/nvidia": b"nvidia",
    "/dev/rknpu": b"rknpu",
    "/dev/galcore": b"galcore",
    "anon_inode:dmabuf": b"dmabuf",
}
_TOLD = (_DMABUF, _MEMFD, *_DRM, *_CLOSED)
# Who has one of these has buffers, or soon will.
_DEVICES = (*_TOLD, "/dev/dma_heap/", "/dev/udmabuf", "/dev/ion", "/dev/kfd", "/dev/fastrpc", "/dev/adsprpc")
_AMOUNTS = (b"total", b"resident", b"shared", b"purgeable", b"memory")
_UNITS = {b"KiB": 1 << 10, b"MiB": 1 << 20}
_PLAIN = b"".join(bytes([code]) if chr(code).isalnum() or code in b"-.:" else b"_" for code in range(128)) + b"_" * 128


class DeviceFiles:
    """The descriptors of a process. whole_ns: when they were last read in whole; signature: see `_signature`. links: those of buffers and DRM
    clients, by number. used: the process, or who started it, has a device's file or huge pages, or had
    some. ranges: the lines of maps that are of buffers, None to read on; mapped: see `_mapped`; maps_ns: when maps was last read, 0 to read it in any
    case; size: the size of the address space then. written: the newest line of each kind."""

    def __init__(self, used):
        self.whole_ns = self.signature = self.maps_ns = 0
        self.size = b""
        self.links: "dict[str, str]" = {}
        self.used = used
        self.ranges: "list[bytes] | None" = None
        self.mapped: "dict[tuple, list]" = {}
        self.written: "dict[bytes, tuple]" = {}


class DeviceReader:
    """The readings of all processes that do not run in another's memory."""

    def __init__(self, writer, processes, begin_ns):
        self._writer, self._processes = writer, processes
        self._polls, self._borders = LookBudget(begin_ns, *_POLLS), LookBudget(begin_ns, *_BORDERS)
        self._next_ns = self._place = self._left_out = 0
        self._moved_ns = begin_ns  # when a count was last seen to change, or a phase to begin or end
        self._known: "dict[int, tuple]" = {}  # (exporter, size) of dma-bufs by inode

    def step(self, now):
        """Read the processes one after another; they have just been polled."""
        if now < self._next_ns:
            return
        members = self._processes.members()
        used = any(process.devices.used for process in members)
        self._next_ns = now + (_PART_NS if used else min(max(_COUNT_NS, (now - self._moved_ns) // _QUIET), _WHOLE_NS))
        for _ in members:
            process = members[self._place % len(members)]
            if now < self._polls.free_ns:
                self._left_out += process.devices.used
                return
            begin_ns = _cpu()
            self._place += 1
            self._read_in_part(process, process.devices, now)
            self._polls.spend(begin_ns)

    def look(self, must):
        """Read all processes in whole. must: those with a device's file even if there is no time, as a phase begins or ends there; who is there is
        looked at again."""
        if must:
            if self._processes.tree:
                self._processes.list_children()
            self._processes.poll()
            self._moved_ns = _clock()
        now, budget = _clock(), self._borders if must else self._polls
        for process in self._processes.members():
            if now >= budget.free_ns or (must and process.devices.used):
                begin_ns = _cpu()
                process.devices.ranges, process.devices.maps_ns = None, 0
                self._read(process, process.devices, now)
                budget.spend(begin_ns)

    def tell_left_out(self):
        """Write how often there was no time for a reading."""
        if self._left_out:
            self._writer.tell(b"fault", b"devices", self._left_out)
            self._left_out = 0

    def _read_in_part(self, process, files, now):
        """Read in whole what may have changed."""
        signature = _signature(process.statm.task, files.used)
        moved = signature != files.signature
        if moved:
            self._moved_ns = now
        if moved or now - files.whole_ns >= (_IDLE_NS if signature and not files.used else _WHOLE_NS):
            self._read(process, files, now)
        elif any(link.startswith(_MEMFD) for link in files.links.values()) or any(
            b"/" in field for field in files.written.get(b"clients", ())
        ):
            self._tell_links(process, files)

    def _read(self, process, files, now):
        task = process.statm.task
        files.whole_ns = now
        files.signature = _signature(task, files.used)
        try:
            links = _links(task)
            _check_info(task, links)
        except PermissionError:
            files.links = {}
            self._tell(process, b"buffers", now, b"-")
            return
        except OSError:  # it has ended
            return
        files.used = files.used or any(link.startswith(_DEVICES) for link in links.values())
        files.links = {name: link for name, link in links.items() if link.startswith(_TOLD)}
        self._read_maps(process, files, now)
        self._tell_links(process, files)
        tables = _tables(task)
        files.used = files.used or tables[1] not in (b"-", b"0")
        self._tell(process, b"tables", now, *tables)

    def _read_maps(self, process, files, now):
        """Read what is mapped. A process without a device's file may have a buffer that was mapped and closed before anybody looked; its address
        space has changed then."""
        size = process.statm.fields.partition(b" ")[0]
        if not files.used and files.maps_ns and (now - files.maps_ns < _IDLE_NS or size == files.size):
            return
        files.maps_ns, files.size = now, size
        task = process.statm.task
        ranges = [line for line in procfs.read("/proc/%d/maps" % task).split(b"\n") if b" /dmabuf:" in line or b" /memfd:" in line]
        files.used = files.used or bool(ranges)
        if ranges != files.ranges:
            files.ranges, files.mapped = ranges, _mapped(task) if ranges else {}

    def _tell_links(self, process, files):
        task, begin_ns = process.statm.task, _clock()
        buffers, clients = {}, {}  # the latter by themselves: another descriptor of a client tells the same
        for name, link in files.links.items():
            silent = next((driver for begin, driver in _CLOSED.items() if link.startswith(begin)), None)
            if silent is not None:
                clients[b"%s,-,-" % silent] = None
                continue
            if link.startswith(_DRM):
                text = procfs.read("/proc/%d/fdinfo/%s" % (task, name))
                if text:  # else it has been closed
                    clients[client(text)] = None
                continue
            found = self._buffer(task, name, link.startswith(_DMABUF))
            if found is not None:
                buffers[found[0]] = found[1:]
        for place, (mapped, _, addresses) in files.mapped.items():
            if place not in buffers and place[0] == b"dmabuf":
                buffers[place] = self._known.get(place[1]) or _shown(place[1]) or (b"", mapped)
            elif place not in buffers:
                buffers[place] = b"", _blocks("/proc/%d/map_files/%s" % (task, addresses.decode()))
        fields = []
        for (kind, inode), (exporter, size) in buffers.items():
            mapped, resident, _ = files.mapped.get((kind, inode), (0, 0, b""))
            fields.append(b"%s:%s:%d:%d:%d:%d" % (kind, exporter.replace(b":", b"_"), inode, size, mapped, resident))
        self._tell(process, b"buffers", begin_ns, *fields)
        self._tell(process, b"clients", begin_ns, *clients)

    def _buffer(self, task, name, shared):
        """((kind, inode), exporter, size) of a descriptor, None if it has been closed."""
        try:
            status = os.stat("/proc/%d/fd/%s" % (task, name))
        except OSError:
            return None
        if not shared:
            return (b"memfd", status.st_ino), b"", status.st_blocks * 512
        info = _lines(procfs.read("/proc/%d/fdinfo/%s" % (task, name)))
        if b"size" not in info:
            return None
        exporter, size = _word(info.get(b"exp_name", b"")), int(info[b"size"])
        if len(self._known) == _MOST_KNOWN:
            self._known = {}  # those that are still there are read again
        self._known[status.st_ino] = exporter, size
        return (b"dmabuf", status.st_ino), exporter, size

    def _tell(self, process, kind, begin_ns, *fields):
        written = process.devices.written
        if written.get(kind, ()) != fields:
            written[kind] = fields
            self._writer.tell_since(kind, begin_ns, process.pid, *fields)


def client(text):
    """A client of a recording, from its fdinfo."""
    info, regions = _lines(text), {}
    for name, value in info.items():
        what, _, region = name[4:].partition(b"-")
        words = value.split()
        if region.startswith(b"cycles-"):  # drm-total-cycles-ENGINE is a time
            continue
        if name.startswith(b"drm-") and what in _AMOUNTS and region and words and words[0].isdigit():
            amounts = regions.setdefault(region, [b"-"] * len(_AMOUNTS))
            amounts[_AMOUNTS.index(what)] = b"%d" % (int(words[0]) * (_UNITS.get(words[1], 1) if len(words) > 1 else 1))
    about = [_word(info.get(b"drm-" + name, b"")) or b"-" for name in (b"driver", b"pdev", b"client-id")]
    return b",".join([*about, *[b"/".join([_word(region), *amounts]) for region, amounts in regions.items()]])


def _lines(text):
    """The lines of an fdinfo, by the text before their first colon."""
    pairs = [line.partition(b":") for line in text.split(b"\n")]
    return {name: value.strip() for name, _, value in pairs}


def _word(text):
    return text.translate(_PLAIN)


def _signature(task, used):
    """What changes with a process's descriptors: how many there are, or where the kernel does not tell (before 6.2) their numbers, if it is `used`; 0
    where they may not be seen."""
    try:
        return os.stat("/proc/%d/fd" % task).st_size or (os.listdir("/proc/%d/fd" % task) if used else 0)
    except OSError:
        return 0


def _links(task):
    """The links of descriptors by their numbers. Raises OSError if they may not be read."""
    folder, links = os.open("/proc/%d/fd" % task, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), {}
    try:
        for name in os.listdir(folder):
            try:
                links[name] = os.readlink(name, dir_fd=folder)
            except FileNotFoundError:  # closed meanwhile
                pass
    finally:
        os.close(folder)
    return links


def _check_info(task, links):
    """Raise PermissionError if fdinfo may not be read, where it has a figure; what one descriptor says of that, all of the process do."""
    name = next((name for name, link in links.items() if link.startswith((_DMABUF, *_DRM))), None)
    if name is not None:
        try:
            os.close(os.open("/proc/%d/fdinfo/%s" % (task, name), os.O_RDONLY | os.O_CLOEXEC))
        except FileNotFoundError:  # closed meanwhile
            pass


def _mapped(task):
    """[bytes, resident, addresses] of each buffer that a process has mapped, by kind and inode. Huge pages, which `tables` has, count as resident."""
    found: "dict[tuple, list]" = {}
    for piece in procfs.read("/proc/%d/smaps" % task).split(b"\nVmFlags:"):
        words = piece.partition(b"\nSize:")[0].rpartition(b"\n")[2].split(None, 5)
        if len(words) < 6 or not words[5].startswith((b"/dmabuf:", b"/memfd:")):
            continue
        sizes = found.setdefault((words[5][1:7].rstrip(b":"), int(words[4])), [0, 0, words[0]])
        begin, _, end = words[0].partition(b"-")
        sizes[0] += int(end, 16) - int(begin, 16)
        resident = [procfs.field(piece, name) for name in (b"Rss:", b"Shared_Hugetlb:", b"Private_Hugetlb:")]
        sizes[1] += sum(int(size) << 10 for size in resident if size != b"-")
    return found


def _blocks(path):
    """What is allocated of a file, in bytes; 0 if that may not be seen, as of a mapped file where the kernel asks for CAP_CHECKPOINT_RESTORE."""
    try:
        return os.stat(path).st_blocks * 512
    except OSError:
        return 0


def _shown(inode):
    """(exporter, size) of a dma-buf as the machine shows it (CONFIG_DMABUF_SYSFS_STATS, or debugfs), None if it does not."""
    folder = "/sys/kernel/dmabuf/buffers/%d/" % inode
    size = procfs.read(folder + "size").strip()
    if size:
        return _word(procfs.read(folder + "exporter_name").strip()), int(size)
    for line in procfs.read("/sys/kernel/debug/dma_buf/bufinfo").split(b"\n"):  # size flags mode count exporter inode name
        words = line.split()
        if len(words) > 5 and words[5].isdigit() and int(words[5]) == inode and words[0].isdigit():
            return _word(words[4]), int(words[0])
    return None


def _tables(task):
    """The fields of `tables`."""
    text = procfs.read("/proc/%d/status" % task)
    tables, huge = procfs.field(text, b"VmPTE:"), procfs.field(text, b"HugetlbPages:")
    shared = procfs.field(procfs.read("/proc/%d/smaps_rollup" % task), b"Shared_Hugetlb:") if huge not in (b"-", b"0") else huge
    return tables, huge, shared
