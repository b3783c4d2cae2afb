"""Each rule on made-up looks: it speaks where its case is, with the right bytes, and not where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from memprof.explain import activations


@pytest.mark.parametrize("form", ["onnx", "tflite"])
def test_activations_equal_across_formats(tmp_path: Path, form: str) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("ai_edge_litert")
    from memprof import zoo

    zoo.make("mnist", tmp_path / f"m.{form}", format=form)
    highest = activations.of_graph(tmp_path / f"m.{form}", {}).highest_bytes
    assert highest is not None
    assert 10_000 < highest < 1_000_000
    (tmp_path / f"torn.{form}").write_bytes((tmp_path / f"m.{form}").read_bytes()[:99])
    assert activations.of_graph(tmp_path / f"torn.{form}", {}).highest_bytes is None
