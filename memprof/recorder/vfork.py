"""Whether a process runs in another's memory, as a child of vfork does until it execs: its resident set is no further memory then."""

import os

from . import libc

# kcmp(2), for which no libc has a function: its number by machine, and its comparison of address spaces.
_NUMBER = {"x86_64": 312, "aarch64": 272, "riscv64": 272, "loongarch64": 272, "armv7l": 378, "i686": 349, "ppc64le": 354, "s390x": 343}
_kcmp_number = _NUMBER.get(os.uname().machine)
_KCMP_VM = 1
_syscall = libc.function("syscall")


def same_memory(one, other):
    """Whether two processes run in the same memory, given the Statm of each; takes 3 us."""
    if _kcmp_number is not None:
        answer = _syscall(_kcmp_number, one.task, other.task, _KCMP_VM, 0, 0)
        if answer >= 0:
            return answer == 0  # 1, 2 and 3 mean that they differ
    # Without kcmp (CONFIG_KCMP, the right to trace): a fork leaves out the page tables of files, so that its resident set differs.
    return one.read() and other.read() and one.fields == other.fields
