"""A small model for onnxruntime-genai with random weights."""

from __future__ import annotations

import json
from pathlib import Path


def make(folder: Path, size: int = 2 << 20) -> None:
    """A decoder with random weights, and what onnxruntime-genai wants to know of it. size: of the weights, in bytes."""
    from memprof import zoo
    from memprof.zoo import decoder

    folder.mkdir(exist_ok=True)
    zoo.make("llama_with_past", folder / "model.onnx", format="onnx", size_bytes=size)
    shape = decoder.sized(size, item_bytes=4)
    past = {f"past_{part}_names": f"past_key_values.%d.{part}" for part in ("key", "value")}
    present = {f"present_{part}_names": f"present.%d.{part}" for part in ("key", "value")}
    about = {
        "filename": "model.onnx",
        "head_size": decoder.HEAD,
        "hidden_size": shape.width,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "num_hidden_layers": shape.layers,
        "inputs": {"input_ids": "input_ids", **past},
        "outputs": {"logits": "logits", **present},
    }
    model = {
        "type": "llama",
        "vocab_size": decoder.VOCABULARY,
        "context_length": 512,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    config = {"model": {**model, "decoder": about}, "search": {"max_length": 512, "past_present_share_buffer": False}}
    (folder / "genai_config.json").write_text(json.dumps(config))
