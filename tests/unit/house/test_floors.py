"""The house: a room of memprof imports only rooms on floors below its own, so no circle of imports can come back unseen. A class's name stands once
in the whole tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.xdist_group("floors")  # one worker reads the files

# The ground first: a room imports only rooms of the floors below its own. A room is a folder of memprof with all that is in it; `memprof` itself is
# the face that hands names on, and reports are reached by name.
FLOORS = (
    ("recorder",),
    ("base",),
    ("records",),
    ("models", "recording", "verdicts"),
    ("programs",),
    ("places",),
    ("subjects",),
    ("zoo", "versions"),
    ("campaign", "plan"),
    ("explain", "heap", "footprint", "doctor"),
    ("growth",),
    ("regressions",),
    ("reports",),
    ("doors",),
    ("memprof",),
)
MOST_ROOMS, MOST_ARROWS = 24, 120  # what a newcomer can hold in one head
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}

# Class names that stand in several modules, since a contract says so: where, and why.
CONTRACTS = {
    "Runtime": (
        ("memprof/programs/runtimes.py", "runners/runtimes/", "runners/function.py"),
        "the runner looks for this name in the module of each runtime, a user's own too; memprof's is what the runner tells of it",
    ),
    "Knob": (
        ("memprof/programs/runtimes.py", "runners/runtimes/__init__.py"),
        "a runtime's module declares its knobs with it, a user's own too; memprof's is what the runner tells of it",
    ),
}


def modules() -> dict[str, Path]:
    """Every module of memprof by its name without `memprof.`; the package's own is `memprof`."""
    paths = {}
    for folder, head in ((ROOT / "memprof", ()), (ROOT / "reports", ("reports",))):
        for path in sorted(folder.rglob("*.py")):
            parts = (*head, *path.relative_to(folder).with_suffix("").parts)
            paths[".".join(part for part in parts if part != "__init__") or "memprof"] = path
    return paths


def room(module: str) -> str:
    """The room in which a module lies: its top-level folder, or `memprof` for what lies at the root."""
    top = module.split(".")[0]
    return "memprof" if top == "__main__" else top


def imported(module: str, known: dict[str, Path]) -> Iterator[str]:
    """The modules that a module imports anywhere in it, inside functions and for types too."""
    package = module if known[module].name == "__init__.py" else module.rpartition(".")[0]
    here = [] if package in ("memprof", "") else package.split(".")
    for node in statements(known[module]):
        if isinstance(node, ast.ClassDef):
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("memprof.")]
            yield from (name.removeprefix("memprof.") for name in names if name.removeprefix("memprof.") in known)
            continue
        if node.level:
            base = ".".join([*here[: len(here) - node.level + 1], *(node.module or "").split(".")]).strip(".")
        elif node.module is not None and node.module.split(".")[0] == "memprof":
            base = node.module.partition(".")[2]
        else:
            continue
        for alias in node.names:
            full = f"{base}.{alias.name}" if base else alias.name
            yield full if full in known else base or "memprof"


@cache
def statements(path: Path) -> list[ast.Import | ast.ImportFrom | ast.ClassDef]:
    """The imports and classes of a file, wherever they stand. Expressions, which hold none, are most of a file and are not looked into."""
    found = []
    left: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef):
            found.append(node)
        left += [inner for inner in ast.iter_child_nodes(node) if isinstance(inner, ast.stmt | ast.excepthandler | ast.match_case)]
    return found


def arrows() -> dict[tuple[str, str], str]:
    """(room, room it imports) -> one import that ties them, as `module -> module`."""
    known = modules()
    ties = {}
    for module in known:
        for other in imported(module, known):
            pair = room(module), room(other)
            if pair[0] != pair[1]:
                ties.setdefault(pair, f"{module} -> {other}")
    return ties


def test_room_imports_only_below() -> None:
    rooms = {room(module) for module in modules()}
    assert rooms == set(FLOOR), "FLOORS names every room once"
    ties = arrows()
    print(f"{len(rooms)} rooms, {len(FLOORS)} floors, {len(ties)} arrows")
    up = [f"{tie} ({above} is not above {below})" for (above, below), tie in ties.items() if FLOOR[above] <= FLOOR[below]]
    assert not up, "\n".join(up)
    assert len(rooms) <= MOST_ROOMS and len(ties) <= MOST_ARROWS, "a new room or arrow takes the place of another"


def test_modules_without_import_circles() -> None:
    known = modules()
    graph = {module: {other for other in imported(module, known) if other != module} for module in known}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("folder", ["memprof", "reports", "runners"])
def test_folders_all_packaged(folder: str) -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for path in (ROOT / folder).rglob("*.py"):
        package = ".".join(path.parent.relative_to(ROOT).parts)
        name = package if folder == "memprof" else f"memprof.{package}"
        assert f'    "{name}",\n' in text, f"{name} is not listed in pyproject.toml"


def test_class_names_once_in_tree() -> None:
    places: dict[str, list[str]] = {}
    for folder in ("memprof", "runners", "reports"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in statements(path):
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(path.relative_to(ROOT).as_posix())
    several = {name: found for name, found in places.items() if len(found) > 1}
    print(f"{len(places)} class names, {len(several)} of them in several modules")
    for name, (allowed, _) in CONTRACTS.items():
        assert name in several, f"{name} needs no exception"
        several[name] = [path for path in several[name] if not path.startswith(allowed)]
    again = [f"{name}: {', '.join(found)}" for name, found in sorted(several.items()) if found]
    assert not again, "\n".join(again)
