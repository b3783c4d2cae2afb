"""CTranslate2, for Transformer models: a folder that one of its converters has written, with model.bin, config.json and vocabularies.

The constructor reads the weights and brings them into the wanted type in one step, so MODEL_LOAD includes PREPARE. An iteration is one forward
pass over the tokens for a model of language, and a greedy translation into as many tokens as there are for a model of two languages.
The kind of model stands in the head of model.bin. One knob is left out: the capacity of oneDNN's cache of primitives, which changed memory over 64
shapes by 0.2 MiB. Seen with 4.8.5.
"""

import json
import os
import struct

from . import Knob, Refused

_TOKENS = 32
_GENERATORS, _TRANSLATORS = ("TransformerDecoderSpec",), ("TransformerSpec",)


class Runtime:
    distribution = "ctranslate2"
    formats = ("/model.bin",)
    default_threads = None
    threads_call = "Generator or Translator(path, intra_threads={value})"
    knobs = (
        Knob(
            "compute_type",
            ("default", "float32", "int16", "int8"),
            "default",
            "the type to hold the weights and to compute in (its own: that of the model's file)",
            call='Generator or Translator(path, compute_type="{value}")',
        ),
    )

    def __init__(self):
        import ctranslate2
        import numpy

        self._ct2, self._numpy = ctranslate2, numpy
        self.version = ctranslate2.__version__
        self.notes = [
            "CTranslate2 reads and converts weights in one step: MODEL_LOAD includes PREPARE",
            "memprof makes the tokens with numpy, which the baseline holds: a program that has lists of tokens needs none",
        ]

    def load(self, model, options):
        kind = _kind(os.path.join(model, "model.bin"))
        settings = {"device": "cpu", "compute_type": options.knobs["compute_type"]}
        if options.threads:
            settings["intra_threads"] = options.threads
        self._translates = kind in _TRANSLATORS
        if kind in _GENERATORS:
            self._model = self._ct2.Generator(model, **settings)
        elif self._translates:
            self._model = self._ct2.Translator(model, **settings)
            self._words = _vocabulary(model)
        else:
            raise Refused(f"the model is a {kind}: memprof runs CTranslate2's {' and '.join(_GENERATORS + _TRANSLATORS)}")

    def prepare(self):
        pass

    def signature(self):
        return [("tokens", (1, _TOKENS), "int32")]

    def set_inputs(self, arrays):
        tokens = self._numpy.atleast_2d(arrays["tokens"]).tolist()
        if self._translates:
            tokens = [[self._words[number] for number in row] for row in tokens]
        self._tokens = tokens

    def execute(self):
        if not self._translates:
            self._result = self._model.forward_batch(self._tokens)
            return
        count = len(self._tokens[0])
        self._result = self._model.translate_batch(
            self._tokens, beam_size=1, min_decoding_length=count, max_decoding_length=count, return_scores=True
        )

    def outputs(self):
        if not self._translates:
            return [self._numpy.array(self._result)]
        return [self._numpy.array([result.scores for result in self._result], "float32")]


def _kind(path):
    """The name of the model's specification: after a version of 4 bytes, a length of 2 bytes and a text that ends with a zero byte."""
    with open(path, "rb") as file:
        head = file.read(6)
        name = file.read(struct.unpack("<IH", head)[1]) if len(head) == 6 else b""
    if not name.endswith(b"\0"):
        raise Refused("model.bin does not begin as CTranslate2's models do")
    return name[:-1].decode("utf-8", "replace")


def _vocabulary(model):
    """The words of the source language, by their number."""
    for stem in ("source_vocabulary", "shared_vocabulary"):
        path = os.path.join(model, stem + ".json")
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                return json.load(file)
    raise Refused("the folder has neither source_vocabulary.json nor shared_vocabulary.json")
