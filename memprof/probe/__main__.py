"""Measures one child on this machine: `python -I -S PROBE.zip`, one line of JSON in, lines out.

In, on standard input, one line:

    {"job": JOB, "start": {"argv", "env", "cwd", "stdin", "input", "deterministic", "group", "rlimits",
     "cpus"}, "timeout_ns",
     "intervals": {"": NS, PHASE: NS}, "files": [PATH], "cache": "warm|cold|asis", "cache_drop": BOOL,
     "hold": null | {"limit_ns", "at": {PHASE: RSS_BYTES}, "units": {PHASE: [COUNT]}}, "silence_ns", "report_ns"}

"start" holds "command" too if the child is a user's program (see command.py), and only "attach": PID and "attach_started" if it already runs
(attach.py).

"stdin": the text the child reads; "input": null, or the descriptor it reads from instead. "group": null or {"path", "settings": [[FILE, VALUE]]},
a control group to make, join and remove; "rlimits": null or {"RLIMIT_DATA": BYTES}; "cpus": the CPUs
that it may run on, none for all. "silence_ns": 0, or how long standard input may be silent:
then the child is ended too, because a connection can die without an end. `beat` and a line's end is a sign of life and nothing else.
JOB is memprof.runs.records.Job and goes into the Run unchanged. An environment value of null removes the variable. After that line
standard input stays open for as long as the result is wanted: its end ends the child and all that it started.

Out, on standard output:

    live PHASE RSS_BYTES     at most ten times a second, and left out when nobody reads
    say SENTENCE             for the user to read while the child still runs
    held PHASE PID           with "hold": the child stands still at the end of this phase, until `go` and a line's end come on standard
                             input or limit_ns is over. PHASE/peak: inside the phase, where its RSS first reached the bytes under "at".
                             PHASE/COUNT: inside the phase of a command, where the probe had heard of so much of its first unit of work, at
                             least as much as "units" says; the child may have done a little more until it stood still. With "units" it
                             does not stand still at the ends of phases, as no program can that lacks memprof's marks
    sofar JSON               the same as `run` each report_ns (0 for never), of a run that has not ended: its outcome says so
    run JSON                 last: memprof.runs.records.Run

Exit code 0 when a Run was written, however the child ended; 3 when the probe was told to stop; 2 when the line was not understood.
"""

import _signal as signal  # the C part: the module around it makes enums, which takes milliseconds
import os
import sys
import time


def main():
    """Read the line, measure, write the Run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a mask inherited from memprof's parent may block SIGCHLD, or signals of the child
    from . import child, pagecache, procfs, wire

    line, early = _first_line(0)
    try:
        order = wire.loads(line.decode("utf-8"))
        start, intervals = order["start"], order["intervals"]
        kind = _kind(start)
        measurement = kind(
            start, order["timeout_ns"], intervals, lambda phase, rss: child.say("live %s %d\n" % (phase or "-", rss)), order.get("hold")
        )
        measurement.silence_ns, measurement.early = order.get("silence_ns", 0), early
        measurement.report_ns = order.get("report_ns", 0)
        measurement.report = lambda: child.finish("sofar " + wire.dumps(_so_far(order["job"], started, measurement)) + "\n")
    except (ValueError, KeyError, TypeError) as error:
        sys.stderr.write("not understood: %r\n" % error)
        return 2
    child.become_reaper()
    pagecache.prepare(order["files"], order["cache"], order["cache_drop"])
    started = time.time_ns()
    try:
        measurement.follow()
    except child.Stopped:
        return 3
    machine = procfs.machine(measurement.usable, measurement.swapped.threads)
    child.finish("run " + wire.dumps(_run(order["job"], started, measurement, machine)) + "\n")
    return 0


def _kind(start):
    from . import child

    if start.get("attach"):
        from .attach import Attached

        return Attached
    if start.get("command") is not None:
        from .command import Command

        return Command
    return child.Measurement


def _so_far(job, started, measurement):
    """The Run as it would be if the probe were killed now."""
    from . import procfs

    outcome = measurement.outcome
    measurement.outcome = {"status": "lost", "phase": measurement._phase or None, "message": "it was ended, with memprof, while it ran"}
    try:
        return _run(job, started, measurement, procfs.machine(measurement.usable, measurement.swapped.threads))
    finally:
        measurement.outcome = outcome


def _run(job, started, measurement, machine):
    timeline = measurement.timeline
    record = {
        "memprof": 1,
        "job": job,
        "machine": machine,
        "started_ns": started,
        "marks": measurement.marks,
        "about": measurement.about,
        "outcome": measurement.outcome,
        "warnings": measurement.warnings,
        "timeline": dict(
            timeline.encoded(),
            samples=timeline.count,
            rss_min_bytes=timeline.rss_min,
            rss_mean_bytes=timeline.mean(),
            rss_max_bytes=timeline.rss_max,
            **measurement.swapped.columns(),
        ),
        "polling": _polling(measurement),
        "output_bytes": measurement.output_bytes,
        "charged": measurement.charged,
    }
    if measurement.rss_max_high is not None:
        record["timeline"]["rss_max_high_bytes"] = measurement.rss_max_high
    if measurement.values:
        record["values"] = measurement.values
    work = [curve.encoded(phase) for phase, curve in measurement.work.items()]
    if any(work):
        record["work"] = [curve for curve in work if curve]
    if measurement.processes:
        record["processes"] = measurement.processes
    if measurement.outcome["status"] != "ok":
        record["output_tail"] = measurement.output.decode("utf-8", "replace")
    return record


def _polling(measurement):
    count = min(measurement.timed_polls, len(measurement.periods))
    if not count:
        return None
    periods = sorted(measurement.periods[:count])
    return {"polls": measurement.polls, "median_ns": periods[count // 2], "p99_ns": periods[min(count - 1, count * 99 // 100)]}


def _first_line(descriptor):
    """The first line, and the bytes after it that have come with it. The others stay in the pipe for the loop that watches it."""
    data = b""
    while b"\n" not in data:
        chunk = os.read(descriptor, 65536)
        if not chunk:
            break
        data += chunk
    line, _, early = data.partition(b"\n")
    return line, early


if __name__ == "__main__":
    sys.exit(main())
