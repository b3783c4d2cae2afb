"""Names and IDs of containers, resolved to control groups on recorded trees of files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.group_trees import GroupTree

from memprof.base.errors import InputError
from memprof.places import containers

ID, OTHER = "0123456789ab" + 52 * "c", "0123fedcba98" + 52 * "d"
POD = "pod0f9e8d7c-1111-2222-3333-444455556666"
# The paths of a group by who made it, with either driver.
PATHS = {
    "docker, cgroupfs": f"docker/{ID}",
    "docker, systemd": f"system.slice/docker-{ID}.scope",
    "podman, cgroupfs": f"libpod_parent/libpod-{ID}",
    "podman, systemd": f"machine.slice/libpod-{ID}.scope",
    "podman of a user": f"user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope",
    "containerd, cgroupfs": f"kubepods/burstable/{POD}/{ID}",
    "containerd, systemd": f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{POD}.slice/cri-containerd-{ID}.scope",
    "CRI-O": f"kubepods.slice/kubepods-{POD}.slice/crio-{ID}.scope",
}


@pytest.fixture(autouse=True)
def no_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """No docker, podman or crictl is asked."""
    monkeypatch.setattr(containers.shutil, "which", lambda name: None)


@pytest.mark.parametrize("versions", [(1,), (2,), (1, 2)], ids=str)
@pytest.mark.parametrize("path", PATHS.values(), ids=list(PATHS))
def test_id_finds_group(tmp_path: Path, path: str, versions: tuple[int, ...]) -> None:
    tree = GroupTree(tmp_path, versions)
    folder = tree.group(path, [os.getpid()])
    found = containers.of_container(ID[:12], tmp_path)
    assert (found.folders[0], found.pids, found.name) == (str(folder), (os.getpid(),), ID[:12])
    assert found.folders[-1] == str(tree.mount)
    assert containers.of_container(ID, tmp_path).folders == found.folders


def docker_name(tree: GroupTree, id_: str, name: str) -> None:
    tree.write(f"var/lib/docker/containers/{id_}/config.v2.json", json.dumps({"ID": id_, "Name": f"/{name}"}))


def test_docker_name(tmp_path: Path) -> None:
    tree = GroupTree(tmp_path)
    folder = tree.group(f"system.slice/docker-{ID}.scope", [os.getpid()])
    docker_name(tree, ID, "web")
    docker_name(tree, OTHER, "stopped")
    assert containers.of_container("web", tmp_path).folders[0] == str(folder)
    with pytest.raises(InputError, match="no container stopped is known to run here; there is web"):
        containers.of_container("stopped", tmp_path)


@pytest.mark.parametrize("data", ["var/lib", "home/ann/.local/share"])
def test_podman_name(tmp_path: Path, data: str) -> None:
    tree = GroupTree(tmp_path)
    folder = tree.group(f"machine.slice/libpod-{ID}.scope/container", [os.getpid()]).parent
    tree.group(f"machine.slice/libpod-{ID}.scope")
    tree.group(f"machine.slice/libpod-conmon-{ID}.scope", [os.getppid()])
    described = [{"id": ID, "names": ["web", "web2"]}, {"id": OTHER, "names": ["gone"]}]
    tree.write(f"{data}/containers/storage/overlay-containers/containers.json", json.dumps(described))
    found = containers.of_container("web2", tmp_path)
    assert (found.folders[0], found.pids) == (str(folder), (os.getpid(),))


@pytest.mark.parametrize("word", ["app", "shop/app", "shop-ns/shop/app", "shop"])
def test_kubernetes_name(tmp_path: Path, word: str) -> None:
    tree = GroupTree(tmp_path)
    folder = tree.group(f"kubepods/burstable/{POD}/{ID}", [os.getpid()])
    tree.group(f"kubepods/burstable/{POD}/{OTHER}", [os.getpid()])  # the pod's own, which pauses
    tree.write(f"var/log/containers/shop_shop-ns_app-{ID}.log", "")
    assert containers.of_container(word, tmp_path).folders[0] == str(folder)


def test_name_of_two_lists_them(tmp_path: Path) -> None:
    tree = GroupTree(tmp_path)
    for id_, pod in ((ID, "shop-1"), (OTHER, "shop-2")):
        tree.group(f"kubepods/burstable/{POD}/{id_}", [os.getpid()])
        tree.write(f"var/log/containers/{pod}_ns_app-{id_}.log", "")
    for word in ("app", "0123"):
        with pytest.raises(InputError) as raised:
            containers.of_container(word, tmp_path)
        names = "(app, ns/shop-1/app, shop-1, shop-1/app), 0123fedcba98 (app, ns/shop-2/app, shop-2, shop-2/app)"
        assert str(raised.value) == f"{word} fits 2 containers: 0123456789ab {names}; give one of these IDs"
    assert containers.of_container("shop-2", tmp_path).folders[0].endswith(OTHER)


def test_name_goes_before_digits_of_id(tmp_path: Path) -> None:
    tree = GroupTree(tmp_path)
    tree.group(f"docker/{ID}", [os.getpid()])
    folder = tree.group(f"docker/{OTHER}", [os.getpid()])
    docker_name(tree, OTHER, "012345")
    assert containers.of_container("012345", tmp_path).folders[0] == str(folder)


def test_damaged_files_of_names_are_left_out(tmp_path: Path) -> None:
    tree = GroupTree(tmp_path)
    tree.group(f"docker/{ID}", [os.getpid()])
    tree.write(f"var/lib/docker/containers/{ID}/config.v2.json", "{")
    tree.write(f"var/lib/docker/containers/{OTHER}/config.v2.json", "[1]")
    tree.write("var/lib/containers/storage/overlay-containers/containers.json", '{"id": 1}')
    tree.write("root/.local/share/containers/storage/overlay-containers/containers.json", '[1, {"names": null}]')
    tree.write("var/log/containers/x.log", "")
    with pytest.raises(InputError, match=r"no container web is known to run here; there is 0123456789ab$"):
        containers.of_container("web", tmp_path)


def test_no_groups_no_container(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no container web is known to run here; there are none"):
        containers.of_container("web", tmp_path)
    with pytest.raises(InputError, match="no place, as no control groups are mounted here"):
        containers.of_path("/web", tmp_path)


def test_group_without_processes(tmp_path: Path) -> None:
    folder = GroupTree(tmp_path).group(f"docker/{ID}")
    with pytest.raises(InputError) as raised:
        containers.of_container(ID, tmp_path)
    assert str(raised.value) == f"the control group {folder} has no processes"


def test_processes_of_another_namespace(tmp_path: Path) -> None:
    """The kernel lists a process that has no number here as 0."""
    GroupTree(tmp_path).group(f"docker/{ID}", [0, 0])
    with pytest.raises(InputError, match="cannot be seen from here: they are in another pid namespace"):
        containers.of_container(ID, tmp_path)


def test_path_as_proc_has_it_or_folder(tmp_path: Path) -> None:
    tree = GroupTree(tmp_path)
    folder = tree.group("system.slice/nginx.service", [os.getpid()])
    tree.group("system.slice/nginx.service/worker", [os.getppid()])
    for path in ("/system.slice/nginx.service", "system.slice/nginx.service", str(folder), f"{folder}/", f"{folder}/worker/.."):
        found = containers.of_path(path, tmp_path)
        assert found.folders == (str(folder), str(tree.mount)) or found.folders[0] == str(folder)
        assert set(found.pids) == {os.getpid(), os.getppid()}


def test_path_that_is_no_group(tmp_path: Path) -> None:
    tree = GroupTree(tmp_path, (1, 2))
    with pytest.raises(InputError) as raised:
        containers.of_path("/web", tmp_path)
    assert str(raised.value) == f"there is no control group /web; those with figures of memory are below {tree.mount}"


def test_group_of_another_hierarchy(tmp_path: Path) -> None:
    """Of a machine with both versions, one of them counts memory."""
    GroupTree(tmp_path, (1, 2))
    for path, words in (("unified/web", "cgroup.subtree_control"), ("pids/web", "the hierarchy of the controller memory")):
        folder = tmp_path / "sys/fs/cgroup" / path
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").write_text(f"{os.getpid()}\n")
        if path.startswith("unified"):
            (folder / "cgroup.controllers").write_text("\n")
        with pytest.raises(InputError, match=f"has no figures of memory: .*{words}"):
            containers.of_path(str(folder), tmp_path)


def test_group_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = GroupTree(tmp_path).group("web", [os.getpid()])

    def refuse(path: Path, *words: object, **others: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(containers.Path, "read_text", refuse)
    with pytest.raises(InputError) as raised:
        containers.of_path(str(folder), tmp_path)
    assert str(raised.value) == f"the control group {folder} may not be read (Permission denied): attach as root"


def test_names_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = GroupTree(tmp_path)
    tree.group(f"docker/{ID}", [os.getpid()])
    docker_name(tree, ID, "web")
    hidden = tmp_path / "var/lib/docker"
    monkeypatch.setattr(containers.os, "access", lambda path, mode: path != hidden)
    with pytest.raises(InputError) as raised:
        containers.of_container("wob", tmp_path)
    assert str(raised.value) == (
        f"no container wob is known to run here; {hidden} may not be read, where names stand: give its ID, or attach as root"
    )


def test_commands_are_asked_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = GroupTree(tmp_path).group(f"docker/{ID}", [os.getpid()])
    called = []

    class Done:
        stdout = f"{ID}\n{OTHER}\n"

    monkeypatch.setattr(containers.shutil, "which", lambda name: name)
    monkeypatch.setattr(containers.subprocess, "run", lambda words, **others: called.append(words) or Done)
    assert containers.of_container("we.b", tmp_path).folders[0] == str(folder)
    assert called[0] == ["docker", "inspect", "--format", "{{.Id}}", "we.b"]
    assert called[1] == ["podman", "inspect", "--format", "{{.Id}}", "we.b"]
    assert called[2] == ["crictl", "ps", "--quiet", "--no-trunc", "--name", r"^we\.b$"]
