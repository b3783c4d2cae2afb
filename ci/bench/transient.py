"""A runtime of known cost: one transient of exactly `bytes` in one phase, held by all of its threads at the same moment.

The model is a JSON file: {"phase": "load" | "prepare" | "execute", "bytes": N, "threads": N, "hold_s": S, "settle_s": S}. The truth is the
resident set where the phase begins and `bytes` on top. So that nothing else moves meanwhile, all threads start before the first phase, and
everything a transient executes has been executed once by then. Stdlib only, as every runtime of runners/.
"""

import ctypes
import json
import mmap
import threading
import time

THREADS = 8


class Runtime:
    formats = (".json",)
    version = "1"
    default_threads = 1

    def __init__(self):
        self._plan = {"bytes": THREADS * mmap.PAGESIZE, "hold_s": 0.0001, "settle_s": 0}
        self._go = threading.Barrier(THREADS + 1)
        self._touched = threading.Barrier(THREADS)
        self._over = threading.Barrier(THREADS + 1)
        for _ in range(THREADS):
            threading.Thread(target=self._help, daemon=True).start()
        json.loads(json.dumps(self._plan))
        for _ in range(3):
            self._alone()
            self._together()

    def load(self, model, options):
        with open(model, encoding="utf-8") as file:
            self._plan = json.load(file)
        self._phase("load")

    def prepare(self):
        self._phase("prepare")

    def execute(self):
        self._phase("execute")

    def _phase(self, name):
        time.sleep(self._plan["settle_s"])
        if self._plan["phase"] == name:
            self._alone() if self._plan["threads"] == 1 else self._together()
        time.sleep(self._plan["settle_s"])

    def _alone(self):
        memory = _touched(self._plan["bytes"])
        self._hold()
        memory.close()

    def _together(self):
        self._go.wait()
        self._over.wait()

    def _help(self):
        while True:
            self._go.wait()
            memory = _touched(self._plan["bytes"] // THREADS)
            self._touched.wait()  # from here until the first of them goes on, every byte is resident
            self._hold()
            memory.close()
            self._over.wait()

    def _hold(self):
        if self._plan["hold_s"]:
            time.sleep(self._plan["hold_s"])


def _touched(size):
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    view = (ctypes.c_char * size).from_buffer(memory)
    ctypes.memset(view, 1, size)  # without the GIL: the threads touch side by side
    del view
    return memory
