"""JSON by the C part of the stdlib's json package, without the package, whose import costs 10 ms and 1.5 MiB, mostly regular expressions.

The C functions have had these signatures from Python 3.8 to 3.14; where they are missing or differ, the json package does the work.
"""


def _fast():
    import _json

    class Context:
        strict = False
        object_hook = None
        object_pairs_hook = None
        parse_float = float
        parse_int = int
        parse_constant = float
        memo: dict = {}

    scan = _json.make_scanner(Context())
    encode = _json.make_encoder(None, _refuse, _json.encode_basestring_ascii, None, ":", ",", False, False, False)

    def loads(text):
        try:
            return scan(text.strip(), 0)[0]
        except StopIteration:
            raise ValueError("no JSON") from None

    def dumps(value):
        return "".join(encode(value, 0))

    if loads(' {"a": [1, 2.5, "b"], "c": null} ') != {"a": [1, 2.5, "b"], "c": None} or dumps({"a": [1, None]}) != '{"a":[1,null]}':
        raise ImportError("_json is not as it was")
    return loads, dumps


def _refuse(value):
    raise TypeError("no JSON for %r" % (value,))


def _slow():
    import json

    return json.loads, lambda value: json.dumps(value, separators=(",", ":"))


try:
    loads, dumps = _fast()
except Exception:  # any change of a private module must end here
    loads, dumps = _slow()
