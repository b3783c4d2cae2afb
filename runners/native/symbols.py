"""Phases from the entry and return of functions of an unmodified program: run by gdb's own Python, never imported.

The contract. gdb is started as `gdb -nx -batch -ex "python MEMPROF = '...'" -x symbols.py --args CMD ARGS`, where the string is JSON:
{"phases": [[PHASE, NAME, [SYMBOL, ...]], ...], "elf": PATH}. NAME is the function as the user wrote it, SYMBOL the linker's name of one
that is known already; where there is none, each program and library that is loaded is searched by memprof's elf.py, which lies at PATH.
Lines go where MEMPROF_MARKS says, in the words of marks.py, each with the id of the process it is about, and one kind more:

    {"mark": "program", "pid"}      this is the program that gdb has started; what was looked at so far was gdb itself

One phase is one call; a further call of the function is the same phase once more. Where calls overlap (several threads, recursion) the
phase lasts from the first entry to the last return, and the durations of the calls that were not made within another go along as its
iterations. The first process that enters one of the functions is the one that is measured; before that it is in STARTUP.

The program stands still, all threads of it, while its high-water mark is reset and read. What gdb needs to stop and to continue lies inside the
interval that can be seen from here; it is measured at the program's start and taken off. gdb's own FinishBreakpoint is made anew for each call,
loses the ones it cannot return to, and leaks; instead each return address has a breakpoint that stays, and a frame is known by the stack
pointer that its caller has afterwards. Stdlib only, Python 3.6 and later; seen with gdb 13.1.
"""

import json
import os
import sys
import time

import gdb

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from marks import Marks, bytes_read, read_status, reset_high_water, shares  # noqa: E402

_SETTINGS = (
    "pagination off",
    "confirm off",
    "auto-load off",
    "debuginfod enabled off",  # gdb 12 and later
    "suppress-cli-notifications on",  # gdb 12 and later
    "print thread-events off",
    "print inferior-events off",
    "disable-randomization off",  # the probe's affair
    "breakpoint pending on",
    "breakpoint always-inserted on",
    "detach-on-fork off",
    "schedule-multiple on",
    "follow-fork-mode parent",
)
# Where the stack is cut down without a return. The SDT probes that glibc has for it would need more of gdb than older ones offer.
_JUMPS = ("longjmp", "_longjmp", "siglongjmp", "__longjmp_chk", "__libc_siglongjmp", "__libc_longjmp")
_CATCHES = ("__cxa_begin_catch",)
_ENDS = ("_exit",)
_FRAMES = 2000  # the deepest stack that is walked to see whether a call still lies on it
_SHARES_APART = 50  # times as long between two readings of PSS as one takes, which is milliseconds for a large process
_STEPS = 6
_SHELLS = ("sh", "dash", "bash", "ksh", "mksh", "zsh", "fish", "busybox", "env")
_FIRST_ARGUMENT = {"i386:x86-64": "rdi", "aarch64": "x0", "arm": "r0", "riscv": "a0"}


class Call:
    """One call of a phase's function that has not returned. level: the stack pointer its caller has after the return."""

    def __init__(self, phase, thread, level, address, outermost):
        self.phase, self.thread, self.level, self.address, self.outermost = phase, thread, level, address, outermost
        self.begin_ns = 0
        self.left = None  # the process at a longjmp that may have ended this call


class Phase:
    """A phase: its function, and what is known of it while it runs."""

    def __init__(self, name, symbol, known):
        self.name, self.symbol, self.known = name, symbol, known
        self.calls = []
        self.count = 0
        self.times_ns = []
        self.shares_ns = self.shared_ns = 0

    def open(self, process):
        self.begin_ns, self.peak, self.times_ns = 0, 0, []
        self.before, self.reset, self.counters = process.status, process.reset, counters(process.pid)


