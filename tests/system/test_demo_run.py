"""`make demo`, with a tenth of its messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import CHECKOUT


@pytest.mark.system
@pytest.mark.spark
@pytest.mark.slow
def test_the_demo_proves_that_nothing_is_lost_and_draws_its_chart(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    ended = subprocess.run(
        [sys.executable, "-m", "broker_shim.demo", "--messages=6000", f"--folder={folder}"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=850,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "PROVED, after kill -9 and restart" in ended.stdout
    assert "PROVED, after the compaction" in ended.stdout
    assert "(DuckDB answers in " in ended.stdout
    assert "Spark answers the same in " in ended.stdout
    assert (folder / "departures.png").read_bytes().startswith(b"\x89PNG")
