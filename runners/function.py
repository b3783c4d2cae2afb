"""A Python function as a runtime: the fixture `memprof` of the pytest plugin measures it.

The model is a JSON file: {"module": NAME, "file": PATH or null, "name": QUALIFIED NAME, "path": [...], "call": BASE64, "token": WORD}.
"path" is the sys.path of the process that asks, and "call" a pickle of the arguments: (args, kwargs). "token" is that of the environment
variable MEMPROF_FUNCTION, new each time, so that nothing is imported or unpickled from a file that somebody else wrote. MODEL_LOAD imports the
module, PREPARE unpickles the arguments, EXECUTE calls.
"""

import base64
import importlib
import json
import os
import pickle
import sys
from importlib import util


class Runtime:
    version = "%d.%d.%d" % sys.version_info[:3]
    formats = (".json",)
    default_threads = 1

    def load(self, model, options):
        with open(model, encoding="utf-8") as file:
            self._description = json.load(file)
        token = os.environ.get("MEMPROF_FUNCTION")
        if not token or self._description.get("token") != token:
            raise PermissionError(
                "%s was not written by the test that measures it: it names a file to import and holds a pickle, which may run anything"
                % model
            )
        sys.path += [folder for folder in self._description["path"] if folder not in sys.path]
        function = _module(self._description["module"], self._description["file"])
        for name in self._description["name"].split("."):
            function = getattr(function, name)
        self._function = function

    def prepare(self):
        self._args, self._kwargs = pickle.loads(base64.b64decode(self._description["call"]))

    def execute(self):
        self._function(*self._args, **self._kwargs)


def _module(name, file):
    """The module of that name if it comes from that file, else the file under that name: pytest imports tests in its own ways."""
    try:
        module = importlib.import_module(name)
        if file is None or os.path.realpath(getattr(module, "__file__", None) or "") == os.path.realpath(file):
            return module
    except ImportError:
        if file is None:
            raise
    spec = util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError("%s is not a Python file" % file)
    module = util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
