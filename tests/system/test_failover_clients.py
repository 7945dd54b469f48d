"""Every client library goes on at the other machine, as docs/failover.md shows it.

`make demo-failover` does more of it, with two of them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import CHECKOUT
from tests.support.documents import blocks, section, text_of
from tests.support.system.client_programs import SOURCES
from tests.support.system.failover_clients import PROGRAMS

SHOWN_IN = {
    "python": SOURCES / "proton_failover.py",
    "javascript": SOURCES / "node" / "failover.js",
    "go": SOURCES / "go" / "failover.go",
    "rust": SOURCES / "rust" / "src" / "failover.rs",
}


@pytest.mark.parametrize("language", SHOWN_IN)
def test_the_code_that_is_shown_is_that_of_the_program_that_runs(language: str) -> None:
    (shown,) = blocks(section(text_of("docs/failover.md"), "Clients"), language)
    program = [line.strip() for line in SHOWN_IN[language].read_text().splitlines()]
    lines = [line.strip() for line in shown.splitlines()]
    assert "\n".join(lines) in "\n".join(program)


@pytest.mark.system
@pytest.mark.slow
def test_each_client_goes_on_at_the_standby_when_the_primary_is_killed(tmp_path: Path) -> None:
    words = ["--kills=1", "--cuts=0", f"--folder={tmp_path / 'demo'}", "--clients", *PROGRAMS]
    ended = subprocess.run(
        [sys.executable, "-m", "jobs.benchmarks.demo_failover", *words],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "KILL -9: machine a, which serves" in ended.stdout
    assert "PROVED: " in ended.stdout
