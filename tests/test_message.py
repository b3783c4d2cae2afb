"""The line to the probe: encoded and decoded in one place, and the probe reads exactly its fields."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import pytest

from memprof import probe
from memprof.measuring.message import Hold, Message, Start, decode, encode
from memprof.probe import wire
from memprof.runs.records import Job, Model

JOB = Job(Model("m", "/m", (), 0, ""), "synthetic", "v", 1, 0, 1)
# How the probe's modules call each part of the message.
CALLED = {Message: {"order"}, Start: {"start", "_start"}, Hold: {"hold", "_hold"}}


def read_by_the_probe(part: type) -> set[str]:
    """The keys that the probe's sources read from this part of the message: `start["env"]`, `self._start.get("group")`."""
    keys = set()
    for path in Path(probe.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Subscript):
                owner, key = node.value, node.slice
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
                owner, key = node.func.value, node.args[0]
            else:
                continue
            name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
            if name in CALLED[part] and isinstance(key, ast.Constant):
                keys.add(key.value)
    return keys


@pytest.mark.parametrize("part", list(CALLED))
def test_the_probe_reads_the_fields_of_a_message_and_no_others(part):
    assert read_by_the_probe(part) == {field.name for field in fields(part)}


def test_a_message_survives_its_line():
    start = Start(("a", "b c"), {"X": "1", "Y": None}, "/tmp", "text\n", 3, True, 5, {"path": "/g", "settings": []}, {"RLIMIT_AS": 9})
    message = Message(JOB, start, 7, {"": 1, "EXECUTE": 2}, ("f",), "cold", True, Hold(4, {"EXECUTE": 10}))
    line = encode(message)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    decoded = decode(line)
    assert encode(decoded) == line and (decoded.job, decoded.intervals, decoded.hold) == (JOB, message.intervals, message.hold)
    assert tuple(decoded.start.argv) == start.argv and decoded.start.env == start.env
    assert wire.loads(line.decode())["start"]["rlimits"] == {"RLIMIT_AS": 9}
