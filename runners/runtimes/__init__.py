"""A runtime is a class `Runtime` in a file of this folder, or in a user's file.

    class Runtime:
        distribution = "onnxruntime"        # the package that pip installs
        formats = (".onnx",)                # model file endings it takes; () for any; "/NAME" for a folder that holds NAME
        knobs = (Knob(...), ...)            # what can change its memory

        def __init__(self): ...             # imports the runtime; the end of this is the baseline
        def load(self, model, options): ... # MODEL_LOAD; model is a path (see constant_path.py)
        def prepare(self): ...              # PREPARE
        def execute(self): ...              # one iteration of WARMUP or EXECUTE

A runtime that is measured through its C interface has `native` instead of the methods: the name of a C program in native/, which is
compiled and started in place of this interpreter, and `library`, the shared library that it opens, as a pattern among its package's files.

A runtime of models that generate has `prompt()` and `generate()` in place of `execute()`. PROMPT is calls of `prompt`, each evaluating a new
prompt; GENERATE is calls of `generate`, each beginning again after the last prompt; an iteration of WARMUP is one of each. Both return how many
tokens they worked on, which are the phases' units of work.

Only `load`, `prepare` and `execute` (or these two) are needed. Others are used if they exist: `signature()` returns the inputs as
(name, shape, dtype) triples, a dimension None where unknown, and `set_inputs(arrays)` takes numpy arrays by name: both are called between
PREPARE and WARMUP, outside any phase, and `set_inputs` also before each iteration of `memprof grow`. `outputs()` returns the outputs of the
last `execute`, as arrays that numpy can read: it is called after the last phase that executes, if the results of different settings are
compared. `figures()` returns numbers by name, such as an arena's bytes: it is asked at the end of each phase from MODEL_LOAD on, outside its
timed part. `release()` frees, in the phase RELEASE, whatever would outlive this object; the object itself is deleted after it, which is enough
for most. `release = None` says that the runtime cannot be deleted:
there is no RELEASE then. `build(model, folder, options)`, a static method, converts
the model file in a separate process that is not measured, and returns the path to load instead; `build_uses` names the knobs of other
kinds that it heeds, and with `always_builds` it is called with any settings, or with `converts` for the model files of these endings;
`converter` is then the module that it needs and a sentence for when that is missing. `imports(model, options)` imports what this kind of
model or these settings need beyond `__init__`, and belongs to the baseline too. `default_threads` is how many threads the runtime uses unasked
(None: every CPU), `threads_env` the variable that carries the number if no argument does, and `threads_call` what a program writes for it
(see Knob's `call`). `env` are variables that its processes are started
with, such as one that turns off what it sends to its makers. `notes` and `version` are shown with the results. `needs` names
packages, as pip takes them, that an environment made for this runtime gets beside the distribution; `without_wheels` those among all it
brings along that have no wheel, so that pip may build them. `doubling` names the knob whose `off` ends it, if the runtime takes its memory as
an arena whose regions double: then a law of its memory has steps. `reshapes = False` says that it runs a model in no other shapes than those that
its file fixes. `one_shape` is a sentence that says why a loaded model cannot be fed one shape after another; a runtime without it can.

The runtime itself must be imported inside the methods, never at the top of a file in this folder: the files are also read
where no runtime is installed. Stdlib only, Python 3.8 and later.
"""

import os
import sys

NAMES = (
    "onnxruntime",
    "onnxruntime-native",
    "tflite",
    "litert",
    "onert",
    "onert-native",
    "tvm",
    "openvino",
    "llamacpp",
    "torch",
    "executorch",
    "genai",
    "ncnn",
    "mnn",
    "tflite_micro",
    "ctranslate2",
    "synthetic",
)

ON_OFF = ("on", "off")


class Refused(Exception):
    """A runtime or a runner says no, in words meant for the user."""


