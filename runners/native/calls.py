"""Follows calls of the phases' functions inside gdb: the meaning of each stop of the program, and the lines that tell a phase's cost.

Part of symbols.py, which gdb loads by its path and whose docstring has the contract. Stdlib only, Python 3.6 and later.
"""

import time

import gdb
from memprof_marks import Marks, figures, reset_high_water, shares
from traced import Look, alive, counters, exit_code, here, is_inlined, last_words, made_marks, physical, quiet, ran

_FRAMES = 2000  # the deepest stack that is walked to see whether a call still lies on it
_SHARES_APART = 50  # between two readings of PSS passes so many times the duration of a reading, which is ms for a large process
_NO_CALLER = (0, 1 << 64)  # the return address and level of a call without a caller: it ends with its thread
# When the cost of following calls is announced: once gdb has held the program for this long and for this share of the time, and again whenever
# the cost has become this many times as much.
_COST_NS, _COST_SHARE, _COST_AGAIN = 2000000000, 0.2, 5


class Call:
    """A call of a phase's function that has not returned. level: the stack pointer its caller has after the return."""

    def __init__(self, phase, thread, level, address, outermost):
        self.phase, self.thread, self.level, self.address, self.outermost = phase, thread, level, address, outermost
        self.begin_ns = 0
        self.left = None  # the process at a longjmp that may have ended this call


class Phase:
    """A phase: its function, and its state while it runs."""

    def __init__(self, name, symbol, known):
        self.name, self.symbol, self.known = name, symbol, known
        self.calls = []
        self.count = 0
        self.inlined = False  # whether the program came to a place where the function is inlined
        self.times_ns = []
        self.shares_ns = self.shared_ns = 0
        self.ended = False  # whether a call of it has ended

    def open(self, process):
        self.begin_ns, self.peak, self.times_ns = 0, 0, []
        self.before, self.reset, self.counters = process.status, process.reset, counters(process.pid)


