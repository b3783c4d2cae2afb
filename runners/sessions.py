"""Several sessions of one model in one process, for a job with "sessions": objects of one runtime's class that are driven as one.

Each phase is the phase of all of them, one after another: MODEL_LOAD loads the model as often as there are sessions, an iteration executes each
once. Weights that the runtime shares between its sessions are there once; that is what such a job is to tell.
"""

from runtimes import created


class Sessions:
    """The sessions as one runtime. What is not a phase, such as its version, its notes and its outputs, is the first session's."""

    def __init__(self, count, runtime_class, model, options):
        self._sessions = [created(runtime_class, model, options) for _ in range(count)]

    def __getattr__(self, name):
        if name in ("prompt", "generate"):  # of all of them, and there only if the runtime has it
            works = [getattr(session, name) for session in self._sessions]
            return lambda: sum(work() for work in works)
        return getattr(self._sessions[0], name)

    def load(self, model, options):
        for session in self._sessions:
            session.load(model, options)

    def prepare(self):
        for session in self._sessions:
            session.prepare()

    def set_inputs(self, arrays):
        for session in self._sessions:
            session.set_inputs(arrays)

    def execute(self):
        for session in self._sessions:
            session.execute()

    @property
    def release(self):
        return None if getattr(self._sessions[0], "release", True) is None else self._release

    def _release(self):
        for session in self._sessions:
            close = getattr(session, "release", None)
            if close is not None:
                close()
