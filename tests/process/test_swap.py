"""Pages that are swapped out: they are in no resident set, so each figure that lacks them says so, and no verdict forgets them."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.native_programs import SWAPPED_OUT, program, ran, ran_in_time, swapped_out
from support.sample_runs import MIB

from memprof.base.errors import InputError
from memprof.places import limits
from memprof.places.machine import this_machine


def test_run_stays_on_cpus():
    cpu = max(os.sched_getaffinity(0))
    run = ran("sh", "-c", 'test "$(sed -n s/Cpus_allowed_list:.//p /proc/self/status)" = ' + str(cpu), cpus=str(cpu))

    assert run.outcome.ok, run.outcome
    assert run.job.cpus == str(cpu)
    assert run.machine.peak_bound_bytes * len(os.sched_getaffinity(0)) == this_machine().peak_bound_bytes


@pytest.fixture
def zram() -> Iterator[None]:
    """A swap device of compressed memory, for as long as the test runs."""
    control = Path("/sys/class/zram-control")
    if os.geteuid() != 0 or not control.is_dir() or not (shutil.which("mkswap") and shutil.which("swapon")):
        pytest.skip("no swap can be made here: that takes root, zram, mkswap and swapon")
    with open("/tmp/memprof-test-zram.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        number = (control / "hot_add").read_text().strip()
        device = f"/dev/zram{number}"
        try:
            Path(f"/sys/block/zram{number}/disksize").write_text(str(128 * MIB))
            for words in (["mkswap", device], ["swapon", device]):
                done = subprocess.run(words, capture_output=True, text=True, check=False)
                if done.returncode:
                    pytest.skip(f"no swap can be made here: {done.stderr.strip()}")
            yield
            subprocess.run(["swapoff", device], check=True)
        finally:
            with suppress(OSError):
                (control / "hot_remove").write_text(number)


def test_program_swapped_to_zram(zram):
    swapped_out(ran(program(SWAPPED_OUT)))


def test_program_swapped_seen_by_polling(recorder, zram):
    body = """
    char *first = hold(64 * MIB);
    madvise(first, 64 * MIB, 21 /* MADV_PAGEOUT */);
    hold(48 * MIB);
    usleep(atoi(words[1]));
    """
    run = ran_in_time(lambda run: run.marks and (run.marks[0].with_swap_bytes or 0) >= 112 * MIB, program(body), "{us}")

    mark = run.mark("RUN")
    assert run.outcome.ok and mark is not None
    assert mark.with_swap_bytes is not None and 112 * MIB <= mark.with_swap_bytes < 120 * MIB
    assert run.timeline.swap is not None


def test_run_kept_out_of_swap():
    try:
        limiter = limits.find("cgroup")
    except InputError as error:
        pytest.skip(str(error))
    if not isinstance(limiter, limits.Groups):
        pytest.skip("systemd makes the groups here")
    name, kept = ("memory.swappiness", "0") if limiter.version == 1 else ("memory.swap.max", "0")
    if not (limiter.folder / name).exists():
        pytest.skip(f"this kernel's groups have no {name}")
    folder = f"{limiter.folder}/$(basename $(grep -m 1 -E ':(memory|):' /proc/self/cgroup))"
    run = ran("sh", "-c", f'test "$(cat {folder}/{name})" = {kept}', no_swap=True)

    assert run.outcome.ok, run.outcome
    assert run.job.no_swap and run.charged is not None