class Knob:
    """A setting that can change a runtime's memory.

    values: the words it takes, or one of the types "int", "bytes", "path", "file" (a path that must exist), "text".
    default: the value without a setting; None if the runtime itself decides.
    acts: "load", or "build" (the model file is converted first). A knob with `env` acts by the environment of the child.
    env: either a variable's name that takes the value as it is (bytes as a plain number), or a mapping from each value to the variables it sets.
    tries: for a knob whose values are a type, the values that a search for the best tries.
    needs: the value that another knob must have, by its name, where this one does not have its default.
    bounds: "bytes" or "entries" for a knob that says how many of them a cache holds at most, 0 for no cache: `memprof grow` then says where
        growth stops.
    call: what a program writes for a value, in the words of the runtime's interface: a text with {value} or {flag} (True or False) in it, or
        a text by value. None if the variables of `env` say it all; "" for a setting that is memprof's own.
    """

    def __init__(self, name, values, default, meaning, acts="load", env=None, tries=(), needs=None, bounds=None, call=None):
        if acts not in ("build", "env", "load"):
            raise ValueError(f"{name}: a knob acts at build, env or load, not {acts}")
        self.name, self.values, self.default, self.meaning, self.env = name, values, default, meaning, env
        self.acts = acts if env is None else "env"
        if bounds not in (None, "bytes", "entries") or (bounds and values not in ("int", "bytes")):
            raise ValueError(f"{name}: a knob of a number or a size bounds a cache in bytes or entries, not in {bounds}")
        self.tries, self.needs, self.bounds, self.call = tries, needs or {}, bounds, call

    def calling(self, call):
        """The same knob of a runtime whose interface has other words for it."""
        return Knob(**dict(vars(self), call=call))

    def value(self, text):
        """The typed value of a checked text: a bool for on/off, an int for int and bytes, else the text itself."""
        if text is None:
            return None
        if self.values == ON_OFF:
            return text == "on"
        return int(text) if self.values in ("int", "bytes") else text


# glibc's allocator decides for every runtime how much freed memory stays resident.
COMMON_KNOBS = (
    Knob(
        "malloc_arenas",
        "int",
        None,
        "most arenas glibc's malloc may open (its own: 8 a CPU)",
        env="MALLOC_ARENA_MAX",
        tries=("1",),
        call="MALLOC_ARENA_MAX={value} in the environment, or mallopt(M_ARENA_MAX, {value}) in C",
    ),
    Knob(
        "malloc_mmap_threshold",
        "bytes",
        None,
        "blocks from this size on get separate mappings and go back to the kernel when freed (its own: 128 KiB, growing)",
        env="MALLOC_MMAP_THRESHOLD_",
        tries=("64KiB", "1MiB"),
        call="MALLOC_MMAP_THRESHOLD_={value} in the environment, or mallopt(M_MMAP_THRESHOLD, {value}) in C",
    ),
    Knob(
        "malloc_trim",
        ON_OFF,
        "off",
        "call malloc_trim(0) at the end of MODEL_LOAD and of PREPARE",
        call={"on": "malloc_trim(0) once the model is loaded, and again once it is prepared"},
    ),
    Knob("preload", "file", None, "a shared library to preload, such as another allocator", env="LD_PRELOAD"),
    Knob(
        "ballast",
        "bytes",
        "0",
        "hold this much more from the start of MODEL_LOAD on: a known increase, to prove a gate with",
        call="",
    ),
)


def primitive_cache(needs=None):
    """The knob of a runtime that has oneDNN's primitives made for each shape again. The library reads the variable when it is loaded."""
    meaning = "how many of oneDNN's kernels made for shapes are kept for when such a shape comes again; 0 keeps none (its own: 1024)"
    return Knob("primitive_cache", "int", None, meaning, env="ONEDNN_PRIMITIVE_CACHE_CAPACITY", tries=("0",), needs=needs, bounds="entries")


