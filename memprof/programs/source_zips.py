"""Sources of Python as zip files in the cache, each named by its content: the recorder, the measured side's programs (runners/), and others."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import marshal
import sys
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from .. import recorder
from ..base import files
from ..base.cache import cache_folder
from ..base.runners import runners_path

_MAIN = b"import sys\nfrom memprof.recorder.__main__ import main\n\nsys.exit(main())\n"


def recorder_zip() -> Path:
    """The zip file of the recorder, written where the cache lacks it. It holds bytecode too, so that nothing is compiled while someone waits."""
    return zipped("recorder", _recorder(), bytecode=True)


def runners_zip() -> Path:
    """The zip file of runners/, written where the cache lacks it. Raises InputError."""
    return zipped("runners", _runners())


def zipped(name: str, sources: Mapping[str, bytes], bytecode: bool = False) -> Path:
    """The zip file of these sources, by their paths inside, written where the cache lacks it. Raises InputError.

    bytecode: for the interpreter of memprof; another falls back to the sources.
    """
    facts = repr((sources, sys.version if bytecode else ""))
    path = cache_folder("recorder") / f"{name}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.zip"
    if not path.exists():
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for inside, source in sources.items():
                archive.writestr(zipfile.ZipInfo(inside), source)  # without the time, so that the same sources are the same bytes
                if bytecode:
                    archive.writestr(zipfile.ZipInfo(inside + "c"), _bytecode(source, inside))
        files.write(path, packed.getvalue())
    return path


@cache
def _recorder() -> Mapping[str, bytes]:
    sources = {f"memprof/recorder/{path.name}": path.read_bytes() for path in sorted(Path(recorder.__path__[0]).glob("*.py"))}
    return {**sources, "memprof/__init__.py": b"", "__main__.py": _MAIN}


@cache
def _runners() -> Mapping[str, bytes]:
    top = runners_path()
    return {str(path.relative_to(top)): path.read_bytes() for path in sorted(top.rglob("*.py"))}


def _bytecode(source: bytes, name: str) -> bytes:
    """A .pyc that is loaded unchecked (PEP 552: flags 1, hash-based and unchecked)."""
    code = compile(source, name, "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source) + marshal.dumps(code)
