"""A program from its start to its end, where phases do not tell of it: RUN for a program without phases, and its largest resident set."""

from __future__ import annotations

from msgspec import Struct

from .marks import MarkFold
from .phases import Phases, read_record
from .state import FoldState


class Usage(Struct, frozen=True):
    """What wait4 tells of a process: its faults and CPU time, with those of processes that it waited for, and its ru_maxrss in bytes."""

    minor_faults: int
    major_faults: int
    cpu_ns: int
    largest: int


class Life(Struct):
    """usage: of the program, once it has ended. outlived: whether a process that it had started was there after it."""

    usage: Usage | None = None
    outlived: bool = False

    def peak(self, state: FoldState) -> int:
        """The largest resident set of the measured process in all its life, in bytes, if wait4 tells it; else 0."""
        size, after_exec = self._largest(state)
        return size if after_exec and self._was_alone(state) else 0

    def complete(self, state: FoldState, phases: Phases, marks: MarkFold) -> None:
        """Add phases that were never ended, or RUN for a program without phases, up to the program's end."""
        for phase in phases.open:
            begin_ns = marks.begun[phase]
            state.warnings.append(f"{phase} was never ended: it is taken to last until the program's end")
            record = read_record(phase, begin_ns, state.end_ns, state.highest(begin_ns, state.end_ns))
            if record["rss_peak_bytes"]:
                phases.keep(record)
        if not phases.records and not phases.open:
            self._complete_run(state, phases)

    def _complete_run(self, state: FoldState, phases: Phases) -> None:
        (largest, after_exec), alone = self._largest(state), self._was_alone(state)
        seen = peak = max(state.tree.whole.timeline.rss_max, state.tree.largest())
        if after_exec and state.measured == state.root:
            peak = max(peak, largest)  # of one process, so no more than the sum if there were others
        if not peak:
            bound = f", and had at most {largest / (1 << 20):.1f} MiB resident" if alone and largest else ""
            state.warnings.append("it ended before it could be looked at" + bound)
            return
        record = read_record("RUN", state.begin_ns, state.end_ns, peak)
        if state.tree.most > 1 and peak > seen:  # no poll saw it, and every other process may have been there
            record["rss_peak_high_bytes"] = peak + seen
        elif state.tree.most > 1 and largest > peak:
            # What wait4 tells of the largest process may be of the recorder's copy; it is no less than a process had.
            record["rss_peak_high_bytes"] = largest
        if self.usage is not None:  # including the children that it waited for
            record["minor_faults"], record["major_faults"] = self.usage.minor_faults, self.usage.major_faults
            record["cpu_ns"] = self.usage.cpu_ns
        phases.keep(record)
        record["rss_peak_exact"] = after_exec and alone
        if alone and largest and not after_exec:
            record["rss_peak_high_bytes"] = max(peak, largest)

    def _is_root_measured(self, state: FoldState) -> bool:
        """Whether the process that was started is the one that is measured, and no poll saw another beside it."""
        return state.tree.most <= 1 and state.measured == state.root

    def _was_alone(self, state: FoldState) -> bool:
        """Whether it was so from its start to its end, whatever the polls saw. Only children that nobody waits for (SIGCHLD ignored) leave no
        trace."""
        return self._is_root_measured(state) and state.tree.unseen == 0 and not self.outlived

    def _largest(self, state: FoldState) -> tuple[int, bool]:
        """(the largest resident set of the process that was started, and of those that it waited for, in bytes; whether it was reached after the
        exec). (0, False) if wait4 did not tell.

        ru_maxrss survives an exec. Before it the child was a copy of the recorder, without most of its file-backed pages, so its resident set was
        below the recorder's high-water mark: what is above that was reached after the exec, and what is not is no more than a bound.
        """
        if self.usage is None:
            return 0, False
        return self.usage.largest, 0 < state.recorder_hwm < self.usage.largest
