"""What the tests of tune share."""

from support.recorder_runs import KNOB

RUNTIME = (
    KNOB
    + """
import mmap, os, time

class Runtime:
    version = "1"
    default_threads = 1
    knobs = (
        Knob("copies", ("3", "2", "1"), "3"),
        Knob("slow", ("no", "yes"), "no"),
        Knob("idle", ("a", "b"), "a"),
        Knob("bad", ("no", "raise", "crash", "hang"), "no"),
        Knob("rounding", ("exact", "half", "low"), "exact"),
    )

    def load(self, model, options):
        self.knobs_now = options.knobs
        if options.knobs["bad"] == "raise":
            raise RuntimeError("this setting is broken")
        if options.knobs["bad"] == "crash":
            os.abort()
        if options.knobs["bad"] == "hang":
            time.sleep(3600)
        if options.knobs["copies"] == "1" and options.knobs["rounding"] == "half":
            raise RuntimeError("these two exclude each other")
        size = int(options.knobs["copies"]) * 10 * 2**20 - (8 * 2**20 if options.knobs["slow"] == "yes" else 0)
        size -= 9 * 2**20 if options.knobs["rounding"] == "low" else 0
        size += 5 * 2**20 * (options.threads or 0)
        self.memory = mmap.mmap(-1, size)
        for place in range(0, size, 4096):
            self.memory[place] = 1

    def prepare(self):
        pass

    def execute(self):
        time.sleep(0.02 if self.knobs_now["slow"] == "yes" else 0.005)

    def outputs(self):
        import numpy
        return [numpy.array([1.0, 2.0, 4.0]) * (1 if self.knobs_now["rounding"] == "exact" else 1.01)]
"""
)
# The allocator's knobs do nothing here; without them the search is short.
COMMON = ["--set", "malloc_trim=off", "--set", "malloc_arenas=8", "--set", "malloc_mmap_threshold=131072"]
