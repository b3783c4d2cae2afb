"""Reads the order, starts the child or attaches to a process, and records: `python -I -S`. The package's docstring has the contract."""

import _signal as signal  # the C part: the module around it makes enums, which takes milliseconds
import os
import sys


def main():
    """Record what is ordered on standard input; the exit code."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a mask inherited from memprof's parent may block SIGCHLD, or signals of the child
    from . import procfs
    from .loop import Stopped, Wake
    from .order import read_order
    from .writer import LineWriter

    try:
        order, early = read_order()
    except (ValueError, IndexError) as error:
        sys.stderr.write("not understood: %s\n" % error)
        return 2
    writer, wake = LineWriter(), Wake()
    writer.add(b"recording ", 1, procfs.PAGE, os.sysconf("SC_CLK_TCK"), b"python")
    try:
        (_look_at if order.pid else _run)(order, writer, wake, early)
    except Stopped:
        writer.flush()
        return 3
    writer.tell(b"end")
    return 0 if writer.finish({0: _is_over, wake.descriptor: wake.clear}, order.silence) else 3


def _run(order, writer, wake, early):
    """Record a child from its start to its end."""
    from .kills import KillCounter
    from .launch import LaunchError, has_fixed_layout, launch
    from .loop import Loop
    from .processes import Processes

    if order.file:
        from . import pagecache

        pagecache.prepare(order.file, order.cache, order.drop)
    kills, processes = KillCounter(writer), Processes(writer, order.tree, adopts=True)
    try:
        child = launch(order, writer)
    except LaunchError as failure:
        failure.tell(writer)
        return
    writer.tell(b"start", child.pid)
    if order.personality:
        writer.tell(b"layout", has_fixed_layout(child.pid))
    processes.find(child.pid, first=True)
    writer.flush()
    loop, patient = Loop(order, writer, processes, child, wake), False
    try:
        loop.run(early)
        if loop.reaper.status in (signal.SIGKILL, (128 + signal.SIGKILL) << 8):  # the second: so a shell says it of what it has run
            kills.tell()
        patient = not loop.limited
    finally:
        loop.reaper.sweep(patient)
        if child.group is not None:
            child.group.tell(writer, reset=False)
            child.group.remove()
    loop.finish()


def _look_at(order, writer, wake, early):
    """Record a process that already runs."""
    from .launch import LaunchError, attach
    from .loop import Loop
    from .processes import Processes
    from .watch import WatchedGroup

    group = WatchedGroup(writer, order.watch) if order.watch else None
    processes = Processes(writer, order.tree, adopts=False, group=group)
    try:
        child = attach(order, writer, processes)
    except LaunchError as failure:
        failure.tell(writer)
        return
    writer.tell(b"start", child.pid)
    loop = Loop(order, writer, processes, child, wake)
    loop.look(b"begin")
    loop.run(early)
    loop.look(b"end")
    loop.tell_group()
    loop.finish()


def _is_over():
    """Whether standard input has ended; other words on it are too late."""
    return not os.read(0, 4096)


if __name__ == "__main__":
    sys.exit(main())
