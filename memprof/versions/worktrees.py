"""A repository at a commit, in a separate tree with a separate environment, in which the suite's build command has run.

The two sides of `gate --base-ref` are git worktrees in a temporary folder, so that neither build writes into the checkout: base at the commit that
the ref names, head at HEAD with the checkout's uncommitted changes and new files laid over it. Files that git ignores, repositories inside this
repository, virtual environments and runs files are not laid over: no change is about them, and they are large. All of it is removed at the end;
leftovers of a memprof that was killed are removed by the next memprof. The builds of `bisect` stay: see memprof.versions.builds.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath

from msgspec import Struct
from msgspec.structs import replace

from ..base import cache_folders
from ..base.cache import cache_folder
from ..base.errors import InputError, UsageError, os_reason
from ..base.leftovers import end_leftovers, scratch
from ..programs import environments, symbols
from ..programs.commands import Command
from ..programs.runtimes import BUILD_COMMAND
from ..records.store import is_runs_file
from ..subjects.suite import Build, Suite, Variant, read
from . import shared_files, side_environments

_PURPOSE = "gate"
BUILD_HINT = "what is built in this checkout is not there, and --build COMMAND builds it on both sides"
_FETCH = "fetch the ref first (git fetch --depth=1 origin REF)"
_SCRATCH_NAME = re.compile(rf"memprof-{_PURPOSE}-[0-9a-f]{{16}}")
# Set inside git's own hooks, where they would point every git command at the repository of the hook.
_GIT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY")


class Worktree(Struct, frozen=True):
    """A side: its folder, the interpreter of its environment, and its name. new: why it cannot be built, if it has no suite yet."""

    folder: Path
    python: str
    label: str
    new: str | None = None


class Unbuilt(InputError):
    """A build command failed, and no full disk is to blame."""


class Repository(Struct, frozen=True):
    """A checkout and the suite in it, as a path relative to it. objects: git's own folder if the checkout has none. called: its name if it is not the
    checkout's path."""

    root: Path
    suite: Path
    objects: Path | None = None
    called: str = ""

    @property
    def name(self) -> str:
        """What people call it, and what tells it from others."""
        return self.called or str(self.root)

    def git(self, *words: str, what: str, given: bytes = b"") -> str:
        """See `git`."""
        return git(self.objects or self.root, *words, what=what, given=given)

    @classmethod
    def of(cls, suite: Path) -> Repository:
        """The repository that a suite file lies in. Raises InputError if there is none."""
        if not suite.is_file():
            raise InputError(f"suite {suite}: no such file")
        path = suite.resolve()
        root = Path(git(path.parent, "rev-parse", "--show-toplevel", what=f"{suite} lies in no git repository"))
        return cls(root, path.relative_to(root))

    @classmethod
    def around(cls, folder: Path) -> Repository:
        """The repository that a folder lies in, for a request without a suite. Raises InputError if there is none."""
        root = Path(git(folder, "rev-parse", "--show-toplevel", what=f"{folder} lies in no git repository"))
        return cls(root, Path())

    def has_suite(self, tree: Path) -> bool:
        """Whether a tree of the repository has the suite: base may be older than the suite."""
        return (tree / self.suite).exists()

    def tracks(self, path: Path) -> bool:
        """Whether a file of the checkout is under version control; for a folder, whether any file in it is."""
        with suppress(InputError):
            return bool(git(self.root, "ls-files", "--", str(path), what=""))
        return False


@contextmanager
def tree(repository: Repository, ref: str, option: str) -> Iterator[Worktree]:
    """A ref's tree, as git has it. option: which named the ref. Raises UsageError for an unknown ref; leaves nothing behind."""
    commit = hash_of(repository.root, ref, option, _FETCH)
    end_leftovers()
    forget_leftovers(repository)
    with scratch(_PURPOSE) as work, _worktrees(repository, work.folder):
        label = _base_label(ref, commit)
        folder = work.folder / "base"
        _check_out(repository, folder, commit, label)
        yield Worktree(folder, "", label)


def place_in(repository: Repository, tree: Worktree, here: Path) -> Path:
    """The folder in a tree that `here` is in the checkout."""
    return tree.folder / here.resolve().relative_to(repository.root.resolve())


def folder_inside(repository: Repository, folder: str | Path, option: str) -> Path:
    """A folder of the checkout, which the other tree has too. option: which named it. Raises UsageError for one outside of it."""
    real = Path(folder).expanduser().resolve()
    if not real.is_relative_to(repository.root.resolve()):
        raise UsageError(f"{option} {folder} lies outside of this checkout: both sides would run there")
    return real


