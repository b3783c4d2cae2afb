"""Which lines of Python code hold more objects at the end than after the warm-up: tracemalloc, asked for by a job's "traced".

The answer is a JSON file: [[FILE, LINE, BYTES, BLOCKS, LIBRARY_FILE, LIBRARY_LINE, HOLDER], ...], the largest growth first. FILE and LINE are
the nearest frame of the user's own code. Where that called a library which allocates, the next two say where most of it was allocated there, by the
path inside the library's folder; else they are null. A stack without a frame of the user's has the line that allocates; memprof's own objects are
left out. HOLDER says which container holds most of the line's objects, such as "the list `kept` of module imglib"; it is empty if no container with a
name was found, and null if no object of the line was seen, as where a line adds to a dict.

Tracing takes memory and time itself, so no other figure of such a run is used. Stdlib only, Python 3.8 and later.
"""

import _tracemalloc
import abc
import collections
import functools
import gc
import json
import os
import sys
import threading
import tracemalloc
import types
import weakref

_MOST = 100
_HELD_LINES = 5  # whose holders are looked for
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
_FREED_KEYS = 80  # PyDict_MAXFREELIST in dictobject.c
_LRU_CACHE = type(functools.lru_cache(maxsize=None)(len))
_NAMED = (list, dict, set, collections.deque, collections.defaultdict, collections.OrderedDict, _LRU_CACHE)
# Many, and what they hold is in a dict of theirs, or lives on only while they run.
_NO_HOLDERS = frozenset(
    (type, abc.ABCMeta, types.ModuleType, types.FrameType, types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType)
    + (types.WrapperDescriptorType, types.GetSetDescriptorType, weakref.ReferenceType, property, classmethod, staticmethod)
)
_NO_WAY = _NO_HOLDERS - {types.FunctionType}  # whose closure leads on to what holds the function
_MOST_LOOKED_FOR = 64  # things at once, or twice as many: gc compares each reference with all of them
_LEVELS = 8  # of things inside of one another, from what holds an object to a container with a name
_MOST_NAMED = 5  # of the containers with the most objects, of which one may have a name
_LOSES_INSTANCES, _MANAGED_DICT = sys.version_info[:2] == (3, 11), 1 << 4
_LEAST_HELD = 4  # objects of one line in one container
_MOST_BLOCKS = 4  # of such an object: an array has three, its header, shape and content


class Lines:
    """Traces from now on."""

    def __init__(self, path):
        self._path = path
        self._first = None
        tracemalloc.start(_FRAMES)

    def look(self):
        """The end of a phase: the first, that of WARMUP, is kept; after each other one the difference from it is written again.

        In a thread, whose stack is short: what a look allocates is traced too, each block with the whole stack."""
        errors = []  # type: list
        thread = threading.Thread(target=self._look, args=(errors,))
        thread.start()
        thread.join()
        if errors:
            raise errors[0]

    def _look(self, errors):
        try:
            self._compare()
        except Exception as error:
            errors.append(error)

    def _compare(self):
        gc.collect()  # which also frees what Python keeps of deleted tuples and dicts for the next: to tracemalloc they stay
        now = tracemalloc.take_snapshot()
        if self._first is None:
            self._first = now
            return
        rows = grown(self._first, now)
        held = holders({(file, line): blocks for file, line, _, blocks, *_ in rows[:_HELD_LINES]})
        with open(self._path, "w", encoding="utf-8") as file:
            json.dump([[*row, held.get(tuple(row[:2]))] for row in rows], file)

    def end(self):
        """Traces no more: what a program imports behind its last phase would take many times as long."""
        tracemalloc.stop()


