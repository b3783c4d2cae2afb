"""A tree as it is looked at, and two of them set against each other: nothing is lost, whichever way a tree is turned and merged."""

from __future__ import annotations

from memprof.heap import load

_MANGLED_MASSIF = """desc: (none)
cmd: ./app
time_unit: i
#-----------
snapshot=0
#-----------
time=1
mem_heap_B=300
mem_heap_extra_B=0
mem_stacks_B=0
heap_tree=peak
n2: 300 (heap allocation functions) malloc/new/new[], --alloc-fns, etc.
 n0: 200 0x4005A1: _ZN3app4growIfEEvi (tree.cpp:12)
 n0: 100 0x4005B1: _Znonsense (in /lib/app)
"""


def test_mangled_names_demangled(tmp_path, monkeypatch):
    path = tmp_path / "mangled.massif"
    path.write_text(_MANGLED_MASSIF)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "_ZN3app4growIfEEvi" in {frame.function for frame in load(path).frames}

    filter_ = tmp_path / "c++filt"
    filter_.write_text(
        "#!/bin/sh\nwhile read name; do case $name in _ZN3app*) echo 'void app::grow<float>(int)';; *) echo $name;; esac; done\n"
    )
    filter_.chmod(0o755)
    names = {frame.function for frame in load(path).frames}
    assert {"void app::grow<float>(int)", "_Znonsense"} <= names and "_ZN3app4growIfEEvi" not in names

    for broken in ("exit 1", "echo one", "kill -9 $$"):
        filter_.write_text(f"#!/bin/sh\n{broken}\n")
        assert "_ZN3app4growIfEEvi" in {frame.function for frame in load(path).frames}