class Tracer:
    """Follows the calls of the phases' functions and writes what they cost."""

    def __init__(self, phases, elf):
        self.marks = Marks()
        self.elf = elf
        self.phases = [Phase(*phase) for phase in phases]
        self.returns = {}
        self.measured = None
        self.highest = 0
        self.handling_ns = 0
        self.notes = []
        self.foreign = 0
        self.first_ns = self.stopped_ns = 0  # when a function was first entered, and for how long gdb has held the program since
        self.announced_ns = self.reading_ns = 0

    # -- stops

    def entered(self, phase, now_ns):
        """A phase's function was entered."""
        thread = here()
        if self.measured is None:
            self._startup(thread[0])
        if thread[0] != self.measured:
            self.foreign += 1
            return
        caller = physical(gdb.newest_frame()).older()
        address, level = (caller.pc(), int(caller.read_register("sp"))) if caller is not None else _NO_CALLER
        self._settle(thread, level, now_ns, address)
        inferior = gdb.selected_inferior().num
        if caller is not None and (inferior, address) not in self.returns:
            self.returns[inferior, address] = Return(self, address)
        call = Call(phase, thread, level, address, not any(other.thread == thread for other in phase.calls))
        phase.count += call.outermost
        if not phase.calls:
            process = self._fold(Look(thread[0], now_ns))
            process.reset = reset_high_water(thread[0])
            phase.open(process)
            self.marks.write({"mark": "begin", "pid": thread[0], "phase": phase.name, "t_ns": now_ns})
        phase.calls.append(call)
        self.first_ns = self.first_ns or now_ns
        call.begin_ns = time.monotonic_ns()
        phase.begin_ns = phase.begin_ns or call.begin_ns

    def returned(self, address, now_ns):
        """A thread has reached an address where a call returns to."""
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
        """A longjmp begins: calls beyond its target will never return, but which these are cannot be seen from here."""
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
        last_words[pid] = exit_code()
        if pid != self.measured:
            return
        if made_marks():
            self.note("the program's own marks (memprof.h) were not heeded: with --phase its phases are functions alone")
        for phase in self.phases:
            for call in list(phase.calls):
                if call.thread == here() and call.left is not None and not self._on_stack(call):
                    self._abandon(call, now_ns)
                elif not alive(call.thread):
                    self._abandon(call, now_ns)
        if exit_code() not in (0, None):
            return  # it failed in the phase, which therefore stays open
        for phase in self.phases:
            for call in list(phase.calls):
                self.note("%s: %s never returned, the program ended inside it" % (phase.name, phase.symbol))
                self._end(call, Look(pid, now_ns))

    # -- calls

    def _settle(self, thread, level, now_ns, address=None):
        """End calls of this thread that cannot return any more, now that its stack ends at this level, and those of threads that ended.

        address: where a call that begins now returns to. A call with the same address and level has made it as a tail call, and both return
        together.
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
        self.note("%s: %s was left %s instead of returning" % (call.phase.name, call.phase.symbol, how))
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
        """Drop the return addresses and end the calls of a process that has become another program."""
        inferior = gdb.selected_inferior()
        if not inferior.pid or inferior.pid != self.measured:
            return
        for key in [key for key in self.returns if key[0] == inferior.num]:
            self.returns.pop(key).delete()
        for phase in self.phases:
            for call in list(phase.calls):
                self.note("%s: %s never returned, the program became another one inside it" % (phase.name, phase.symbol))
                self._end(call, Look(call.thread[0], time.monotonic_ns()))

    # -- lines

    def _startup(self, pid):
        self.measured = pid
        # Processes that it starts from here on are not looked at: they run as without gdb, and calls of theirs are at other addresses.
        quiet("set detach-on-fork on")
        process = self._fold(Look(pid, time.monotonic_ns()))
        running_ns, self.reading_ns = ran(pid, process.now_ns)
        begin_ns = process.now_ns - running_ns
        self.marks.write({"mark": "begin", "pid": pid, "phase": "STARTUP", "t_ns": begin_ns})
        line = {"mark": "end", "pid": pid, "phase": "STARTUP", "begin_ns": begin_ns, "end_ns": max(process.now_ns, begin_ns)}
        zero = {"hwm_reset": True, "hwm_begin_bytes": 0, "rss_begin_bytes": 0}
        line.update(zero, **figures(process.status, process.status.get("hwm"), self.highest, counters(pid), (0, 0, 0, 0)))
        line.update(shares(pid, process.status))
        self.marks.write_end(dict(line, first=True))
        self.say_about()

    def _close(self, phase, process):
        end_ns = max(process.now_ns - self.handling_ns, phase.begin_ns)
        pid = process.pid
        if len(phase.times_ns) > 1:
            for start in range(0, len(phase.times_ns), 100):
                self.marks.write({"mark": "times", "pid": pid, "phase": phase.name, "times_ns": phase.times_ns[start : start + 100]})
        line = {"mark": "end", "pid": pid, "phase": phase.name, "begin_ns": phase.begin_ns, "end_ns": end_ns, "hwm_reset": phase.reset}
        line["hwm_begin_bytes"], line["rss_begin_bytes"] = phase.before.get("hwm", 0), phase.before.get("rss", 0)
        hwm = max(phase.peak, process.status.get("hwm", 0))
        line.update(figures(process.status, hwm, self.highest, counters(pid), phase.counters))
        line.update(self._shares(phase, process))
        if phase.ended:
            self.marks.write(line)
        else:  # memprof looks once at a phase, however often it comes
            self.marks.write_end(dict(line, first=True))
        phase.ended = True

    @staticmethod
    def _shares(phase, process):
        # Only of a process that is where the phase ended, and not at each of many short calls.
        now_ns = time.monotonic_ns()
        if now_ns - phase.shared_ns < _SHARES_APART * phase.shares_ns:
            return {}
        figures_of_shares = shares(process.pid, process.status)
        phase.shared_ns = time.monotonic_ns()
        phase.shares_ns = phase.shared_ns - now_ns
        return figures_of_shares

    def note(self, sentence):
        """Keep a sentence for the reader of the figures."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def held(self, began_ns):
        """The program stood still since then and goes on now. The cost so far is announced while there is still time to ask for less."""
        if self.marks.holds:
            return  # memprof looked at it, which takes longer
        now_ns = time.monotonic_ns()
        self.stopped_ns += (now_ns - began_ns + self.handling_ns) if self.first_ns else 0
        again_ns = max(_COST_NS, _COST_AGAIN * self.announced_ns)
        if self.first_ns and self.stopped_ns >= max(again_ns, _COST_SHARE * (now_ns - self.first_ns)):
            self.announced_ns = self.stopped_ns
            self.marks.write({"mark": "say", "pid": self.measured, "text": self.cost(now_ns)})

    def cost(self, now_ns):
        """The cost of following calls, and the function that is called most, in a sentence."""
        phase = max(self.phases, key=lambda phase: phase.count)
        calls = sum(phase.count for phase in self.phases)
        ms_a_call = self.stopped_ns / 1e6 / max(calls, 1)
        return "%s: %s was called %s times in %.0f s, in which gdb held the program for %.0f s (%.2f ms a call): %s" % (
            phase.name,
            phase.symbol,
            "{:,}".format(phase.count),
            (now_ns - self.first_ns) / 1e9,
            self.stopped_ns / 1e9,
            ms_a_call,
            "name a function that is called less often, such as the one that calls it",
        )

    def say_about(self):
        """Write notes for the reader of these figures."""
        handling = "phases from symbols: gdb stops the program at each entry and return; %.2f ms of that lay inside a call's time " % (
            self.handling_ns / 1e6
        )
        notes = [handling + "and were taken off", *self.notes]
        if self.reading_ns >= 10000000:
            notes.append("STARTUP is without the %.2f s in which gdb read symbols" % (self.reading_ns / 1e9))
        if self.announced_ns:
            notes.append(self.cost(time.monotonic_ns()))
        sentence = "%s: some calls of %s are inlined where it is called, and are not seen: %s"
        notes += [sentence % (phase.name, phase.symbol, self.elf.NOT_INLINED) for phase in self.phases if phase.inlined and phase.count]
        if self.foreign:
            notes.append("%d call(s) in processes other than the measured one were left out" % self.foreign)
        line = {"mark": "about", "runtime_version": "", "python_version": "", "notes": notes}
        if not self.marks.write(dict(line, pid=self.measured)):
            self.marks.write(dict(line, pid=self.measured, notes=[note[:300] for note in notes[:5]]))

    def refuse(self, sentence, pid, phase="STARTUP"):
        """Write why there is nothing to measure, or no such phase."""
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
        except Exception as error:  # gdb would print it where nobody reads, and the call would be missing without a message
            self.tracer.note("gdb: %s: %s" % (type(error).__name__, error))
        self.tracer.held(now_ns)
        return False


