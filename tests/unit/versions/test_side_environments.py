"""Which environment a side of a gate runs in."""

from __future__ import annotations

from pathlib import Path

import pytest

from memprof.versions import side_environments


@pytest.mark.parametrize(
    ("names", "empty"),
    [
        ((), True),
        (("pip", "pip-25.0.dist-info", "setuptools-80.0.dist-info", "distutils-precedence.pth"), True),
        (("pip-25.0.dist-info", "mine-0.1.dist-info"), False),
        (("__editable__.mine-0.1.pth",), False),
    ],
)
def test_new_environment_is_empty(tmp_path: Path, names: tuple[str, ...], empty: bool) -> None:
    """A build that installs nothing leaves a program to the packages of the shell."""
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    for name in names:
        (site / name).mkdir()

    assert side_environments.is_empty(str(tmp_path / "bin" / "python")) == empty
