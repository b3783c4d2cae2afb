"""Which code of a checkout both sides of a gate would run, and which is each side's own."""

from __future__ import annotations

import json
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.checkout import Checkout

from memprof.programs import commands
from memprof.versions import shared_code
from memprof.versions.worktrees import Repository

OWN: Mapping[str, str] = {}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A checkout with a package in its root, one in src/, tests, and an environment that git ignores."""
    checkout = Checkout(tmp_path / "shop")
    for name in ("shopkit/__init__.py", "src/cart/__init__.py", "bench/run.py", "wheels/vendored.whl"):
        path = checkout.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    checkout.commit(_dot_gitignore=".venv\ndist\n")
    venv.create(checkout.folder / ".venv")
    (checkout.folder / ".venv" / "bin" / "pytest").write_text(f"#!{checkout.folder}/.venv/bin/python\n")
    (checkout.folder / ".venv" / "bin" / "pytest").chmod(0o755)
    return checkout.folder


def _install(folder: Path, name: str, origin: Path, **about: object) -> None:
    (library,) = folder.glob(".venv/lib/python*/site-packages")
    metadata = library / f"{name}-1.dist-info"
    metadata.mkdir()
    (metadata / "direct_url.json").write_text(json.dumps({"url": origin.as_uri(), **about}))


def _found(folder: Path, line: str, env: Mapping[str, str] = OWN) -> list[str]:
    command = commands.of_words(commands.split(line.replace("BIN", str(folder / ".venv" / "bin"))))
    return [shared.reason for shared in shared_code.of_python(Repository(folder, Path()), command, env, folder)]


@pytest.mark.parametrize(
    ("line", "package", "files", "own"),
    [
        ("BIN/pytest", "shopkit", {}, False),
        ("BIN/python -m pytest", "shopkit", {}, True),
        ("BIN/python -W error -c 'import shopkit'", "shopkit", {}, True),
        ("BIN/python bench/run.py", "shopkit", {}, False),
        ("BIN/python -m pytest", "cart", {}, False),
        ("env PYTHONPATH=src BIN/pytest", "cart", {}, True),
        ("BIN/pytest -o pythonpath=src", "cart", {}, True),
        ("BIN/pytest", "cart", {"pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["src"]\n'}, True),
        ("BIN/pytest", "cart", {"pytest.ini": "[pytest]\npythonpath = src\n"}, True),
        ("BIN/pytest", "cart", {"setup.cfg": "[tool:pytest]\npythonpath = . src\n"}, True),
        ("BIN/pytest", "cart", {"pyproject.toml": "[tool.pytest\n"}, False),
        ("BIN/pytest", "shopkit", {"conftest.py": ""}, True),
        ("BIN/pytest --import-mode=importlib", "shopkit", {"conftest.py": ""}, False),
        ("uv run pytest", "cart", {}, True),
    ],
)
def test_folder_of_each_tree_that_comes_first(shop: Path, line: str, package: str, files: dict[str, str], own: bool) -> None:
    _install(shop, package, shop, dir_info={"editable": True})
    for name, text in files.items():
        (shop / name).write_text(text)

    assert (_found(shop, line) == []) == own


@pytest.mark.parametrize(
    ("origin", "about", "found"),
    [
        ("", {"dir_info": {"editable": True}}, True),
        ("", {"dir_info": {}}, True),
        ("dist/cart-1-py3-none-any.whl", {"archive_info": {}}, True),
        ("wheels/vendored.whl", {"archive_info": {}}, False),  # the same package on both sides, whatever the branch changes
        ("../other", {"dir_info": {"editable": True}}, False),
    ],
)
def test_package_installed_from_checkout(shop: Path, origin: str, about: dict[str, object], found: bool) -> None:
    _install(shop, "cart", shop / origin, **about)

    assert bool(_found(shop, "BIN/pytest")) == found


def test_environment_in_checkout_is_no_code_of_it(shop: Path) -> None:
    (library,) = shop.glob(".venv/lib/python*/site-packages")
    (shop / "vendor" / "numpy-1.dist-info").mkdir(parents=True)
    (library / "some.pth").write_text(f"{shop / 'vendor'}\n{library / 'win32'}\n")
    (library / "win32").mkdir()

    assert _found(shop, "BIN/pytest") == []


def test_folder_of_checkout_on_path(shop: Path) -> None:
    (library,) = shop.glob(".venv/lib/python*/site-packages")
    (library / "some.pth").write_text(f"{shop / 'src'}\n")

    assert _found(shop, "BIN/pytest") == [f"{shop / 'src'} in this checkout is on the path of {shop / '.venv' / 'bin' / 'python'}"]
    assert _found(shop, "BIN/pytest", {"PYTHONPATH": "src"}) == []
    assert _found(shop, f"{sys.executable} -m pytest", {"PYTHONPATH": str(shop / "src")}) == [
        f"PYTHONPATH names {shop / 'src'} in this checkout"
    ]
