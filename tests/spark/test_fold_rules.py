"""Each rule of the fold, on a few literal rows: in the views, and in state after a compaction.

A query over the views takes seconds to plan, so all rules are told to one root: each has a queue
of its own, named after it, and a message of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, Row, SparkSession

from sparkstore.compaction import compact
from sparkstore.core.records import (
    Record,
    content_staged,
    ids_reserved,
    message_acquired,
    message_dequeued,
    message_enqueued,
    message_released,
    opened,
    queue_altered,
    queue_created,
    queue_destroyed,
)
from sparkstore.tables.root import Root
from sparkstore.views import views
from tests.support.spark.tables import HEADER, journal

PUT = message_enqueued(2, "q", 7, HEADER, b"abc")
AGAIN = message_enqueued(9, "q", 7, HEADER.known(), None)
ACQUIRED = message_acquired(3, "q", 7, "anna")
RELEASED = message_released(4, "q", 7, 1)
DEQUEUED = message_dequeued(5, "q", 7, "anna")
DESTROYED = queue_destroyed(6, "q")
CREATED = queue_created(7, "q", "{}")
ALTERED = queue_altered(8, "q", '{"n": 2}')

RULES: dict[str, tuple[list[Record], list[Record], list[tuple[object, ...]]]] = {
    "an enqueued message is available": ([], [PUT], [(1, None, 0)]),
    "an acquired message stays on its queue": ([PUT], [ACQUIRED], [(1, "anna", 0)]),
    "a release makes it available and sets its delivery count": (
        [PUT, ACQUIRED],
        [RELEASED],
        [(1, None, 1)],
    ),
    "the last acquire or release decides who holds it": (
        [PUT, ACQUIRED, RELEASED],
        [message_acquired(8, "q", 7, "bo")],
        [(1, "bo", 1)],
    ),
    "a dequeued message is gone": ([PUT, ACQUIRED], [DEQUEUED], []),
    "a message enqueued again is at its new place, available and not counted": (
        [PUT, ACQUIRED, RELEASED],
        [DEQUEUED, AGAIN],
        [(5, None, 0)],
    ),
    "a destroyed queue drops what nobody touched": ([PUT], [DESTROYED], []),
    "a queue created again is empty": ([PUT, ACQUIRED], [DESTROYED, CREATED], []),
    "a queue created again holds what was enqueued since": (
        [PUT],
        [DESTROYED, CREATED, AGAIN],
        [(4, None, 0)],
    ),
    "an altered queue keeps what is on it": ([PUT], [ALTERED], [(1, None, 0)]),
    "what was enqueued and dequeued in one step leaves nothing": ([], [PUT, DEQUEUED], []),
}
"""Records that were folded before, records after P, and what is then on the queue: the entry's
place among the records of its rule, who acquired it, and its delivery count."""

FOLDED = ("queue", "message_id", "position", "acquired_by", "delivery_count", "message_bytes")
"""What the view tells of an entry, and `state` once it is folded."""
FIGURES = ("queue", "depth", "bytes", "acquired", "acquired_by['anna'] AS anna", "oldest_us", "old")
PIECES, COUNTED, TOLD, ANNOTATED = 900, 910, 920, 930
"""Ids of the messages that are not a rule's."""

ANNOTATIONS: dict[str, tuple[list[str | None], list[str | None], dict[str, str] | None]] = {
    "never given back": ([None], [], None),
    "given back and nothing said": ([None, "{}"], [], {}),
    "said before the fold": ([None, '{"x-opt-n":["string","1"]}'], [], {"x-opt-n": "1"}),
    "said after it": ([None], ['{"ü\'":["uint","2"],"a":["string",""]}'], {"ü'": "2", "a": ""}),
    "said anew": ([None, '{"a":["string","1"]}'], ['{"b":["string","2"]}'], {"b": "2"}),
    "kept by a release that says nothing": (
        [None, '{"a":["string","1"]}'],
        [None],
        {"a": "1"},
    ),
    "brought by the entry itself": ([], ['{"a":["string","1"]}'], {"a": "1"}),
    "a time, and what is none": (
        [],
        ['{"t":["timestamp","1500"],"far":["timestamp","9999999999999999"]}'],
        {"t": "1970-01-01 00:00:01.5", "far": "9999999999999999"},
    ),
}
"""What the records of an entry say in turn (the first enqueues it, each other gives it back) before
the fold and after it, and what the column `annotations` then has."""


class Told(NamedTuple):
    """What was collected after the tail was committed, and after it was folded."""

    positions: dict[str, list[int]]
    messages: list[Row]
    entries: DataFrame
    queues: list[Row]
    figures: DataFrame
    events: list[Row]
    last: int
    state: list[Row]
    folded: DataFrame
    definitions: list[Row]


def _own(rule: str, records: Sequence[Record]) -> list[Record]:
    """The records of a rule, for its own queue and its own message."""
    number = list(RULES).index(rule)
    return [
        record._replace(
            queue=rule, message_id=record.message_id and record.message_id + 10 * number
        )
        for record in records
    ]


def _before() -> list[Record]:
    told = PUT._replace(queue="told", message_id=TOLD)
    return [
        *[
            queue_created(1, queue, "{}")
            for queue in (*RULES, "pieces", "counted", "empty", "told", "annotated")
        ],
        content_staged(2, PIECES, 2, b"c"),
        content_staged(2, PIECES, 2, b"c"),
        told,
        ACQUIRED._replace(queue="told", message_id=TOLD),
        RELEASED._replace(queue="told", message_id=TOLD),
        message_enqueued(5_000_000, "counted", COUNTED, HEADER, b"abc"),
        *(
            record
            for number, (folded, _, _) in enumerate(ANNOTATIONS.values())
            for record in _annotating(number, folded)
        ),
    ]