def command_in(repository: Repository, tree: Worktree, command: Command, here: Path, build: Build | None) -> Command:
    """A command for the place in a tree that the folder `here` is in the checkout. build: what has run there, None for nothing.

    A program that git does not track is not in the tree: that of a virtual environment is taken from the checkout. Raises UsageError for any
    other, because what is built in the checkout would be measured on both sides.
    """
    folder = place_in(repository, tree, here)
    program = Path(os.path.expanduser(command.argv[0]))
    argv = command.argv
    if os.sep in command.argv[0] and not (folder / program).exists():
        if not (here / program).parent.with_name("pyvenv.cfg").exists():
            why = BUILD_HINT if build is None else f"`{build.command}` does not make it there"
            raise UsageError(f"{command.argv[0]} is not in {tree.label}: {why}")
        argv = (str((here / program).absolute()), *argv[1:])
    elif program.is_absolute() and program.is_relative_to(repository.root) and not (program.parent.with_name("pyvenv.cfg")).exists():
        raise UsageError(f"{program} is this checkout's on both sides: name it by its path from {here}")
    return replace(command, argv=argv, cwd=str(folder))


@contextmanager
def trees(repository: Repository, ref: str, build: Build, say: Callable[[str], None]) -> Iterator[tuple[Worktree, Worktree]]:
    """Base and head, built. Raises UsageError for an unknown ref, InputError for a side that cannot be built; leaves nothing behind.

    build: head's. Base is built as its suite says. If base is older than the suite it is built as head is, and a failure is no error then.
    """
    commit = hash_of(repository.root, ref, "--base-ref", _FETCH)
    end_leftovers()
    forget_leftovers(repository)
    with scratch(_PURPOSE) as work, _worktrees(repository, work.folder):
        sides = []
        for name, at, label in (("base", commit, _base_label(ref, commit)), ("head", "HEAD", "head (this checkout)")):
            folder = work.folder / name
            _check_out(repository, folder, at, label)
            if name == "head":
                _lay_over(repository, folder)
            side_build = build if name == "head" else _build_of_base(repository, folder, build)
            say(f"{label}: {side_build.command}")
            try:
                sides.append(Worktree(folder, built(folder, work.variables, side_build, label), label))
            except InputError as error:
                if name == "head" or repository.has_suite(folder):
                    raise
                sides.append(Worktree(folder, "", label, new=str(error)))
        yield sides[0], sides[1]


@contextmanager
def checked_out(repository: Repository, folder: Path, commit: str, label: str) -> Iterator[None]:
    """A commit in a folder, a worktree of git's as long as the block lasts. Afterwards git's list is as before, and the files stay.

    Raises InputError if it cannot be checked out.
    """
    forget_leftovers(repository)
    _check_out(repository, folder, commit, label)
    try:
        yield
    finally:
        # Git takes a worktree off its list only with its files, unless they are somewhere else.
        aside = folder.with_name(f"{folder.name}.aside")
        folder.rename(aside)
        _remove(repository, folder)
        aside.rename(folder)
        (folder / ".git").unlink(missing_ok=True)


def checkout_suite(repository: Repository) -> Suite:
    """The checkout's suite, of which trees will be built. Raises InputError if no gdb can follow its phases: a build may take minutes."""
    suite = read(repository.root / repository.suite)
    if suite.phases:
        symbols.check()
    return suite


def suite_in(repository: Repository, tree: Worktree, lent: bool = False) -> Suite:
    """A tree's suite, with the tree's interpreter if it names none.

    A file that git does not track (a model that was downloaded) is in no tree: it is taken from the checkout, for both sides. lent: so is any
    other that the tree lacks, because the suite is the checkout's and may be younger than the tree.
    """
    suite = read(tree.folder / repository.suite)

    def placed(path: str | None) -> str | None:
        if path is None or os.path.exists(path) or not path.startswith(str(tree.folder)):
            return path
        inside = Path(os.path.relpath(path, tree.folder))  # may also lie beside the repository
        here = Path(os.path.normpath(repository.root / inside))
        return str(here) if here.exists() and (lent or not repository.tracks(inside)) else path

    def interpreter(python: str | None) -> str | None:
        # A path with a folder in it lies in the tree; a bare name is looked for on PATH, the same for both sides.
        return str(tree.folder / repository.suite.parent / os.path.expanduser(python)) if python and os.sep in python else python

    def runtime(name: str) -> str:
        return (placed(name) or name) if name.endswith(".py") else name

    def placed_variant(variant: Variant) -> Variant:
        variant = replace(variant, runtime=runtime(variant.runtime), python=interpreter(variant.python))
        command = variant.command
        if command is None:
            return variant
        place = Path(os.path.normpath(command.cwd or tree.folder))
        if place.is_relative_to(tree.folder):
            here = repository.root / place.relative_to(tree.folder)
            command = shared_files.in_full(command, here, repository.root, place)
            variant = replace(variant, env=shared_files.variables_in_full(variant.env, here, repository.root, place))
        if tree.python and not side_environments.is_empty(tree.python):
            command = side_environments.inside(command, tree.folder, tree.python, suite.build or Build())
        return replace(variant, command=command)

    return replace(
        suite,
        models=tuple(placed(model) or model for model in suite.models),
        model_shapes={placed(model) or model: shapes for model, shapes in suite.model_shapes.items()},
        runtimes=tuple(map(runtime, suite.runtimes)),
        variants=tuple(map(placed_variant, suite.variants)),
        inputs=placed(suite.inputs),
        python=interpreter(suite.python) or (tree.python if suite.has_runtimes else None),
    )


