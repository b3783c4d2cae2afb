"""Containers that run on this machine, and control groups by their paths: for `memprof attach --container` and `--cgroup`.

A container's control group is named by its ID of 64 hexadecimal digits, whoever made it:

    docker      /docker/ID                     /system.slice/docker-ID.scope
    podman      /libpod_parent/libpod-ID       /machine.slice/libpod-ID.scope, below /user.slice too
    containerd  /kubepods/burstable/podUID/ID  /kubepods.slice/.../cri-containerd-ID.scope
    CRI-O                                      /kubepods.slice/.../crio-ID.scope

on the left with the runtime's own driver of control groups, on the right with systemd's (`conmon` in a name: the program that watches a container).
A container's name stands in a file of docker (containers/ID/config.v2.json), of podman (overlay-containers/containers.json), or in the name of a log
that kubelet links (/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log). Where no file tells, docker, podman and crictl are asked.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from ..base.errors import InputError, near_or_all, os_reason
from ..base.processes import started
from .cgroups import GROUP_FILES, hierarchies, read_or_none

_ID = re.compile(r"(?:(?P<maker>[a-z-]+)-)?(?P<id>[0-9a-f]{64})(?:\.scope)?")
_SHORT = 12  # digits of an ID that docker and podman show
_LEAST_DIGITS = 4  # of an ID, so that it is no name
_WITHIN_S = 10
_COMMANDS = (
    ("docker", "inspect", "--format", "{{.Id}}", "NAME"),
    ("podman", "inspect", "--format", "{{.Id}}", "NAME"),
    ("crictl", "ps", "--quiet", "--no-trunc", "--name", "^NAME$"),
)
_MAKERS = ("var/lib", "home/*/.local/share", "root/.local/share")


class LookedAtGroup(Struct, frozen=True):
    """A control group that is looked at: what the user calls it, its folder, then those of the groups above it as far as they are seen, and its
    processes, the oldest first."""

    name: str
    folders: tuple[str, ...]
    pids: tuple[int, ...]


def of_container(word: str, root: Path = Path("/")) -> LookedAtGroup:
    """The group of the running container of this name, or whose ID begins so. Raises InputError if there is none, or several. root: of the files."""
    found = _running(root)
    names = _names(root)
    ids = [each for each in found if word in names[each]]
    if not ids and re.fullmatch(rf"[0-9a-f]{{{_LEAST_DIGITS},64}}", word):
        ids = [each for each in found if each.startswith(word)]
    if not ids:
        ids = [each for each in _ids_by_command(word) if each in found]
    if not ids:
        known = sorted({name for each in found for name in names[each] or {each[:_SHORT]}})
        hidden = _hidden(root)
        reason = f"; {hidden} may not be read, where names stand: give its ID, or attach as root" if hidden else near_or_all(word, known)
        raise InputError(f"no container {word} is known to run here{reason}")
    if len(ids) > 1:
        each = ", ".join(f"{id_[:_SHORT]} ({', '.join(sorted(names[id_]) or ['no name'])})" for id_ in sorted(ids))
        raise InputError(f"{word} fits {len(ids)} containers: {each}; give one of these IDs")
    return _looked_at(word, found[ids[0]])


def of_path(path: str, root: Path = Path("/")) -> LookedAtGroup:
    """The group of a folder, or of a path as /proc/PID/cgroup has it. Raises InputError if it is none with figures of memory."""
    mounts = [] if _is_group(Path(path)) else _mounts(root)
    folders = [Path(path), *(mount / path.lstrip("/") for mount in mounts)]
    folder = next(filter(_is_group, folders), None)
    if folder is None:
        where = " and ".join(map(str, mounts)) or "no place, as no control groups are mounted here"
        raise InputError(f"there is no control group {path}; those with figures of memory are below {where}")
    return _looked_at(path, Path(os.path.abspath(folder)))  # not resolved: /proc/PID/root would lead to this root


def _is_group(folder: Path) -> bool:
    try:
        return (folder / "cgroup.procs").exists()
    except OSError as error:
        raise _refused(folder, error) from None


def _refused(folder: Path, error: OSError) -> InputError:
    return InputError(f"the control group {folder} may not be read ({os_reason(error)}): attach as root")


def _looked_at(name: str, folder: Path) -> LookedAtGroup:
    try:
        counted = any((folder / files.now).exists() for files in GROUP_FILES.values())
        groups = {folder, *(Path(group) for group, _, _ in os.walk(folder))} if counted else set()
        pids = {int(pid) for group in groups for pid in _procs(group)}
    except OSError as error:
        raise _refused(folder, error) from None
    if not counted:
        raise InputError(f"the control group {folder} has no figures of memory: {_without_figures(folder)}")
    if pids == {0}:
        raise InputError(f"the processes of the control group {folder} cannot be seen from here: they are in another pid namespace")
    lives = {pid: begun for pid in pids - {0} if (begun := started(pid)) is not None}
    if not lives:
        raise InputError(f"the control group {folder} has no processes")
    above = [group for group in folder.parents if _is_group(group)]
    return LookedAtGroup(name, tuple(map(str, (folder, *above))), tuple(sorted(lives, key=lambda pid: (lives[pid], pid))))


def _without_figures(folder: Path) -> str:
    if (folder / "cgroup.controllers").exists():
        return "version 2 of control groups counts memory for it only where cgroup.subtree_control of the group above has the word memory"
    return "it belongs to another controller of version 1, and memory is counted in the hierarchy of the controller memory"


def _procs(group: Path) -> list[str]:
    try:
        return (group / "cgroup.procs").read_text().split()
    except FileNotFoundError:  # it has just been removed
        return []


def _mounts(root: Path) -> list[Path]:
    """Where groups with figures of memory are mounted: on a machine with both versions only one of them has these."""
    try:
        mounted = hierarchies(root)
    except OSError:
        return []
    return [mount for version, mount, _ in mounted if version == 1 or "memory" in (read_or_none(mount, "cgroup.controllers") or "").split()]


def _running(root: Path) -> dict[str, Path]:
    """The folders of all containers' groups by ID; of one whose processes made groups below it, the uppermost."""
    found: dict[str, Path] = {}
    for mount in _mounts(root):
        for folder, below, _ in os.walk(mount):
            for name in below:
                match = _ID.fullmatch(name)
                if match is not None and "conmon" not in (match["maker"] or ""):
                    found.setdefault(match["id"], Path(folder, name))
    return found