def _after() -> list[Record]:
    return [
        *(
            record
            for number, (folded, tail, _) in enumerate(ANNOTATIONS.values())
            for record in _annotating(number, tail, is_there=bool(folded))
        ),
        ALTERED._replace(queue="empty"),
        content_staged(2, PIECES, 0, b"ab"),
        content_staged(2, PIECES, 2, b"c"),
        message_enqueued(3, "pieces", PIECES, HEADER, None),
        DEQUEUED._replace(queue="told", message_id=TOLD),
        PUT._replace(queue="counted", message_id=COUNTED + 1),
        ACQUIRED._replace(queue="counted", message_id=COUNTED + 1),
    ]


def _annotating(
    number: int, details: Sequence[str | None], *, is_there: bool = False
) -> list[Record]:
    """The records of a message of its own that say these in turn."""
    kinds = [RELEASED if is_there or index else PUT for index in range(len(details))]
    return [
        record._replace(queue="annotated", message_id=ANNOTATED + number, detail=detail)
        for record, detail in zip(kinds, details, strict=True)
    ]


@pytest.fixture(scope="module")
def told(spark: SparkSession, module_root: Root) -> Told:
    """All rules told to one root: fold, tail, views, fold."""
    written: list[Record] = [opened(1, "w"), ids_reserved(1, 1000), *_before()]
    positions: dict[str, list[int]] = {rule: [] for rule in RULES}

    def tell(rule: str, records: Sequence[Record]) -> None:
        positions[rule] += range(len(written) + 1, len(written) + 1 + len(records))
        written.extend(_own(rule, records))

    for rule, (folded, _, _) in RULES.items():
        tell(rule, folded)
    last = journal(module_root, written)
    compact.run(spark, module_root)
    for rule, (_, tail, _) in RULES.items():
        tell(rule, tail)
    written += _after()
    journal(module_root, written[last:], first=last + 1)
    views.register(spark, module_root, ("queue_messages", "queues", "message_history"))
    entries = spark.sql("SELECT * FROM queue_messages").localCheckpoint()
    queues = spark.sql(
        "SELECT *, oldest_age_s > 1000000000 AS old, unix_micros(oldest_at) AS oldest_us"
        " FROM queues WHERE queue IN ('counted', 'empty')"
    ).localCheckpoint()
    events = spark.sql(
        f"SELECT kind, position FROM message_history WHERE message_id = {TOLD} ORDER BY position"
    ).collect()
    compact.run(spark, module_root)
    table = spark.read.format("delta").load(str(module_root.state))
    state = table.where("part = 'entry'").localCheckpoint()
    return Told(
        positions,
        entries.collect(),
        entries.selectExpr(*FOLDED),
        queues.collect(),
        queues.selectExpr(*FIGURES),
        events,
        len(written),
        state.collect(),
        state.selectExpr(*FOLDED),
        table.where("part = 'wiring'").collect(),
    )


@pytest.mark.slow
@pytest.mark.parametrize("source", ["messages", "state"])
@pytest.mark.parametrize("rule", RULES)
def test_rule(told: Told, rule: str, source: str) -> None:
    number = list(RULES).index(rule)
    found: list[Any] = []
    for row in getattr(told, source):
        if row.queue == rule:
            assert row.message_id == 7 + 10 * number
            place = told.positions[rule].index(row.position) + 1
            found.append((place, row.acquired_by, row.delivery_count))
    assert found == RULES[rule][2]


@pytest.mark.slow
def test_the_view_of_the_tail_is_what_the_job_folds_of_it(told: Told) -> None:
    assert_df_equality(told.entries, told.folded, ignore_row_order=True)


@pytest.mark.slow
def test_queues_counts_messages_bytes_holders_and_the_oldest(
    spark: SparkSession, told: Told
) -> None:
    names = (
        "queue string, depth long, bytes long, acquired long, anna long, oldest_us long,"
        " old boolean"
    )
    expected = [("counted", 2, 8, 1, 1, 2, True), ("empty", 0, 0, 0, None, None, None)]
    assert_df_equality(
        told.figures,
        spark.createDataFrame(expected, names),
        ignore_row_order=True,
        ignore_nullable=True,  # whatever is made of a list may be NULL
    )


@pytest.mark.slow
def test_an_altered_queue_has_its_last_definition_in_the_view_and_in_state(told: Told) -> None:
    assert {row.queue: row.detail for row in told.queues} == {"counted": "{}", "empty": '{"n": 2}'}
    folded = {row.queue: row.detail for row in told.definitions}
    altered = "an altered queue keeps what is on it"
    assert (folded["empty"], folded["counted"]) == ('{"n": 2}', "{}")
    assert folded[altered] == '{"n": 2}'


@pytest.mark.slow
def test_content_that_came_in_pieces_is_put_together(told: Told) -> None:
    bodies = {row.message_id: bytes(row.body) for row in told.messages}
    assert bodies[PIECES] == b"abc", "one piece is in history twice and in the journal again"
    assert bodies[COUNTED] == b"abc", "in history as one"
    assert bodies[COUNTED + 1] == b"abc", "in the journal as one"


@pytest.mark.slow
def test_message_history_tells_every_event_in_order(told: Told) -> None:
    assert [tuple(row) for row in told.events] == [
        ("enqueued", 21),
        ("acquired", 22),
        ("released", 23),
        ("dequeued", told.last - 2),
    ]


@pytest.mark.slow
def test_annotations_are_of_the_entry_by_key(told: Told) -> None:
    found = {row.message_id: row.annotations for row in told.messages if row.queue == "annotated"}
    expected = {ANNOTATED + n: what for n, (_, _, what) in enumerate(ANNOTATIONS.values())}
    assert found == expected
