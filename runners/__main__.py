"""Runs a job of a runtime in this process and marks what each phase cost. Started by path: `python /path/to/runners COMMAND`.

The contract:

    run              one line of JSON on standard input, the job: {"runtime", "model", "threads", "warmup", "runs", "knobs", "shapes",
                     "inputs", "ranges", "outputs"}. Loads, prepares and executes; marks go where MEMPROF_MARKS says (memprof_marks.py). Exit code
                     0 when the job is done, 1 when it failed, with the reason as an "error" mark. "until": the phase after which the job is done.
                     "use": see repeated.py; it takes the place of "warmup" and "runs". "sessions": how many sessions there are (see sessions.py).
                     "release": end with a phase RELEASE, in which the runtime is deleted. "traced": the file for what tracing.py writes.
                     "teardown": leave as any program does, for a profiler that writes its file only then.
    build            the same line with "folder", and of "use" the "shapes" alone: converts the model and writes {"path": ...} or {"error": ...} to
                     FOLDER/built.json, the path relative to the folder where it lies in it. Its marks are those of one phase, BUILD.
    describe [FILE]  prints one line of JSON: {"python": VERSION, "runtimes": [{"name", "distribution", "version", "formats", "knobs", ...}]}
                     for the runtimes memprof brings, or for the one in FILE. Only a user's FILE is imported for that.
    check NAME       imports the runtime and prints one line of JSON: {"version": ...} or {"error": ...}.

"runtime" is one of runtimes.NAMES or the path of a user's file. Stdlib only, Python 3.8 and later, plus the one runtime that is named.
"""

import os
import sys
import time

_FIRST_NS = time.monotonic_ns()

import ctypes  # noqa: E402  (the clock is read before anything else is imported)
import gc  # noqa: E402
import importlib  # noqa: E402
import json  # noqa: E402
from functools import lru_cache  # noqa: E402

from constant_path import constant, real  # noqa: E402
from memprof_marks import Marks  # noqa: E402
from runtimes import NAMES, Options, Refused, all_knobs, created  # noqa: E402


def main(arguments):
    """Follow the command; the return value is the exit code."""
    command = arguments[0] if arguments else ""
    if command == "run":
        return run(_job())
    if command == "build":
        return build(_job())
    if command == "describe":
        return describe(arguments[1:])
    if command == "check":
        return check(arguments[1])
    sys.stderr.write(__doc__)
    return 2


def run(job):
    """Run the job, phase by phase."""
    marks = Marks()
    marks.begin("STARTUP", started_ns=int(os.environ.get("MEMPROF_STARTED_NS", _FIRST_NS)))
    running = Running(job, marks)
    try:
        running.all()
    except Refused as error:
        marks.error(running.phase, "refused", words(error))
        return 1
    except Exception as error:  # a runtime may raise anything, and its own words are the result
        marks.error(running.phase, running.kind, words(error))
        return 1
    marks.done()
    if job.get("teardown"):
        sys.exit(0)
    return 0


