"""Reads the order: what to start and how, and when to do what. The package's docstring has its lines."""

import os


class OrderLines:
    """An order by the names of its lines; what is not in it is empty or 0. Raises ValueError for a line that is not understood."""

    def __init__(self, lines):
        lists: "list[list[bytes]]" = [[] for _ in range(9)]
        self.argv, self.env, self.unset, self.setting, self.rlimit, self.file, self.rule, self.writer, self.watch = lists
        self.cwd = self.stdin = self.group = self.log = self.attach = self.cpus = b""
        self.cache, self.input = b"asis", -1
        self.terminal = self.pad = self.personality = self.drop = self.tree = self.swap = self.output = self.reset = self.eager = 0
        self.interval = self.size = self.hold = self.timeout = self.grace = self.silence = 0
        for line in lines:
            name, _, value = line.partition(b" ")
            self._take(name.decode("ascii", "replace"), _unescaped(value))
        self.rules = [Rule(rule.split(b" ")) for rule in self.rule]
        self.settings = [setting.partition(b" ")[::2] for setting in self.setting]
        self.limits = [(name.decode(), int(size)) for name, _, size in (limit.partition(b" ") for limit in self.rlimit)]
        self.numbers = [int(number) for number in self.cpus.split(b",") if number]  # of the CPUs
        self.pid, self.started = (int(number) for number in (self.attach or b"0 0").split())
        if not self.argv and not self.pid:
            raise ValueError("neither a program nor a process")

    def _take(self, name, value):
        before = vars(self).get(name)
        if before is None:
            raise ValueError("nothing is known of %r" % name)
        if isinstance(before, list):
            before.append(value)
        else:
            setattr(self, name, int(value) if isinstance(before, int) else value)


class Rule:
    """What a line on the marks' descriptor causes. interval: the polling period from there on, in ns. size: the resident set in bytes at which its
    process is stopped, 0 for none. holds: that process is about to stop itself."""

    def __init__(self, words):
        self.interval, self.size, self.holds = int(words[0]), int(words[1]), words[2] == b"1"
        self._texts = words[3:]

    def fits(self, line):
        """Whether the line holds all the texts."""
        return all(text in line for text in self._texts)


def _unescaped(text):
    return b"\\".join([part.replace(b"\\n", b"\n") for part in text.split(b"\\\\")])


def read_order():
    """The order on standard input, and the bytes that came with it. Raises ValueError if it is not whole or not understood."""
    data = b"\n"
    while b"\n\n" not in data:
        chunk = os.read(0, 65536)
        if not chunk:
            raise ValueError("it has no end")
        data += chunk
    lines, _, early = data.partition(b"\n\n")
    return OrderLines(lines[1:].split(b"\n")), early
