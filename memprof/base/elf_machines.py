"""For which machine a program was made: e_machine of its ELF header (elf.h)."""

from __future__ import annotations

HEAD = 20  # bytes up to the end of e_machine

_NAMES = {
    2: "SPARC",
    3: "x86 (32-bit)",
    8: "MIPS",
    20: "PowerPC",
    21: "PowerPC 64",
    22: "S390",
    40: "ARM (32-bit)",
    62: "x86-64",
    183: "AArch64",
    243: "RISC-V",
    258: "LoongArch",
}


def machine(head: bytes) -> int | None:
    """e_machine of a program by its first HEAD bytes, None if that is no ELF."""
    return int.from_bytes(head[18:20], "little" if head[5] == 1 else "big") if head[:4] == b"\x7fELF" and len(head) >= HEAD else None


def name(number: int) -> str:
    """e_machine in words."""
    return _NAMES.get(number, f"machine type {number}")
