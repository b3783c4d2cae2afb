"""Which reader takes a file: by its content alone, packed or not; what is none of them is told by what it is."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path

import pytest
from support import torch_snapshots as made

from memprof.base import file_kinds
from memprof.base.errors import InputError, UsageError
from memprof.heap import load

DATA = Path(__file__).parents[2] / "data" / "heap"
REAL = {
    "massif_tflite_mobilenet_v2.gz": ("massif", "a profile of massif"),
    "heaptrack_onnxruntime_inception_v3.gz": ("heaptrack", "a recording of heaptrack"),
    "go.pb.gz": ("pprof", "a profile of pprof"),
    "node.pb.gz": ("pprof", "a profile of pprof"),
    "tcmalloc.pb.gz": ("pprof", "a profile of pprof"),
    "tcmalloc.heap.gz": ("tcmalloc", "a heap profile of tcmalloc, jemalloc or Go"),
    "jemalloc.heap.gz": ("jemalloc", "a heap profile of jemalloc"),
    "jemalloc_symbols.heap.gz": ("jemalloc", "a profile with the symbols of jeprof"),
    "go_debug1.txt.gz": ("Go", "a heap profile of tcmalloc, jemalloc or Go"),
    "torch_cpu_profile.pickle.gz": ("torch", "a Python pickle"),
}


@pytest.mark.parametrize(("name", "tool", "kind"), [(name, *words) for name, words in REAL.items()])
def test_real_file_told_by_content(tmp_path, name, tool, kind):
    content = gzip.decompress((DATA / name).read_bytes())
    (tmp_path / "plain").write_bytes(content)
    (tmp_path / "packed").write_bytes(gzip.compress(content))

    assert load(tmp_path / "plain").tool == load(tmp_path / "packed").tool == tool
    assert file_kinds.kind_of(tmp_path / "plain") == kind and kind in file_kinds.HEAP_KINDS
    if tool != "heaptrack":  # which packs with zstd or gzip
        (tmp_path / "xz").write_bytes(lzma.compress(content))
        assert load(tmp_path / "xz").peak.total_bytes == load(tmp_path / "plain").peak.total_bytes


@pytest.mark.parametrize("path", sorted(DATA.glob("capture_memray_*.bin")), ids=lambda path: path.stem)
def test_captures_of_memray_told_by_content(path):
    assert file_kinds.kind_of(path) in file_kinds.HEAP_KINDS


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"PERFILE2\x68\0\0\0", "a recording of perf"),
        (b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\x04\x00\x3e\x00", "an ELF core dump"),
        (b"\x0a\x31\x0a\x05input\x12\x0bPlaceholder\x2a\x0b", r"a TensorFlow graph \(.pb\)"),
        (b"PK\x03\x04\x14", "a zip archive"),
        (b"{}", "text"),
        (b"", "empty"),
        (gzip.compress(b"\x89PNG\r\n\x1a\n", mtime=0), "a PNG picture"),
    ],
)
def test_other_file_told_by_what_it_is(tmp_path, content, kind):
    (tmp_path / "file").write_bytes(content)

    with pytest.raises(
        InputError, match=rf"file is {kind}, and not a heap profile of a tool that memprof knows \(massif, heaptrack, memray, pprof, "
    ):
        load(tmp_path / "file")


def test_unknown_bytes_are_no_profile(tmp_path):
    (tmp_path / "file").write_bytes(bytes(range(256)))

    with pytest.raises(InputError, match="file is not a heap profile of a tool that memprof knows"):
        load(tmp_path / "file")


def test_folder_names_every_kind(tmp_path):
    for name in ("go.pb.gz", "jemalloc.heap.gz"):
        (tmp_path / name.removesuffix(".gz")).write_bytes(gzip.decompress((DATA / name).read_bytes()))
    (tmp_path / "a.pickle").write_bytes(made.pickled([]))
    (tmp_path / "notes.txt").write_text("nothing")

    with pytest.raises(InputError, match=r"is a folder: name one of \S+a\.pickle, \S+go\.pb, \S+jemalloc\.heap$"):
        load(tmp_path)


def test_value_of_tool_that_has_one():
    with pytest.raises(UsageError, match="massif has one value of each block, so there is none to choose"):
        load(DATA / "massif_tflite_mobilenet_v2.gz", "inuse_space")


def test_value_in_every_command(memprof, tmp_path):
    file, words = str(DATA / "go.pb.gz"), ("--value", "alloc_space")
    shown = json.loads(memprof("heap", "show", file, *words, "--json").stdout)
    diff = json.loads(memprof("heap", "diff", file, file, *words, "--json").stdout)
    drawn = json.loads(memprof("heap", "plot", file, *words, "-o", str(tmp_path / "a.png"), "--json").stdout)
    collapsed = memprof("heap", "export", file, *words, "--format", "collapsed").stdout
    memprof("heap", "view", file, *words, "-o", str(tmp_path / "a.html"))

    assert (shown["value"], shown["values"]) == ("alloc_space", ["alloc_space", "inuse_space"])
    assert shown["peak"]["total_bytes"] == diff["after"]["peak_bytes"] == drawn["peak"]["total_bytes"] == 19354204
    assert sum(int(line.rsplit(" ", 1)[1]) for line in collapsed.splitlines()) == 19354204
    assert "allocated until the profile was written, freed or not (alloc_space)" in (tmp_path / "a.html").read_text()
    refused = memprof("heap", "show", file, "--value", "inuse")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "has no value 'inuse'; " in refused.stderr
