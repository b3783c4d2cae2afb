"""A small CTranslate2 model of language with random weights, written by CTranslate2's own specification, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WORDS = 500


def make(folder: Path, *, layers: int = 2, width: int = 128) -> Path:
    """Write the model into a new folder, and return it."""
    import numpy as np
    from ctranslate2.specs import TransformerDecoderModelSpec

    draw = np.random.default_rng(0)

    def weight(*shape: int) -> Any:
        return (draw.standard_normal(shape) * 0.05).astype(np.float32)

    def fill_linear(linear: Any, outputs: int, inputs: int) -> None:
        linear.weight, linear.bias = weight(outputs, inputs), weight(outputs)

    def fill_norm(norm: Any) -> None:
        norm.gamma, norm.beta = np.ones(width, np.float32), np.zeros(width, np.float32)

    spec = TransformerDecoderModelSpec.from_config(num_layers=layers, num_heads=4, pre_norm=True)
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = weight(WORDS, width)
    decoder.position_encodings.encodings = weight(64, width)
    for layer in decoder.layer:
        fill_norm(layer.self_attention.layer_norm)
        fill_linear(layer.self_attention.linear[0], 3 * width, width)
        fill_linear(layer.self_attention.linear[1], width, width)
        fill_norm(layer.ffn.layer_norm)
        fill_linear(layer.ffn.linear_0, 4 * width, width)
        fill_linear(layer.ffn.linear_1, width, 4 * width)
    fill_norm(decoder.layer_norm)
    fill_linear(decoder.projection, WORDS, width)
    spec.register_vocabulary(["<unk>", "<s>", "</s>", *(f"word{number}" for number in range(WORDS - 3))])
    spec.validate()
    folder.mkdir()
    spec.save(str(folder))
    return folder
