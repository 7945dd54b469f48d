"""A column of a queue is declared once, and is on every road then, with its sentence and unit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.toys import answers_of

TOY = """
from sparkstore.queue_columns import COLUMNS, QueueColumn
COLUMNS.append(
    QueueColumn(
        "toy", "bigint", "Seven times the messages on the queue.", "toys",
        part="7 * count(*)", fold=lambda queue: 7 * len(queue.entries),
    )
)
"""
SENTENCE = "Seven times the messages on the queue."
ROW = f"| `toy` | {{}} | {SENTENCE} |"
EXPECTED = {
    "OpenAPI": {"type": "integer", "description": SENTENCE, "x-unit": "toys"},
    "REST": 21,
    "metrics": [
        f"# HELP sparkstore_queue_toy {SENTENCE}",
        "# TYPE sparkstore_queue_toy gauge",
        'sparkstore_queue_toy{queue="q"} 21.0',
    ],
    "queues": 21,
    "queues --url": 21,
    "queue show": 21,
    "queue show --url": 21,
    "DuckDB": 21,
    "current": 21,
    "$management": 0,
    "docs/sql.md": [ROW.format("bigint")],
    "docs/tables.md": [f"| `toy` | bigint | never | {SENTENCE} |"],
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each road answers about a column that one declaration adds."""
    program = f"{TOY}\nfrom tests.support.stores.toy_column import answers"
    return answers_of(program, tmp_path_factory.mktemp("toy"))


@pytest.mark.slow
@pytest.mark.parametrize("road", EXPECTED)
def test_a_column_that_is_declared_is_on_the_road(answers: dict[str, Any], road: str) -> None:
    assert answers[road] == EXPECTED[road]


@pytest.mark.slow
def test_a_column_that_is_declared_is_in_the_table_for_people(answers: dict[str, Any]) -> None:
    heading, _ruler, row = answers["table of queues"]
    assert row[heading.index("toy")] == "21"


@pytest.mark.slow
def test_a_column_that_is_declared_is_in_the_list_of_all_with_its_roads(
    answers: dict[str, Any],
) -> None:
    (row,) = answers["docs/queues.md"]
    roads = "SQL, `current`, `queues`, `queue show`, REST, `$management`, `sparkstore_queue_toy`"
    assert row == f"| `toy` | toys | {SENTENCE} | {roads} |"
