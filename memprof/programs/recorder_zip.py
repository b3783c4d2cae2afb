"""The recorder as one zip file in the cache.

The zip holds the sources and their bytecode for the interpreter that made it, so that nothing is compiled while someone waits. Another
interpreter falls back to the sources.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import marshal
import sys
import zipfile
from functools import cache
from pathlib import Path

from .. import recorder
from ..base import files
from ..base.cache import cache_folder

_MAIN = b"import sys\nfrom memprof.recorder.__main__ import main\n\nsys.exit(main())\n"


def recorder_zip() -> Path:
    """The path of the recorder's zip file, written where the cache lacks it."""
    path = cache_folder("recorder") / _name()
    if not path.exists():
        files.write(path, _zipped(_sources()))
    return path


@cache
def _name() -> str:
    """The zip's name, another for other sources and for another interpreter."""
    facts = repr((_sources(), sys.implementation.cache_tag, sys.version)).encode()
    return f"{hashlib.sha256(facts).hexdigest()[:16]}.zip"


def _sources() -> dict[str, bytes]:
    """The files of the zip, by their names in it."""
    sources = {f"memprof/recorder/{path.name}": path.read_bytes() for path in sorted(Path(recorder.__path__[0]).glob("*.py"))}
    return {**sources, "memprof/__init__.py": b"", "__main__.py": _MAIN}


def _zipped(sources: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, source in sources.items():
            archive.writestr(zipfile.ZipInfo(name), source)  # without the time, so that the same sources are the same bytes
            archive.writestr(zipfile.ZipInfo(name + "c"), _bytecode(source, name))
    return packed.getvalue()


def _bytecode(source: bytes, name: str) -> bytes:
    """A .pyc that is loaded unchecked (PEP 552: flags 1, hash-based and unchecked)."""
    code = compile(source, name, "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source) + marshal.dumps(code)
