"""A tree of processes that share memfds as a plan says, for a recorder to look at: `python -I -S buffer_tree.py RUNNERS PAUSE_S PLAN`. Stdlib only.

PLAN is JSON: how many processes there are, and for each phase its commands: [PROCESS, KIND, FIGURES]. Process 0 is the first one; it tells the
others, and nothing moves while a mark is read.

    make B PAGES            a memfd with so many pages
    map B FIRST COUNT       mapped in whole, with these pages touched
    close B, unmap B, dup B all descriptors of it, its mapping, one more descriptor
    pass B PROCESS          a descriptor, by a socket
    fork PROCESS, exit
"""

import ctypes
import json
import mmap
import os
import signal
import socket
import sys
import time

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype, _libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Member:
    """A process of the tree. wires: a pair of sockets for each process, which reads from the second; done: where it says that it is done."""

    def __init__(self, count):
        self.number = 0
        self.wires = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(count)]
        self.heard, self.done = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._descriptors, self._mappings = {}, {}

    def serve(self):
        """Do what comes, until an exit."""
        while True:
            command = self.receive()
            self.perform(*command)
            if command[0] != "fork":  # the new process says so
                self.done.send(b"%d" % os.getpid())
            if command[0] == "exit":
                os._exit(0)

    def receive(self):
        """The next command; a descriptor that came with it is taken."""
        text, descriptors, _, _ = socket.recv_fds(self.wires[self.number][1], 4096, 1)
        command = json.loads(text)
        for descriptor in descriptors:
            self._descriptors.setdefault(command[1], []).append(descriptor)
        return command

    def perform(self, kind, *words):
        if kind == "make":
            name, pages = words
            descriptor = os.memfd_create("buffer")
            os.write(descriptor, bytes(pages * _PAGE))
            self._descriptors[name] = [descriptor]
        elif kind == "map":
            name, first, count = words
            descriptor = self._descriptors[name][0]
            size = os.fstat(descriptor).st_size
            address = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
            ctypes.memset(address + first * _PAGE, 1, count * _PAGE)
            self._mappings[name] = address, size
        elif kind == "unmap":
            _libc.munmap(*self._mappings.pop(words[0]))
        elif kind == "dup":
            self._descriptors[words[0]].append(os.dup(self._descriptors[words[0]][0]))
        elif kind == "close":
            for descriptor in self._descriptors.pop(words[0]):
                os.close(descriptor)
        elif kind == "pass":
            name, other = words
            socket.send_fds(self.wires[other][0], [json.dumps(["take", name]).encode()], [self._descriptors[name][0]])
        elif kind == "fork" and os.fork() == 0:
            self.number = words[0]
            self.done.send(b"%d" % os.getpid())
            self.serve()

    def order(self, process, *command):
        """Have a process do something, and wait until all that it needs is done."""
        if process == 0:
            self.perform(*command)
        else:
            self.wires[process][0].send(json.dumps(command).encode())
        passed = command[2] if command[0] == "pass" else None
        for _ in range((process != 0 or command[0] == "fork") + bool(passed)):
            pid = int(self.heard.recv(64))
        if passed == 0:
            self.receive()
        while command[0] == "exit" and _lives(pid):
            time.sleep(0.001)


def _lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def main():
    sys.path.insert(0, sys.argv[1])
    from memprof_marks import phase

    pause_s, plan = float(sys.argv[2]), json.loads(sys.argv[3])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that end
    first = Member(plan["processes"])
    for number, commands in enumerate(plan["phases"]):
        with phase(f"P{number}"):
            for process, kind, figures in commands:
                first.order(process, kind, *figures)
        time.sleep(pause_s)


main()
