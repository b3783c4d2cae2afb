"""The manual: its examples print what it says, its words are words of the commands, and its pages and pictures are there.

A ```console block holds commands after `$ ` and what they print on standard output; each is run in one folder, in the order of the pages, and
compared with figures masked; a line `...` stands for any lines. test_docs_commands.py runs the commands of ```sh blocks; here the names of their
commands and options are looked up.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from support.manual import ROOT, blocks, prints

from memprof.doors.cli import group

try:
    import tomllib
except ImportError:
    import tomli as tomllib

# In the order of the manual: the later ones use files that the earlier ones make.
PAGES = ["README", "tutorial", "any-program", "import", "heap", "tables-and-pictures", "gate", "plan"]

MADE_PAGE = "commands.md"  # by `make docs`
ALL = [ROOT / "README.md", *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.name != MADE_PAGE)]


@pytest.mark.parametrize(
    ("printed", "output", "alike"),
    [
        ("a 1.5 MiB\n", "a 12 MiB\n", True),
        ("a 1.5 MiB\n", "a 12 KiB\n", False),
        ("a\n...\nc\n", "a\nb\nb\nc\n", True),
        ("a\n...\nc\n", "a\nb\nc\nd\n", False),
        ("a\n...\n", "a\nb\n", True),
        ("a\n", "a\nb\n", False),
        ("a\n...\nb\n...\n", "a\nx\nb\ny\n", True),
        ("a\n...\nb\n...\n", "a\nx\n", False),
        ("| a | 1.0 ±0.1 |\n| --- | --: |\n", "| a   | 10.0 ±0.1 |\n| --- | ------: |\n", True),
    ],
)
def test_example_comparison_masks_figures(printed: str, output: str, alike: bool) -> None:
    assert prints(printed, output) == alike


def test_pages_with_examples_ordered() -> None:
    assert {path.stem for path in ALL if blocks(path, "console")} == set(PAGES)


def commands(path: Path) -> Iterator[list[str]]:
    """The memprof commands of a file's sh and console blocks, without what follows a pipe or leads into a file."""
    for block in blocks(path, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            yield from memprof_words(line)
    for block in blocks(path, "console"):
        for line in re.findall(r"^\$ (.*)", block, re.MULTILINE):
            yield from memprof_words(line)


def memprof_words(line: str) -> Iterator[list[str]]:
    for inner in re.findall(r"\$\((.*?)\)", line):
        yield from memprof_words(inner)
    line = re.sub(r"\$\(.*?\)", "printed", line)
    scanner = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
    scanner.whitespace_split = True
    words = list(scanner)
    while "memprof" in words:
        words = words[words.index("memprof") + 1 :]
        end = next((at for at, word in enumerate(words) if word[0] in "|;&<>"), len(words))
        yield words[:end]
        words = words[end:]


def problem(words: list[str]) -> str | None:
    """What is wrong with a command's name or options, None where nothing is."""
    command: click.Command = group
    context = click.Context(group)
    while isinstance(command, click.Group):
        if not words or words[0].startswith("-"):
            return None
        inner = command.get_command(context, words[0])
        if inner is None:
            return f"there is no command {words[0]}"
        command, words = inner, words[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    options = words[: words.index("--")] if "--" in words else words
    return next((f"there is no option {word}" for word in options if re.match(r"--?[a-z]", word) and word.split("=")[0] not in known), None)


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_manual_commands_exist(path: Path) -> None:
    wrong = [f"{' '.join(words)}: {said}" for words in commands(path) if (said := problem(words)) is not None]
    assert not wrong


def every_command(command: click.Command = group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            inner = command.get_command(click.Context(command), name)
            assert inner is not None
            yield from every_command(inner, (*path, name))


@pytest.mark.parametrize(("path", "command"), [pytest.param(*each, id=" ".join(each[0]) or "memprof") for each in every_command()])
def test_help_examples_are_valid(path: tuple[str, ...], command: click.Command) -> None:
    text = f"{cleandoc(command.help or '')}\n{command.epilog or ''}"
    shown = [words for line in re.findall(r"^(?:Example: |  )(.*\bmemprof .*)", text, re.MULTILINE) for words in memprof_words(line)]

    examples = [words for words in shown if tuple(words[: len(path)]) == path]
    assert examples
    assert not [f"{' '.join(words)}: {said}" for words in examples if (said := problem(words)) is not None]


def test_help_lists_commands_by_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = CliRunner().invoke(group, ["--help"]).output.splitlines()

    assert [line for line in lines if re.fullmatch("[A-Z][a-z]+:", line)] == [
        "Options:",
        "Measure:",
        "Look:",
        "Judge:",
        "Understand:",
        "Tools:",
    ]
    named = re.findall(r"^  ([a-z]+)  +[A-Z].*\.$", "\n".join(lines), re.MULTILINE)
    assert sorted(named) == sorted(group.list_commands(click.Context(group)))


@pytest.mark.parametrize("name", [" ".join(path) for path, command in every_command() if path and isinstance(command, click.Group)])
def test_group_help_in_whole_sentences(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = CliRunner().invoke(group, [*name.split(), "--help"]).output.partition("Commands:\n")[2].partition("\n\n")[0]

    assert listed
    assert [line for line in listed.splitlines() if not re.fullmatch(r"  [a-z]+ +[A-Z][^.]*\.", line)] == []


def test_problem_finds_unknown_words() -> None:
    assert problem(["run", "m.onnx", "--therads", "1"]) == "there is no option --therads"
    assert problem(["plan", "shew", "m.onnx"]) == "there is no command shew"
    assert problem(["exec", "--", "./app", "--model", "m"]) is None


def test_navigation_has_every_page() -> None:
    def pages(entries: object) -> Iterator[str]:
        if isinstance(entries, str):
            yield entries
        else:
            for entry in entries.values() if isinstance(entries, dict) else entries:  # type: ignore[attr-defined]
                yield from pages(entry)

    shown = list(pages(tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]))

    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(shown) == sorted({MADE_PAGE, *written})


def test_links_and_pictures_resolve() -> None:
    shown = set()
    for path in [*ALL, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" not in target:
                assert (path.parent / target).is_file(), f"{path.name}: {target}"
                shown.add((path.parent / target).resolve())
    assert not set((ROOT / "docs" / "pictures").iterdir()) - shown


def test_ci_examples_and_inputs_documented() -> None:
    pages = [ROOT / "docs" / name for name in ("ci.md", "history.md", "pytest.md")]
    text = "".join(path.read_text(encoding="utf-8") for path in pages)
    examples = {path: path.read_text() for path in (ROOT / "docs" / "examples").rglob("*") if path.is_file()}

    # By a link, and not by an include of the site's build: a reader of the page in the repository would see no example.
    assert [path for path in examples if f"({path.relative_to(ROOT / 'docs')})" not in text] == []
    shown = [block for path in pages for language in ("yaml", "bash") for block in blocks(path, language)]
    assert shown and [block for block in shown if not any(f"\n{block}" in f"\n{example}" for example in examples.values())] == []
    inputs = re.findall(r"^  ([\w-]+):$", (ROOT / "ci" / "action" / "action.yml").read_text().split("\noutputs:")[0], re.MULTILINE)
    assert {"suite", "args"} <= set(inputs)
    assert all(f"`{name}`" in text for name in inputs)


def bench_docs() -> Any:
    sys.path.insert(0, str(ROOT / "ci"))
    try:
        return import_module("bench.docs")
    finally:
        sys.path.remove(str(ROOT / "ci"))


def test_bench_replaces_own_block_only(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench:job -->\nold\n<!-- /bench:job -->\nbetween\n<!-- bench:help -->\nkept\n<!-- /bench:help -->\n")

    for _ in range(2):
        bench_docs().write("job", "| a |\n| - |\n| \\1 |", ["a note"], pages=tmp_path)

    begin, _, end = page.read_text().partition("Measured on ")
    assert begin == "before\n<!-- bench:job -->\n"
    machine, _, rest = end.partition("\n")
    assert re.match(r"\d{4}-\d\d-\d\d: .*\d+ of \d+ CPUs, Linux ", machine)
    assert rest == "\n| a |\n| - |\n| \\1 |\n\n- a note\n<!-- /bench:job -->\nbetween\n<!-- bench:help -->\nkept\n<!-- /bench:help -->\n"


def test_bench_failures_become_footnotes(monkeypatch: pytest.MonkeyPatch) -> None:
    bench_docs()
    monkeypatch.syspath_prepend(str(ROOT / "ci"))
    knobs = import_module("bench.knobs")
    lacking, torn = knobs.Failure("in PREPARE: it lacks an operator"), knobs.Failure("in MODEL_LOAD: torn")

    rows, notes = knobs.footnoted([("a", "1.0"), ("b", lacking), ("c", torn), ("d", lacking)])

    assert [row[1] for row in rows] == ["1.0", "failed (1)", "failed (2)", "failed (1)"]
    assert notes == ["(1) in PREPARE: it lacks an operator", "(2) in MODEL_LOAD: torn"]


def test_bench_block_missing_or_twice(tmp_path: Path) -> None:
    block = "<!-- bench:job -->\n<!-- /bench:job -->\n"
    (tmp_path / "a.md").write_text(block)
    with pytest.raises(LookupError, match="0 pages"):
        bench_docs().write("help", "", pages=tmp_path)
    (tmp_path / "b.md").write_text(block)
    with pytest.raises(LookupError, match="2 pages"):
        bench_docs().write("job", "", pages=tmp_path)


def test_tables_have_unique_places() -> None:
    places = re.findall(r"^<!-- bench:([\w-]+) -->$", "".join(path.read_text(encoding="utf-8") for path in ALL), re.MULTILINE)
    scripts = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "ci").rglob("*.py"))
    names = re.findall(r'docs\.write\(\s*"([\w-]+)"', scripts)
    prefixes = re.findall(r'docs\.write\(f"([\w-]+)\{', scripts)
    assert {"ladder", "gate", "fleet-lab"} <= set(names) and {"plan-", "fuzz-", "attack-"} <= set(prefixes)
    assert set(names) <= set(places) and len(places) == len(set(places))
    assert [place for place in places if place not in names and not place.startswith(tuple(prefixes))] == []


def test_bench_blocks_state_date() -> None:
    blocks = re.compile(r"^<!-- bench:([\w-]+) -->\n(.*?)^<!-- /bench:\1 -->$", re.MULTILINE | re.DOTALL)
    written = {name: text for path in ALL for name, text in blocks.findall(path.read_text(encoding="utf-8")) if text.strip()}
    assert len(written) > 20
    assert [name for name, text in written.items() if not re.match(r"Measured on \d{4}-\d\d-\d\d: ", text)] == []


def test_exit_codes_equal_in_readme() -> None:
    tables = [
        path.read_text(encoding="utf-8").partition("## Exit codes\n")[2].strip().partition("\n\n")[0]
        for path in (ROOT / "README.md", ROOT / "docs" / "files.md")
    ]
    assert tables[0] == tables[1] and "| 70 |" in tables[0]


def test_troubleshooting_quotes_messages() -> None:
    sources = [
        path for room in ("memprof", "reports", "runners") for path in (ROOT / room).rglob("*") if path.suffix in (".py", ".sh", ".c")
    ]
    # As the compiler joins them: a message may be written in two pieces, on two lines.
    words = re.sub(r"[\"']\s*\n\s*f?[\"']", "", "".join(path.read_text(encoding="utf-8") for path in sources))
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8").partition("## Marks in tables")[0]
    quoted = re.findall(r"^\| `([^`]+)`", page, re.MULTILINE)

    assert len(quoted) > 50
    assert [text for text in quoted if not all(piece in words for piece in re.split(r"\b[A-Z]{4,}\b", text))] == []