# -- trees


def _check_out(repository: Repository, folder: Path, at: str, label: str) -> None:
    """A worktree of git's in a new folder. Raises InputError."""
    repository.git("worktree", "add", "--quiet", "--detach", str(folder), at, what=f"{label} cannot be checked out")


def _base_label(ref: str, commit: str) -> str:
    # CI services name base by its commit: the label has it once.
    return f"base ({commit[:9]})" if commit.startswith(ref) else f"base ({ref}, {commit[:9]})"


def _build_of_base(repository: Repository, folder: Path, head: Build) -> Build:
    """As base's suite says. A base without a suite is built as head is, and so is one whose suite has no [build] and that has nothing to install."""
    if not repository.has_suite(folder):
        return head
    own = read(folder / repository.suite).build
    return own or (Build() if _is_installable(folder) else head)


def _is_installable(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("pyproject.toml", "setup.py"))


def _lay_over(repository: Repository, folder: Path) -> None:
    """Bring the checkout's uncommitted changes and new files into head's tree."""
    changed = git(repository.root, "diff", "--name-only", "--no-renames", "-z", "HEAD", what="the checkout's changes cannot be listed")
    new = git(repository.root, "ls-files", "--others", "--exclude-standard", "-z", what="the checkout's new files cannot be listed")
    for name in filter(None, [*changed.split("\0"), *_sources(repository, new.split("\0"))]):
        source, target = repository.root / name, folder / name
        try:
            if source.is_dir() and not source.is_symlink():
                continue  # a submodule, or a repository inside this one
            target.unlink(missing_ok=True)
            if os.path.lexists(source):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        except OSError as error:
            raise InputError(f"{source} cannot be brought into head's tree: {os_reason(error)}") from None


def _sources(repository: Repository, names: Sequence[str]) -> Iterator[str]:
    """The checkout's new files that are somebody's work: not an environment's, and not the runs of an earlier gate."""
    paths = [PurePath(name) for name in names if name]
    of_python = {path.parent for path in paths if path.name == "pyvenv.cfg"} - {PurePath()}
    for path in paths:
        if of_python.isdisjoint(path.parents) and not (path.suffix == ".jsonl" and is_runs_file(repository.root / path)):
            yield str(path)


@contextmanager
def _worktrees(repository: Repository, work: Path) -> Iterator[None]:
    """Removes both sides' worktrees from git's list when the block ends."""
    try:
        yield
    finally:
        for name in ("base", "head"):
            _remove(repository, work / name)


def _remove(repository: Repository, folder: Path) -> None:
    with suppress(InputError):
        repository.git("worktree", "remove", "--force", str(folder), what="")


def forget_leftovers(repository: Repository) -> None:
    """Remove from git's list the worktrees of memprofs that were killed, whose folders have been removed."""
    commits = cache_folder(cache_folders.COMMITS)
    for line in repository.git("worktree", "list", "--porcelain", what="git's worktrees cannot be listed").splitlines():
        folder = Path(line.removeprefix("worktree "))
        ours = _SCRATCH_NAME.fullmatch(folder.parent.name) or folder.parent.parent == commits
        if line.startswith("worktree ") and ours and not folder.parent.exists():
            _remove(repository, folder)


# -- environments


def built(folder: Path, marks: Mapping[str, str], build: Build, label: str) -> str:
    """The interpreter of an environment in which the build command has run. marks: variables by which its processes are known.

    Raises Unbuilt if the command fails or there is nothing that it could install, InputError if it cannot be started or had no room.
    """
    if build.command == Build().command and not _is_installable(folder):
        raise Unbuilt(
            f"{label} has no pyproject.toml that `{build.command}` could install: the suite's [build] says how it is built, "
            'or command = "true" for nothing to build'
        )
    environment = folder.with_name(f"{folder.name}-env")
    temporary = folder.with_name(f"{folder.name}-tmp")  # what a build that is killed leaves there goes with the rest
    temporary.mkdir(exist_ok=True)
    variables = {**_clean(os.environ), **marks, "TMPDIR": str(temporary)}
    variables.update(_environment(environment, folder, variables, build, label))
    _do(["sh", "-c", build.command], folder, variables, f"{label} cannot be built: `{build.command}`", Unbuilt)
    shutil.rmtree(temporary, ignore_errors=True)
    return str(environment / "bin" / "python")


