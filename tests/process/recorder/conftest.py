"""The two recorders, as memprof starts them: in Python from its zip, in C as one static program."""

from __future__ import annotations

import pytest
from conftest import made_recorder_build, need_tool

from memprof.places import recorder_start

from .harness import Recorder


@pytest.fixture(params=["python", "c"])
def recorder(request: pytest.FixtureRequest) -> Recorder:
    """The test runs once with each recorder."""
    if request.param == "c":
        need_tool("cc")
        made_recorder_build()
    return Recorder(request.param, recorder_start.recorder_command(request.param))
