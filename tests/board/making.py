"""Makes what a board boots: Debian's arm64 kernel, and an initramfs with busybox, dropbear and kernel modules.

The packages come from Debian's archive by apt, with lists and a status of their own, so that nothing of this machine changes and no user need
be root. All of it is kept in the user's cache, under the hash of this file, so that a fresh clone need not make it again.
"""

from __future__ import annotations

import compileall
import fcntl
import hashlib
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

# As the tests are collected: later they have a cache of their own.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memprof-tests" / "board"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_SUITE = "bookworm"
_PLAIN = ("busybox-static", "dropbear-bin", "libc6", "libcrypt1", "libgmp10", "libtomcrypt1", "libtommath1", "zlib1g")
_PYTHON = ("libpython3.11-minimal", "libpython3.11-stdlib", "python3.11-minimal", "libexpat1", "libffi8")
# In the order in which they are loaded.
_MODULES = (
    "failover",
    "net_failover",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_net",
    "zsmalloc",
    "zram",
    "drm",
    "drm_shmem_helper",
    "vgem",
)
_LIBRARIES = "usr/lib/aarch64-linux-gnu"

_INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for module in MODULES; do insmod /modules/$module.ko; done
hostname board
ip link set lo up
ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0
dropbear -R -E -s
while :; do sleep 1000000 & wait $!; done
"""


class Missing(Exception):
    """A board cannot be had here, and why."""


@dataclass(frozen=True)
class Files:
    """What a board boots, and the key that it lets in."""

    kernel: Path
    initramfs: Path
    key: Path


def made(python: bool = False) -> Files:
    """The files of a board, made the first time they are asked for; with Debian's Python 3.11 on it or without. Raises Missing."""
    folder = CACHE / hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Missing(f"{folder} cannot be made: {error.strerror}") from None
    files = Files(folder / "kernel", folder / ("python" if python else "plain"), folder / "key")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not files.initramfs.exists():
            for tool in ("apt-get", "dpkg-deb", "ssh-keygen"):
                if shutil.which(tool) is None:
                    raise Missing(f"no {tool} is here, which a board is made with")
            _make(folder, files, python)
    return files


def _make(folder: Path, files: Files, python: bool) -> None:
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    apt = _Apt(work / "apt")
    kernel = apt.kernel()
    root, image = work / "root", work / "image"
    apt.unpack((*_PLAIN, *(_PYTHON if python else ())), root)
    apt.unpack((kernel,), image)
    if python and sys.version_info[:2] == (3, 11):
        # Emulated, that takes a minute. A compiled file that is never checked: the image keeps no times.
        never = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(root / "usr/lib/python3.11", quiet=2, stripdir=root, prependdir="/", invalidation_mode=never)
    if not files.key.exists():
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "board", "-f", str(files.key))
    if not files.kernel.exists():
        shutil.copy(next((image / "boot").glob("vmlinuz-*")), files.kernel)
    draft = folder / "draft"
    draft.write_bytes(_archive(_tree(root, image, files.key.with_suffix(".pub").read_text())))
    draft.rename(files.initramfs)
    shutil.rmtree(work)


class _Apt:
    """apt for arm64 packages, with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        if not Path(_KEYRING).exists():
            raise Missing(f"{_KEYRING} is not here, without which Debian's packages cannot be checked")
        for name in ("lists/partial", "cache/archives/partial", "debs"):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        (folder / "sources").write_text(f"deb [signed-by={_KEYRING}] http://deb.debian.org/debian {_SUITE} main\n")
        (folder / "conf").write_text(
            'APT::Architecture "arm64"; APT::Architectures { "arm64"; }; APT::Sandbox::User "root"; Acquire::Retries "1";\n'
            f'Acquire::http::Timeout "20"; Acquire::Languages "none"; Dir::State::lists "{folder}/lists"; Dir::State::status "{folder}/status";\n'
            f'Dir::Cache "{folder}/cache"; Dir::Etc::sourcelist "{folder}/sources"; Dir::Etc::sourceparts "/dev/null";\n'
        )
        self._folder, self._environment = folder, {**os.environ, "APT_CONFIG": str(folder / "conf")}
        self._call("apt-get", "update", "--error-on=any", "-qq")

    def kernel(self) -> str:
        """The package of the newest kernel."""
        text = self._call("apt-cache", "depends", "linux-image-arm64")
        return next(line.split()[-1] for line in text.splitlines() if "linux-image-" in line and "Depends:" in line)

    def unpack(self, packages: Iterable[str], target: Path) -> None:
        """Download packages and unpack them into a folder."""
        debs = self._folder / "debs"
        self._call("apt-get", "download", "-qq", *packages)
        for deb in debs.glob("*.deb"):
            _run("dpkg-deb", "-x", str(deb), str(target))
            deb.unlink()

    def _call(self, *words: str) -> str:
        return _run(*words, env=self._environment, cwd=self._folder / "debs")


def _run(*words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=240)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Missing(f"{words[0]} {words[1]}: {reason}")
    return done.stdout


def _tree(root: Path, image: Path, public_key: str) -> dict[str, bytes | Path | str]:
    """The board's files by path: content, a file of this machine, or `-> TARGET` for a link."""
    modules = {path.name: path for path in (image / "lib" / "modules").rglob("*.ko")}
    tree: dict[str, bytes | Path | str] = {
        "init": _INIT.replace("MODULES", " ".join(_MODULES)).encode(),
        "bin/busybox": root / "bin/busybox",
        "bin/dropbear": root / "usr/sbin/dropbear",
        "lib/ld-linux-aarch64.so.1": f"-> /{_LIBRARIES}/ld-linux-aarch64.so.1",
        "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n",
        "etc/group": b"root:x:0:\nnogroup:x:65534:\n",
        "root/.ssh/authorized_keys": public_key.encode(),
        **{f"modules/{name}.ko": modules[f"{name}.ko"] for name in _MODULES},
    }
    for top in (root / "lib/aarch64-linux-gnu", root / _LIBRARIES):
        for path in top.glob("*.so*"):
            tree[f"{_LIBRARIES}/{path.name}"] = path.resolve() if not path.is_symlink() else f"-> {os.path.basename(os.readlink(path))}"
    if (root / "usr/bin/python3.11").exists():
        tree.update({str(path.relative_to(root)): path for path in (root / "usr/lib/python3.11").rglob("*") if path.is_file()})
        tree.update({"usr/bin/python3.11": root / "usr/bin/python3.11", "bin/python3": "-> /usr/bin/python3.11"})
    return tree


def _archive(tree: Mapping[str, bytes | Path | str]) -> bytes:
    """The tree in cpio's format newc (Documentation/driver-api/early-userspace/buffer-format.rst), not compressed: the board would take longer."""
    folders = {str(parent) for path in tree for parent in Path(path).parents} | {"proc", "sys", "dev", "tmp", "etc/dropbear"}
    parts = [_entry(folder, 0o040755, b"") for folder in sorted(folders - {"."})]
    for path, content in tree.items():
        if isinstance(content, str):
            parts.append(_entry(path, 0o120777, content.removeprefix("-> ").encode()))
        else:
            program = path == "init" or ("/modules/" not in path and "bin/" in path) or ".so" in path
            parts.append(_entry(path, 0o100755 if program else 0o100644, content if isinstance(content, bytes) else content.read_bytes()))
    return b"".join([*parts, _entry("TRAILER!!!", 0, b"")])


def _entry(path: str, mode: int, data: bytes) -> bytes:
    name = path.encode() + b"\0"
    # inode, mode, user, group, links, time, size, device and its like, length of the name, no checksum
    numbers = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + name
    return head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)
