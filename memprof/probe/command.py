"""Measures any program, with all that it starts: what a phase is comes from marks, else from lines it prints, else there is one, RUN.

A program of its own owes memprof nothing: it says no "done", and its exit code alone tells how it ended. What it says twice or not at all is
put right as far as it can be, and said in the warnings.

`start["command"]` of the probe's line:

    {"regexes": [[PHASE, REGEX]], "alone": BOOL}

regexes: a line of output that matches ends that phase; it began where the one before it ended, or with the program. alone: what was started
is only there to start another (a debugger): the process that speaks first is the root of the tree, and what was seen before is dropped.
"""

import os
import time

from . import child, procfs, wire
from .timeline import Timeline
from .tree import Tree

_VALUES = 4000  # kept; beyond them each name's are thinned to the extremes of neighbours
_LINE = 4096  # a longer line of output is matched in pieces
_ELF = {2: "SPARC", 3: "x86 (32-bit)", 8: "MIPS", 20: "PowerPC", 21: "PowerPC 64", 22: "S390", 40: "ARM (32-bit)", 62: "x86-64"}
_ELF.update({183: "AArch64", 243: "RISC-V", 258: "LoongArch"})  # e_machine in elf.h


class Command(child.Measurement):
    """One program from its start to its end. The timeline is that of the tree's sum."""

    def __init__(self, start, timeout_ns, intervals, live, hold=None):
        super().__init__(start, timeout_ns, intervals, live, hold)
        self._alone = bool(start["command"].get("alone"))
        self._regexes = _compiled(start["command"].get("regexes", ()))
        self._tree = None
        self._own = None  # the timeline of the measured process and those below it, where it is not the one that was started
        self._strays = []
        self._others = {}
        self._ended_in = {}  # phase: the processes in which it has ended
        self._line = b""
        self._line_mark = None
        self._unmatched = [name for name, _ in self._regexes]
        self._used = None
        self._opened = {}
        self._marks_closed = None
        self._end_ns = 0

    # -- starting

    def _launch(self):
        if self._regexes:
            self._start["env"].setdefault("TERM", "dumb")
        if not super()._launch():
            self.outcome["message"] = _why_not(self._start, self.outcome["message"])
            return False
        self._tree = Tree(self.pid, time.monotonic_ns(), os.getpid())
        if self._regexes:
            self._line_mark = _Outside(self.pid, self._begin_ns, fresh=True)
            self._phase = self._unmatched[0]
        return True

    def _output_pipe(self):
        if not self._regexes:
            return super()._output_pipe()
        # To a pipe the C library writes whole blocks, and each line would arrive with the last one. To a terminal it writes lines.
        read, write = os.openpty()
        return read, write

    # -- following

    def _sample(self, now):
        values = self._tree.poll(now)
        if self._phase and self._tree.most == 1 and child.late(now):  # a look at several processes takes its time
            return None
        inside = self._tree.inside
        if inside is not None and self._own is not None:
            self._own.add(now, *inside)
        return values

    def _highest(self, begin_ns, end_ns):
        return (self._own or self.timeline).highest(begin_ns, end_ns)

    def _reaped(self, pid, status, used):
        super()._reaped(pid, status, used)
        if pid == self.pid:
            self._end_ns, self._used = time.monotonic_ns(), used
        else:
            self._tree.reaped(pid)

    def _marked(self):
        super()._marked()
        if self._marks_read not in self._watched and self._marks_closed is None:
            # A process that ends closes its descriptors too, but only when its memory has gone.
            self._marks_closed = "rss" in procfs.status(self.measured)

    def _take_line(self, line):
        try:
            mark = wire.loads(line.decode("utf-8"))
            kind, pid = mark["mark"], mark["pid"]
            if pid != self.measured and kind != "value":
                if not self._takes_over(kind, pid):
                    self._others[pid] = self._others.get(pid) or procfs.name(pid)
                    return
                self._measure(pid)
            getattr(self, "_mark_" + kind)(mark)
        except Exception:  # whatever a program may write there
            self._foreign += 1

    def _takes_over(self, kind, pid):
        """Whether another process is the one to measure from here on: it speaks first, or speaks after the one before has ended."""
        nobody = self._line_mark is not None or not (self.marks or self._phase)
        return kind in ("begin", "program") and (nobody or (not self._phase and procfs.parent(self.measured) is None))

    def _measure(self, pid):
        ancestor = pid
        while ancestor not in (self.measured, self.pid, os.getpid()):
            ancestor = procfs.parent(ancestor)  # as in the class above: a process that is none of the child's ends here
        self._tree.add(pid, time.monotonic_ns())
        self._tree.measure(pid, self._alone)
        self.measured = pid
        if self._alone:
            self.timeline, self._alone = Timeline(), False
        self._own = None if self._tree.whole else Timeline()

    def _mark_begin(self, mark):
        if self._line_mark is not None:
            self._line_mark, self.marks, self._regexes, self._phase = None, [], (), ""
            self.warnings.append("its phases came by marks or by functions: what it prints was not searched for them")
        phase = child._word(mark["phase"])
        if phase in self._open:
            self._strays.append("%s was begun again before it had ended: it is counted from there" % phase)
            self._open.remove(phase)
        self._opened[phase] = child._count(mark["t_ns"])
        super()._mark_begin(mark)

    def _mark_end(self, mark):
        super()._mark_end(mark)
        self._ended_in.setdefault(child._word(mark["phase"]), set()).add(mark["pid"])

    def _keep(self, record):
        if self._tree.had_others(record["begin_ns"], record["end_ns"]):
            record["rss_peak_exact"] = False  # each process has a high-water mark, their sum has none
        super()._keep(record)

    def _mark_stray(self, mark):
        phase = child._word(mark["phase"] or "?")
        if mark["what"] == "begin":
            self._strays.append("%s had not ended when the next phase began: it ends there" % phase)
        else:
            self._strays.append("a phase was ended where none had begun%s" % (" (after %s)" % phase if mark["phase"] else ""))

    def _mark_say(self, mark):
        child.say("say %s\n" % " ".join(child._text(mark["text"]).split())[:1000])

    def _mark_value(self, mark):
        number = mark["value"]
        if isinstance(number, bool) or not isinstance(number, (int, float)) or number - number != 0:
            raise ValueError("no number")
        value = {"name": child._word(mark["name"]), "t_ns": child._count(mark["t_ns"]), "value": number}
        if self._phase:
            value["phase"] = self._phase
        self.values.append(value)
        if len(self.values) > _VALUES:
            self.values = _thinned(self.values)

    # -- what it prints

    def _heard(self, data):
        if self._line_mark is None:
            return
        now = time.monotonic_ns()
        *lines, self._line = (self._line + data).replace(b"\r", b"\n").split(b"\n")
        if len(self._line) > _LINE:
            lines.append(self._line)
            self._line = b""
        for line in lines:
            text = line.decode("utf-8", "replace")
            for phase, regex in self._regexes:
                if regex.search(text):
                    self._line_ends(phase, now)
                    break

    def _line_ends(self, phase, now):
        pid = self.measured
        seen = self._highest(self._line_mark.begin_ns, now)
        record = self._line_mark.ended(phase, now, seen, self.polls - self._polls_begin, self._intervals[""])
        self._keep(record)
        self._polls_begin = self.polls
        if phase in self._unmatched:
            self._unmatched.remove(phase)
        self._phase = self._unmatched[0] if self._unmatched else ""
        self._line_mark = _Outside(pid, now)

    # -- ending

    def _judge(self, status, kills_before):
        self._done = True  # it does not know that there is such a word
        if self._line.strip() and self._line_mark is not None:
            self._heard(b"\n")
        unmatched = self._unmatched if self._line_mark is not None else []
        if self._line_mark is not None:
            self._phase = self._phase if status else "" if self.marks else "RUN"
        elif not self.marks and not self._phase:
            self._phase = "RUN"
        super()._judge(status, kills_before)
        outcome = self.outcome
        if outcome["status"] == "exit" and not outcome.get("message"):
            last = _last_line(self.output)
            outcome["message"] = last or ("its shell did not find the command" if outcome["exit_code"] == 127 else None)
        if outcome["status"] == "ok":
            self._complete()
            patterns = dict(self._regexes)
            missed = ["no line that it printed matches '%s', the end of %s" % (patterns[phase].pattern, phase) for phase in unmatched]
            if missed:
                outcome.update(status="lost", phase=unmatched[0], message="; ".join(missed))
        self.warnings += self._words()
        if self._tree.most > 1:
            self.processes = self._tree.records()

    def _complete(self):
        """Phases that were never ended, or the one phase of a program that says nothing, up to the program's end."""
        for phase in self._open:
            begin_ns = self._opened[phase]
            self.warnings.append("%s was never ended: it is taken to last until the program's end" % phase)
            record = _seen(phase, begin_ns, self._end_ns, self._highest(begin_ns, self._end_ns))
            if record["rss_peak_bytes"]:
                self._keep(dict(record, samples=self.polls - self._polls_begin, interval_ns=self._intervals[""]))
        if not self.marks and not self._open:
            seen = max(self.timeline.highest(0, self._end_ns), self._tree.high_water(self.measured) if self._tree.most == 1 else 0)
            if not seen:
                self.warnings.append("it ended before it could be looked at")
                return
            record = dict(_seen("RUN", self._begin_ns, self._end_ns, seen), samples=self.polls, interval_ns=self._intervals[""])
            if self._used is not None:  # of all its children that were waited for too
                record["minor_faults"], record["major_faults"] = self._used.ru_minflt, self._used.ru_majflt
                record["cpu_ns"] = round((self._used.ru_utime + self._used.ru_stime) * 1e9)
            self.marks.append(record)

    def _words(self):
        """What a reader of the figures must know."""
        words = list(dict.fromkeys(self._strays))
        if len(words) > 5:
            words = [*words[:5], "%d more marks came in the wrong order" % (len(words) - 5)]
        if self._others:
            who = ", ".join("%s (%d)" % (name or "a process", pid) for pid, name in list(self._others.items())[:5])
            words.append("marks came from more than one process; only those of the first count, not those of %s" % who)
        several = [phase for phase, pids in self._ended_in.items() if len(pids) > 1]
        if several:
            count = max(len(self._ended_in[phase]) for phase in several)
            how = "each time is an iteration, the peak is the largest, all else is of the last"
            words.append("%s: in %d processes one after another; %s" % (", ".join(several), count, how))
        if self._marks_closed and self._opened:
            words.append("the program closed the descriptor of its marks: what it did afterwards is in no phase")
        tree = self._tree
        if tree.most > 1:
            how = "pages they share counted once (PSS was read %s)" % ("once" if tree.rounds == 1 else "%d times" % tree.rounds)
            if not tree.rounds:
                how = "pages they share counted once as far as is known without PSS, for which there was no time"
            elif tree.refused:
                how = "pages they share counted once, but in full in %d whose PSS may not be read" % tree.refused
            who = tree.called(self.measured) or "the process that has the phase"
            what = "peaks and the timeline are" if tree.whole else "peaks are of %s and what it starts, the timeline is" % who
            words.append("up to %d processes at once; %s of their sum, %s" % (tree.most, what, how))
            if any("anon_end_bytes" in mark and not mark["rss_peak_exact"] for mark in self.marks):
                words.append("anonymous memory, VMS, HWM, PSS and all else but peaks are of %s alone, without what it starts" % who)
        if tree.unseen:
            words.append("at least %d process(es) started and ended between two polls and are in no figure" % tree.unseen)
        if tree.unfollowed:
            words.append("%d process(es) were not followed: too many files are open here" % tree.unfollowed)
        if self._line_mark is not None and len(self._unmatched) < len(self._regexes):
            words.append("phases end where a line arrived: their times and peaks are approximate")
        return words

    def _sweep(self):
        names = [procfs.name(pid) for pid in procfs.children(os.getpid()) if pid != getattr(self, "pid", 0)]
        count = len(self.warnings)
        super()._sweep()
        if len(self.warnings) > count and "outlived" in self.warnings[count] and names:
            self.warnings[count] += ": " + ", ".join(sorted({name for name in names if name}))


