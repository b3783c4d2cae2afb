"""Which files a model is, and how much of it is weights."""

from __future__ import annotations

import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed")


@pytest.mark.parametrize("command", ["explain", "tune", "fit", "grow", "heap record", "scale"])
def test_model_name_empty_is_refused(command, tmp_path, memprof):
    """Here a package, which was measured."""
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "MANIFEST").write_text("{}")
    words = {"heap record": ["-o", "out"], "scale": ["--vary", "threads=1..2"]}.get(command, [])
    refused = memprof(*command.split(), "", "-r", "synthetic", *words)
    assert refused.returncode == 2 and "the model's name is empty" in refused.stderr


def test_suite_model_name_empty_is_refused(tmp_path, memprof):
    (tmp_path / "genai_config.json").write_text("{}")
    (tmp_path / "suite.toml").write_text('models = [""]\nruntimes = ["synthetic"]\n')
    refused = memprof("run", "--suite", "suite.toml")
    assert refused.returncode == 2 and "the model's name is empty" in refused.stderr
