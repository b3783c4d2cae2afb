"""Marks for memprof in your Python script: copy this file beside the script. Stdlib only, Python 3.8 and later.

    from memprof_marks import iteration, phase, value

    with phase("MODEL_LOAD"):
        model = load(path)
    value("arena_bytes", model.arena_bytes)
    with phase("EXECUTE"):
        for batch in batches:
            model.run(batch)
            iteration(tokens=batch.tokens, shape=batch.shape)  # or iteration() alone

    cp "$(memprof marks --python)" .  &&  memprof exec -- python script.py

`memprof grow` reads memory after each iteration and says whether it rises with iterations, with tokens or with each new shape. Any other plural
is as good a unit: requests=1, sessions=1.

Without memprof around it, nothing is done. Phases do not nest. The lines are those of runners/marks.py, which has the contract.
"""

import _signal  # signal imports enum, which takes memory
import contextlib
import json
import os
import time

_TARGET = tuple(int(part) for part in os.environ.get("MEMPROF_MARKS", "").split(":") if part)  # descriptor, device, inode
_STATUS = {"VmRSS": "rss", "RssAnon": "anon", "RssFile": "file", "RssShmem": "shmem", "VmSwap": "swap", "VmSize": "vms", "VmHWM": "hwm"}
_MOST = 8192  # bytes of a file of /proc, and of a line
_laps: list = []  # when the phase began, and each iteration after it
_peaks = [0]  # high-water marks read so far, in bytes
_FOLLOWS = os.environ.get("MEMPROF_WORK") == "1"  # whether memory after each iteration is wanted
_BUFFER, _ROW, _ROWS_A_RATE, _SHAPES = (
    2400,
    260,
    4096,
    4096,
)  # bytes of rows a line, most bytes a row, rows until the rate is halved, places
_text = bytearray(_BUFFER if _FOLLOWS else 0)  # made before the first iteration: a list of rows would itself grow with the iterations
_seen = memoryview(bytearray(8 * _SHAPES if _TARGET else 0)).cast("q")  # hashes of shapes
_units: dict = {}  # how many iterations, and of other units, the phase has done
_at: dict = dict.fromkeys(("filled", "rows", "every", "flushed_ns", "look", "look_ns", "swap", "swap_ns", "rss", "told"), 0)


def _write(mark, **fields):
    line = {"mark": mark, "pid": os.getpid(), **fields}
    return _send(*_pieces(line), b"\n")


def _pieces(value):
    """The value as JSON, in pieces so small that Python does not take them from malloc."""
    if isinstance(value, (dict, list)):
        ends = b"{}" if isinstance(value, dict) else b"[]"
        for at, part in enumerate(value):
            yield b"," if at else ends[:1]
            if isinstance(value, dict):
                yield json.dumps(part).encode() + b":"
            yield from _pieces(value[part] if isinstance(value, dict) else part)
        yield ends[1:] if value else ends
    else:
        yield json.dumps(value).encode()


def _send(*pieces):
    """Write the pieces as one line, from a buffer of one size: Python takes objects above 512 bytes from malloc, and sizes that follow the digits
    of figures would change where the script's own memory lies.
    """
    line, filled = bytearray(_MOST), 0
    for piece in pieces:
        line[filled : filled + len(piece)] = piece
        filled += len(piece)
    with contextlib.suppress(OSError):  # nobody listens any more
        if tuple(os.fstat(_TARGET[0]))[2:0:-1] == _TARGET[1:]:  # st_dev, st_ino
            os.write(_TARGET[0], memoryview(line)[:filled])
            return True
    return False


def _status():
    text = _read("status")
    sizes = ((name, _kib(text, row)) for row, name in _STATUS.items())
    return {name: size for name, size in sizes if size is not None}


def _exact(after):
    """The resident set by smaps_rollup: before Linux 6.17 that of status lags."""
    text = _read("smaps_rollup")
    rss, anon = _kib(text, "Rss"), _kib(text, "Anonymous")
    if rss is not None and anon is not None and "rss" in after and abs(rss - after["rss"]) > os.sysconf("SC_PAGE_SIZE"):
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
    if not started_ns:
        _begin_units(name)
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
        end_ns = time.monotonic_ns()
        units = {} if started_ns else _end_units()
        after = _status()
        _exact(after)
        for at in range(0, len(_laps) - 1, 100):  # so that a line fits into PIPE_BUF bytes
            times_ns = [later - earlier for earlier, later in zip(_laps[at : at + 100], _laps[at + 1 : at + 101])]
            _write("times", phase=name, times_ns=times_ns)
        figures = {key + "_end_bytes": size for key, size in after.items() if key != "hwm"}
        _peaks.extend(status.get("hwm", 0) for status in (before, after))
        figures.update(hwm_bytes=max(_peaks), hwm_reset=reset, hwm_begin_bytes=before.get("hwm", 0), hwm_phase_bytes=after.get("hwm", 0))
        told = _write("end", phase=name, begin_ns=begin_ns, end_ns=end_ns, rss_begin_bytes=before.get("rss", 0), **figures, **units)
        if told and os.environ.get("MEMPROF_HOLD") == "1":
            os.kill(os.getpid(), _signal.SIGSTOP)  # memprof looks at the process as it is now, and lets it go


