"""A shell on another machine that stays and starts one program after another, so that a program costs no log-in shell and no client.

The shell reads lines. `run WORDS` starts a program that has the shell's own input and output; other lines are left over from a program that has
ended, and mean nothing. After a program the shell writes a mark and the exit code to its output and to its errors. The mark is random, so that
no program's own output is taken for it. A shell's read takes no byte after its line (POSIX: read), so the rest of the input is the program's.
"""

from __future__ import annotations

import os
import re
import secrets
import select
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import IO

from .place import close, piped

BROKEN = 255  # as ssh's own exit code for a connection that broke
_END_S = 10
_CODE = 4  # bytes at most of a space and an exit code
# Ends all that descends from a process, that process excepted. They are found first: a process whose parent has ended has another.
END_BELOW = """
next=$1 all=
while [ -n "$next" ]; do
    below=
    for status in /proc/[0-9]*/status; do
        parent=
        { while read -r name value rest; do [ "$name" != PPid: ] || { parent=$value; break; }; done < "$status"; } 2>/dev/null
        pid=${status#/proc/}
        case " $next " in *" ${parent:--} "*) below="$below ${pid%/status}" ;; esac
    done
    all=$all$below next=${below# }
done
[ -z "$all" ] || kill -9 $all
"""
_LOOP = """
newline='
'
echo $$; echo "$1 0"; echo "$1 0" >&2
while read -r word line; do
    if [ "$word" = run ]; then
        eval "$line"
        code=$?
        echo "$1 $code"; echo "$1 $code" >&2
    fi
done
"""


class Channel:
    """Such a shell; `words` are those of a process here whose input and output are those of a shell there that follows a text (see Link)."""

    def __init__(self, words: Callable[[str], list[str]]) -> None:
        self._mark = f"memprof-{secrets.token_hex(8)}"
        self.pid: str | None = None  # of the shell there
        self._process = piped(words(f"exec {shlex.join(['sh', '-c', _LOOP, 'memprof', self._mark])}"))

    @property
    def lives(self) -> bool:
        """Whether a program can be started."""
        return self._process.poll() is None

    def opened(self, timeout_s: float) -> str | None:
        """Wait for the shell, which tells its process id; its errors if it does not come, None if it is there. Start-up files may print before."""
        program = self._program()
        try:
            out, errors = program.communicate(timeout_s)
        except subprocess.TimeoutExpired:
            return "timed out"
        last = out.split()[-1:]
        self.pid = last[0].decode() if last and last[0].isdigit() else None
        return errors.decode("utf-8", "replace").strip() if program.returncode else None

    def start(self, words: Sequence[str], empty: bool = False) -> ChannelProgram:
        """Start a program, with an empty input or the channel's. The channel is free for another once this one's returncode is known."""
        quoted = shlex.join(words).replace("\n", "'\"$newline\"'")  # a line end stands between single quotes
        program = self._program()
        with suppress(BrokenPipeError):  # the end of its output will tell
            program.stdin.write(os.fsencode(f"run (exec {quoted}{' < /dev/null' if empty else ''})\n"))
            program.stdin.flush()
        return program

    def _program(self) -> ChannelProgram:
        process = self._process
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        return ChannelProgram(self, process.stdin, _Output(process.stdout, self._mark), _Output(process.stderr, self._mark))

    def release(self) -> None:
        """Let the shell end: it does at the end of its input, and so does a program."""
        close(self._process)

    def close(self) -> None:
        """End it."""
        ended(self._process)


def ended(process: subprocess.Popen[bytes]) -> None:
    """Close a process's pipes and wait for its end. The client of a connection that is dead has some seconds to notice."""
    close(process)
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def errors_of(process: subprocess.Popen[bytes]) -> str:
    """All that a process wrote to its standard error, which is at an end or about to be."""
    assert process.stdin is not None and process.stderr is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    text, last = b"", time.monotonic() + _END_S
    while select.select([process.stderr], [], [], max(0, last - time.monotonic()))[0]:
        chunk = os.read(process.stderr.fileno(), 4096)
        if not chunk:
            break
        text += chunk
    return text.decode("utf-8", "replace").strip()


class _Output:
    """One of a program's outputs, which ends at the mark. code: the program's exit code, once the mark has come; BROKEN if it will not come."""

    def __init__(self, pipe: IO[bytes], mark: str) -> None:
        self._pipe, self._mark, self._kept = pipe, mark.encode(), b""
        self._end = re.compile(re.escape(self._mark) + rb" (\d+)\n")
        self.code: int | None = None

    def fileno(self) -> int:
        return self._pipe.fileno()

    def read1(self, size: int = 65536) -> bytes:
        """Some output, as soon as there is some; nothing at the end."""
        while self.code is None:
            chunk = os.read(self.fileno(), size)
            text, self._kept = self._kept + chunk, b""
            end = self._end.search(text)
            if end is not None:
                self.code = int(end[1])
                return text[: end.start()]
            if not chunk:
                self.code = BROKEN
                return text
            last = range(max(0, len(text) - len(self._mark) - _CODE), len(text))
            begun = next((at for at in last if self._mark.startswith(text[at:][: len(self._mark)])), len(text))
            text, self._kept = text[:begun], text[begun:]
            if text:
                return text
        return b""

    def read(self) -> bytes:
        """The remaining bytes."""
        return b"".join(iter(self.read1, b""))


class ChannelProgram:
    """A program that a Channel started: as much of a Popen as a recorder needs."""

    def __init__(self, channel: Channel, stdin: IO[bytes], stdout: _Output, stderr: _Output) -> None:
        self.channel, self.stdin, self.stdout, self.stderr = channel, stdin, stdout, stderr

    @property
    def returncode(self) -> int | None:
        """Its exit code, or the signal that ended it as a negative number; None until both outputs were read to their ends."""
        if self.stdout.code is None or self.stderr.code is None:
            return None
        code = max(self.stdout.code, self.stderr.code)
        return 128 - code if 128 < code < BROKEN else code

    def communicate(self, timeout_s: float) -> tuple[bytes, bytes]:
        """All of its output and of its errors. Raises subprocess.TimeoutExpired."""
        texts: dict[_Output, list[bytes]] = {self.stdout: [], self.stderr: []}
        end = time.monotonic() + timeout_s
        while waiting := [output for output in texts if output.code is None]:
            ready, _, _ = select.select(waiting, [], [], max(0, end - time.monotonic()))
            if not ready:
                raise subprocess.TimeoutExpired("", timeout_s)
            for output in ready:
                texts[output].append(output.read1())
        return b"".join(texts[self.stdout]), b"".join(texts[self.stderr])

    def lines(self, beat_ns: int) -> Iterator[bytes]:
        """The lines of its output as they come; `beat` goes to its input so often, also while the caller is busy with a line."""
        closed = threading.Event()
        thread = threading.Thread(target=beat, args=(self.stdin, b"beat\n", beat_ns / 1e9, closed), daemon=True)
        thread.start()
        rest = b""
        try:
            while self.stdout.code is None:
                *lines, rest = (rest + self.stdout.read1()).split(b"\n")
                yield from lines
        finally:
            closed.set()
            thread.join()  # or its last line might go to the channel's next program


def beat(stdin: IO[bytes], line: bytes, every_s: float, closed: threading.Event) -> None:
    """Write a line so often until the event is set or nobody reads any more."""
    with suppress(OSError, ValueError):  # it broke, or was closed just now
        while not closed.wait(every_s):
            stdin.write(line)
            stdin.flush()
