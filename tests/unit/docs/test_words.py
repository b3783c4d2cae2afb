"""ci/words.py: which texts of a source it reads, and on which lines."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import pytest
from support.manual import ROOT


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("proselint")
    monkeypatch.syspath_prepend(str(ROOT / "ci"))
    monkeypatch.delitem(sys.modules, "words", raising=False)
    return import_module("words")


def test_docstrings_and_comments_on_own_lines(words: Any) -> None:
    source = '"""First.\n\n    Second.\n"""\n\nLIMIT = 1  # third\n# fourth\nraise ValueError("fifth # no comment")\n'

    messages, explained = words.texts(source)

    assert explained.splitlines() == ["First.", "", "Second.", "", "", "· third ·", "fourth", ""]
    assert messages.splitlines()[7] == " · fifth # no comment"


def test_comments_of_c_without_strings(words: Any) -> None:
    source = '/* First,\n * second. */\nputs("/* no comment */"); // third\nint n; /* fourth */ int m; /* fifth */\n'

    assert words.comments(source).splitlines() == ["First,", "second.", "third", "fourth · fifth"]


def test_phrase_found_across_lines_at_its_place(words: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n\n\nA table has one\nrow a sample.\n"
    monkeypatch.setattr(words, "documents", lambda: [("a.py", text, {"phrase": True, "prose": True})])

    assert words.main() == 1
    assert capsys.readouterr().out.startswith("a.py:4:13: 'one row a sample'")