class Running:
    """A job on its way. phase: that which runs, or comes next; kind: of an error that is raised now. Nothing else refers to its runtime."""

    def __init__(self, job, marks):
        self.phase, self.kind = "STARTUP", "import"
        self._job, self._marks, self._lines = job, marks, None
        self._notes = []

    def all(self):
        """Every phase that the job asks for."""
        job, use = self._job, self._job.get("use")
        self._import()
        if job.get("traced"):
            import tracing

            self._lines = tracing.Lines(job["traced"])
        if use and use["cycles"]:
            self._reload(use)
            return
        if use:
            self._can_be_fed(use)
        for part in (self._load, self._prepare):
            part()
            if job.get("until") == self.phase:
                return
        self._execute(use)
        if job.get("outputs"):
            save_outputs(self._runtime, job["outputs"])
        if job.get("release") and can_be_deleted(self._runtime):
            self._release()
        elif job.get("release"):
            say_about(self._marks, self._runtime, *self._notes, NO_DELETE)

    def _import(self):
        job = self._job
        self._class = find(job["runtime"])
        if job["runtime"] in NAMES:  # a user's own may hand the path to other processes, or keep it
            job["model"] = constant(job["model"])
        self._options = Options(job, all_knobs(self._class))
        count, wanted = job.get("sessions", 1), (self._class, job["model"], self._options)
        if count > 1:
            from sessions import Sessions  # only here, so that other jobs pay nothing for it

            self._runtime = Sessions(count, *wanted)
        else:
            self._runtime = created(*wanted)
        self.kind = "error"
        say_about(self._marks, self._runtime)
        self._marks.end()

    def _reload(self, use):
        import repeated  # only here, so that other jobs pay nothing for it

        for phase, count in (("WARMUP", self._job["warmup"]), ("RELOAD", use["iterations"])):
            if count or self._looked_at():
                self._begin(phase)
                repeated.reloads(
                    self._marks, self._class, self._job["model"], self._options, give_inputs, work_of, dict(use, iterations=count)
                )
                self._look()
                self._marks.end()

    def _load(self):
        self._begin("MODEL_LOAD")
        self._weight = ballast(self._options.knobs["ballast"])  # held until the job is done
        self._runtime.load(self._job["model"], self._options)
        self._trimmed()

    def _prepare(self):
        self._begin("PREPARE")
        self._runtime.prepare()
        self._trimmed()

    def _trimmed(self):
        if self._options.knobs["malloc_trim"]:
            trim()
        end(self._marks, self._runtime)

    def _execute(self, use):
        say_about(self._marks, self._runtime)  # again: some runtimes have their notes only now
        steps = steps_of(self._runtime, self._job)
        self.phase = next((step[0] for step in steps if step[1]), steps[-1][0])
        if use:
            self._repeat(use)
            return
        made = give_inputs(self._runtime, self._options)
        if made:
            self._notes.append(made)
            say_about(self._marks, self._runtime, *self._notes)
        for phase, count, work in steps:
            self.phase = phase
            if count:
                self._begin(phase)
                times_ns = iterate(work, count, self._marks if generates(self._runtime) else None)
                self._look()
                end(self._marks, self._runtime, times_ns)
            if self._job.get("until") == phase:
                break
        unread = self._options.unread()
        if unread:
            self._notes.append("this runtime did not look at options.%s, which had no effect" % " and options.".join(unread))
            say_about(self._marks, self._runtime, *self._notes)

    def _repeat(self, use):
        import repeated

        feed = self._feed(use)
        try:
            for phase, count in (("WARMUP", self._job["warmup"]), ("EXECUTE", use["iterations"])):
                if count or self._looked_at():
                    self._begin(phase)
                    repeated.iterations(self._marks, self._runtime, work_of(self._runtime), feed, dict(use, iterations=count))
                    self._look()
                    end(self._marks, self._runtime)
        finally:
            if feed is not None:
                feed.close()
        if feed is not None and feed.notes:
            say_about(self._marks, self._runtime, *feed.notes)

    def _feed(self, use):
        """What iterations are handed, None where the runtime makes its own inputs."""
        if not hasattr(self._runtime, "signature"):
            give_inputs(self._runtime, self._options)
            return None
        import feeds

        return feeds.feed_of(self._runtime, self._options, use)

    def _can_be_fed(self, use):
        """Raises Refused, before the model is loaded, where the runtime makes its own inputs and the job has others."""
        kinds = {"shapes": use["shapes"], "a stream": use["folder"] or use["feeder"], "fresh ones": use["fresh"]}
        wanted = [kind for kind in kinds if kinds[kind]]
        if wanted and not hasattr(self._runtime, "signature"):
            raise Refused("this runtime makes its own inputs: %s cannot take their place" % wanted[0])

    def _looked_at(self):
        """Whether somebody looks at the ends of phases: then work without a warm-up has an empty one, whose end is the begin of the first unit."""
        return self._marks.holds or self._lines is not None

    def _look(self):
        if self._lines is not None:
            self._lines.look()

    def _release(self):
        self._begin("RELEASE")
        close = getattr(self._runtime, "release", None)
        if close is not None:
            close()
        # The runtime ends here. Nobody trims the heap: the figures are those of a program that goes on.
        del close, self._runtime
        gc.collect()
        self._marks.end()

    def _begin(self, phase):
        self.phase = phase
        self._marks.begin(phase)


NO_DELETE = "this runtime has no way to delete what it loaded: there is no phase RELEASE"


def can_be_deleted(runtime):
    """Whether the runtime ends when its object does, or has a method for it: `release = None` in its class says that it has not."""
    return getattr(runtime, "release", True) is not None


def ballast(size):
    """An anonymous mapping of that many bytes with every page touched, or None for 0."""
    if not size:
        return None
    import mmap

    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset in range(0, size, mmap.PAGESIZE):
        memory[offset] = 1
    return memory


def say_about(marks, runtime, *more):
    """Write the runtime's version and its notes, and more notes."""
    notes = getattr(runtime, "notes", ())
    marks.about(str(getattr(runtime, "version", "")), [*([notes] if isinstance(notes, str) else notes), *more])


