"""What memprof asks a recorder for, in the recorder's lines; and the line of the recording that tells the fold."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.sample_runs import job, machine

from memprof.recording import events, order
from memprof.records.recorder_order import CommandStart, GroupOrder, Header, Hold, Message, Start

MS = 1_000_000


def message(start: Start = Start(("a",)), **rest: object) -> Message:  # noqa: B008  (frozen)
    return Message(job(), start, 7 * MS, {"": MS}, **rest)  # type: ignore[arg-type]


def facts(asked: Message, kernel: str = "6.18", swap: int = 0) -> list[str]:
    """The lines of an order."""
    text = order.lines(asked, replace(machine(), kernel=kernel, swap_bytes=swap)).decode()
    assert text.endswith("\n\n")
    return text.splitlines()[:-1]


def test_header_survives_its_line() -> None:
    command = CommandStart((("LOAD", r"^a\n"),), driven=True)
    start = Start(
        ("a", "b c\n"),
        {"X": "1", "Y": None},
        "/tmp",
        "text\\n",
        3,
        True,
        5,
        GroupOrder("/g", (("f", "1"),)),
        {"RLIMIT_AS": 9},
        ("w",),
        command,
    )
    hold = Hold(4, {"EXECUTE": 10}, {"RUN": (1, 2)})
    header = Header(message(start, files=("f",), cache="cold", cache_drop=True, hold=hold, silence_ns=3), machine(), 5)

    line = order.encode(header)

    assert b"\n" not in line
    assert order.encode(order.decode(events.unescaped(line))) == line


def test_plain_order_has_what_it_needs() -> None:
    assert set(facts(message(Start(("prog", "a b", "c\nd\\"))))) == {
        "interval 1000000",
        "timeout 7000000",
        "silence 0",
        "argv prog",
        "argv a b",
        r"argv c\nd\\",
        "env MEMPROF_GOES=1",
        "pad 128",
        "stdin ",
        "grace 0",
        "cache asis",
        'rule 1000000 0 0 "begin" "t_ns":',
        'rule 1000000 0 0 "end" "end_ns":',
    }


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        (message(Start(("a",), command=CommandStart())), {"tree 1"}),
        (message(Start(("a",), command=CommandStart((("A", "b"),)))), {"tree 1", "output 1", "reset 1", "terminal 1", "env TERM=dumb"}),
        (message(Start(("a",), {"TERM": "x", "GONE": None})), {"env TERM=x", "unset GONE"}),
        (message(Start(("a",), cwd="/tmp", input=5)), {"cwd /tmp", "input 5"}),
        (message(Start(("a",), stdin="x\ny")), {r"stdin x\ny"}),
        (message(Start(("a",), deterministic=True, cpus=(3, 1))), {"personality 1", "cpus 3,1"}),
        (message(Start(("a",), group=GroupOrder("/g", (("memory.max", "1 2"),)))), {"group /g", "setting memory.max 1 2"}),
        (message(Start(("a",), rlimits={"RLIMIT_DATA": 9})), {"rlimit RLIMIT_DATA 9"}),
        (message(Start(("a",), grace_ns=5, writers=("w",))), {"grace 5", "writer w"}),
        (message(files=("/m",), cache="warm", cache_drop=True), {"file /m", "cache warm", "drop 1"}),
        (message(silence_ns=9), {"silence 9"}),
        (message(hold=Hold(9)), {"hold 9", "env MEMPROF_HOLD=1", 'rule 1000000 0 1 "end" "end_ns":'}),
        (message(hold=Hold(9, {"A": 5})), {"eager 1", 'rule 1000000 5 0 "begin" "t_ns": "A"'}),
        (message(hold=Hold(9, units={"A": (1,)})), {"eager 1", "env MEMPROF_GOES=1", 'rule 1000000 0 0 "end" "end_ns":'}),
    ],
    ids=lambda value: "" if isinstance(value, Message) else sorted(value)[0],
)
def test_order_says_what_is_asked(asked: Message, lines: set[str]) -> None:
    assert lines <= set(facts(asked))


def test_phases_have_periods_of_their_own() -> None:
    asked = replace(message(), intervals={"": MS, "EXECUTE": 5 * MS, "WARMUP": 0})
    rules = [line for line in facts(asked) if line.startswith("rule")]
    assert rules == [
        'rule 5000000 0 0 "begin" "t_ns": "EXECUTE"',
        'rule 0 0 0 "begin" "t_ns": "WARMUP"',
        'rule 1000000 0 0 "begin" "t_ns":',
        'rule 1000000 0 0 "end" "end_ns":',
    ]


def test_attached_process_is_only_looked_at() -> None:
    start = Start(attach=42, attach_started=7, command=CommandStart((("request", "served"),), log="/l og"))
    lines = facts(message(start))
    assert {"attach 42 7", "log /l og", "tree 1", "output 1"} <= set(lines)
    assert not [line for line in lines if line.startswith(("argv", "env", "reset", "terminal", "rule", "stdin", "cache"))]


@pytest.mark.parametrize(("kernel", "swap", "read"), [("6.18", 0, False), ("6.18", 5, True), ("6.1.0", 0, True), ("5.10", 0, True)])
def test_status_is_read_where_it_matters(kernel: str, swap: int, read: bool) -> None:
    assert ("swap 1" in facts(message(), kernel, swap)) is read


def test_word_with_a_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="a word with a zero in it"):
        order.lines(message(Start(("true", "a\0b"))), machine())


def test_memory_by_units_is_wanted_by_variable() -> None:
    assert message(Start(("a",), {"MEMPROF_WORK": "1"})).follows
    assert message(Start(attach=3)).follows
    assert not message().follows