class Look:
    """A process as it is at a stop: when it was stopped, what it holds, and whether its high-water mark is reset there."""

    def __init__(self, pid, now_ns):
        self.pid, self.now_ns, self.reset = pid, now_ns, False
        self.status = read_status(pid)


class Tracer:
    """Follows the calls of the phases' functions and says what they cost."""

    def __init__(self, phases):
        self.marks = Marks()
        self.phases = [Phase(*phase) for phase in phases]
        self.returns = {}
        self.measured = None
        self.highest = 0
        self.handling_ns = 0
        self.notes = []
        self.foreign = 0

    # -- what a stop means

    def entered(self, phase, now_ns):
        """A phase's function was entered."""
        thread = here()
        if self.measured is None:
            self._startup(thread[0])
        if thread[0] != self.measured:
            self.foreign += 1
            return
        caller = physical(gdb.newest_frame()).older()
        address, level = caller.pc(), int(caller.read_register("sp"))
        self._settle(thread, level, now_ns, address)
        inferior = gdb.selected_inferior().num
        if (inferior, address) not in self.returns:
            self.returns[inferior, address] = Return(self, address)
        call = Call(phase, thread, level, address, not any(other.thread == thread for other in phase.calls))
        phase.count += call.outermost
        if not phase.calls:
            process = self._fold(Look(thread[0], now_ns))
            process.reset = reset_high_water(thread[0])
            phase.open(process)
            self.marks.write({"mark": "begin", "pid": thread[0], "phase": phase.name, "t_ns": now_ns})
        phase.calls.append(call)
        call.begin_ns = time.monotonic_ns()
        phase.begin_ns = phase.begin_ns or call.begin_ns

    def returned(self, address, now_ns):
        """Somebody came by an address where a call returns to."""
        thread = here()
        if thread[0] != self.measured:
            return
        level = int(gdb.newest_frame().read_register("sp"))
        for phase in self.phases:
            for call in [call for call in phase.calls if call.thread == thread]:
                if call.level == level and call.address == address:
                    self._end(call, Look(thread[0], now_ns))
                elif call.level <= level:
                    self._abandon(call, now_ns)

    def jumped(self, now_ns):
        """A longjmp begins: what lies beyond its target will never return, but from here it cannot be seen how far that is."""
        thread = here()
        calls = [call for phase in self.phases for call in phase.calls if call.thread == thread]
        if calls:
            left = self._fold(Look(thread[0], now_ns))
            for call in calls:
                call.left = call.left or left

    def caught(self, now_ns):
        """An exception was caught: calls beyond the frame that caught it are over."""
        thread = here()
        caller = physical(gdb.newest_frame()).older()
        if any(call.thread == thread for phase in self.phases for call in phase.calls) and caller is not None:
            self._settle(thread, int(caller.read_register("sp")), now_ns)

    def ending(self, now_ns):
        """The process is about to end, with its memory still there."""
        pid = here()[0]
        if pid != self.measured:
            return
        if made_marks():
            self._note("the program's own marks (memprof.h) were not heeded: with --phase its phases are functions alone")
        for phase in self.phases:
            for call in list(phase.calls):
                if call.thread == here() and call.left is not None and not self._on_stack(call):
                    self._abandon(call, now_ns)
                elif not alive(call.thread):
                    self._abandon(call, now_ns)
        if exit_code() not in (0, None):
            return  # it failed in the phase: that is how the phase is to stay
        for phase in self.phases:
            for call in list(phase.calls):
                self._note("%s: %s never returned, the program ended inside it" % (phase.name, phase.symbol))
                self._end(call, Look(pid, now_ns))

    # -- calls

    def _settle(self, thread, level, now_ns, address=None):
        """End calls of this thread that cannot return any more, now that its stack ends at this level, and those of threads that ended.

        address: where a call that begins now returns to; one that has the same address and level has called it in its own place (a tail
        call), and both return together.
        """
        for phase in self.phases:
            for call in list(phase.calls):
                if call.thread != thread:
                    if not alive(call.thread):
                        self._abandon(call, now_ns)
                elif call.left is None and (call.level, call.address) == (level, address):
                    continue
                elif call.level <= level or (call.left is not None and not self._on_stack(call)):
                    self._abandon(call, now_ns)

    def _abandon(self, call, now_ns):
        how = "by longjmp" if call.left is not None else "by an exception or the end of its thread"
        self._note("%s: %s was left %s instead of returning" % (call.phase.name, call.phase.symbol, how))
        self._end(call, call.left or Look(call.thread[0], now_ns))

    @staticmethod
    def _on_stack(call):
        frame = gdb.newest_frame()
        for _ in range(_FRAMES):
            if frame is None or not frame.is_valid():
                return False
            if frame.pc() == call.address and int(frame.read_register("sp")) == call.level:
                return True
            frame = frame.older()
        return True

    def _end(self, call, process):
        phase = call.phase
        phase.calls.remove(call)
        self._fold(process)
        if call.outermost:
            phase.times_ns.append(max(process.now_ns - call.begin_ns - self.handling_ns, 0))
        if not phase.calls:
            self._close(phase, process)

    def _fold(self, process):
        """Keep the high-water mark for every phase that runs: it may be reset next."""
        hwm = process.status.get("hwm", 0)
        self.highest = max(self.highest, hwm)
        for phase in self.phases:
            if phase.calls:
                phase.peak = max(phase.peak, hwm)
        return process

    def forget(self):
        """Where calls return to means nothing any more in a process that has become another program, nor do its calls."""
        inferior = gdb.selected_inferior()
        if not inferior.pid or inferior.pid != self.measured:
            return
        for key in [key for key in self.returns if key[0] == inferior.num]:
            self.returns.pop(key).delete()
        for phase in self.phases:
            for call in list(phase.calls):
                self._note("%s: %s never returned, the program became another one inside it" % (phase.name, phase.symbol))
                self._end(call, Look(call.thread[0], time.monotonic_ns()))

    # -- lines

    def _startup(self, pid):
        self.measured = pid
        # What it starts from here on is not looked at: it runs as it would without gdb, and the addresses that calls return to are none of its.
        quiet("set detach-on-fork on")
        process = self._fold(Look(pid, time.monotonic_ns()))
        begin_ns = started_ns(pid)
        self.marks.write({"mark": "begin", "pid": pid, "phase": "STARTUP", "t_ns": begin_ns})
        line = {"mark": "end", "pid": pid, "phase": "STARTUP", "begin_ns": begin_ns, "end_ns": max(process.now_ns, begin_ns)}
        zero = {"hwm_reset": True, "hwm_begin_bytes": 0, "rss_begin_bytes": 0}
        line.update(zero, **figures(process, process.status.get("hwm"), self.highest, (0, 0, 0, 0)))
        line.update(shares(pid))
        self.marks.write(line)
        self.say_about()

    def _close(self, phase, process):
        end_ns = max(process.now_ns - self.handling_ns, phase.begin_ns)
        pid = process.pid
        if len(phase.times_ns) > 1:
            for start in range(0, len(phase.times_ns), 100):
                self.marks.write({"mark": "times", "pid": pid, "phase": phase.name, "times_ns": phase.times_ns[start : start + 100]})
        line = {"mark": "end", "pid": pid, "phase": phase.name, "begin_ns": phase.begin_ns, "end_ns": end_ns, "hwm_reset": phase.reset}
        line["hwm_begin_bytes"], line["rss_begin_bytes"] = phase.before.get("hwm", 0), phase.before.get("rss", 0)
        line.update(figures(process, max(phase.peak, process.status.get("hwm", 0)), self.highest, phase.counters))
        line.update(self._shares(phase, process))
        self.marks.write(line)

    @staticmethod
    def _shares(phase, process):
        # Only of a process that is where the phase ended, and not at each of many short calls.
        now_ns = time.monotonic_ns()
        if now_ns - phase.shared_ns < _SHARES_APART * phase.shares_ns:
            return {}
        found = shares(process.pid)
        phase.shared_ns = time.monotonic_ns()
        phase.shares_ns = phase.shared_ns - now_ns
        return found

    def _note(self, sentence):
        if sentence not in self.notes:
            self.notes.append(sentence)

    def say_about(self):
        """Say what a reader of these figures must know."""
        handling = "phases from symbols: gdb stops the program at each entry and return; %.2f ms of that lay inside a call's time " % (
            self.handling_ns / 1e6
        )
        notes = [handling + "and were taken off", *self.notes]
        if self.foreign:
            notes.append("%d call(s) in processes other than the measured one were left out" % self.foreign)
        line = {"mark": "about", "runtime_version": "", "python_version": "", "notes": notes}
        if not self.marks.write(dict(line, pid=self.measured)):
            self.marks.write(dict(line, pid=self.measured, notes=[note[:300] for note in notes[:5]]))

    def refuse(self, sentence, pid, phase="STARTUP"):
        """Say why there is nothing to measure, or no such phase."""
        for most in (2500, 800, 200):
            if self.marks.write({"mark": "error", "pid": pid, "phase": phase, "kind": "refused", "message": sentence[:most]}):
                return


