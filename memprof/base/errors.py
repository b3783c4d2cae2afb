"""The errors of memprof, each with its exit code.

    MemprofError
    ├── UsageError          2   an option, a knob, a runtime's name, a budget
    ├── UndecidedError      3   the gate had too little to decide on
    ├── MeasurementError    4   a child had started and did not finish
    └── InputError          5   a model, a runs file, an environment, a runtime not installed, a disk

Anything else that is raised is a defect of memprof's: exit code 70 (EX_SOFTWARE of sysexits.h), and a file for a report.

The message is the sentence that the user reads. An error is raised where the fact is known, and caught in one place, memprof.doors.cli.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterable, Sequence

EXIT_OK = 0
EXIT_REGRESSION = 1
EXIT_DEFECT = 70
EXIT_INTERRUPTED = 130


class MemprofError(Exception):
    """A fact the user must know, as one sentence."""

    exit_code = 5


class UsageError(MemprofError):
    """The words of the command cannot be meant so."""

    exit_code = 2


class UndecidedError(MemprofError):
    """There is too little to decide on."""

    exit_code = 3


class MeasurementError(MemprofError):
    """A child had started and did not finish."""

    exit_code = 4


class InputError(MemprofError):
    """A file, an environment or a disk is not as it must be."""

    exit_code = 5


_LEAST_PART = 3  # letters
_MISSPELLED = 0.85  # likeness from which a name is taken for a misspelling of another


def close_to(name: str, known: Iterable[str]) -> list[str]:
    """The two known names at most that are close to the given one: misspelled, with a part in common that few names have, or alike."""
    import difflib  # here, because most commands end without a wrong name

    names = list(known)
    misspelled, alike = (difflib.get_close_matches(name, names, n=2, cutoff=cutoff) for cutoff in (_MISSPELLED, 0.6))
    return list(dict.fromkeys([*misspelled, *_with_rare_part(name, names), *alike]))[:2]


def _with_rare_part(name: str, known: Sequence[str]) -> list[str]:
    """The known names that have the part of the given one which fewest have, such as `anon` of `rss_anon_bytes`; none where more than two have it."""
    parts = {each: re.split(r"[-_. ]", each) for each in (name, *known)}
    holding = [[each for each in known if part in parts[each]] for part in parts[name] if len(part) >= _LEAST_PART]
    rarest = min(filter(None, holding), key=len, default=[])
    return rarest if len(rarest) <= 2 else []


def near(name: str, known: Iterable[str]) -> str:
    """`; did you mean X or Y?` where known names are close to the given one, else an empty string."""
    close = close_to(name, known)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def near_or_all(name: str, known: Collection[str], comma: str = ", ") -> str:
    """`near`; if no name is close, `; ` and `there_are`."""
    return near(name, known) or f"; {there_are(known, comma)}"


def there_are(names: Collection[str], comma: str = ", ") -> str:
    """`there are X, Y`, `there is X` or `there are none`. comma: between two names, `; ` for names of variants, which may have commas."""
    return f"there {'is' if len(names) == 1 else 'are'} {comma.join(names) or 'none'}"


TOO_LITTLE_MEMORY = "there is too little memory; ulimit -v may limit it"


def out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or an error that led to it, says that there was no memory, in Python's, the kernel's or the loader's words."""
    while error is not None:
        if isinstance(error, SystemError) and address_space_is_limited():
            return True  # a C extension that does not check an allocation raises this
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return True
        if isinstance(error, ImportError) and any(words in str(error) for words in ("failed to map segment", "cannot allocate memory")):
            return True
        error = error.__cause__ or error.__context__
    return False


def address_space_is_limited() -> bool:
    """Whether `ulimit -v` bounds this process."""
    try:
        import resource
    except Exception:  # not Linux, or there is no memory to load it either, which has several names
        return True
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def os_reason(error: OSError) -> str:
    """The kernel's reason in its usual words, without Python's decoration: `No space left on device`."""
    return os.strerror(error.errno) if error.errno is not None and error.errno in errno.errorcode else str(error)
