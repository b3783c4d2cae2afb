"""A runtime that follows a scenario file, so that its memory is known beforehand: for tests of accuracy and of failures.

The model is a JSON file (ending .json): `{"load": [STEP, ...], "prepare": [...], "execute": [...], "release": [...]}`, each step
one of

    {"allocate": NAME, "bytes": N, "touch": true}   an anonymous mapping; touched pages are written
    {"free": NAME}                                  unmap it
    {"spike": N, "hold_s": S}                       allocate, touch, hold, free: a transient; in `threads` threads where given, all at once
    {"map": PATH, "as": NAME, "read": true}         map a file (relative to the scenario); read every page of it
    {"sleep_s": S}  {"spin_s": S}                   wait asleep, or busy
    {"threads": N, "for_s": S}                      N threads, each touching a little separate memory
    {"fork": N, "for_s": S}                         N children that sleep (and may outlive it)
    {"crash": "SIGSEGV"}  {"exit": CODE}  {"raise": TEXT}  {"hang": true}
    {"print": TEXT, "times": N, "to": "stderr"}     write to stdout or stderr
    {"steal_marks": PATH}                           close every descriptor from 3 on and open PATH where the marks went

A size N may be a law: {"x*y": BYTES, ...}, the sum of products of the knobs x, y and z. The key "" is a constant. With "above": {"x": N} a step
is taken only where x is larger than N.

Memory that is still there after the steps of "release" ends with the runtime. It comes from mmap and is touched through memset, so that neither
the allocator nor the garbage collector moves a figure.
"""

import ctypes
import json
import mmap
import os
import signal
import sys
import threading
import time

from . import Knob, Refused

PAGE = mmap.PAGESIZE


class Runtime:
    distribution = None
    formats = (".json",)
    version = "1"
    default_threads = 1
    notes = ()
    knobs = (
        Knob("extra", "bytes", "0", "allocate and touch this much more in MODEL_LOAD: a known increase", call=""),
        Knob("x", "int", "1", "a number that a scenario's sizes may depend on", call=""),
        Knob("y", "int", "1", "another such number", call=""),
        Knob("z", "int", "1", "a third such number", call=""),
    )

    def load(self, model, options):
        with open(model, encoding="utf-8") as file:
            try:
                scenario = json.load(file)
            except ValueError as error:
                raise Refused(f"{os.path.basename(model)} is not a scenario: {error}") from None
        unknown = set(scenario) - {"load", "prepare", "execute", "release"} if isinstance(scenario, dict) else {"(not an object)"}
        if unknown:
            raise Refused(
                f"{os.path.basename(model)} is not a scenario: load, prepare, execute and release are known, not {sorted(unknown)[0]}"
            )
        self._folder = os.path.realpath(os.path.dirname(model))  # a step may close the files that its path leads through
        self._scenario = scenario
        self._held = {}
        self._numbers = {name: options.knobs[name] for name in ("x", "y", "z")}
        if options.knobs["extra"]:
            self._held["(extra)"] = _touched(options.knobs["extra"])
        self._follow("load")

    def prepare(self):
        self._follow("prepare")

    def execute(self):
        self._follow("execute")

    def release(self):
        self._follow("release")

    def _follow(self, phase):
        for step in self._scenario.get(phase, ()):
            if any(self._numbers.get(name, 1) <= least for name, least in step.get("above", {}).items()):
                continue
            kind = next(iter(step))
            action = getattr(self, "_do_" + kind, None)
            if action is None:
                raise Refused(f"a scenario has no step {kind!r}")
            action(step)

    def _size(self, size):
        if not isinstance(size, dict):
            return size
        return int(sum(amount * self._product(words) for words, amount in size.items())) or 1

    def _product(self, words):
        product = 1
        for word in filter(None, words.split("*")):
            if word not in self._numbers:
                raise Refused(f"a scenario's size has no {word!r}: x, y and z are numbers")
            product *= self._numbers[word]
        return product

    def _do_allocate(self, step):
        memory = mmap.mmap(-1, self._size(step["bytes"]), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if step.get("touch", True):
            _touch(memory)
        self._held[step["allocate"]] = memory

    def _do_free(self, step):
        self._held.pop(step["free"]).close()

    def _do_spike(self, step):
        count, size = step.get("threads", 1), self._size(step["spike"])
        all_have = threading.Barrier(count)

        def once():
            memory = _touched(size)
            all_have.wait()  # so that the sum is known
            if step.get("hold_s"):
                time.sleep(step["hold_s"])
            memory.close()

        if count == 1:
            once()
            return
        side_by_side = [threading.Thread(target=once) for _ in range(count)]
        for thread in side_by_side:
            thread.start()
        for thread in side_by_side:
            thread.join()

    def _do_map(self, step):
        with open(os.path.join(self._folder, step["map"]), "rb") as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if step.get("read", True):
            for offset in range(0, len(memory), PAGE):
                memory[offset]
        self._held[step["as"]] = memory

    def _do_sleep_s(self, step):
        time.sleep(step["sleep_s"])

    def _do_spin_s(self, step):
        until = time.monotonic() + step["spin_s"]
        while time.monotonic() < until:
            pass

    def _do_threads(self, step):
        ready = [threading.Thread(target=_small_thread, args=(step["for_s"],)) for _ in range(step["threads"])]
        for thread in ready:
            thread.start()
        for thread in ready:
            thread.join()

    def _do_fork(self, step):
        for _ in range(step["fork"]):
            if os.fork() == 0:
                time.sleep(step["for_s"])
                os._exit(0)

    def _do_crash(self, step):
        number = getattr(signal, step["crash"])
        signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), number)
        time.sleep(60)

    def _do_exit(self, step):
        os._exit(step["exit"])

    def _do_raise(self, step):
        raise RuntimeError(step["raise"])

    def _do_hang(self, step):
        while True:
            time.sleep(3600)

    def _do_print(self, step):
        target = sys.stderr if step.get("to") == "stderr" else sys.stdout
        data = step["print"].encode("utf-8", "surrogateescape")
        for _ in range(step.get("times", 1)):
            target.buffer.write(data)
        target.flush()

    def _do_steal_marks(self, step):
        number = int(os.environ["MEMPROF_MARKS"].split(":")[0])
        os.closerange(3, 256)
        opened = os.open(os.path.join(self._folder, step["steal_marks"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, number)


def _touched(size):
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _touch(memory)
    return memory


def _touch(memory):
    view = (ctypes.c_char * len(memory)).from_buffer(memory)
    ctypes.memset(view, 1, len(memory))  # releases the GIL: several threads touch at once
    del view


def _small_thread(seconds):
    memory = _touched(1 << 16)
    time.sleep(seconds)
    memory.close()
