"""Phases beside a profile: phases.json, as `memprof heap record` writes it, put onto the snapshots' own clock."""

from __future__ import annotations

from pathlib import Path

from .profile import HeapProfile


def with_phases(profile: HeapProfile, path: Path) -> HeapProfile:
    return profile
