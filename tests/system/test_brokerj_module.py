"""The plugin's own JUnit tests: bytes, connection, the contract against the real service."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.system import brokerj
from tests.support.system.forked import forking_parent

pytestmark = [pytest.mark.system, pytest.mark.slow]


def test_the_plugins_own_tests(brokerj_plugin: None) -> None:
    done = subprocess.run(
        [
            *("mvn", "-q", "-B", "-f", str(brokerj.MODULE / "pom.xml"), "test"),
            f"-Dsparkstore.python={sys.executable}",
            f"-Dsparkstore.forks={forking_parent()}",
        ],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout[-8000:]
