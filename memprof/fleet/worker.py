"""`memprof worker`: offers places to a fleet, each by a process of its own (see worker_process.py), which is started again when it ends."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..base.errors import InputError
from .scheduler import TIMEOUTS, calm, greet
from .security import security, unreachable

_AGAIN_S = 15.0  # between two attempts to reach a place, and how long a scheduler is waited for
_END_S = 15.0
# Not by -m, which would look for modules in the working folder first.
_PROCESS = "import sys; sys.path.pop(0); from memprof.fleet import worker_process; worker_process.run()"


@dataclass(frozen=True)
class Offer:
    """A place to be offered, as it was named. folder: memprof's there. python: the interpreter there that has the runtimes."""

    place: str
    folder: str | None = None
    python: str | None = None


async def serve(scheduler: str, offers: Sequence[Offer], labels: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Offer the places until this is cancelled. Raises what `security` does, and InputError if the scheduler does not answer, or if no place can be
    reached. A place or a scheduler that is lost later is tried again for as long as it takes.
    """
    calm()
    certificates = security(scheduler, "worker", say)
    say(f"waiting for the scheduler at {scheduler}, for {_AGAIN_S:.0f} s at most")
    try:
        await greet(scheduler, certificates, "worker", _AGAIN_S)
    except (OSError, *TIMEOUTS) as error:
        raise unreachable(scheduler, error) from None
    said: dict[str, str] = {}  # the last sentence about each place, which is not repeated at each attempt
    reached: set[str] = set()
    refused: set[str] = set()

    async def keep(offer: Offer) -> None:
        def told(sentence: str) -> None:
            if said.get(offer.place) != sentence:
                say(sentence)
            said[offer.place] = sentence

        def told_by_process(sentence: str) -> None:
            reached.add(offer.place)
            told(sentence)

        words = [scheduler, offer.place, offer.folder or "", offer.python or "", json.dumps(dict(labels))]
        while True:
            if refusal := await _process_ended(words, told_by_process):
                refused.add(offer.place)
                if len(refused) == len(offers) and not reached:
                    raise InputError(f"{offer.place} cannot be offered: {refusal}")
                told(f"{offer.place} cannot be offered: {refusal}; it is tried again every {_AGAIN_S:.0f} s")
            await asyncio.sleep(_AGAIN_S if refusal else 1)

    await asyncio.gather(*map(keep, offers))


async def _process_ended(words: Sequence[str], say: Callable[[str], None]) -> str:
    """Start a place's process and wait for its end; why the place cannot be offered, else nothing."""
    refusal = ""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PROCESS, *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        async for line in process.stdout:
            if line.endswith(b"\n"):
                say(line.decode().rstrip())
            else:
                refusal = line.decode()
    finally:
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _END_S)
        except TIMEOUTS:
            process.kill()
    return refusal
