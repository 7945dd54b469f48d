"""An order is written in the file of its noun and in that of its commands, and is on every road."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.toys import answers_of

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
    program = "from tests.support.stores.toy_order import answers"
    return answers_of(program, tmp_path_factory.mktemp("toy"))


@pytest.mark.slow
@pytest.mark.parametrize("road", EXPECTED)
def test_an_order_that_is_declared_is_on_the_road(answers: dict[str, Any], road: str) -> None:
    assert answers[road] == EXPECTED[road]
