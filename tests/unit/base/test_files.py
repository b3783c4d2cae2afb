"""Files that appear whole or not at all, and the sentences where one may not be written."""

from __future__ import annotations

import errno
import os
import resource
import stat

import pytest

from memprof.base import files
from memprof.base.errors import InputError


def test_write_replaces_file_whole(tmp_path):
    path = tmp_path / "a"
    files.write(path, b"old")
    path.chmod(0o640)

    files.write(path, b"new")

    assert path.read_bytes() == b"new" and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["a"]


def test_write_default_permissions(tmp_path):
    files.write(tmp_path / "ours", b"")
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_write_on_full_disk(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(InputError, match=r"a cannot be written: File too large$"):
            files.write(path, b"x" * (1 << 17))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


def test_replacing_uses_unnamed_files(tmp_path):
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_WRONLY))
    except OSError as error:
        pytest.skip(f"this file system has no files without a name: {error}")
    (tmp_path / "model").write_bytes(b"old")

    with files.replacing(tmp_path / "model", tmp_path / "data") as (model, data):
        model.write(b"new")
        data.write(b"data")
        data.flush()
        assert os.listdir(tmp_path) == ["model"] and (tmp_path / "model").read_bytes() == b"old"

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"model": b"new", "data": b"data"}


@pytest.mark.parametrize("lacking", ["open", "link"])
def test_write_without_unnamed_files(tmp_path, monkeypatch, lacking):
    def refuses(*_, **__):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    def only_named(path, flags, *mode):
        return refuses() if flags & os.O_TMPFILE == os.O_TMPFILE else opened(path, flags, *mode)

    opened = os.open
    monkeypatch.setattr(os, lacking, only_named if lacking == "open" else refuses)
    files.write(tmp_path / "a", b"x" * (3 << 20))
    with pytest.raises(ZeroDivisionError), files.replacing(tmp_path / "b") as (file,):
        file.write(b"half")
        _ = 1 / 0

    assert (tmp_path / "a").read_bytes() == b"x" * (3 << 20) and os.listdir(tmp_path) == ["a"]


def test_drafts_all_or_none(tmp_path):
    first, second = tmp_path / "model", tmp_path / "data"
    first.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), files.drafts(first, second) as (draft, second_draft):
        draft.write_bytes(b"new")
        second_draft.write_bytes(b"new")
        _ = 1 / 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"model": b"old"}


def test_write_through_link(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    files.write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"new"


def test_write_to_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        files.check_target(pipe, lambda head: False, "a picture")
        files.write(pipe, b"report")
        assert os.read(reading, 100) == b"report" and stat.S_ISFIFO(pipe.stat().st_mode)
    finally:
        os.close(reading)


def test_write_longest_name(tmp_path):
    path = tmp_path / ("x" * 255)
    files.write(path, b"1")
    assert path.read_bytes() == b"1"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("folder", "folder cannot be written: it is a folder"),
        ("none/a", "none/a cannot be written: there is no folder none"),
        ("note", "note exists and is not a picture; it was left as it is"),
    ],
)
def test_check_target_refusals(tmp_path, monkeypatch, name, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "note").write_text("mine")
    with pytest.raises(InputError) as caught:
        files.check_target(tmp_path.__class__(name), lambda head: head.startswith(b"PNG"), "a picture")
    assert str(caught.value) == sentence


def test_check_new_existing_file(tmp_path):
    path = tmp_path / "a"
    path.write_text("mine")
    files.check_new(path, instead=files.FORCE, overwrite=True)
    with pytest.raises(InputError, match=r"a exists; --force replaces it$"):
        files.check_new(tmp_path / "b", path, instead=files.FORCE)