# -- breakpoints


class _Stop(gdb.Breakpoint):
    """A place where the program is stopped for as long as it takes to look at it."""

    def __init__(self, tracer, location):
        super(_Stop, self).__init__(location, internal=True)
        self.silent = True
        self.tracer = tracer

    def stop(self):
        now_ns = time.monotonic_ns()
        try:
            self.reached(now_ns)
        except (gdb.error, gdb.MemoryError) as error:
            self.tracer._note("gdb: %s" % error)
        return False


class Entry(_Stop):
    def __init__(self, tracer, phase, symbol):
        self.phase = phase
        super(Entry, self).__init__(tracer, "-qualified -function " + symbol)

    def reached(self, now_ns):
        self.tracer.entered(self.phase, now_ns)


class Return(_Stop):
    def __init__(self, tracer, address):
        self.address = address
        super(Return, self).__init__(tracer, "*%d" % address)

    def reached(self, now_ns):
        self.tracer.returned(self.address, now_ns)


class Jump(_Stop):
    def reached(self, now_ns):
        self.tracer.jumped(now_ns)


class Catch(_Stop):
    def reached(self, now_ns):
        self.tracer.caught(now_ns)


class End(_Stop):
    def reached(self, now_ns):
        self.tracer.ending(now_ns)


class Step(_Stop):
    """One of the places in a row at which `handling` is measured; the last of them stops the program for good."""

    def __init__(self, tracer, address, steps):
        self.steps = steps
        super(Step, self).__init__(tracer, "*%d" % address)

    def stop(self):
        now_ns = time.monotonic_ns()
        if self.steps:
            gap_ns = now_ns - self.steps[-1]
            self.tracer.handling_ns = min(self.tracer.handling_ns or gap_ns, gap_ns)
        self.steps.append(time.monotonic_ns())
        return len(self.steps) == _STEPS