class _Outside:
    """A phase of a process that says nothing itself, seen from outside: begun here, ended by `ended`."""

    def __init__(self, pid, begin_ns, fresh=False):
        self.begin_ns = begin_ns
        self._pid = pid
        before = {} if fresh else procfs.status(pid)
        self._rss, self._hwm = before.get("rss", 0), before.get("hwm", 0)
        self._counters, self._read = (0, 0, 0) if fresh else procfs.counters(pid), 0 if fresh else procfs.read_bytes(pid)
        self._reset = fresh or procfs.reset_high_water(pid)

    def ended(self, phase, end_ns, seen, samples, interval_ns):
        """The record of the phase, its peak not exact: a line arrives later than what it tells of."""
        after = procfs.status(self._pid)
        hwm = after.pop("hwm", 0)
        peak = max(seen, after.get("rss", 0), hwm if self._reset or hwm > self._hwm else self._rss)
        record = _seen(phase, self.begin_ns, end_ns, peak)
        record.update(samples=samples, interval_ns=interval_ns, rss_begin_bytes=self._rss)
        record.update((name + "_end_bytes", size) for name, size in after.items() if name != "vms_peak")
        now = procfs.counters(self._pid)
        if now is not None and self._counters is not None:
            names = ("minor_faults", "major_faults", "cpu_ns")
            record.update((name, later - earlier) for name, later, earlier in zip(names, now, self._counters))
        return record


