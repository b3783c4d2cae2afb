"""What the tests of gate run share."""

from __future__ import annotations

import subprocess
import sys

from conftest import need_tool

QUICK = "repeats = 5\nwarmup = 1\nruns = 1\n"

ENGINE = "def load():\n    return bytearray(b'x' * ({} << 20))\n"
RUNTIME = """
import sys
class Runtime:
    version = "1"
    def __init__(self):
        import engine
        self.engine = engine
        self.notes = [sys.prefix]
    def load(self, model, options):
        self.held = self.engine.load()
    def prepare(self):
        pass
    def execute(self):
        pass
"""
SUITE = f'models = ["net.bin"]\n{QUICK}[[variant]]\nname = "engine"\nruntime = "../runtime.py"\n'


class Checkout:
    def __init__(self, folder):
        need_tool("git")
        self.folder = folder
        (folder / "bench").mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "n")
        self.git("config", "user.email", "n@example.org")
        # Makes an "environment" in no time: its interpreter is this one, which finds engine.py beside the link's own library.
        (folder / "quick-python").write_text(f'#!/bin/sh\nmkdir -p "$3/bin"\nln -s "{sys.executable}" "$3/bin/python"\n')
        (folder / "quick-python").chmod(0o755)

    def git(self, *words):
        done = subprocess.run(["git", "-C", str(self.folder), *words], capture_output=True, text=True, check=True)
        return done.stdout

    def write(self, **files):
        for name, text in files.items():
            (self.folder / name.replace("__", "/").replace("_dot_", ".")).write_text(text)

    def commit(self, **files):
        self.write(**files)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "one")

    def is_clean(self):
        return len(self.git("worktree", "list").splitlines()) == 1 and not self.git("status", "--porcelain", "--", "bench", "runtime.py")