def apart(function):
    """The function, called while Python keeps no freed keys of dicts for the next one: their block keeps the traceback of the line that allocated it
    first, so a dict that stays would be the line's of a dict that was freed before the call, such as one of the caller's."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        taken = [{"": None} for _ in range(_FREED_KEYS)]
        result = function(*args, **kwargs)
        del taken
        return result

    return call


def grown(first, last):
    """The rows of the lines whose objects grew, the largest first."""
    lines = {}  # type: dict
    for frames, (size, blocks) in _changes(first, last):
        if _is_memprofs(frames):
            continue
        sizes = lines.setdefault(_users_line(frames), {}).setdefault(frames[0], [0, 0])
        sizes[0] += size
        sizes[1] += blocks
    rows = [_row(line, places) for line, places in lines.items()]
    return sorted((row for row in rows if row[2] > 0), key=lambda row: -row[2])[:_MOST]


def holders(lines):
    """Which container holds most of the objects that each of these lines allocated, in words: empty without a container that has a name, a module's
    variable, or an attribute of a class or an object. A line is absent if none of its objects was seen. lines: by (FILE, LINE), how many blocks stay.

    tracemalloc knows where an object was allocated, and `_contents` what a thing holds, also objects that gc does not track, such as arrays. Where no
    container with a name holds the objects themselves, it may hold what holds them: a cache of dicts, or of objects with attributes.
    """
    inside = {line: [] for line in lines}  # type: dict
    instances = {line: [] for line in lines}  # type: dict
    around = {}  # type: dict
    for thing in list(_things(around)):
        objects, unseen = {}, {}  # type: dict, dict
        for child in _contents(thing):
            frames = _tracemalloc._get_object_traceback(child)
            if frames is not None:
                line = _users_line(frames)
                if line in lines:
                    objects[line] = objects.get(line, 0) + 1
            elif _LOSES_INSTANCES and type(child).__flags__ & _MANAGED_DICT:
                for line in _lines_of_attributes(child).intersection(lines):
                    unseen[line] = unseen.get(line, 0) + 1
        for found, counts in ((inside, objects), (instances, unseen)):
            for line, count in counts.items():
                found[line].append((count, thing))
    seen = [line for line in lines if inside[line] or instances[line]]
    return {line: _holder(inside[line], lines[line], around) or _holder(instances[line], lines[line], around) or "" for line in seen}


def _holder(found, number, untracked):
    """The name of the container that holds most of a number of blocks, or most of what holds them, up to some levels; None if there is none. found:
    what holds any of them, with the count of those that it holds. untracked: see `_things`."""
    name = _name_of_most(found, max(_LEAST_HELD, number / _MOST_BLOCKS))
    whole = sum(count for count, _ in found)
    if name is not None or whole < _LEAST_HELD:
        return name
    sample = _sample(found, whole)
    weights = [weight for weight, _ in sample]
    inner = [thing for _, thing in sample]
    reached = {id(thing): {place} for place, thing in enumerate(inner)}
    for _ in range(_LEVELS):
        held = [(sum(weights[place] for place in reached[id(thing)]), thing) for thing in _around(inner, reached, untracked)]
        name = _name_of_most(held, whole / 2)
        if name is not None or not held:
            return name
        inner = [thing for _, thing in sorted(held, key=lambda pair: -pair[0])[:_MOST_LOOKED_FOR]]
    return None


def _sample(found, whole):
    """Some of many things, with what each stands for: all that hold much, and of the others one in so many."""
    large = [pair for pair in found if pair[0] * _MOST_LOOKED_FOR >= whole]
    small = [pair for pair in found if pair[0] * _MOST_LOOKED_FOR < whole]
    one_in = -(-len(small) // _MOST_LOOKED_FOR)
    return large + [(count * one_in, thing) for count, thing in small[:: one_in or 1]]


def _name_of_most(found, least):
    """The name of the container that holds most, of those that have one and hold enough; None if none does. found: a count with each thing."""
    large = [(count, thing) for count, thing in found if count >= least and type(thing) in _NAMED]
    names = (_named(thing) for _, thing in sorted(large, key=lambda pair: -pair[0])[:_MOST_NAMED])
    return next((name for name in names if name is not None), None)


def _around(inner, reached, untracked):
    """What holds these things, as far as more of the first things are inside it than was known. reached: which of the first things are inside a
    thing, by its id; what is found is added."""
    numbers = {id(thing) for thing in inner}
    referrers = gc.get_referrers(*inner)
    for number in numbers:
        referrers += untracked.get(number, ())
    around = []
    for thing in referrers:
        if type(thing) in _NO_WAY or _is_tracers(thing) or _is_variables(thing):
            continue
        inside = set().union(*(reached[id(child)] for child in _contents(thing) if id(child) in numbers))
        known = reached.setdefault(id(thing), set())
        if not inside <= known:
            known |= inside
            around.append(thing)
    return around


def _things(untracked):
    """What may hold objects: all that gc tracks, and the dicts and tuples in these that it does not track, as those of texts and numbers alone.
    untracked: by the id of what such a dict or tuple holds, those that hold it, which gc cannot tell; what is found is added."""
    seen = set()
    for thing in gc.get_objects():
        if type(thing) in _NO_HOLDERS or _is_tracers(thing):
            continue
        yield thing
        inner = [thing]
        while inner:
            for child in gc.get_referents(inner.pop()):
                if type(child) in (dict, tuple) and not gc.is_tracked(child) and id(child) not in seen:
                    seen.add(id(child))
                    for held in gc.get_referents(child):
                        untracked.setdefault(id(held), []).append(child)
                    inner.append(child)
                    yield child


def _contents(thing):
    """What a thing holds. gc leaves out a dict's keys if all of them are texts."""
    return [*thing, *thing.values()] if type(thing) is dict else gc.get_referents(thing)