class Entry(_Stop):
    """The entry of a function. gdb stops wherever debug information has it inlined too: the end of such a call is not known, so it is no call."""

    def __init__(self, tracer, phase, symbol):
        self.phase, self.symbol = phase, symbol
        self.inlined = {}  # by address
        super(Entry, self).__init__(tracer, "-qualified -function " + symbol)

    def reached(self, now_ns):
        address = gdb.newest_frame().pc()
        if address not in self.inlined:
            self.inlined[address] = is_inlined(address, lambda name: self.tracer.elf.is_function(self.symbol, name))
        if not self.inlined[address]:
            self.tracer.entered(self.phase, now_ns)
            return
        self.phase.inlined = True
        for place in getattr(self, "locations", ()):  # gdb 13 and later; before, the program stops here each time
            if place.address == address:
                place.enabled = False


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
    """A place in a row of places at which gdb's handling of a stop is measured. After `enough` stops the program stays stopped."""

    def __init__(self, tracer, address, steps, enough):
        self.steps, self.enough = steps, enough
        super(Step, self).__init__(tracer, "*%d" % address)

    def stop(self):
        now_ns = time.monotonic_ns()
        if self.steps:
            gap_ns = now_ns - self.steps[-1]
            self.tracer.handling_ns = min(self.tracer.handling_ns or gap_ns, gap_ns)
        self.steps.append(time.monotonic_ns())
        return len(self.steps) == self.enough
