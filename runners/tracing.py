"""Which lines of Python code hold more objects at the end than after the warm-up: tracemalloc, asked for by a job's "traced".

The answer is a JSON file: [[FILE, LINE, BYTES, BLOCKS, LIBRARY_FILE, LIBRARY_LINE, HOLDER, TABLE], ...], the largest growth first. FILE and LINE are
the nearest frame of the user's own code. Where that called a library which allocates, the next two say where most of it was allocated there, by the
path inside the library's folder; else they are null. A stack without a frame of the user's has the line that allocates; memprof's own objects are
left out. HOLDER says which container holds most of the line's objects, such as "the list `kept` of module imglib"; null if no container with a name
does. TABLE: whether the line's objects are the container's own table, which grows in jumps.

Tracing takes memory and time itself, so no other figure of such a run is used. Stdlib only, Python 3.8 and later.
"""

import collections
import ctypes
import functools
import gc
import json
import os
import platform
import sys
import tracemalloc
import types

_MOST = 100
_LEAST_SHARE = 0.05  # of the growth, that a line has whose holder is looked for
_HELD_LINES = 8  # whose holders are looked for
# Of each stack, the nearest first. 16 took three times the CPU time of one: 0.34 s in place of 0.11 s for 66,000 blocks in Python 3.11.
_FRAMES = 16
_STDLIB = os.path.dirname(os.__file__) + os.sep
_PACKAGES = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_TRACER = (tracemalloc.__file__, __file__)
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_HOME = os.path.dirname(os.path.dirname(_OWN))
# An installed memprof holds this folder; in its repository memprof/ stands beside it.
_MEMPROF = (_HOME if os.path.basename(_HOME) == "memprof" else os.path.join(_HOME, "memprof")) + os.sep
_MARKS = "memprof_marks.py"  # people copy it
_CONTAINERS = (list, dict, set, collections.deque)
_EMPTY = {kind: sys.getsizeof(kind()) for kind in (list, dict, set)}  # without a table; a deque has many small blocks
_NO_HOLDERS = (types.FrameType, types.ModuleType)
_LEAST_HELD = 4  # objects of one line in one container
_LEAST_TABLE = 1024  # bytes of a table that is told by its size
_STEPS = 5  # from an object to its holder: an item, its list, the dict of attributes, the object, the dict of objects
_MOST_CANDIDATES = 5
_MOST_BLOCKS = 4  # of such an object: an array has three, its header, shape and content
_MANAGED_DICT, _HEADER_311 = (
    1 << 4,
    32,
)  # Py_TPFLAGS_MANAGED_DICT, and what stands before such an object: gc's two words and two of attributes
_traceback_at = None
if sys.version_info[:2] == (3, 11) and platform.python_implementation() == "CPython":
    _traceback_at = ctypes.pythonapi._PyTraceMalloc_GetTraceback
    _traceback_at.restype, _traceback_at.argtypes = ctypes.py_object, [ctypes.c_uint, ctypes.c_size_t]


class Lines:
    """Traces from now on."""

    def __init__(self, path):
        self._path = path
        self._first, self._lengths = None, {}
        tracemalloc.start(_FRAMES)

    def look(self):
        """The end of a phase: the first, that of WARMUP, is kept; after each other one the difference from it is written again."""
        now = tracemalloc.take_snapshot()
        if self._first is None:
            self._first, self._lengths = now, {id(container): len(container) for container in _containers(_things())}
            return
        rows = grown(self._first, now)
        things = list(_things())
        least = _LEAST_SHARE * sum(row[2] for row in rows)
        large = {(file, line): blocks for file, line, size, blocks, *_ in rows[:_HELD_LINES] if size >= least and blocks >= _LEAST_HELD}
        held = holders(large, things)
        tables = _tables(now, things, self._lengths, held)
        words = {id(container): _named(container) for container in [*held.values(), *(container for container, _ in tables.values())]}
        of_tables = {line: rise for line, (container, rise) in tables.items() if words[id(container)] is not None}
        sizes = {tuple(row[:2]): row for row in rows}
        for line, rise in of_tables.items():  # a table grows in jumps, and between both looks there may be none
            row = sizes.setdefault(line, [*line, 0, 0, None, None])
            row[2] = max(row[2], rise)
        answer = []
        for line, row in sorted(sizes.items(), key=lambda item: -item[1][2]):
            holder = tables[line][0] if line in of_tables else held.get(line)
            answer.append([*row, None if holder is None else words[id(holder)], line in of_tables])
        with open(self._path, "w", encoding="utf-8") as file:
            json.dump(answer, file)