def steps_of(runtime, job):
    """(phase, iterations, what an iteration calls) of all that follows PREPARE."""
    warmup, runs = job["warmup"], job["runs"]
    if not generates(runtime):
        return ("WARMUP", warmup, runtime.execute), ("EXECUTE", runs, runtime.execute)
    return ("WARMUP", warmup, _request(runtime)), ("PROMPT", runs, runtime.prompt), ("GENERATE", runs, runtime.generate)


def _request(runtime):
    """A function that evaluates a prompt and generates, and returns how many tokens both had."""
    return lambda: runtime.prompt() + runtime.generate()


def work_of(runtime):
    """A function that does what memprof grow repeats, and returns how many of which units that was, beside an iteration."""
    if generates(runtime):
        request = _request(runtime)
        return lambda: {"requests": 1, "tokens": request()}

    def execute():
        runtime.execute()
        return {}

    return execute


def generates(runtime):
    """Whether a runtime, or its class, evaluates prompts and generates tokens."""
    return callable(getattr(runtime, "prompt", None)) and callable(getattr(runtime, "generate", None))


def iterate(work, count, marks=None):
    """Durations of `count` calls in nanoseconds. marks: told how many tokens each call worked on, if the calls return that."""
    times_ns = [0] * count
    clock = time.monotonic_ns
    for index in range(count):
        begin_ns = clock()
        tokens = work()
        times_ns[index] = clock() - begin_ns
        if marks is not None:
            marks.iteration(tokens=tokens)
    return times_ns


def end(marks, runtime, times_ns=()):
    """End the phase, with the runtime's figures."""
    marks.end(times_ns, lambda: runtime.figures() if hasattr(runtime, "figures") else {})


def give_inputs(runtime, options):
    """Make the runtime's inputs and hand them over, if it has a signature. A sentence tells what was made, empty for no integers."""
    if hasattr(runtime, "signature"):
        import inputs

        signature = runtime.signature()
        runtime.set_inputs(inputs.make(signature, options))
        return inputs.remark(signature, options)
    if options.unread() and type(runtime).__module__.startswith("runtimes."):
        raise Refused("this runtime makes its own inputs: --shape, --inputs and --input have no effect on it")
    return ""


def save_outputs(runtime, path):
    """Write the outputs of the last iteration as arrays named by their place; nothing if the runtime does not hand them out."""
    if hasattr(runtime, "outputs"):
        import inputs

        inputs.save(path, runtime.outputs())


def build(job):
    """Convert the job's model into the job's folder."""
    marks = Marks()
    marks.begin("BUILD")
    try:
        runtime_class = find(job["runtime"])
        options = Options(job, all_knobs(runtime_class))
        folder = os.path.join(os.path.realpath(job["folder"]), "")
        path = os.path.abspath(runtime_class.build(job["model"], job["folder"], options))
        inside = os.path.realpath(path)
        # A model that is loaded as it is keeps its name: where it is a link, its other files lie beside the link.
        _answer(job, {"path": inside[len(folder) :] if inside.startswith(folder) else path})
    except Exception as error:
        marks.error("BUILD", "refused" if isinstance(error, Refused) else "error", words(error))
        _answer(job, {"error": words(error)})
        return 1
    marks.end()
    marks.done()
    return 0


def _answer(job, answer):
    with open(os.path.join(job["folder"], "built.json"), "w", encoding="utf-8") as file:
        json.dump(answer, file)


def describe(paths):
    """Print descriptions of the runtimes, without importing any of memprof's own."""
    descriptions = []
    for name in paths or NAMES:
        try:
            descriptions.append(_described(name))
        except (Exception, SystemExit) as error:
            descriptions.append({"name": name, "error": words(error)})
    sys.stdout.write(json.dumps({"python": "%d.%d.%d" % sys.version_info[:3], "runtimes": descriptions}) + "\n")
    return 0


# The attributes of a runtime that are described as they are, if it has them.
_LISTS = ("formats", "build_uses", "converts", "needs", "without_wheels")
_PLAIN = ("always_builds", "default_threads", "threads_env", "threads_call", "env", "native", "doubling", "reshapes", "one_shape")


