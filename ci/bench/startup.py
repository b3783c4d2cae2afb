"""Two costs that must feel like nothing: the command's help, beside an import of click alone, and a job beyond its child."""

from __future__ import annotations

import json
import sys
from typing import Any

from . import tools
from .table import Row, Section, Setting, middle, ratios

_MS = 1e6
_HELP_LIMIT = 2.0
_JOB_LIMIT_MS = 30.0


def measure_help(setting: Setting) -> Section:
    """`--help` of memprof and its peers, each against `python -c "import click"`, all interleaved."""
    tools.require_peers()
    commands = {
        "click": [sys.executable, "-c", "import click"],
        "memprof --help": [tools.script("memprof"), "--help"],
        "memprof runtimes --help": [tools.script("memprof"), "runtimes", "--help"],
        "mprof": [tools.script("mprof"), "run", "--help"],
        "psrecord": [tools.script("psrecord"), "--help"],
    }
    wall_ns: dict[str, list[int]] = {name: [] for name in commands}
    setting.say("help")
    for _ in range(setting.count(30, 5)):
        for name, command in commands.items():
            wall_ns[name].append(tools.wall_ns(command))
    medians = {name: middle(values)[0] for name, values in wall_ns.items()}
    rows = tuple(_help_row(f"memprof {words}", medians) for words in ("--help", "runtimes --help"))
    note = f"Help: times as long as `python -c 'import click'`, {medians['click'] / _MS:.0f} ms here; medians, interleaved."
    return Section(rows, (note,), wall_ns)


def _help_row(name: str, medians: dict[str, float]) -> Row:
    own = medians[name] / medians["click"]
    return Row(
        f"`{name}`",
        f"<= {_HELP_LIMIT:g}x",
        *(f"{medians[command] / medians['click']:.2f}x ({medians[command] / _MS:.0f} ms)" for command in (name, "mprof", "psrecord")),
        ratio=ratios(medians[name], mprof=[medians["mprof"]], psrecord=[medians["psrecord"]]),
        met=own <= _HELP_LIMIT,
    )


def measure_job(setting: Setting) -> Section:
    """The time from a tool's start to its result, less that of the very same child run directly in between."""
    tools.require_peers()
    path = setting.folder / "job.json"
    path.write_text(json.dumps({"load": [{"sleep_s": 0.1}]}))
    (order,) = tools.orders([path], "synthetic", warmup=0, runs=1, repeats=1)
    child = tools.program(order)
    beyond_ms: dict[str, list[float]] = {"memprof": [], "mprof": [], "psrecord": []}
    setting.say("job")
    for _ in range(setting.count(25, 4)):
        before_ns = tools.alone(child)
        wall_ns = {"memprof": tools.recorded(order).wall_ns}
        wall_ns |= {peer.tool: tools.under(peer, child).wall_ns for peer in (tools.MPROF, tools.PSRECORD)}
        alone_ns = (before_ns + tools.alone(child)) / 2
        for tool, taken_ns in wall_ns.items():
            beyond_ms[tool].append((taken_ns - alone_ns) / _MS)
    return Section((_job_row(beyond_ms),), _JOB_NOTES, beyond_ms)


_JOB_NOTES = (
    "Job: from the tool's start to its result read, less the time of the same child with the same marks run directly, before and after each "
    "round; medians, in brackets the quartiles. The peers poll at their defaults.",
)


def _job_row(beyond_ms: dict[str, Any]) -> Row:
    medians = {tool: middle(values)[0] for tool, values in beyond_ms.items()}
    return Row(
        "a job beyond its child",
        f"<= {_JOB_LIMIT_MS:g} ms",
        *("{:.0f} ms ({:.0f} to {:.0f})".format(*middle(beyond_ms[tool])) for tool in ("memprof", "mprof", "psrecord")),
        ratio=ratios(max(medians["memprof"], 0.1), mprof=[medians["mprof"]], psrecord=[medians["psrecord"]]),
        met=medians["memprof"] <= _JOB_LIMIT_MS,
    )
