"""Starts the child: its pipes, its environment, its limits, and the CPUs and the control group that it runs in."""

import _signal as signal  # see __main__
import errno
import os
import time

from . import libc, procfs
from .listening import Listener

ADDR_NO_RANDOMIZE = 0x0040000
_PAD, _VARIABLES = "MEMPROF_PAD_", 128  # variables without a meaning, and by how many the number of all can be divided
_PR_SET_PDEATHSIG = 1
_PR_SET_PTRACER, _PR_SET_PTRACER_ANY = 0x59616D61, -1

_prctl, _personality = libc.function("prctl"), libc.function("personality")


class Launcher(Listener):
    """A child that is started. start, hold: see child.Measurement; outcome: why it could not be started, if it could not."""

    def __init__(self, start, hold):
        super().__init__()
        self._start = start
        self._hold = hold
        self._cpus = start.get("cpus") or ()
        self.usable = len(self._cpus or os.sched_getaffinity(0))
        self.outcome = {"status": "ok"}
        self._unsent = b""

    def _launch(self):
        if self._cpus and not _may_run_on(self._cpus):
            named = ",".join(str(number) for number in self._cpus)
            message = "it may not run on exactly the CPUs %s: one of them is not there, or not allowed to this process" % named
            self.outcome = {"status": "start", "phase": "STARTUP", "message": message}
            return False
        marks_read, marks_write = os.pipe2(os.O_CLOEXEC)
        output_read, output_write = self._output_pipe()
        input_read, input_write = os.pipe2(os.O_CLOEXEC)
        given = self._start.get("input")
        if given is not None:
            os.dup2(given, input_read, inheritable=False)
            os.close(given)
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_PAD)}
        for name, value in self._start["env"].items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        pipe = os.fstat(marks_write)
        environment["MEMPROF_MARKS"] = "%d:%d:%d" % (marks_write, pipe.st_dev, pipe.st_ino)
        environment["MEMPROF_STARTED_NS"] = str(time.monotonic_ns())
        # A process that will be stopped shall have its memory where one that will not has it, so that one of them tells of the other.
        environment["MEMPROF_HOLD" if self._hold and not self._hold.get("units") else "MEMPROF_GOES"] = "1"
        if self._start.get("command") is None:
            # glibc copies the environment's array into the heap where a library sets a variable, as OpenBLAS does. A knob that is a variable
            # would change that array's size, and with it where all later memory lies.
            for number in range(-len(environment) % _VARIABLES):
                environment[_PAD + str(number)] = ""
        if self._start.get("group"):
            from . import group

            try:
                self._group = group.Group(self._start["group"]["path"], self._start["group"]["settings"])
            except OSError as error:
                message = "%s: %s" % (self._start["group"]["path"], os.strerror(error.errno or errno.EINVAL))
                self.outcome = {"status": "start", "phase": "STARTUP", "message": message}
                for descriptor in (marks_read, marks_write, output_read, output_write, input_read, input_write, status_read, status_write):
                    os.close(descriptor)
                return False
        self._begin_ns = time.monotonic_ns()
        parent = os.getpid()
        self.pid = self.measured = os.fork()
        if self.pid == 0:
            try:
                self._become(parent, input_read, output_write, marks_write, environment)
            except BaseException as error:  # nothing may return from here into the parent's code
                reason = error.errno if isinstance(error, OSError) else errno.EINVAL
                os.write(status_write, str(reason or errno.EINVAL).encode())
            os._exit(127)
        for descriptor in (marks_write, output_write, input_read, status_write):
            os.close(descriptor)
        failed = _read_all(status_read)  # ends at the exec
        os.close(status_read)
        if failed:
            os.waitpid(self.pid, 0)
            message = os.strerror(int(failed))
            self.outcome = {"status": "start", "phase": "STARTUP", "message": "%s: %s" % (self._start["argv"][0], message)}
            for descriptor in (marks_read, output_read, input_write):
                os.close(descriptor)
            return False
        self._marks_read, self._output_read = marks_read, output_read
        self._statm = procfs.Statm(self.pid)
        for descriptor in (marks_read, output_read, input_write):
            os.set_blocking(descriptor, False)
        self._input_write, self._unsent = input_write, self._start["stdin"].encode()
        self._send()
        return True

    def _output_pipe(self):
        return os.pipe2(os.O_CLOEXEC)

    def _send(self):
        """Write the child's input, as far as the child reads; when all is written, the input ends."""
        try:
            self._unsent = self._unsent[os.write(self._input_write, self._unsent) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._unsent = b""
        if not self._unsent:
            os.close(self._input_write)

    def _become(self, parent, input_read, output_write, marks_write, environment):
        os.setpgid(0, 0)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(127)  # the parent ended before the line above
        if self._hold:
            # Where Yama lets only the processes above it look at a process, others of this user may look at this one (Documentation/admin-guide/
            # LSM/Yama.rst): on another machine memprof's program that looks is none of those. It stays through the exec.
            _prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY, 0, 0, 0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGHUP, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        if self._start["deterministic"]:
            # Whether the kernel let us is read back from the child's address space: see `_judge`.
            _personality(ADDR_NO_RANDOMIZE)
        os.dup2(input_read, 0)
        os.dup2(output_write, 1)
        os.dup2(output_write, 2)
        os.set_inheritable(marks_write, True)
        if self._group is not None:
            self._group.join()
        if self._cpus:
            os.sched_setaffinity(0, self._cpus)
        for name, value in (self._start.get("rlimits") or {}).items():
            import resource

            number = getattr(resource, name)
            resource.setrlimit(number, (value, resource.getrlimit(number)[1]))
        if self._start["cwd"]:
            os.chdir(self._start["cwd"])
        os.execvpe(self._start["argv"][0], self._start["argv"], environment)


def _may_run_on(cpus):
    """Whether a process may be set to run on these CPUs and no others, found by setting this one for a moment."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus)
        return os.sched_getaffinity(0) == set(cpus)
    except (OSError, ValueError, OverflowError):
        return False
    finally:
        os.sched_setaffinity(0, before)


def _read_all(descriptor):
    data = b""
    while True:
        chunk = os.read(descriptor, 4096)
        if not chunk:
            return data
        data += chunk
