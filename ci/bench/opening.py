"""How long a page takes to open in a headless Chromium."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median

_DRAWN = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() / 1000)))"


def seconds(page: Path, repeats: int) -> float | None:
    """The median time from the address to the second picture that the browser draws, by which all is there; None without a Chromium."""
    binary, driver_path = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver_path is None:
        return None
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))  # which is no package
    from support import browser_page

    taken = []
    with tempfile.TemporaryDirectory(prefix="memprof-bench-") as folder, browser_page.driven(binary, driver_path, Path(folder)) as driver:
        for _ in range(repeats):
            driver.get("about:blank")
            driver.get(page.as_uri())
            taken.append(float(driver.execute_async_script(_DRAWN)))
    return median(taken)
