"""A model's path that is as long wherever the model lies.

A runtime copies the path into its own memory, once whole and once in pieces, and the sizes of these copies decide where glibc puts the memory
after them: MobileNet v2 in ONNX Runtime had peaks of 101.4 to 108.7 MiB at eighteen paths. So the model's folder is opened, and the model's path
leads through the open folder, which has the same number in every process.
"""

import os

_NUMBER = 100  # of the open folder; a runtime's own files have lower ones, as the kernel gives the lowest that is free
_FOLDER = "/proc/self/fd/%d/" % _NUMBER
_real = ["", ""]  # what the folder's path is a stand-in for, as it was given


def constant(path):
    """The path through the open folder; the path itself where there is no /proc, or files may not have such numbers."""
    folder, name = os.path.split(path)
    try:
        opened = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY)
        os.dup2(opened, _NUMBER)
        os.close(opened)
        os.stat(_FOLDER + name)
    except OSError:
        return path
    _real[:] = _FOLDER, os.path.join(folder, "")
    return _FOLDER + name


def real(text):
    """A text of the runtime, with the folder as it was given."""
    return text.replace(*_real)  # "" by "" before there is a stand-in