class Options:
    """A job's settings for a runtime, with types: threads (int or None), knobs by name, shapes by input name, inputs (a .npz path or None), values
    (texts that fill inputs, by name).

    ranges: by input name, the number of rows that the model's graph indexes by the input, for those who make it.
    declared: for `build`, the shape of each input that the model's file declares, by name and in its order, open dimensions as 1. release:
    whether the job ends with RELEASE. varied: the shapes by input name that iterations take one after another, empty where all take one; the first
    and the last differ in each dimension that varies. dynamic: by input name, the shape with None for each such dimension. A runtime without
    `signature` makes its inputs itself, and may do so from shapes and inputs.
    """

    def __init__(self, job, knobs):
        self.threads = job.get("threads")
        given = job.get("knobs", {})
        self.knobs = {knob.name: knob.value(given.get(knob.name, knob.default)) for knob in knobs}
        self.given = dict(given)
        self._shapes = {name: tuple(shape) for name, shape in job.get("shapes", {}).items()}
        self.declared = {name: tuple(shape) for name, shape in job.get("declared", {}).items()}
        self.varied = (job.get("use") or {}).get("shapes") or ()
        self.dynamic = _dynamic(self.varied)
        self._inputs = job.get("inputs")
        self._values = dict(job.get("values", {}))
        self.ranges = dict(job.get("ranges", {}))
        self.release = bool(job.get("release"))
        self._looked_at = set()

    @property
    def shapes(self):
        """Shapes as tuples, by input name."""
        self._looked_at.add("shapes")
        return self._shapes

    @property
    def inputs(self):
        """The path of an .npz file, or None."""
        self._looked_at.add("inputs")
        return self._inputs

    @property
    def values(self):
        """What fills an input, as text by its name."""
        self._looked_at.add("values")
        return self._values

    def unread(self):
        """Which of `shapes`, `inputs` and `values` were given and were not looked at."""
        given = {"shapes": self._shapes, "inputs": self._inputs, "values": self._values}
        return [name for name in given if given[name] and name not in self._looked_at]


def _dynamic(varied):
    """By input name, the shape that all of the shapes fit, with None for a dimension of several sizes."""
    names = varied[0] if varied else ()
    return {
        name: tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*(shapes[name] for shapes in varied))) for name in names
    }


def open_note(left, fixed):
    """Notes of a runtime that fixes the shapes that it is given in the model: the inputs whose open dimensions it left open, by their names, and the
    shapes to which it fixed others. The same input can take other memory in the two (seen with OpenVINO 2026.4)."""
    notes = (
        ["the model kept its open dimensions of %s, which can take other memory than to fix them by --shape" % ", ".join(left)]
        if left
        else []
    )
    return notes + (["the model's open dimensions were fixed to %s" % in_words(fixed)] if fixed else [])


def in_words(shapes):
    """Shapes by input name as the user writes them: x=1,3,224,224; mask=1,224."""
    return "; ".join("%s=%s" % (name, ",".join(map(str, shape))) for name, shape in shapes.items())


def all_knobs(runtime):
    """The runtime class's own knobs and those that every runtime has."""
    return tuple(getattr(runtime, "knobs", ())) + COMMON_KNOBS


def created(runtime_class, model, options):
    """A runtime, with all imported that this model and these settings need."""
    runtime = runtime_class()
    if hasattr(runtime, "imports"):
        runtime.imports(model, options)
    return runtime


def installed_version(distribution):
    """The version of an installed package, by the name of its metadata's folder; empty if there is none.

    importlib.metadata would import email: 2 MiB that a program with this runtime does not have.
    """
    begin, end = distribution.replace("-", "_").lower() + "-", ".dist-info"
    for folder in sys.path:
        try:
            names = os.listdir(folder or os.curdir)
        except OSError:
            continue
        for name in names:
            if name.lower().startswith(begin) and name.endswith(end):
                return name[len(begin) : -len(end)]
    return ""
