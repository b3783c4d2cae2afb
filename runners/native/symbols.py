"""Phases from the entry and return of functions of an unmodified program: run by gdb's own Python, never imported.

The contract. gdb is started as `gdb -nx -batch -ex "python MEMPROF = '...'" -x symbols.py --args CMD ARGS`, where the string is JSON:
{"phases": [[PHASE, NAME, [SYMBOL, ...]], ...], "elf": PATH}. NAME is the function as the user wrote it, SYMBOL the linker's name of a function
that is known already; without any, each program and library that is loaded is searched by memprof's elf.py, which lies at PATH.
Lines go where MEMPROF_MARKS says, in the words of memprof_marks.py, each with the id of the process it is about, and two kinds more:

    {"mark": "program", "pid"}      this is the program that gdb has started; samples from before are of gdb itself
    {"mark": "say", "pid", "text"}  a sentence for the user to read now

The first "end" of a phase has "first": true. With MEMPROF_HOLD=1 gdb stops itself after that line (SIGSTOP), with the program at its breakpoint, and
both go on when gdb is sent SIGCONT.

A phase is a call; a further call of the function is the same phase again. If calls overlap (several threads, recursion) the phase lasts from the
first entry to the last return, and the durations of the outermost calls are its iterations. The first process that enters any of the functions
is measured; before that it is in STARTUP.

The program stands still, all threads of it, while its high-water mark is reset and read. The time that gdb needs to stop and to continue lies
inside the interval that can be seen from here; it is measured at the program's start and taken off. gdb's own FinishBreakpoint is made again for
each call, loses calls that never return, and leaks; instead each return address has a breakpoint that stays, and a frame is known by the
stack pointer that its caller has afterwards. calls.py follows the calls, and traced.py looks at the process; this file starts the program, finds
its functions, and tells its end. Stdlib only, Python 3.6 and later; seen with gdb 13.1.
"""

import json
import os
import sys

import gdb

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [_HERE, os.path.dirname(_HERE)]

from calls import Catch, End, Entry, Jump, Step, Tracer  # noqa: E402
from traced import exit_codes, note_arrival, quiet, resume  # noqa: E402

_SETTINGS = (
    "pagination off",
    "confirm off",
    "auto-load off",
    "debuginfod enabled off",  # gdb 12 and later
    # No debug packages of libraries: functions are found by the symbols of the loaded files, and each program would wait for libc's DWARF to be read.
    "debug-file-directory",
    "suppress-cli-notifications on",  # gdb 12 and later
    "print thread-events off",
    "print inferior-events off",
    "disable-randomization off",  # the recorder's affair
    "backtrace past-main on",  # main returns too
    "breakpoint pending on",
    "breakpoint always-inserted on",
    "detach-on-fork off",
    "schedule-multiple on",
    "follow-fork-mode parent",
)
# Where the stack is cut down without a return. The SDT probes that glibc has for it would need a newer gdb.
_JUMPS = ("longjmp", "_longjmp", "siglongjmp", "__longjmp_chk", "__libc_siglongjmp", "__libc_longjmp")
_CATCHES = ("__cxa_begin_catch",)
_ENDS = ("_exit",)
_STEPS = 6
_SHELLS = ("sh", "dash", "bash", "ksh", "mksh", "zsh", "fish", "busybox", "env")


def main(order):
    """Run the program under the tracer; the return value is this process's exit code."""
    for setting in _SETTINGS:
        quiet("set " + setting)
    quiet("maintenance set target-non-stop off")  # or the other threads would run on while a thread is looked at
    quiet("handle all nostop noprint pass")
    quiet("handle SIGINT nostop noprint pass")
    # gdb's own sizes of a terminal, what only the tracer writes to, and its claim to be the process that holds a ballast.
    for name in ("LINES", "COLUMNS", "MEMPROF_MARKS", "MEMPROF_BALLAST_HOLDER"):
        quiet("unset environment " + name)
    os.environ["SHELL"] = (
        "/bin/sh"  # gdb starts the program with it (without a shell it would not heed quotes); the program sees its own SHELL
    )
    elf = load_module(order["elf"])
    tracer = Tracer(order["phases"], elf)
    note_arrival(gdb.selected_inferior())
    gdb.events.new_inferior.connect(lambda event: note_arrival(event.inferior))
    gdb.events.new_thread.connect(silence)
    try:
        gdb.execute("starti", to_string=True)
        root = gdb.selected_inferior().pid
        if not root:
            raise gdb.error("it ended before it began")
    except gdb.error as error:
        tracer.refuse("gdb could not start the program: %s" % error, os.getpid())
        return 1
    tracer.marks.write({"mark": "program", "pid": root})
    gdb.events.exited.connect(lambda event: exit_codes.setdefault(event.inferior.num, getattr(event, "exit_code", None)))
    entries = [Entry(tracer, phase, symbol) for phase in tracer.phases for symbol in phase.known]
    libraries = Libraries(tracer, entries, elf)
    gdb.events.new_objfile.connect(libraries.loaded)
    for kind, names in ((Jump, _JUMPS), (Catch, _CATCHES), (End, _ENDS)):
        for name in names:
            kind(tracer, "-qualified -function " + name)
    measure_handling(tracer)
    quiet("catch exec")
    while resumed():
        libraries.look()
        tracer.forget()
    return finish(tracer, root, exit_codes.get(1), libraries)