def _is_tracers(thing):
    """Whether the tracer made it for itself: its lists of all blocks are the longest containers of all."""
    frames = _tracemalloc._get_object_traceback(thing)
    return frames is not None and frames[0][0] in _TRACER


def _lines_of_attributes(instance):
    """The lines from which an instance's attributes were allocated, in its arguments or its __init__: one of them made the instance.

    For Python 3.11, which looks for the traceback of an instance with attributes at a wrong address, so that it has none: _tracemalloc.c leaves out
    the two pointers in front of gc's header, flag Py_TPFLAGS_MANAGED_DICT."""
    stacks = (_tracemalloc._get_object_traceback(attribute) for attribute in gc.get_referents(instance))
    return set().union(*(frames for frames in stacks if frames is not None))


@functools.lru_cache(maxsize=None)  # many objects have few stacks
def _users_line(frames):
    """The line that allocated an object, the nearest of the user's own code. frames: (FILE, LINE) of each, the nearest first."""
    return next((frame for frame in frames if _is_own(frame[0])), frames[0])


def _named(container):
    """A container by its kind, its name and what has it under that name, in words; None if nothing does."""
    kind = type(container).__name__
    if type(container) is _LRU_CACHE:
        return "the lru_cache of %s.%s" % (container.__module__, container.__qualname__)
    referrers = gc.get_referrers(container)
    for referrer in referrers:
        if _is_variables(referrer):
            variable = _key_of(container, referrer)
            if variable is not None:
                return "the %s `%s` of %s" % (kind, variable, _module_words(referrer))
    # Up to Python 3.10 an object refers to its attributes by a dict, later versions by itself as long as nobody wants the dict.
    for referrer in referrers:
        owners = gc.get_referrers(referrer) if isinstance(referrer, dict) else [referrer]
        for owner in owners:
            variable = _key_of(container, getattr(owner, "__dict__", {}))
            if variable is not None and not isinstance(owner, type(sys)):
                owner_class = owner if isinstance(owner, type) else type(owner)
                of = "class" if isinstance(owner, type) else "an object of class"
                return "the %s `%s` of %s %s.%s" % (kind, variable, of, owner_class.__module__, owner_class.__qualname__)
    return None


def _is_variables(thing):
    """Whether it is the dict of a module's variables."""
    return type(thing) is dict and "__name__" in thing and "__spec__" in thing


def _module_words(variables):
    """A module by its variables, in words. A file that was run as a module of another name, as a runtime's, has its own."""
    name, file = variables["__name__"], variables.get("__file__")
    return "module " + name if name in sys.modules or not file else os.path.basename(file)


def _key_of(thing, variables):
    return next((name for name, value in list(variables.items()) if value is thing and isinstance(name, str)), None)


def _changes(first, last):
    """The stacks whose blocks changed, each with [bytes, blocks] more. Snapshot.compare_to sorts all stacks, and took a minute after an import of
    numpy: 144,000 blocks."""
    changes = {}  # type: dict
    for sign, snapshot in ((-1, first), (1, last)):
        for frames, size, blocks in _stacks(snapshot):
            change = changes.setdefault(frames, [0, 0])
            change[0] += sign * size
            change[1] += sign * blocks
    return [(frames, change) for frames, change in changes.items() if change != [0, 0]]


def _stacks(snapshot):
    """The stacks of a snapshot: frames, the nearest first, bytes and blocks. Blocks of one stack share its tuple of frames, whose hash takes longer
    than the sums: 400,000 blocks took half a minute by tracemalloc's objects."""
    sums = {}  # type: dict
    for trace in snapshot.traces._traces:
        of_stack = sums.get(id(trace[2]))
        if of_stack is None:
            of_stack = sums[id(trace[2])] = [trace[2], 0, 0]
        of_stack[1] += trace[1]
        of_stack[2] += 1
    return sums.values()


def _row(line, places):
    """A line of the answer. places: of each line that allocates for it, [bytes, blocks]."""
    most = max(places, key=lambda place: places[place][0])
    library = [None, None] if most == line else [_short(most[0]), most[1]]
    return [*line, sum(sizes[0] for sizes in places.values()), sum(sizes[1] for sizes in places.values()), *library]


def _is_memprofs(frames):
    """Whether memprof allocated a block for itself: the nearest frame that is not the standard library's is memprof's."""
    if frames[0][0] in _TRACER:
        return True
    nearest = next((file for file, _ in frames if not file.startswith(("<", _STDLIB))), "")
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
