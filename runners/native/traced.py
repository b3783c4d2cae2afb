"""The process that gdb has stopped, as the kernel shows it: its size, its counters, and the thread that was stopped.

Part of symbols.py, which gdb loads by its path. Stdlib only, Python 3.6 and later.
"""

import os
import time

import gdb
from memprof_marks import bytes_read, read_status

_FIRST_ARGUMENT = {"i386:x86-64": "rdi", "aarch64": "x0", "arm": "r0", "riscv": "a0"}


class Look:
    """A process at a stop: the stop's time, the process's memory, and whether its high-water mark is reset there."""

    def __init__(self, pid, now_ns):
        self.pid, self.now_ns, self.reset = pid, now_ns, False
        self.status = read_status(pid)


def here():
    """(process id, thread id) of the stopped thread."""
    pid, thread, _ = gdb.selected_thread().ptid
    return pid, thread


def physical(frame):
    """The frame of a function that was really called: a function may begin with an inlined one."""
    while frame.type() == gdb.INLINE_FRAME:
        frame = frame.older()
    return frame


def is_inlined(address, means):
    """Whether a function's code at this address is a copy inside another function, or inside itself. means: whether a name means the function.

    False without debug information. The code of a function may well begin with another one that is inlined there.
    """
    block, functions = gdb.block_for_pc(address), []
    while block is not None and not (block.is_global or block.is_static):
        if block.function is not None:
            functions.append((block, means(block.function.linkage_name)))
        block = block.superblock
    if not any(meant for _, meant in functions[:-1]):
        return False
    outermost, its_own = functions[-1]
    return not its_own or address != outermost.start


def alive(thread):
    return os.path.exists("/proc/%d/task/%d" % thread)


_used_ns = {}  # by inferior: the CPU time that gdb had used when the inferior arrived


def note_arrival(inferior):
    """Keep the CPU time that gdb has used until a process arrived."""
    _used_ns[inferior.num] = int(time.process_time() * 1e9)


def ran(pid, now_ns):
    """For how long the selected process has really run until now, and for how long it stood still while gdb read symbols, in ns.

    The program waits while gdb reads the symbols of a library that is being loaded, for seconds if they are many. That time is CPU time of gdb.
    If several threads of gdb read at once, their CPU time is more than the time that passed; the process's CPU time is the least that it ran.
    """
    since_ns = max(now_ns - _started_ns(pid), 0)
    busy_ns = int(time.process_time() * 1e9) - _used_ns.get(gdb.selected_inferior().num, 0)
    running_ns = min(since_ns, max(since_ns - busy_ns, counters(pid)[3]))
    return running_ns, since_ns - running_ns


def _started_ns(pid):
    """When a process was started, on CLOCK_MONOTONIC: /proc/PID/stat counts it in ticks since boot, suspended time included."""
    try:
        with open("/proc/%d/stat" % pid, "rb", buffering=0) as file:
            ticks = int(file.read(4096).rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return time.monotonic_ns()
    asleep_ns = int((time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)) * 1e9)
    return max(ticks * 1000000000 // os.sysconf("SC_CLK_TCK") - asleep_ns, 0)


def counters(pid):
    """Minor and major faults, bytes read from disk (-1 where unknown) and CPU time in ns, of all the process's threads."""
    minor = major = 0
    try:
        with open("/proc/%d/stat" % pid, "rb", buffering=0) as file:
            fields = file.read(4096).rpartition(b")")[2].split()  # from field 3 on: 10 is minflt, 12 majflt
        minor, major = int(fields[7]), int(fields[9])
    except (OSError, ValueError, IndexError):
        pass
    try:
        cpu_ns = int(time.clock_gettime((~pid << 3) | 2) * 1e9)  # clock_getcpuclockid(3), which Python does not offer
    except OSError:
        cpu_ns = 0
    return minor, major, bytes_read(pid), cpu_ns


exit_codes = {}  # by inferior: the exit code of a process that has ended, None where that is not known
last_words = {}  # by process id: what a process gave to _exit


def resume():
    """Let the processes run until gdb itself stops them; False once none is left. Raises gdb.error if gdb cannot.

    A process can be killed, or end what it had begun to end, while gdb holds all of them. gdb 13 cannot read its registers then ("Couldn't get
    registers: No such process"), and gives up with some of them running and others not. So such a process is taken away from gdb before.
    """
    for inferior in gdb.inferiors():
        if inferior.pid and _gone(inferior.pid):
            exit_codes.setdefault(inferior.num, _exit_code_of(inferior.pid))
            quiet("kill inferiors %d" % inferior.num)
    living = [inferior for inferior in gdb.inferiors() if inferior.pid]
    if not living:
        return False
    if not gdb.selected_inferior().pid:
        quiet("inferior %d" % living[0].num)
    gdb.execute("continue", to_string=True)
    return True


def _gone(pid):
    """Whether a process has ended. A zombie with more than one thread is but the first thread: the others live on."""
    try:
        with open("/proc/%d/stat" % pid, "rb", buffering=0) as file:
            fields = file.read(4096).rpartition(b")")[2].split()  # from field 3 on: 3 is state, 20 num_threads
    except OSError:
        return True
    return not fields or (fields[0] in (b"Z", b"X") and int(fields[17]) <= 1)


def _exit_code_of(pid):
    """The exit code of a process that has ended, as a shell has it for a signal; None if nobody knows it any more."""
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except OSError:
        ended = None  # gdb has waited for it, or it is another process's child
    if ended is None:
        return last_words.get(pid)
    return ended.si_status if ended.si_code == os.CLD_EXITED else 128 + ended.si_status


def made_marks():
    """Whether memprof_enter of memprof.h was called: it looks once whether somebody listens, and `looked` is its state's first field."""
    try:
        return int(gdb.parse_and_eval("*(int *)&memprof_state_")) != 0
    except (gdb.error, gdb.MemoryError):
        return False


def exit_code():
    """The exit code of a process that has just called _exit, None on machines whose first argument register is not known here."""
    frame = gdb.newest_frame()
    machine = frame.architecture().name()
    register = next((name for start, name in _FIRST_ARGUMENT.items() if machine.startswith(start)), None)
    return int(frame.read_register(register)) & 255 if register else None


def quiet(command):
    """Run a gdb command without its output; a failure, in a gdb that does not know it, is ignored."""
    try:
        gdb.execute(command, to_string=True)
    except gdb.error:
        pass