def resumed():
    """Let the processes run until gdb itself stops them; False once none is left, or gdb refuses, which it then says."""
    try:
        return resume()
    except gdb.error as error:
        os.write(_stderr, ("gdb: %s\n" % error).encode("utf-8", "replace"))
        return False


def load_module(path):
    """The module in a file of memprof."""
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
        self.hierarchy = {}  # the bases of each class, for virtual functions that only a header shows
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
        self.files[path] = file = self.elf.read(path)
        if os.path.basename(os.path.realpath(objfile.progspace.filename or "")) in _SHELLS:
            self.shells.add(path)
        if file and not self.elf.is_system(path):
            self.hierarchy.update(self.elf.bases(path))
        for phase in missing if file else ():
            phase.known = self.elf.matching(phase.symbol, file.functions)
            phase.known = phase.known or self.elf.overrides(phase.symbol, self.hierarchy, file.functions)
            self.entries += [Entry(self.tracer, phase, symbol) for symbol in phase.known]

    def sentence(self, symbol, failed):
        """A sentence about a function that no loaded file has, with names that are close. failed: the words for how the program failed, if it did."""
        own = [file for path, file in self.files.items() if file and path not in self.shells and not self.elf.is_system(path)]
        near = self.elf.suggestions(symbol, (name for file in own for name in file.functions))
        hint = "; did you mean %s?" % " or ".join(near) if near else ""
        if failed:  # it may have ended before it loaded the library that has the function
            return "the program failed with %s, and there is no function %s in what it had loaded until then%s" % (failed, symbol, hint)
        hint = hint or "; it may be stripped, or inlined everywhere: %s" % self.elf.NOT_INLINED
        return "there is no function %s in the program or a library it has loaded%s" % (symbol, hint)


def finish(tracer, root, code, libraries):
    """Write the last marks when the program has ended; returns the exit code to end with."""
    number = None if code is not None else _convenience("$_exitsignal")
    missing = libraries.missing()
    if missing:
        failed = "" if code == 0 else "signal %s" % number if code is None else "exit code %d" % code
        tracer.refuse("; ".join(libraries.sentence(phase.symbol, failed) for phase in missing), tracer.measured or root)
        return 1
    tracer.measured = tracer.measured or root
    tracer.say_about()
    idle = [phase for phase in tracer.phases if not phase.count]
    if idle and code == 0:
        reasons = {
            True: "it is inlined where it is called",
            False: "the program does not call it in this run, or it is inlined where it is called",
        }
        sentences = ["%s is there, but it was never entered (%s)" % (phase.symbol, reasons[phase.inlined]) for phase in idle]
        tracer.refuse("%s: %s" % ("; ".join(sentences), libraries.elf.NOT_INLINED), tracer.measured, idle[0].name)
        return 1
    if code == 0:
        tracer.marks.write({"mark": "done", "pid": tracer.measured})
    return code if code is not None else 128 + (number or 0)


def measure_handling(tracer):
    """Measure the time from a stop's last look to the next stop's first look, while the program does next to nothing in between.

    Measured at the first instructions of the loader: the program stops at every second of them. The shortest time is taken, so that no call
    becomes shorter than it was. If these instructions do not run in a row, the program simply runs on, and nothing is taken off.
    """
    for _ in range(3):
        quiet("stepi")
    steps = []
    try:
        frame = gdb.newest_frame()
        places = [line["addr"] for line in frame.architecture().disassemble(frame.pc(), count=2 * _STEPS)]
        breakpoints = [Step(tracer, place, steps, _STEPS) for place in places[1::2]]
    except (gdb.error, gdb.MemoryError):
        return
    resumed()
    for step in breakpoints:
        step.delete()


def silence(_):
    """Drop gdb's output from the program's first thread on: the program has been forked, and has its own copies of the descriptors.

    Of the first stop gdb 13.1 says `Program stopped.`, whatever it is asked to leave out, and that would be taken for the program's last words.
    """
    gdb.events.new_thread.disconnect(silence)
    gdb.flush()
    empty = os.open(os.devnull, os.O_WRONLY)
    os.dup2(empty, 1)
    os.dup2(empty, 2)


def _convenience(name):
    try:
        return int(gdb.parse_and_eval(name))
    except (gdb.error, ValueError, TypeError):
        return None


_stderr = os.dup(2)
try:
    _code = main(json.loads(MEMPROF))  # noqa: F821
except Exception as _error:  # gdb would print a traceback, go on and end with code 0
    import traceback

    os.write(_stderr, traceback.format_exc().encode("utf-8", "replace"))
    _code = 1
for _inferior in gdb.inferiors():
    if _inferior.pid:
        try:
            os.kill(_inferior.pid, 9)
        except OSError:
            pass
os._exit(_code)
