"""Functions of the C library by the C part of ctypes, without the package, whose import costs several ms and 0.7 MiB.

Whole numbers and results are as wide as a pointer, which on Linux long is; buffers are passed by address. The C classes have been there from
Python 3.8 to 3.14; where they differ, ctypes does the work.
"""

import os


def _fast():
    import _ctypes

    class Long(_ctypes._SimpleCData):  # type: ignore[type-arg]
        _type_ = "l"

    class Function(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL
        _restype_ = Long

    class Char(_ctypes._SimpleCData):  # type: ignore[type-arg]
        _type_ = "c"

    handle = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
    return (lambda name: _called(Function(_ctypes.dlsym(handle, name)), Long)), (lambda size: (Char * size)())


def _slow():
    import ctypes

    library = ctypes.CDLL(None)

    def function(name):
        symbol = library[name]
        symbol.restype = ctypes.c_long
        return _called(symbol, ctypes.c_long)

    return function, ctypes.create_string_buffer


def _called(function, word):
    return lambda *values: function(*(word(value) if isinstance(value, int) else value for value in values))


try:
    function, buffer = _fast()
    if function("getpid")() != os.getpid():
        raise ImportError("_ctypes is not as it was")
except Exception:  # any change of a private module must end here
    function, buffer = _slow()