def iteration(shape=None, **units):
    """An iteration of the phase that runs has ended; the next one begins here.

    shape: what tells its inputs' shape from others. units: how much it did of other units, as plurals: tokens=12, requests=1.
    """
    if not _TARGET:
        return
    now = time.monotonic_ns()
    if not _FOLLOWS:  # a list of times grows too
        _laps.append(now)
    _units["iteration"] = _units.get("iteration", 0) + 1
    for name, count in units.items():
        _count(name[:-1] if name.endswith("s") else name, count)
    if shape is not None:
        _count("shape", _is_new(hash(shape) or 1))
    if _FOLLOWS and "phase" in _at and _units["iteration"] % _at["every"] == 0:
        _take(now)


def _begin_units(phase):
    """Count from 0; all that reading and writing need for the first time is taken now, not in the first iteration."""
    for place in range(_SHAPES if "shape" in _units else 0):
        _seen[place] = 0
    _units.clear()
    _units["iteration"] = 0
    _at.update(dict.fromkeys(_at, 0), every=1, phase=phase)
    if _FOLLOWS:
        for _ in range(4):
            _row(time.monotonic_ns())
            _line(_BUFFER)
            _look()
        _at.update(filled=0, rows=0)
        _row(time.monotonic_ns())
        _at["first"] = _look()


def _end_units():
    if _FOLLOWS and _units["iteration"]:
        _take(time.monotonic_ns(), last=True)
    _at.pop("phase", None)
    others = {name: count for name, count in _units.items() if name != "iteration"}
    return {"units": others} if others else {}


def _count(name, count):
    if name[:30] in _units or len(_units) < 8:
        if name[:30] not in _units:
            _flush()
        _units[name[:30]] = _units.get(name[:30], 0) + count


def _is_new(key):
    place = key % _SHAPES
    while _seen[place] not in (0, key):
        place = (place + 1) % _SHAPES
    if _seen[place] == key or _units.get("shape", 0) >= _SHAPES * 3 // 4:
        return 0
    _seen[place] = key
    return 1


def _take(now, last=False):
    if _at["first"]:
        _send(_at["first"])
        _at["first"] = None
    done = _units["iteration"]
    if _at["told"] != done:
        _row(now)
    _at["told"] = done
    if last or (done >= _at["look"] and now >= _at["look_ns"]):
        _send(_look())
        after = time.monotonic_ns()
        _at.update(look=done + max(1, done // 32), look_ns=after + 100 * (after - now))  # it takes milliseconds in a large process
    if last or now - _at["flushed_ns"] > 100_000_000:
        _flush()
        _at["flushed_ns"] = now
    if _at["rows"] >= _ROWS_A_RATE:
        _at.update(rows=0, every=2 * _at["every"])


def _row(now):
    fields = _read("statm")[:200].split(None, 3)  # in pages: size, resident, shared
    page = os.sysconf("SC_PAGE_SIZE")
    if now - _at["swap_ns"] > 10_000_000:
        _at.update(swap=_kib(_read("status"), "VmSwap") or 0, swap_ns=now)
    _at["rss"] = int(fields[1]) * page
    text = b",%d,%d,%d,%d" % (now, _at["rss"], int(fields[2]) * page, _at["swap"])
    for count in _units.values():
        text += b",%d" % count
    text = text if _at["filled"] else text[1:]
    _text[_at["filled"] : _at["filled"] + len(text)] = text
    _at.update(filled=_at["filled"] + len(text), rows=_at["rows"] + 1)
    if _at["filled"] > _BUFFER - _ROW:
        _flush()


def _flush():
    if _FOLLOWS and _at["filled"] and _units["iteration"]:
        _send(*_line(_at["filled"]))
        _at["filled"] = 0


def _line(filled):
    units = json.dumps(list(_units)).encode()
    head = b'{"mark":"work","pid":%d,"phase":%s,"units":%s,"rows":[' % (os.getpid(), json.dumps(_at["phase"]).encode(), units)
    return head, memoryview(_text)[:filled], b"]}\n"


def _look():
    """The resident set by smaps_rollup, which is exact on every kernel, beside the one that the rows have."""
    text = _read("smaps_rollup")
    figures = (_units["iteration"], _at["rss"], _kib(text, "Rss") or _at["rss"], _kib(text, "Swap") or 0)
    head = b'{"mark":"anchor","pid":%d,"phase":%s,' % (os.getpid(), json.dumps(_at["phase"]).encode())
    return head + b'"iteration":%d,"seen":%d,"rss":%d,"swap":%d}\n' % figures


def _read(name):
    """A file of /proc, zeros behind it; in a buffer of one size too."""
    text = bytearray(_MOST)
    with contextlib.suppress(OSError):  # some kernels and containers lack some of them
        descriptor = os.open("/proc/self/" + name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.readv(descriptor, [text])
        finally:
            os.close(descriptor)
    return text


def _kib(text, name):
    """A row in bytes, None if there is none."""
    place = text.find(b"\n%s:" % name.encode())  # none of these rows is a file's first
    return int(text[place + len(name) + 2 : text.find(b"kB", place)]) * 1024 if place >= 0 else None


def value(name, number):
    """A figure of the script; the name says what it is: arena_bytes, wait_ns, loss."""
    if _TARGET:
        _write("value", name=name, value=float(number), t_ns=time.monotonic_ns())
