"""Starts the child: its pipes, its environment, its limits, and the CPUs and the control group that it runs in. Or attaches to a process that
already runs, which gets no signal, no reset of a high-water mark, and is no child of ours.
"""

import _signal as signal  # see __main__
import errno
import os
import time

from . import libc, procfs
from .group import ControlGroup
from .log import LogTail
from .writer import escaped

_ADDR_NO_RANDOMIZE = 0x0040000
_PAD = b"MEMPROF_PAD_"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PR_SET_PTRACER, _PR_SET_PTRACER_ANY = 0x59616D61, -1
_HEAD = 20  # bytes of an ELF header up to the machine that it is for

_prctl, _personality = libc.function("prctl"), libc.function("personality")


class LaunchError(Exception):
    """It does not start. step, number, head, what: see the event `error` of a recording."""

    def __init__(self, step, number, what, head=b"-"):
        super().__init__(step, number, what)
        self._fields = (step, number or errno.EINVAL, head, escaped(what))

    def tell(self, writer):
        """Write why."""
        writer.tell(b"error", *self._fields)


class Child:
    """What is looked at: its process id, and when that began. marks, output, input: descriptors, None for none. group: its own control group."""

    def __init__(self, pid, begin_ns):
        self.pid, self.begin_ns = pid, begin_ns
        self.marks = self.output = self.input = self.group = self.log = None


def begin(writer, cpus):
    """Write that it begins now; the time of that."""
    writer.tell(b"begin", len(cpus), procfs.number("/proc/self/status", b"VmHWM:"), os.getpid())
    return time.monotonic_ns()


def attach(order, writer, processes):
    """A Child that already runs, with the log to follow. Raises LaunchError."""
    try:
        cpus = os.sched_getaffinity(order.pid)
    except OSError:
        cpus = set()  # it has just ended
    child = Child(order.pid, begin(writer, cpus))
    processes.find(order.pid)  # what is open from here on is this process's, or an earlier one's
    stat = procfs.stat(order.pid)
    if stat is not None and order.started not in (0, stat.started):
        raise LaunchError(b"reused", errno.ESRCH, b"%d" % order.pid)
    if processes.get(order.pid) is None:
        raise LaunchError(b"gone", errno.ESRCH, b"%d" % order.pid)
    try:
        child.log = LogTail(order.log) if order.log else None
    except OSError as error:
        raise LaunchError(b"log", error.errno, order.log) from None
    return child


def launch(order, writer):
    """The Child that an order describes, started. Raises LaunchError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        group = ControlGroup(order.group, order.settings) if order.group else None
    except OSError as error:
        raise LaunchError(b"group", error.errno, order.group) from None
    try:
        child = _start(order, writer, group)
    except LaunchError:
        if group is not None:
            group.remove()
        raise
    child.group = group
    return child


def _start(order, writer, group):
    marks, marks_write = os.pipe2(os.O_CLOEXEC)
    output, output_write = os.openpty() if order.terminal else os.pipe2(os.O_CLOEXEC)
    input_read, input_write = os.pipe2(os.O_CLOEXEC)
    failure, failure_write = os.pipe2(os.O_CLOEXEC)
    if order.input >= 0:
        os.dup2(order.input, input_read, inheritable=False)
        os.close(order.input)
    begin_ns = begin(writer, order.numbers or os.sched_getaffinity(0))
    environment = _environment(order, marks_write, begin_ns)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        step = [b"exec", order.argv[0]]
        try:
            _become(order, step, parent, (input_read, output_write, marks_write), group, environment)
        except BaseException as error:  # nothing may return from here into the parent's code
            os.write(failure_write, b"%s %d %s" % (step[0], getattr(error, "errno", None) or errno.EINVAL, step[1]))
        os._exit(127)
    for descriptor in (marks_write, output_write, input_read, failure_write):
        os.close(descriptor)
    failed = os.read(failure, 65536)  # ends at the exec
    os.close(failure)
    if failed:
        os.waitpid(pid, 0)
        kind, number, what = failed.split(b" ", 2)
        raise LaunchError(kind, int(number), what, _head(order, environment) if int(number) == errno.ENOEXEC else b"-")
    child = Child(pid, begin_ns)
    child.marks, child.output, child.input = marks, output, input_write
    for descriptor in (marks, output, input_write):
        os.set_blocking(descriptor, False)
    return child


def _environment(order, marks, begin_ns):
    environment = {name: value for name, value in os.environb.items() if not name.startswith(_PAD)}
    environment.update([variable.partition(b"=")[::2] for variable in order.env])
    for name in order.unset:
        environment.pop(name, None)
    pipe = os.fstat(marks)
    environment[b"MEMPROF_MARKS"] = b"%d:%d:%d" % (marks, pipe.st_dev, pipe.st_ino)
    environment[b"MEMPROF_STARTED_NS"] = b"%d" % begin_ns
    environment.update([(b"%s%d" % (_PAD, number), b"") for number in range(-len(environment) % (order.pad or 1))])
    return environment


def _become(order, step, parent, descriptors, group, environment):
    """Become the program. step: what is tried, and of what, for the case that it fails."""
    os.setpgid(0, 0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(127)  # the parent ended before the line above
    if order.hold:
        # Where Yama lets only the processes above it look at a process, others of this user may look at this one (Documentation/admin-guide/
        # LSM/Yama.rst): on another machine memprof's program that looks is none of those. It stays through the exec.
        _prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY, 0, 0, 0)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGHUP, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if order.personality:
        _personality(_ADDR_NO_RANDOMIZE)  # whether the kernel let us is read back from the child
    input_read, output_write, marks_write = descriptors
    for descriptor, place in ((input_read, 0), (output_write, 1), (output_write, 2)):
        os.dup2(descriptor, place)
    os.set_inheritable(marks_write, True)
    if group is not None:
        step[:] = b"group", order.group
        group.join()
    if order.numbers:
        step[:] = b"cpus", order.cpus
        os.sched_setaffinity(0, order.numbers)
        if os.sched_getaffinity(0) != set(order.numbers):
            raise ValueError("it may run on some of them alone")
    step[:] = b"exec", order.argv[0]
    for name, size in order.limits:
        import resource

        number = getattr(resource, name)
        resource.setrlimit(number, (size, resource.getrlimit(number)[1]))
    if order.cwd:
        step[1] = order.cwd
        os.chdir(order.cwd)
    step[1] = order.argv[0]
    os.execvpe(order.argv[0], order.argv, environment)


def has_fixed_layout(pid):
    """Whether the kernel did as it was asked by `personality`."""
    return bool(int(procfs.read("/proc/%d/personality" % pid) or b"0", 16) & _ADDR_NO_RANDOMIZE)


def _head(order, environment):
    """The begin of the program's file, in hexadecimal."""
    folders = [b""] if b"/" in order.argv[0] else environment.get(b"PATH", b"").split(b":")
    contents = [procfs.read(os.path.join(order.cwd or b".", folder, order.argv[0])) for folder in folders]
    return next((content[:_HEAD].hex().encode() for content in contents if content), b"-")