def _seen(phase, begin_ns, end_ns, peak):
    return {"phase": phase, "begin_ns": begin_ns, "end_ns": end_ns, "times_ns": [], "rss_peak_bytes": peak, "rss_peak_exact": False}


def _compiled(regexes):
    if not regexes:
        return ()
    import re  # milliseconds that only this kind of phase needs

    return tuple((phase, re.compile(regex)) for phase, regex in regexes)


def _thinned(values):
    """Of each four neighbours of a name the smallest and the largest."""
    kept, group = [], {}
    for value in values:
        group.setdefault(value["name"], []).append(value)
    for same in group.values():
        for start in range(0, len(same), 4):
            part = same[start : start + 4]
            low, high = min(part, key=lambda one: one["value"]), max(part, key=lambda one: one["value"])
            kept += [low] if low is high else [low, high]
    return sorted(kept, key=lambda one: one["t_ns"])


def _last_line(output):
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1] if lines else None


def _why_not(start, message):
    """Why a program could not be started, where the kernel's own words do not say it."""
    if "Exec format error" not in message:
        return message
    try:
        with open(os.path.join(start["cwd"] or ".", start["argv"][0]), "rb", buffering=0) as file:
            head = file.read(20)
    except OSError:
        return message
    if head[:4] != b"\x7fELF":
        return message + " (a script needs #! and its interpreter in its first line)"
    machine = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
    return "%s (a program for %s; this machine is %s)" % (message, _ELF.get(machine, "machine type %d" % machine), os.uname().machine)