def grown(first, last):
    """The rows of the lines whose objects grew, the largest first."""
    lines = {}  # type: dict
    for stack, (size, blocks) in _changes(first, last):
        allocating = stack[-1]
        if _is_memprofs(stack):
            continue
        own = _users_frame(stack)
        sizes = lines.setdefault((own.filename, own.lineno), {}).setdefault((allocating.filename, allocating.lineno), [0, 0])
        sizes[0] += size
        sizes[1] += blocks
    rows = [_row(line, places) for line, places in lines.items()]
    return sorted((row for row in rows if row[2] > 0), key=lambda row: -row[2])[:_MOST]


def holders(lines, things):
    """Which container holds most of the objects that each of these lines allocated. A line is absent without a container that has a name:
    a module's variable, or an attribute of a class or an object. lines: by (FILE, LINE), how many blocks stay. things: what may hold objects.

    The way leads up from the objects in a few steps, since a container may hold them by others: an item by its list, an attribute of an object,
    and the object by a dict. tracemalloc knows where an object was allocated, and `_contents` what a container holds, also objects that gc does not
    track, such as arrays.
    """
    held = {}  # type: dict
    below = _objects_of(lines, things)  # by the id of a thing: for each line, how many of its objects the thing leads to
    for _ in range(_STEPS):
        numbers = below.keys()
        above, found = {}, {}  # type: ignore[var-annotated]
        for thing in things:
            contents = _contents(thing)
            if numbers.isdisjoint(map(id, contents)):
                continue
            children = [below[number] for number in map(id, contents) if number in below]
            counts = above[id(thing)] = collections.Counter()
            for child in children:
                counts.update(child)
            if type(thing) in _CONTAINERS and len(children) >= _LEAST_HELD:
                for line, count in counts.items():
                    if count >= lines[line] / _MOST_BLOCKS and sum(line in child for child in children) >= _LEAST_HELD:
                        found.setdefault(line, []).append((count, thing))
        for line, candidates in found.items():
            largest = sorted(candidates, key=lambda candidate: -candidate[0])[:_MOST_CANDIDATES]
            container = next((container for _, container in largest if _named(container) is not None), None)
            if container is not None:
                held[line] = container
        below = {number: left for number, left in ((number, _without(counts, held)) for number, counts in above.items()) if left}
        if not below:
            break
    return held


def _objects_of(lines, things):
    """The objects that these lines allocated, by id, as far as one of the things holds them."""
    seen, objects = set(), {}  # type: ignore[var-annotated]
    for thing in things:
        for child in _contents(thing):
            number = id(child)
            if number not in seen:
                seen.add(number)
                line = _line_of(child)
                if line in lines:
                    objects[number] = {line: 1}
    return objects


def _without(counts, lines):
    return {line: count for line, count in counts.items() if line not in lines}


