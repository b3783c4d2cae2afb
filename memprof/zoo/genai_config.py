"""What onnxruntime-genai wants to know of the zoo's decoder: genai_config.json, beside the ONNX file with the KV cache as inputs and outputs."""

from __future__ import annotations

import json

from .decoder import BEGIN, END, HEAD, UNKNOWN, VOCABULARY, Decoder

MODEL = "model.onnx"
# A cache of one buffer would be made for all of them; this one grows. llamacpp's context is as long by default.
_CONTEXT = 4096


def of(decoder: Decoder) -> str:
    """The configuration's text."""
    past = {f"past_{part}_names": f"past_key_values.%d.{part}" for part in ("key", "value")}
    present = {f"present_{part}_names": f"present.%d.{part}" for part in ("key", "value")}
    about = {
        "filename": MODEL,
        "head_size": HEAD,
        "hidden_size": decoder.width,
        "num_attention_heads": decoder.heads,
        "num_key_value_heads": decoder.kv_heads,
        "num_hidden_layers": decoder.layers,
        "inputs": {"input_ids": "input_ids", **past},
        "outputs": {"logits": "logits", **present},
    }
    model = {
        "type": "llama",
        "vocab_size": VOCABULARY,
        "context_length": _CONTEXT,
        "bos_token_id": BEGIN,
        "eos_token_id": END,
        "pad_token_id": UNKNOWN,
        "decoder": about,
    }
    return json.dumps({"model": model, "search": {"max_length": _CONTEXT, "past_present_share_buffer": False}}, indent=2) + "\n"