def _described(name):
    runtime_class = find(name)
    distribution = getattr(runtime_class, "distribution", None)
    description = {part: getattr(runtime_class, part) for part in _PLAIN if hasattr(runtime_class, part)}
    description.update({part: list(getattr(runtime_class, part, ())) for part in _LISTS})
    return dict(
        description,
        name=name,
        distribution=distribution,
        version=_installed_version(distribution) if distribution else str(getattr(runtime_class, "version", "") or ""),
        knobs=[vars(knob) for knob in all_knobs(runtime_class)],
        no_converter=_no_converter(getattr(runtime_class, "converter", None)),
        bytes=_installed_bytes(distribution),
        prefix=sys.prefix,
        signature=hasattr(runtime_class, "signature"),
        library=_as_text(_installed_file(distribution, getattr(runtime_class, "library", None))),
    )


def check(name):
    """Import a runtime, and say its version or why that failed."""
    try:
        runtime_class = find(name)
        os.environ.update(getattr(runtime_class, "env", {}))
        answer = {"version": str(created(runtime_class, "", Options({}, all_knobs(runtime_class))).version)}
    except Exception as error:
        answer = {"error": words(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def _installed_version(distribution):
    known = _found(distribution)
    return known[0] if known is not None else None


@lru_cache(maxsize=None)  # two runtimes may be of one distribution
def _found(distribution):
    """The version of an installed distribution, the rows of its RECORD (path, hash, bytes), and where those paths begin; None if there is none."""
    import csv
    from importlib import metadata

    try:
        known = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return None
    # `files` is not used: it makes an object of each of thousands of rows.
    return known.version, list(csv.reader((known.read_text("RECORD") or "").splitlines())), known.locate_file


def _no_converter(converter):
    """The sentence of a converter whose module is not there, else None."""
    from importlib.util import find_spec

    return converter[1] if converter is not None and find_spec(converter[0]) is None else None


def _installed_bytes(distribution):
    """The bytes of the distribution's files as its RECORD has them, None if it is not installed or has none."""
    known = _found(distribution) if distribution else None
    return sum(int(row[2]) for row in known[1] if len(row) > 2 and row[2].isdigit()) or None if known is not None else None


def _as_text(path):
    """A path as text that JSON can hold: a locale for ASCII alone turns other letters into halves of surrogate pairs."""
    return os.fsencode(path).decode("utf-8", "replace") if path is not None else None


def _installed_file(distribution, pattern):
    """The path of the package's file that matches the pattern, None if there is none."""
    known = _found(distribution) if pattern is not None else None
    if known is None:
        return None
    from fnmatch import fnmatch

    return next((str(known[2](row[0])) for row in known[1] if row and fnmatch(row[0], pattern)), None)


def find(name):
    """The class `Runtime` of one of memprof's runtimes, or of the user's file at that path.

    Raises Refused if there is none.
    """
    if name in NAMES:
        return importlib.import_module("runtimes." + name.replace("-", "_")).Runtime
    if not os.path.isfile(name):
        raise Refused("there is no runtime %r" % name)
    from importlib import util

    sys.path.insert(1, os.path.dirname(os.path.abspath(name)))  # after this folder, whose `inputs` is not the user's
    spec = util.spec_from_file_location("memprof_user_runtime", name)
    if spec is None or spec.loader is None:
        raise Refused("%s is not a Python file" % name)
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    runtime_class = getattr(module, "Runtime", None)
    if runtime_class is None:
        raise Refused("%s has no class Runtime with load, prepare and execute" % name)
    needed = ("load", "prepare") if generates(runtime_class) else ("load", "prepare", "execute")
    missing = [part for part in needed if not callable(getattr(runtime_class, part, None))]
    if missing:
        raise Refused("the class Runtime in %s lacks %s" % (name, " and ".join(missing)))
    return runtime_class


def trim():
    """Let glibc give back freed memory that it kept. Other C libraries have no malloc_trim."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        pass


def words(error):
    """A runtime's error as one line: its type and message, without runs of white space."""
    name = type(error).__name__
    try:
        message = _once(real(" ".join(str(error).split())))
    except Exception:
        return name  # a type whose own words fail
    if isinstance(error, Refused):
        return message
    return "%s: %s" % (name, message) if message else name


def _once(text):
    """A text that is the same sentence twice as one sentence: TFLite (2.14 seen) hands on an error with the copy that it reported before."""
    half, odd = divmod(len(text), 2)
    twice = half >= 20 and text[:half] == text[-half:] and (not odd or text[half] == " ")
    return text[:half] if twice else text


def _job():
    job = json.loads(sys.stdin.buffer.readline())
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return job


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Skips the runtimes' teardown: the job does not include it, and a crash in it would spoil a result that is complete.
    os._exit(code)
