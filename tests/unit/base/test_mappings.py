"""The kernel's lists of mappings, read: with sizes, without, and with paths that have odd letters."""

from __future__ import annotations

from memprof.base.mappings import Mapping, parse

SMAPS = """\
55d0c0000000-55d0c0002000 r--p 00001000 08:01 131                        /opt/my app/lib.so (deleted)
Size:                  8 kB
Rss:                   8 kB
Shared_Clean:          4 kB
Shared_Dirty:          0 kB
Private_Dirty:         4 kB
Anonymous:             4 kB
AnonHugePages:         0 kB
Swap:                  0 kB
THPeligible:           0
VmFlags: rd mr mw me sd
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
Rss:                  12 kB
Anonymous:            12 kB
7ffd00030000-7ffd00031000 rw-p 00000000 00:00 0
Rss:                   0 kB
"""


def test_smaps_fields_of_each_mapping() -> None:
    library, stack, unnamed = parse(SMAPS)

    assert library == Mapping(
        0x55D0C0000000,
        0x55D0C0002000,
        "r--p",
        0x1000,
        "08:01",
        131,
        "/opt/my app/lib.so (deleted)",
        rss=8 << 10,
        anonymous=4 << 10,
        private_dirty=4 << 10,
        shared_clean=4 << 10,
        flags="rd mr mw me sd",
    )
    assert (stack.path, stack.rss, stack.is_file) == ("[stack]", 12 << 10, False)
    assert unnamed.path == ""


def test_maps_without_sizes() -> None:
    (heap, library) = parse("1000-2000 rw-p 00000000 00:00 0 [heap]\n2000-3000 r-xs 00000000 08:01 7 /lib/c:d.so\n")

    assert (heap.path, heap.rss) == ("[heap]", 0)
    assert (library.path, library.is_shared, library.is_file) == ("/lib/c:d.so", True, True)


def test_path_with_form_feed_is_one_line() -> None:
    (mapped,) = parse("1000-2000 r--p 00000000 08:01 7 /tmp/a\x0cb c\u2028d e\nRss: 4 kB\n")

    assert (mapped.path, mapped.rss) == ("/tmp/a\x0cb c\u2028d e", 4 << 10)