def _tables(last, things, lengths, held):
    """The lines that allocate the own tables of containers which grew: by (FILE, LINE), the container and the bytes of the table's rise. A table is
    the block of the size that the container tells of it. lengths: of the containers at the first look. held: lines whose objects a container holds.
    Two tables of one size cannot be told apart."""
    risen = {}  # type: dict
    for container in _containers(things):
        more = len(container) - lengths.get(id(container), 0)
        empty = _EMPTY.get(type(container))
        if more >= _LEAST_HELD and empty is not None and sys.getsizeof(container) - empty >= _LEAST_TABLE:
            risen.setdefault(sys.getsizeof(container) - empty, []).append((container, more))
    blocks = {}  # type: dict
    for trace in last.traces:
        alike = risen.get(trace.size, ())
        if len(alike) != 1 or _is_memprofs(trace.traceback):
            continue
        ((container, more),) = alike
        line = _users_line(trace.traceback)
        if line not in held:  # or it allocates objects too, which are most of its growth
            blocks.setdefault(id(container), []).append((line, container, trace.size * more // len(container)))
    return {lines[0][0]: lines[0][1:] for lines in blocks.values() if len(lines) == 1}


def _things():
    """What gc tracks, and the dicts and tuples in it that gc does not track: those of texts and numbers, up to Python 3.13."""
    for thing in gc.get_objects():
        if type(thing) in _NO_HOLDERS or (type(thing) in _CONTAINERS and _is_tracers(thing)):
            continue
        yield thing
        for child in gc.get_referents(thing):
            if type(child) in (dict, tuple) and not gc.is_tracked(child):
                yield child


def _containers(things):
    return (thing for thing in things if type(thing) in _CONTAINERS and len(thing) >= _LEAST_HELD)


def _contents(container):
    """What a container holds. gc leaves out a dict's keys if all of them are texts."""
    return [*container, *container.values()] if type(container) is dict else gc.get_referents(container)


def _is_tracers(thing):
    """Whether the tracer made it for itself: its lists of all blocks are the longest containers of all."""
    stack = _stack_of(thing)
    return stack is not None and stack[-1].filename in _TRACER


def _line_of(thing):
    """The line that allocated an object, the nearest of the user's own code; None if that is unknown."""
    stack = _stack_of(thing)
    return None if stack is None else _users_line(stack)


def _stack_of(thing):
    """The stack of an object's allocation. Python 3.11 looks for that of an object with attributes at an address 16 bytes behind its block's, and
    finds none."""
    stack = tracemalloc.get_object_traceback(thing)
    if stack is None and _traceback_at is not None and type(thing).__flags__ & _MANAGED_DICT:
        frames = _traceback_at(0, id(thing) - _HEADER_311)
        stack = None if frames is None else tracemalloc.Traceback(frames)
    return stack


@functools.lru_cache(maxsize=None)  # many objects have few stacks
def _users_line(stack):
    frame = _users_frame(stack)
    return frame.filename, frame.lineno


def _named(container):
    """A container by its kind, its name and what has it under that name, in words; None if nothing does."""
    kind = type(container).__name__
    for name, module in list(sys.modules.items()):
        variable = _key_of(container, getattr(module, "__dict__", {}))
        if variable is not None:
            return "the %s `%s` of module %s" % (kind, variable, name)
    # Up to Python 3.10 an object refers to its attributes by a dict, later versions by itself as long as nobody wants the dict.
    for referrer in gc.get_referrers(container):
        owners = gc.get_referrers(referrer) if isinstance(referrer, dict) else [referrer]
        for owner in owners:
            variable = _key_of(container, getattr(owner, "__dict__", {}))
            if variable is not None and not isinstance(owner, type(sys)):
                owner_class = owner if isinstance(owner, type) else type(owner)
                of = "class" if isinstance(owner, type) else "an object of class"
                return "the %s `%s` of %s %s.%s" % (kind, variable, of, owner_class.__module__, owner_class.__qualname__)
    return None


def _key_of(thing, variables):
    return next((name for name, value in list(variables.items()) if value is thing and isinstance(name, str)), None)


def _changes(first, last):
    """The stacks whose blocks changed, each with [bytes, blocks] more. Snapshot.compare_to sorts all stacks, and took a minute after an import of
    numpy: 144,000 blocks."""
    changes = {}  # type: dict
    for sign, snapshot in ((-1, first), (1, last)):
        for trace in snapshot.traces:
            change = changes.setdefault(trace.traceback, [0, 0])
            change[0] += sign * trace.size
            change[1] += sign
    return [(stack, change) for stack, change in changes.items() if change != [0, 0]]


def _row(line, places):
    """A line of the answer. places: of each line that allocates for it, [bytes, blocks]."""
    most = max(places, key=lambda place: places[place][0])
    library = [None, None] if most == line else [_short(most[0]), most[1]]
    return [*line, sum(sizes[0] for sizes in places.values()), sum(sizes[1] for sizes in places.values()), *library]


def _users_frame(stack):
    """The nearest frame of the user's own code, or else the one that allocates."""
    return next((frame for frame in reversed(stack) if _is_own(frame.filename)), stack[-1])


def _is_memprofs(stack):
    """Whether memprof allocated a block for itself: the nearest frame that is not the standard library's is memprof's."""
    if stack[-1].filename in _TRACER:
        return True
    nearest = next((frame.filename for frame in reversed(stack) if not frame.filename.startswith(("<", _STDLIB))), "")
    return nearest.startswith((_OWN, _MEMPROF)) or os.path.basename(nearest) == _MARKS


@functools.lru_cache(maxsize=None)
def _is_own(file):
    """Whether a file is the user's: of no package, not of the standard library, not memprof's, and no name in place of a file, such as <string>."""
    return not (
        file.startswith(("<", _STDLIB, _OWN, _MEMPROF)) or os.path.basename(file) == _MARKS or any(folder in file for folder in _PACKAGES)
    )


def _short(file):
    """The file's path inside the folder of its library."""
    for folder in _PACKAGES:
        if folder in file:
            return file.rpartition(folder)[2]
    return file[len(_STDLIB) :] if file.startswith(_STDLIB) else file
