"""Measures any program, with all that it starts. Its phases come from marks, else from lines it prints; else it has one phase, RUN.

A user's program owes memprof nothing: it writes no "done", and its exit code alone tells how it ended. Marks that come twice or not at all are
put right as far as possible, and a warning says so.

`start["command"]` of the probe's line:

    {"regexes": [[PHASE, REGEX]], "alone": BOOL, "driven": BOOL}

regexes: a line of output that matches ends that phase; the phase began where the phase before it ended, or with the program. alone: the
process that was started only starts another (a debugger): the process whose marks come first is the root of the tree, and samples from before
are dropped. driven: memprof asks the program for work, and says on standard input where its phases end, in lines:

    ended {"phase", "times_ns", "units", "first_token_ns", "remark"}   answered by `ended PHASE`, once its memory was read: nothing happens in the
                                  program meanwhile. remark: a warning, "" for none
    failed {"phase", "message"}   the program does not do what it is asked
    stop {}                       all is done: the program is ended, and that is no failure
"""

import _signal as signal  # see __main__
import os
import time

from . import child, procfs, wire
from .listening import count, text, word
from .outside import OUTSIDE, Gap, LineMark, Outside, sampled_record
from .tree import Tree
from .work import UNITS, Work

_RESERVED = ("startup", "peak", "run", "baseline", OUTSIDE)  # as memprof.runs.phases compares them
_STOP_NS = 5_000_000_000  # from SIGTERM to SIGKILL
_LINE = 4096  # a longer line of output is matched in pieces


