"""A measured program: a runtime, a model, and blocks of timed iterations that take turns, so that polled and unpolled blocks are neighbours
in time and in one process. Started by path, like runners/, and built on it.

One line of JSON on standard input: {"runners": PATH, "runtime", "model", "threads", "iterations", "rounds", "blocks": [NAME, ...], "poller"}.
Each round runs every block once, beginning with another one each time; a block is a phase of that name. The recorder can poll each phase at
another period. For other pollers "poller" is true: they are this process's parent, and stand still (SIGSTOP) outside blocks called POLLED.
"""

import importlib.util
import json
import os
import signal
import sys


def main():
    """Follow the job."""
    job = json.loads(sys.stdin.buffer.readline())
    sys.path.insert(0, job["runners"])
    from memprof_marks import Marks

    runner = _program(job["runners"])
    marks = Marks()
    runtime = _prepared(runner, job)
    for _ in range(2):
        runtime.execute()
    try:
        for number in range(job["rounds"]):
            for name in _turned(job["blocks"], number):
                if job["poller"]:
                    os.kill(os.getppid(), signal.SIGCONT if name == "POLLED" else signal.SIGSTOP)
                marks.begin(name)
                marks.end(runner.iterate(runtime.execute, job["iterations"]))
    finally:
        if job["poller"]:
            os.kill(os.getppid(), signal.SIGCONT)
    marks.done()


def _prepared(runner, job):
    from runtimes import Options, all_knobs

    kind = runner.find(job["runtime"])
    runtime, options = kind(), Options(job, all_knobs(kind))
    runtime.load(job["model"], options)
    runtime.prepare()
    runner.give_inputs(runtime, options)
    return runtime


def _turned(blocks, number):
    start = number % len(blocks)
    return blocks[start:] + blocks[:start]


def _program(folder):
    spec = importlib.util.spec_from_file_location("memprof_runner", os.path.join(folder, "__main__.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
