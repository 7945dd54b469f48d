"""The service killed under load: every request is decided once. `make soak` kills it more often."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.system.service_kill_loop import run

KILLS = int(os.environ.get("SPARKSTORE_SERVICE_KILLS", "6"))


@pytest.mark.system
@pytest.mark.slow
def test_a_service_killed_again_and_again_decides_each_request_once(tmp_path: Path) -> None:
    told, _died = run(tmp_path, KILLS, seed=1)
    assert told > KILLS * 50