class Command(child.Measurement):
    """A program from its start to its end. The timeline is that of the tree's sum."""

    def __init__(self, start, timeout_ns, intervals, live, hold=None):
        super().__init__(start, timeout_ns, intervals, live, hold)
        self._alone = bool(start["command"].get("alone"))
        self._regexes = _compiled(start["command"].get("regexes", ()))
        self._driven, self._told, self._stopping_ns = bool(start["command"].get("driven")), b"", 0
        self._tree = None
        self._unsettled = []  # (begin_ns, end_ns, tell) of spans whose sum is not settled yet; tell takes the sum's bounds
        self._outside = Outside()
        self._strays = []
        self._others = {}
        self._ended_in = {}  # phase: the processes in which it has ended
        self._line = b""
        self._line_mark = None
        self._lines = {}  # how many of each unit's lines there were
        self._unmatched = [name for name, _ in self._regexes]
        self._used = None
        self._outlived = False  # the process that was started, by one that it had started
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
        self._tree.swapped = self.swapped
        if self._regexes:
            self._line_mark = LineMark(self.pid, self._begin_ns, fresh=True)
            self._phase = self._unmatched[0]
        elif self._driven:
            self._line_mark = LineMark(self.pid, self._begin_ns, fresh=True)
            self._phase = "MODEL_LOAD"
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
        self._settle()
        if self._stopping_ns and now > self._stopping_ns:
            self._end_all(signal.SIGKILL)
        return values

    def _keep_sample(self, now, values):
        pass  # the tree keeps it, once it is settled

    def _look_closer(self, now):
        pass  # so does the tree, at each process in turn

    def _highest(self, begin_ns, end_ns):
        return self._tree.own.highest(begin_ns, end_ns)[0]

    def _settle(self):
        """Tell the sum of the spans for which it is known by now."""
        settled_ns = self._tree.own.settled_ns
        if self._unsettled and self._unsettled[0][1] <= settled_ns:
            for begin_ns, end_ns, tell in self._unsettled:
                if end_ns <= settled_ns:
                    tell(*self._tree.own.highest(begin_ns, end_ns))
            self._unsettled = [span for span in self._unsettled if span[1] > settled_ns]

    def _settle_all(self):
        self._tree.settle()
        for begin_ns, end_ns, tell in self._unsettled:
            tell(*self._tree.own.highest(begin_ns, end_ns))
        self._unsettled = []
        self.timeline = self._tree.whole.timeline
        if self._tree.most > 1:
            self.rss_max_high = max(self._tree.whole.most, self.timeline.rss_max)

    def _ends(self, pid):
        if pid != self.pid:
            return
        stat = procfs.stat(pid)
        if self._is_root_measured() and stat is not None and stat.child_faults:
            self._tree.unseen = max(1, self._tree.unseen)  # it has waited for a child, and no poll saw that
        self._outlived = any(child != pid for child in procfs.children(os.getpid()))

    def _reaped(self, pid, status, used):
        super()._reaped(pid, status, used)
        self._tree.reaped(pid, used.ru_minflt)
        if pid == self.pid:
            self._end_ns, self._used = time.monotonic_ns(), used

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
        except Exception:  # a program may write anything there
            self._foreign += 1

    def _takes_over(self, kind, pid):
        """Whether another process is the measured process from here on: its marks are the first, or come after the process before it has ended."""
        nobody = self._line_mark is not None or not (self.marks or self._phase)
        return kind in ("begin", "program") and (nobody or (not self._phase and procfs.parent(self.measured) is None))

    def _measure(self, pid):
        ancestor = pid
        while ancestor not in (self.measured, self.pid, os.getpid()):
            above = procfs.parent(ancestor)
            if above == 0:
                raise ValueError("a mark of a process that does not belong to the child")
            if above is None and ancestor == pid:
                break  # it has ended by now; its marks have its figures
            ancestor = above or pid  # a process between the two has just ended: the ones below it have another parent
        self._settle_all()
        self._tree.add(pid, time.monotonic_ns())
        self._tree.measure(pid, self._alone)
        self.measured = pid
        self._alone = False

    def _mark_begin(self, mark):
        if self._line_mark is not None:
            self._line_mark, self.marks, self._regexes, self._phase = None, [], (), ""
            self.warnings.append("its phases came by marks or by functions: its output was not searched for them")
        phase = word(mark["phase"])
        if self._reserved(phase, mark["pid"], mark["t_ns"]):
            self._strays.append("%s is a name of memprof's own figures: the phase that the program calls so is left out" % phase)
            return
        if phase in self._open:
            self._strays.append("%s was begun again before it had ended: it is counted from there" % phase)
            self._open.remove(phase)
        self._opened[phase] = begin_ns = count(mark["t_ns"])
        if not self._open and self._outside.since_ns:
            self._gap(self._outside.since_ns, begin_ns, phase)
        super()._mark_begin(mark)

    def _reserved(self, phase, pid, begin_ns):
        """Whether a phase has the name of memprof's own figures. The marks themselves write STARTUP, at a program's first phase; it began before
        the program did."""
        if phase == "STARTUP":
            return begin_ns > self._begin_ns and any(pid in pids for pids in self._ended_in.values())
        return _is_reserved(phase)

    def _gap(self, begin_ns, end_ns, before):
        """Time outside of all phases is over."""
        gap = Gap(begin_ns, end_ns, self._outside.after, before)
        self._outside.newest = gap
        self._unsettled.append((begin_ns, end_ns, lambda low, high: self._outside.tell(gap, low, high)))
        self._settle()

    def _mark_times(self, mark):
        if not _is_reserved(word(mark["phase"])):
            super()._mark_times(mark)

    def _mark_end(self, mark):
        phase = word(mark["phase"])
        if self._reserved(phase, mark["pid"], mark["begin_ns"]):
            return
        super()._mark_end(mark)
        self._ended_in.setdefault(phase, set()).add(mark["pid"])
        if not self._open:
            self._outside.phase_ended(phase, mark)

    def _keep(self, record):
        begin_ns, end_ns, phase = record["begin_ns"], record["end_ns"], record["phase"]
        several = self._tree.had_others(begin_ns, end_ns)
        if several:
            record["rss_peak_exact"] = False  # each process has a high-water mark, their sum has none
        super()._keep(record)
        if several:
            self._unsettled.append((begin_ns, end_ns, lambda low, high: self._bounded(phase, low, high)))
            self._settle()

    def _bounded(self, phase, low, high):
        record = next(mark for mark in self.marks if mark["phase"] == phase)
        record["rss_peak_bytes"] = max(record["rss_peak_bytes"], low)
        record["rss_peak_high_bytes"] = max(record.get("rss_peak_high_bytes", 0), high, record["rss_peak_bytes"])

    def _mark_stray(self, mark):
        phase = word(mark["phase"] or "?")
        if mark["what"] == "begin":
            self._strays.append("%s had not ended when the next phase began: it ends there" % phase)
        else:
            self._strays.append("a phase was ended where none had begun%s" % (" (after %s)" % phase if mark["phase"] else ""))

    def _mark_say(self, mark):
        child.say("say %s\n" % " ".join(text(mark["text"]).split())[:1000])

    # -- what it prints

    def _mark_work(self, mark):
        super()._mark_work(mark)
        self._hold_after_units(word(mark["phase"]))

    def _hold_after_units(self, phase):
        """Hold the child once it has done so much work as memprof wants to see it after."""
        wanted = (self._hold.get("units") or {}).get(phase) if self._hold else None
        if wanted and self._held is None:
            done = self.work[phase].done
            if done >= wanted[0]:
                del wanted[0]
                self._stop_inside("%s/%d" % (phase, done), time.monotonic_ns())

    def _heard(self, data):
        if not self._regexes:
            return
        now, counted = time.monotonic_ns(), False
        *lines, self._line = (self._line + data).replace(b"\r", b"\n").split(b"\n")
        if len(self._line) > _LINE:
            lines.append(self._line)
            self._line = b""
        for line in lines:
            text = line.decode("utf-8", "replace")
            for phase, regex in self._regexes:
                if regex.search(text):
                    if self.follows and (phase in self._lines or len(self._lines) < UNITS):
                        self._lines[phase] = self._lines.get(phase, 0) + 1
                        counted = True
                    if not self.follows or phase in self._unmatched:
                        self._line_ends(phase, now)
                    break
        if counted:
            self._take_lines()

    def _line_ends(self, phase, now, driven=None):
        pid = self.measured
        sampled = self._highest(self._line_mark.begin_ns, now)
        record = self._line_mark.ended(phase, now, sampled, self.polls - self._polls_begin, self._intervals[""])
        if driven is not None:
            record.update(times_ns=driven["times_ns"], rss_peak_exact=self._line_mark.reset)
            for name in ("units", "first_token_ns"):
                if driven[name]:
                    record[name] = driven[name]
            if driven["remark"]:
                self.warnings.append(driven["remark"])
        self._keep(record)
        self._polls_begin = self.polls
        if phase in self._unmatched:
            self._unmatched.remove(phase)
        self._phase = self._unmatched[0] if self._unmatched else ""
        self._line_mark = LineMark(pid, now)

    def _take_lines(self):
        """Units of work have ended with lines, all that have come at once. The first are the curve's begin: before them the program started."""
        values = self._sample(time.monotonic_ns())
        if values is not None:
            swap = self.swapped.newest
            self.work.setdefault("RUN", Work()).take(list(self._lines), [time.monotonic_ns(), *values[:2], swap, *self._lines.values()])
            self._hold_after_units("RUN")

    # -- what memprof asks of it

    def _obey(self, text):
        super()._obey(text)
        if self._driven:
            *lines, self._told = (self._told + text).split(b"\n")
            for line in lines:
                name, _, content = line.partition(b" ")
                if name in (b"ended", b"failed", b"stop"):
                    self._follow(name, wire.loads(content.decode("utf-8")))

    def _follow(self, name, content):
        if name == b"ended":
            if self._line_mark is not None:
                self._line_ends(content["phase"], time.monotonic_ns(), content)
                self._phase = "REQUEST" if content["phase"] != "MODEL_LOAD" else "WARMUP"
            child.finish("ended %s\n" % content["phase"])
            return
        if name == b"failed":
            self._error = {"status": "error", "phase": content["phase"], "message": content["message"]}
        self._stopping_ns = time.monotonic_ns() + _STOP_NS
        self._end_all(signal.SIGTERM)

    def _end_all(self, number):
        try:
            os.killpg(self.pid, number)
        except OSError:
            pass  # it has ended

    # -- ending

    def _judge(self, status):
        self._done = True  # a user's program does not write "done"
        if self._stopping_ns:
            status = 0
        elif self._driven and not status:
            self._error = {"status": "error", "phase": self._phase, "message": "it ended before all requests were made"}
        if self._line.strip() and self._line_mark is not None:
            self._heard(b"\n")
        unmatched = self._unmatched if self._line_mark is not None else []
        if self._line_mark is not None:
            self._phase = self._phase if status else "" if self.marks else "RUN"
        elif not self.marks and not self._phase:
            self._phase = "RUN"
        super()._judge(status)
        self._settle_all()
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
        self._settle_all()
        self._tell_outside()
        self.warnings += self._words()
        if self._tree.most > 1:
            self.processes = self._tree.records()

    def _is_root_measured(self):
        """Whether the process that was started is the one that is measured, and no poll saw another beside it."""
        return self._tree.most <= 1 and self.measured == self.pid

    def _was_alone(self):
        """Whether it was so from its start to its end, whatever the polls saw. Only children that nobody waits for (SIGCHLD ignored) leave no
        trace."""
        return self._is_root_measured() and self._tree.unseen == 0 and not self._outlived

    def _largest(self):
        """(the largest resident set of the process that was started, and of those that it waited for, in bytes; whether it was reached after the
        exec). (0, False) if wait4 did not tell.

        ru_maxrss survives an exec. Before it the child was a copy of this process, without most of its file-backed pages, so its resident set was
        below this process's high-water mark: what is above that was reached after the exec, and what is not is no more than a bound.
        """
        if self._used is None:
            return 0, False
        size = self._used.ru_maxrss * 1024
        return size, 0 < procfs.high_water(os.getpid()) < size

    def _life_peak(self):
        """The largest resident set of the measured process in all its life, in bytes, if wait4 tells it; else 0."""
        size, after_exec = self._largest()
        return size if after_exec and self._was_alone() else 0

    def _tell_outside(self):
        """Make a row of the memory outside of all phases, if that is more than in any phase."""
        if self._line_mark is not None or not self._outside.since_ns or self._open or not self.marks:
            return
        since_ns = self._outside.since_ns
        self._gap(since_ns, max(self._end_ns, since_ns), None)
        self._settle_all()
        most = max(mark["rss_peak_bytes"] for mark in self.marks)
        self._outside.tell_life(self._life_peak(), most)
        gap = self._outside.highest
        if gap is None or gap.peak <= most + self.peak_bound():
            return
        several = self._tree.had_others(gap.begin_ns, gap.end_ns)
        record = sampled_record(OUTSIDE, gap.begin_ns, gap.end_ns, gap.peak)
        record.update(rss_peak_exact=gap.exact and not several, samples=0, interval_ns=self._intervals[""])
        if several:
            record["rss_peak_high_bytes"] = max(gap.high, gap.peak)
        self.swapped.tell(record)
        place = next((at for at, mark in enumerate(self.marks) if mark["phase"] == gap.before), len(self.marks))
        self.marks.insert(place, record)
        where = "between %s and %s" % (gap.after, gap.before) if gap.before else "after %s" % gap.after
        amounts = (where, (gap.end_ns - gap.begin_ns) / 1e9, gap.peak / (1 << 20), most / (1 << 20))
        self.warnings.append(
            "%s, for %.2f s outside of all phases, memory reached %.1f MiB, above the %.1f MiB of the highest phase" % amounts
        )

    def _complete(self):
        """Add phases that were never ended, or RUN for a program without phases, up to the program's end."""
        for phase in self._open:
            begin_ns = self._opened[phase]
            self.warnings.append("%s was never ended: it is taken to last until the program's end" % phase)
            record = sampled_record(phase, begin_ns, self._end_ns, self._highest(begin_ns, self._end_ns))
            if record["rss_peak_bytes"]:
                self._keep(dict(record, samples=self.polls - self._polls_begin, interval_ns=self._intervals[""]))
        if not self.marks and not self._open:
            (largest, after_exec), alone = self._largest(), self._was_alone()
            peak = max(self.timeline.highest(0, self._end_ns), self._tree.high_water(self.measured) if self._tree.most == 1 else 0)
            if after_exec and self._is_root_measured():
                peak = max(peak, largest)  # of one process, so no more than the sum if there were others
            if not peak:
                bound = ", and had at most %.1f MiB resident" % (largest / (1 << 20)) if alone and largest else ""
                self.warnings.append("it ended before it could be looked at" + bound)
                return
            record = dict(sampled_record("RUN", self._begin_ns, self._end_ns, peak), samples=self.polls, interval_ns=self._intervals[""])
            record["rss_peak_exact"] = after_exec and alone
            if alone and largest and not after_exec:
                record["rss_peak_high_bytes"] = max(peak, largest)
            if self._used is not None:  # including the children that it waited for
                record["minor_faults"], record["major_faults"] = self._used.ru_minflt, self._used.ru_majflt
                record["cpu_ns"] = round((self._used.ru_utime + self._used.ru_stime) * 1e9)
            self._keep(record)

    def _words(self):
        """Warnings for the reader of the figures."""
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
            words.append("the program closed the descriptor of its marks: its later work is in no phase")
        tree = self._tree
        if tree.most > 1:
            rounds = tree.rounds
            how = "pages they share counted once (PSS was read %s)" % ("once" if rounds.count == 1 else "%d times" % rounds.count)
            if not rounds.count:
                how = "pages they share counted once as far as is known without PSS, for which there was no time"
            elif rounds.refused:
                how = "pages they share counted once, but possibly in full in %d whose PSS may not be read" % rounds.refused
            who = tree.called(self.measured) or "the process that has the phase"
            what = "peaks and the timeline are" if tree.is_whole else "peaks are of %s and what it starts, the timeline is" % who
            words.append("up to %d processes at once; %s of their sum, %s" % (tree.most, what, how))
            if any("anon_end_bytes" in mark and not mark["rss_peak_exact"] for mark in self.marks):
                words.append("anonymous memory, VMS, HWM, PSS and all else but peaks are of %s alone, without what it starts" % who)
        if tree.unseen:
            words.append("processes that started and ended between two polls and are in no figure: at least %d" % tree.unseen)
        if tree.unfollowed:
            words.append("processes that were not followed, because too many files are open here: %d" % tree.unfollowed)
        if self._line_mark is not None and len(self._unmatched) < len(self._regexes):
            words.append("phases end where a line arrived: their times and peaks are approximate")
        return words


def _is_reserved(phase):
    """Whether a reader takes a name for that of one of memprof's own figures, in whatever case, and with _ for a space."""
    return phase.lower().replace("_", " ") in _RESERVED


def _compiled(regexes):
    if not regexes:
        return ()
    import re  # takes milliseconds, and only this kind of phase needs it

    return tuple((phase, re.compile(regex)) for phase, regex in regexes)


def _last_line(output):
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1] if lines else None


def _why_not(start, message):
    """Why a program could not be started, in more words than the kernel's if those do not tell."""
    if "Exec format error" not in message:
        return message
    from . import elf  # only a program that does not start needs it

    try:
        with open(os.path.join(start["cwd"] or ".", start["argv"][0]), "rb", buffering=0) as file:
            head = file.read(elf.HEAD)
    except OSError:
        return message
    machine = elf.machine(head)
    if machine is None:
        return message + " (a script needs #! and its interpreter in its first line)"
    return "%s (a program for %s; this machine is %s)" % (message, elf.name(machine), os.uname().machine)
