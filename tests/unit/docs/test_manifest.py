"""The manifests of docs/containers.md."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

PAGE = Path(__file__).resolve().parents[3] / "docs" / "containers.md"


def test_sidecar_shares_processes() -> None:
    pod, resources = (yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL))
    app, sidecar = pod["spec"]["containers"]
    assert (pod["kind"], pod["spec"]["shareProcessNamespace"]) == ("Pod", True)
    assert sidecar["securityContext"]["capabilities"]["add"] == ["SYS_PTRACE"]
    assert sidecar["args"][0].startswith("memprof attach --grow ") and "\n" not in sidecar["args"][0]
    assert set(resources["resources"]) == set(app["resources"]) == {"requests", "limits"}