# -- a process


def here():
    """(process id, thread id) of what was stopped."""
    pid, thread, _ = gdb.selected_thread().ptid
    return pid, thread


def physical(frame):
    """The frame of a function that was really called: what lies within it may be inlined from its first instruction on."""
    while frame.type() == gdb.INLINE_FRAME:
        frame = frame.older()
    return frame


def alive(thread):
    return os.path.exists("/proc/%d/task/%d" % thread)


def started_ns(pid):
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


def figures(process, hwm, highest, before):
    """A phase's figures where it ended, under the names of its line."""
    status, now = process.status, counters(process.pid)
    minor, major, read, cpu_ns = (max(after - then, 0) for after, then in zip(now, before))
    found = {"hwm_phase_bytes": hwm, "hwm_bytes": highest or None, "vms_peak_bytes": status.get("vms_peak")}
    found.update({"minor_faults": minor, "major_faults": major, "read_bytes": read if now[2] >= 0 else None, "cpu_ns": cpu_ns})
    for name in ("rss", "anon", "file", "shmem", "swap", "vms"):
        found[name + "_end_bytes"] = status.get(name)
    return {name: value for name, value in found.items() if value is not None}


def made_marks():
    """Whether memprof_enter of memprof.h was called: it looks once whether somebody listens, and `looked` is its state's first field."""
    try:
        return int(gdb.parse_and_eval("*(int *)&memprof_state_")) != 0
    except (gdb.error, gdb.MemoryError):
        return False


