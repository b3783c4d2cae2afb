"""`adb:[serial]`: the way to an Android device by the system's adb client.

adb needs the shell protocol of version 2 (Android 7 and later): it keeps output apart from errors and gives exit codes. Files go through the
shell as by ssh.
"""

from __future__ import annotations

import re
import shutil
import subprocess

from msgspec import Struct

from ..base.errors import InputError, UsageError, there_are

_SERIAL = re.compile(r"[A-Za-z0-9_.:\[\]][A-Za-z0-9_.:\[\]-]*")
_TIMEOUT_S = 30  # the first call starts adb's server
# Words of adb for a device that cannot be used, and their meaning for the user.
_STATES = {
    "unauthorized": "does not trust this computer yet; accept the question on its screen",
    "offline": "is offline; plug it in again, or: adb reconnect",
    "no permissions": "may not be used by this user: its udev rule is missing",
    "not found": "is gone; plug it in again",
    "only supports allocating a pty": "is older than Android 7: its shell gives no exit codes",
}


class Adb(Struct, frozen=True):
    """A device by its serial number."""

    name: str
    serial: str
    folder: str = "/data/local/tmp/memprof"

    def words(self, text: str, first: bool = False) -> list[str]:
        return ["adb", "-s", self.serial, "shell", "-T", text]

    def refused(self, said: str) -> str:
        for line in said.splitlines():
            reasons = [reason for words, reason in _STATES.items() if words in line]
            if reasons and line.startswith(("error: ", "adb: ")):  # not a word of the shell there
                return f"the device {reasons[0]}"
        return f"the device gives no shell; adb says: {' '.join(said.split())}" if said else "the device gives no shell"


def parse(name: str) -> Adb:
    """The device of a name such as `adb:` or `adb:SERIAL`.

    Raises UsageError for another form or if several devices are there and none is named, InputError if it cannot be used.
    """
    serial = name.partition(":")[2]
    if serial and not _SERIAL.fullmatch(serial):
        raise UsageError(f"--on {name}: write adb:SERIAL, a serial number of `adb devices`, or adb: for the only device")
    devices = _devices(name)
    if not serial:
        if not devices:
            raise InputError(f"{name} there is no device: adb devices lists none")
        if len(devices) > 1:
            raise UsageError(f"--on {name}: there are {len(devices)} devices, {' and '.join(sorted(devices))}; write adb:SERIAL")
        (serial,) = devices
    if serial not in devices:
        there = there_are(sorted(devices)) if devices else "adb devices lists none"
        hint = f" (by network: adb connect {serial})" if ":" in serial else ""
        raise InputError(f"{name}: there is no such device; {there}{hint}")
    if devices[serial] != "device":
        state = devices[serial]
        raise InputError(f"{name}: the device {serial} {_STATES.get(state, f'is not ready: adb calls it {state!r}')}")
    return Adb(f"adb:{serial}", serial)


def _devices(name: str) -> dict[str, str]:
    """The state of each device by its serial number. `adb devices` prints a headline, then SERIAL, a tab and the state."""
    if shutil.which("adb") is None:
        raise InputError(f"{name}: adb is not installed here (Debian: apt install adb)")
    try:
        done = subprocess.run(["adb", "devices"], capture_output=True, text=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        raise InputError(f"{name}: adb did not answer within {_TIMEOUT_S} s; adb kill-server ends a server that hangs") from None
    if done.returncode != 0:
        lines = [line.removeprefix("adb: ") for line in done.stderr.strip().splitlines()]
        raise InputError(f"{name}: adb has no server and could not start one: {lines[-1] if lines else f'exit code {done.returncode}'}")
    rows = (line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)
    return {serial: next((known for known in _STATES if known in state), state.split()[0]) for serial, state in rows}
