"""An order is written in the file of its noun and in that of its commands, and is on every road."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.checkout import CHECKOUT

GIVEN = {"queue": "q", "toys": 21, "dry_run": False}
SENTENCE = "Give toys to each message of a queue."
EXPECTED = {
    "HTTP": GIVEN,
    "command at ROOT": GIVEN,
    "command at --url": GIVEN,
    "a dry run": {**GIVEN, "dry_run": True},
    "OpenAPI": [SENTENCE, ["delete"], True],
    "docs/http.md": [
        "| `POST /api/v1/queues/{queue}/toys` | operator | `delete` | yes, or a dry run"
        f" | {SENTENCE} Body: `dry_run`, `count`. |"
    ],
    "completion": True,
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each road answers about an order that two files declare."""
    ask = "from tests.support.stores.toy_order import answers\n"
    ask += f"print(answers({str(tmp_path_factory.mktemp('toy'))!r}))"
    words = [sys.executable, "-c", ask]
    done = subprocess.run(
        words, check=False, cwd=CHECKOUT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    values: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return values


@pytest.mark.slow
@pytest.mark.parametrize("road", EXPECTED)
def test_an_order_that_is_declared_is_on_the_road(answers: dict[str, Any], road: str) -> None:
    assert answers[road] == EXPECTED[road]