def _names(root: Path) -> Mapping[str, set[str]]:
    """The names of containers by ID, as far as files that may be read tell."""
    names: dict[str, set[str]] = defaultdict(set)
    for path in (path for data in _MAKERS for path in _matching(root, f"{data}/docker/containers/*/config.v2.json")):
        described = _json(path)
        if isinstance(described, dict):
            names[path.parent.name].add(str(described.get("Name", "")).lstrip("/"))
    for path in (path for data in _MAKERS for path in _matching(root, f"{data}/containers/storage/*-containers/containers.json")):
        listed = _json(path)
        for each in listed if isinstance(listed, list) else []:
            if isinstance(each, dict):
                names[str(each.get("id"))].update(map(str, each.get("names") or ()))
    for path in _matching(root, "var/log/containers/*.log"):
        pod, _, rest = path.stem.partition("_")
        namespace, _, rest = rest.partition("_")
        container, _, id_ = rest.rpartition("-")
        names[id_].update((container, pod, f"{pod}/{container}", f"{namespace}/{pod}/{container}"))
    return names


def _matching(root: Path, pattern: str) -> Iterator[Path]:
    with suppress(OSError):  # a folder that may not be read
        yield from root.glob(pattern)


def _json(path: Path) -> object:
    with suppress(OSError, ValueError):
        return json.loads(path.read_bytes())
    return None


def _hidden(root: Path) -> Path | None:
    """A folder with names of containers that is there and may not be read."""
    folders = (root / "var/lib/docker/containers", root / "var/lib/docker", root / "var/lib/containers")
    return next((folder for folder in folders if os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK)), None)


def _ids_by_command(word: str) -> list[str]:
    ids: dict[str, None] = {}
    for command in _COMMANDS:
        if shutil.which(command[0]) and not word.startswith("-"):
            words = [part.replace("NAME", re.escape(word) if command[0] == "crictl" else word) for part in command]
            with suppress(OSError, subprocess.TimeoutExpired):
                done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
                ids.update(dict.fromkeys(done.stdout.split()))
    return list(ids)
