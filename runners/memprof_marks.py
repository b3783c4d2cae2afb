"""Marks for memprof in your Python script: copy this file beside the script. Stdlib only, Python 3.8 and later.

    from memprof_marks import iteration, phase, value

    with phase("MODEL_LOAD"):
        model = load(path)
    value("arena_bytes", model.arena_bytes)
    with phase("EXECUTE"):
        for batch in batches:
            model.run(batch)
            iteration()

    cp "$(memprof marks --python)" .  &&  memprof exec -- python script.py

Without memprof around it, nothing is done. Phases do not nest. The lines are those of runners/marks.py, which has the contract.
"""

import contextlib
import json
import os
import time

_TARGET = tuple(int(part) for part in os.environ.get("MEMPROF_MARKS", "").split(":") if part)  # descriptor, device, inode
_STATUS = {"VmRSS": "rss", "RssAnon": "anon", "RssFile": "file", "RssShmem": "shmem", "VmSwap": "swap", "VmSize": "vms", "VmHWM": "hwm"}
_laps: list = []  # when the phase began, and each iteration after it
_peaks = [0]  # high-water marks read so far, in bytes


def _write(mark, **fields):
    with contextlib.suppress(OSError):  # nobody listens any more
        if tuple(os.fstat(_TARGET[0]))[2:0:-1] == _TARGET[1:]:  # st_dev, st_ino
            os.write(_TARGET[0], json.dumps({"mark": mark, "pid": os.getpid(), **fields}).encode() + b"\n")


def _rows(name):
    with open("/proc/self/" + name) as file:
        return {row[0][:-1]: int(row[1]) * 1024 for row in map(str.split, file) if row[-1] == "kB"}


def _status():
    return {_STATUS[name]: size for name, size in _rows("status").items() if name in _STATUS}


def _exact(after):
    """The resident set by smaps_rollup: before Linux 6.17 that of status lags."""
    with contextlib.suppress(OSError, KeyError):
        rows = _rows("smaps_rollup")
        rss, anon = rows["Rss"], rows["Anonymous"]
        if abs(rss - after["rss"]) > os.sysconf("SC_PAGE_SIZE"):
            after.update(rss=rss, anon=anon, file=max(0, rss - anon - after.get("shmem", 0)))


@contextlib.contextmanager
def phase(name, started_ns=None):
    """The block is a phase of that name, and its peak is exact. The first phase ends STARTUP, the baseline."""
    if not _TARGET:
        yield
        return
    if not _laps and not started_ns:
        with phase("STARTUP", int(os.environ.get("MEMPROF_STARTED_NS", 1))):
            pass
    before, reset = {} if started_ns else _status(), True
    _write("begin", phase=name, t_ns=started_ns or time.monotonic_ns())
    try:
        if not started_ns:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")  # resets the high-water mark of the resident set
    except OSError:
        reset = False
    _laps[:] = [started_ns or time.monotonic_ns()]
    begin_ns = _laps[0]
    try:
        yield
    finally:
        end_ns, after = time.monotonic_ns(), _status()
        _exact(after)
        for at in range(0, len(_laps) - 1, 100):  # so that a line fits into PIPE_BUF bytes
            times_ns = [later - earlier for earlier, later in zip(_laps[at : at + 100], _laps[at + 1 : at + 101])]
            _write("times", phase=name, times_ns=times_ns)
        figures = {key + "_end_bytes": size for key, size in after.items() if key != "hwm"}
        _peaks.extend(status.get("hwm", 0) for status in (before, after))
        figures.update(hwm_bytes=max(_peaks), hwm_reset=reset, hwm_begin_bytes=before.get("hwm", 0), hwm_phase_bytes=after.get("hwm", 0))
        _write("end", phase=name, begin_ns=begin_ns, end_ns=end_ns, rss_begin_bytes=before.get("rss", 0), **figures)


def iteration():
    """An iteration of the phase that runs has ended; the next one begins here."""
    if _TARGET:
        _laps.append(time.monotonic_ns())


def value(name, number):
    """A figure of the script; the name says what it is: arena_bytes, wait_ns, loss."""
    if _TARGET:
        _write("value", name=name, value=float(number), t_ns=time.monotonic_ns())
