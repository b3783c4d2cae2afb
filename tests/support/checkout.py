"""What the tests of gate run share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


# A backend that makes a wheel of src/ without an index, so that `pip install .` is real and takes no network.
_BACKEND = """
import os, zipfile
META = "imglib-1.dist-info/"
def build_wheel(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(os.path.join(folder, "imglib-1-py3-none-any.whl"), "w") as wheel:
        wheel.write("src/imglib.py", "imglib.py")
        wheel.writestr(META + "METADATA", "Metadata-Version: 2.1\\nName: imglib\\nVersion: 1\\n")
        wheel.writestr(META + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(META + "entry_points.txt", "[console_scripts]\\nimgtool = imglib:main\\n")
        wheel.writestr(META + "RECORD", "")
    return "imglib-1-py3-none-any.whl"
"""
_SYSTEM = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
_PACKAGE = {
    "pyproject_dot_toml": f'{_SYSTEM}[project]\nname = "imglib"\nversion = "1"\n',
    "backend_dot_py": _BACKEND,
}
_LIBRARY = "held = bytearray({} << 20)\ndef main():\n    pass\n"


def package_checkout(folder, **files):
    """A checkout of a package in src/, whose module holds 4 MiB at main and 12 MiB now; the installed program `imgtool` imports it."""
    made = Checkout(folder)
    (folder / "src").mkdir()
    made.commit(**_PACKAGE, **files, src__imglib_dot_py=_LIBRARY.format(4))
    made.write(src__imglib_dot_py=_LIBRARY.format(12))
    return made


# What `pip install -q .` leaves of that package, without pip's own start and the environment that it builds a wheel in.
_PIP = """
import pathlib, shutil, sys, sysconfig
assert sys.argv[1:] == ["install", "-q", "."], sys.argv
library, programs = (pathlib.Path(sysconfig.get_path(name)) for name in ("purelib", "scripts"))
shutil.copy("src/imglib.py", library)
about = library / "imglib-1.dist-info"
shutil.rmtree(about, ignore_errors=True)
about.mkdir()
(about / "METADATA").write_text("Metadata-Version: 2.1\\nName: imglib\\nVersion: 1\\n")
(programs / "imgtool").write_text(f"#!{sys.executable}\\nimport imglib\\nimglib.main()\\n")
(programs / "imgtool").chmod(0o755)
"""


def add_quick_pip(environment: Path) -> None:
    """Put a pip into a virtual environment that can only `install -q .` the package above, in no time."""
    module = environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages" / "pip" / "__main__.py"
    module.parent.mkdir(parents=True)
    module.write_text(_PIP)
    program = environment / "bin" / "pip"
    program.parent.mkdir(exist_ok=True)
    program.unlink(missing_ok=True)
    program.write_text('#!/bin/sh\nexec "$(dirname "$0")/python" -m pip "$@"\n')
    program.chmod(0o755)


def quick_venv(program: Path, python: str = sys.executable) -> Path:
    """Make a program that is this Python, but for `-m venv FOLDER`: the environment gets the pip of `add_quick_pip`."""
    template = program.with_name(f"{program.name}-template")
    add_quick_pip(template)
    program.write_text(
        f'#!/bin/sh\n[ "$1 $2" = "-m venv" ] || exec "{python}" "$@"\n"{python}" -m venv --without-pip "$3" && cp -R "{template}/." "$3"\n'
    )
    program.chmod(0o755)
    return program