def _environment(environment: Path, folder: Path, variables: Mapping[str, str], build: Build, label: str) -> dict[str, str]:
    """The variables by which a build command installs into a virtual environment, which is made here. Raises InputError."""
    python = base_interpreter(build)
    what = f"{label}: an environment cannot be made with {python}"
    _do([python, "-m", "venv", str(environment)], folder, variables, what, InputError, environment.with_suffix(".log"))
    (environment / BUILD_COMMAND).write_text(build.command, encoding="utf-8")
    return {"PIP_DISABLE_PIP_VERSION_CHECK": "1", **variables, **environments.activated(environment)}


def build_in(folder: Path, build: Build, label: str, environment: Path | None = None) -> None:
    """Run a build command in a folder, in which stays what it makes. environment: made for it, None for that of the shell.

    Raises Unbuilt if the command fails, InputError if it cannot be started or had no room.
    """
    with scratch(_PURPOSE) as work:
        variables = {**_clean(os.environ), **work.variables}
        what = f"{label} cannot be built: `{build.command}`"
        if environment is not None:
            variables = _environment(environment, folder, variables, build, label)
        # It may be a script of several lines, as in a CI service's file.
        _do(["sh", "-e", "-c", build.command], folder, variables, what, Unbuilt, work.folder / "build.log")


_COMPILER_ERROR = re.compile(r":\d+: (?:fatal )?error: ")  # of GCC and Clang: FILE:LINE:COLUMN: error: ...


def base_interpreter(build: Build) -> str:
    """The interpreter that makes the environment of a build. Raises InputError if there is none."""
    python = shutil.which(os.path.expanduser(build.python)) if build.python else sys.executable
    if python is None:
        raise InputError(f"[build] python = {build.python!r}: no such interpreter")
    return python


def _clean(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables without those that would point git or Python away from the side."""
    return {name: value for name, value in variables.items() if name not in (*_GIT_VARIABLES, "PYTHONHOME", "PYTHONPATH")}


def _do(
    command: list[str],
    folder: Path,
    variables: Mapping[str, str],
    what: str,
    failure: type[InputError] = InputError,
    log: Path | None = None,
) -> None:
    """Run a command to its end; an interruption ends its whole group. log: None for a file beside the folder.

    Raises a failure with the error in its output or else the last line, and the log's path; InputError if it had no room or cannot be started.
    """
    log = log or folder.with_name(f"{folder.name}.log")  # among what the next memprof removes, unless there is something to read in it
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise InputError(f"{what}: {os_reason(error)}") from None
        try:
            code = process.wait()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    if code:
        lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
        compiler = [line for line in lines if _COMPILER_ERROR.search(line)][:1]  # the others may follow from the first
        errors = compiler or [line for line in lines if line.lower().startswith(("error", "fatal"))]
        last = (errors or lines or ["it printed nothing"])[-1]
        full = os.strerror(errno.ENOSPC)
        if any(full in line for line in lines):
            raise InputError(f"{what} ended with exit code {code}: {full} in {folder.parent}")
        kept = shutil.move(log, cache_folder("logs") / f"build-{os.getpid()}.log")
        raise failure(f"{what} ended with exit code {code}: {last} (all of it in {kept})")


def git(folder: Path, *words: str, what: str, given: bytes = b"") -> str:
    """Git's output, without the last line's end; given: its input. Raises InputError with `what` and git's reason."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], input=given, capture_output=True, env=_clean(os.environ), check=False)
    except OSError as error:
        raise InputError(f"git cannot be started: {os_reason(error)}") from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise InputError(f"{what}: {lines[-1] if lines else f'git {words[0]} ended with exit code {done.returncode}'}")
    return os.fsdecode(done.stdout).rstrip("\n")


def shallow(root: Path) -> bool:
    """Whether a clone lacks the older commits."""
    with suppress(InputError):
        return git(root, "rev-parse", "--is-shallow-repository", what="") == "true"
    return False


def hash_of(root: Path, ref: str, option: str, advice: str) -> str:
    """The full hash of the commit that a ref names. option: which named it. advice: how a shallow clone gets it. Raises UsageError."""
    with suppress(InputError):
        return git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}", what="")
    hint = f"; this clone is shallow: {advice}" if shallow(root) else ""
    raise UsageError(f"{option} {ref}: git knows no such commit{hint}")