def exit_code():
    """What a process that has just called _exit ends with, None on machines whose first argument register is not known here."""
    frame = gdb.newest_frame()
    machine = frame.architecture().name()
    register = next((name for start, name in _FIRST_ARGUMENT.items() if machine.startswith(start)), None)
    return int(frame.read_register(register)) & 255 if register else None


# -- the whole


def main(order):
    """Run the program under the tracer; the return value is this process's exit code."""
    for setting in _SETTINGS:
        quiet("set " + setting)
    quiet("maintenance set target-non-stop off")  # or the other threads would run on while one is looked at
    quiet("handle all nostop noprint pass")
    quiet("handle SIGINT nostop noprint pass")
    for name in ("LINES", "COLUMNS", "MEMPROF_MARKS"):
        quiet("unset environment " + name)
    os.environ["SHELL"] = "/bin/sh"  # which gdb starts the program with (without one it would not heed quotes), not what the program sees
    tracer = Tracer(order["phases"])
    try:
        gdb.execute("starti", to_string=True)
        root = gdb.selected_inferior().pid
        if not root:
            raise gdb.error("it ended before it began")
    except gdb.error as error:
        tracer.refuse("gdb could not start the program: %s" % error, os.getpid())
        return 1
    silence()
    tracer.marks.write({"mark": "program", "pid": root})
    codes = {}
    gdb.events.exited.connect(lambda event: codes.setdefault(event.inferior.num, getattr(event, "exit_code", None)))
    entries = [Entry(tracer, phase, symbol) for phase in tracer.phases for symbol in phase.known]
    libraries = Libraries(tracer, entries, load_module(order["elf"]))
    gdb.events.new_objfile.connect(libraries.loaded)
    for kind, names in ((Jump, _JUMPS), (Catch, _CATCHES), (End, _ENDS)):
        for name in names:
            kind(tracer, "-qualified -function " + name)
    measure_handling(tracer)
    quiet("catch exec")
    while resume():
        libraries.look()
        tracer.forget()
    return finish(tracer, root, codes.get(1), libraries)


def resume():
    """Let what is there run until it stops for a reason of gdb's own; False once nothing is left."""
    living = [inferior for inferior in gdb.inferiors() if inferior.pid]
    if not living:
        return False
    if not gdb.selected_inferior().pid:
        quiet("inferior %d" % living[0].num)
    try:
        gdb.execute("continue", to_string=True)
    except gdb.error as error:
        os.write(_said, ("gdb: %s\n" % error).encode("utf-8", "replace"))
        return False
    return True


def load_module(path):
    """The module in a file of memprof's own."""
    from importlib import util

    spec = util.spec_from_file_location("memprof_elf", path)
    module = util.module_from_spec(spec)
    sys.modules["memprof_elf"] = module
    spec.loader.exec_module(module)
    return module


