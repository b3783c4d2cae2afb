"""Small CTranslate2 models with random weights, written by CTranslate2's own specifications, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WORDS = 500
_TEXT = ["<unk>", "<s>", "</s>", *(f"word{number}" for number in range(WORDS - 3))]


def make(folder: Path, *, layers: int = 2, width: int = 128, translates: bool = False) -> Path:
    """Write a model of language, or of two, into a new folder, and return it."""
    from ctranslate2.specs import TransformerDecoderModelSpec, TransformerSpec

    filler = _Filler(width)
    if translates:
        spec = TransformerSpec.from_config(num_layers=layers, num_heads=4, pre_norm=True)
        filler.stack(spec.encoder, spec.encoder.embeddings[0], attends_to_another=False)
        filler.stack(spec.decoder, spec.decoder.embeddings, attends_to_another=True)
        filler.linear(spec.decoder.projection, WORDS, width)
        spec.register_source_vocabulary(_TEXT)
        spec.register_target_vocabulary(_TEXT)
    else:
        spec = TransformerDecoderModelSpec.from_config(num_layers=layers, num_heads=4, pre_norm=True)
        filler.stack(spec.decoder, spec.decoder.embeddings, attends_to_another=False)
        filler.linear(spec.decoder.projection, WORDS, width)
        spec.register_vocabulary(_TEXT)
    spec.validate()
    folder.mkdir()
    spec.save(str(folder))
    return folder


class _Filler:
    """Random weights for the parts of a specification."""

    def __init__(self, width: int) -> None:
        import numpy as np

        self._np, self._width, self._draw = np, width, np.random.default_rng(0)

    def stack(self, stack: Any, embeddings: Any, attends_to_another: bool) -> None:
        """An encoder or a decoder."""
        width = self._width
        stack.scale_embeddings = False
        embeddings.weight = self._weight(WORDS, width)
        stack.position_encodings.encodings = self._weight(64, width)
        for layer in stack.layer:
            self._norm(layer.self_attention.layer_norm)
            self.linear(layer.self_attention.linear[0], 3 * width, width)
            self.linear(layer.self_attention.linear[1], width, width)
            if attends_to_another:
                self._norm(layer.attention.layer_norm)
                for linear, outputs in zip(layer.attention.linear, (width, 2 * width, width), strict=True):
                    self.linear(linear, outputs, width)
            self._norm(layer.ffn.layer_norm)
            self.linear(layer.ffn.linear_0, 4 * width, width)
            self.linear(layer.ffn.linear_1, width, 4 * width)
        self._norm(stack.layer_norm)

    def linear(self, linear: Any, outputs: int, inputs: int) -> None:
        """A dense layer."""
        linear.weight, linear.bias = self._weight(outputs, inputs), self._weight(outputs)

    def _norm(self, norm: Any) -> None:
        norm.gamma, norm.beta = self._np.ones(self._width, "float32"), self._np.zeros(self._width, "float32")

    def _weight(self, *shape: int) -> Any:
        return (self._draw.standard_normal(shape) * 0.05).astype("float32")
