"""What the tests of heap record share."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import need_tool

PROGRAM = """
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static char *grow(size_t size) { char *p = malloc(size); memset(p, 1, size); return p; }
int main(int count, char **words) {
    char *kept = grow(10 << 20), *freed = grow(5 << 20);
    free(freed);
    if (count > 1 && words[1][0] == 'f' && fork() == 0) { grow(3 << 20); return 0; }
    if (count > 1 && words[1][0] == 'c') abort();
    if (count > 1 && words[1][0] == 'f') wait(NULL);
    if (count > 1 && words[1][0] == 'h') for (;;) sleep(1);
    return kept[0] == 9;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that holds 10 MiB, and 15 at its peak; with `fork` it has a child, with `crash` it aborts, with `hang` it stays."""
    need_tool("gcc")
    folder = tmp_path_factory.mktemp("a program")
    (folder / "grow.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-g", "-O0", "-o", folder / "grow", folder / "grow.c"], check=True)
    return folder / "grow"