class Libraries:
    """Looks for functions that are not known yet in each library as it is loaded."""

    def __init__(self, tracer, entries, elf):
        self.tracer, self.entries, self.elf = tracer, entries, elf
        self.files = {}
        self.shells = set()  # files that a shell has loaded: it only starts the program, and its names are no suggestions

    def missing(self):
        """Phases whose function has not been found."""
        return [phase for phase in self.tracer.phases if not phase.known]

    def loaded(self, event):
        """A library was loaded. A program that was just started is not at its place yet: that is for `look`, at the stop that follows."""
        if event.new_objfile.filename != event.new_objfile.progspace.filename:
            self._read(event.new_objfile)

    def look(self):
        """Look at everything that is loaded where the program has stopped."""
        for objfile in gdb.objfiles() if self.missing() else ():
            self._read(objfile)

    def _read(self, objfile):
        missing, path = self.missing(), objfile.filename
        if not missing or not path or path in self.files:
            return
        self.files[path] = found = self.elf.read(path)
        if os.path.basename(os.path.realpath(objfile.progspace.filename or "")) in _SHELLS:
            self.shells.add(path)
        for phase in missing if found else ():
            phase.known = self.elf.matching(phase.symbol, found.functions)
            self.entries += [Entry(self.tracer, phase, symbol) for symbol in phase.known]

    def sentence(self, symbol):
        """A sentence about a function that none of them has, with names that are close."""
        own = [file for path, file in self.files.items() if file and path not in self.shells and not self.elf.is_system(path)]
        near = self.elf.suggestions(symbol, (name for file in own for name in file.functions))
        hint = "; did you mean %s?" % " or ".join(near) if near else "; it may be stripped, or inlined everywhere"
        return "there is no function %s in the program or a library it has loaded%s" % (symbol, hint)


def finish(tracer, root, code, libraries):
    """Say what is left to say when the program has ended; the exit code to end with."""
    number = None if code is not None else _convenience("$_exitsignal")
    missing = libraries.missing()
    if missing:
        tracer.refuse("; ".join(libraries.sentence(phase.symbol) for phase in missing), tracer.measured or root)
        return 1
    tracer.measured = tracer.measured or root
    tracer.say_about()
    idle = [phase for phase in tracer.phases if not phase.count]
    if idle and code == 0:
        sentence = "%s is there, but it was never entered (it may have been inlined where it is called)"
        tracer.refuse("; ".join(sentence % phase.symbol for phase in idle), tracer.measured, idle[0].name)
        return 1
    if code == 0:
        tracer.marks.write({"mark": "done", "pid": tracer.measured})
    return code if code is not None else 128 + (number or 0)


def measure_handling(tracer):
    """How long after a stop's last look the next stop's first one comes when the program does next to nothing in between.

    Seen from the first instructions of the loader, every second of which is stopped at. The shortest is taken: no call may become
    shorter than it was. Where these instructions are not in a row the program simply runs on, and nothing is taken off.
    """
    for _ in range(3):
        quiet("stepi")
    steps = []
    try:
        frame = gdb.newest_frame()
        places = [line["addr"] for line in frame.architecture().disassemble(frame.pc(), count=2 * _STEPS)]
        made = [Step(tracer, place, steps) for place in places[1::2]]
    except (gdb.error, gdb.MemoryError):
        return
    resume()
    for step in made:
        step.delete()


def quiet(command):
    """A gdb command whose talk nobody needs, nor its failure in a gdb that does not know it."""
    try:
        gdb.execute(command, to_string=True)
    except gdb.error:
        pass


def silence():
    """What gdb says from here on goes nowhere; the program has its own copies of the descriptors."""
    gdb.flush()
    empty = os.open(os.devnull, os.O_WRONLY)
    os.dup2(empty, 1)
    os.dup2(empty, 2)


def _convenience(name):
    try:
        return int(gdb.parse_and_eval(name))
    except (gdb.error, ValueError, TypeError):
        return None


_said = os.dup(2)
try:
    _code = main(json.loads(MEMPROF))  # noqa: F821
except Exception as _error:  # gdb would print a traceback, go on and end with code 0
    import traceback

    os.write(_said, traceback.format_exc().encode("utf-8", "replace"))
    _code = 1
for _inferior in gdb.inferiors():
    if _inferior.pid:
        try:
            os.kill(_inferior.pid, 9)
        except OSError:
            pass
os._exit(_code)
