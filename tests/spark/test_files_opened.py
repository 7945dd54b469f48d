"""What each question opens: few files, whoever asks for one queue, one message, one hour."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from sparkstore.compaction import compact, history_layout
from sparkstore.compaction.plans.cluster_plan import FEW_SEGMENTS
from sparkstore.core.records import (
    MessageHeader,
    Record,
    ids_reserved,
    message_acquired,
    message_dequeued,
    message_enqueued,
    opened,
    queue_created,
)
from sparkstore.tables import rows
from sparkstore.tables.root import Root
from sparkstore.tables.schema import ROW_SKIPPING_COLUMNS
from sparkstore.tables.snapshot import snapshot
from sparkstore.views import views
from tests.support.spark import opened_files
from tests.support.spark.tables import HEADER, trim

pytestmark = [pytest.mark.slow]

QUEUES = [f"queue-{number:03}" for number in range(100)]
BODY_BYTES = 1000
HEAD = MessageHeader("amqp-1.0", b"h", priority=4, header_bytes=1, body_bytes=BODY_BYTES)
MESSAGES = 6_000
MOVED = 8
"""A message that came on another queue than it waits on."""
SEGMENTS = 12
SECOND_US = 1_000_000


@pytest.fixture(scope="module")
def shipped(spark: SparkSession) -> Iterator[None]:
    """Plans as they are shipped: files are skipped, and joins with nothing are left out."""
    names = ("spark.databricks.delta.stats.skipping", "spark.sql.adaptive.enabled")
    before = {name: spark.conf.get(name, "true") for name in names}
    for name in names:
        spark.conf.set(name, "true")
    yield
    for name, value in before.items():
        assert value is not None
        spark.conf.set(name, value)


def _records() -> Iterator[Record]:
    """A second for each message; half of them are taken a while later. Queues take turns."""
    chance = random.Random(28)
    yield from (opened(0, "w"), ids_reserved(0, 1 << 20))
    yield from (queue_created(0, queue, "{}") for queue in QUEUES)
    for number in range(1, MESSAGES + 1):
        at, body = number * SECOND_US, chance.randbytes(BODY_BYTES)
        yield message_enqueued(at, QUEUES[number % 100], number, HEAD, body)
        if number > 200 and number % 2:
            yield message_acquired(at, QUEUES[(number - 200) % 100], number - 200, "c")
            yield message_dequeued(at, QUEUES[(number - 200) % 100], number - 200, None)
    known = HEAD._replace(protocol=None, header=None)
    yield message_dequeued(at, QUEUES[MOVED], MOVED + 5000, None)
    yield message_enqueued(at, QUEUES[50], MOVED + 5000, known, None)


@pytest.fixture(scope="module")
def compacted(spark: SparkSession, module_root: Root, shipped: None) -> Root:
    """6,000 messages in twelve segments of the journal, compacted; the journal is trimmed."""
    records = [*_records()]
    share = len(records) // SEGMENTS + 1
    for segment in range(SEGMENTS):
        first = segment * share
        table = rows.to_table(
            records[first : first + share], first_position=first + 1, epoch=1, segment=segment
        )
        write_deltalake(str(module_root.journal), table, mode="append")
    compact.run(spark, module_root)
    trim(module_root, len(records) + 1)
    views.register(spark, module_root, local_rows=0)
    return module_root


def _all_files(root: Root) -> int:
    return sum(len(snapshot(root.table(name))) for name in ("journal", "history", "state"))


def _opened(spark: SparkSession, query: str) -> Counter[str]:
    return opened_files.opened(spark, query)


def test_a_queue_opens_a_tenth_of_the_files_at_most(spark: SparkSession, compacted: Root) -> None:
    query = f"SELECT count(*) AS found FROM queue_messages WHERE queue = '{QUEUES[0]}'"
    found = _opened(spark, query)
    assert spark.sql(query).collect()[0].found > 0
    assert len(snapshot(compacted.history)) >= 20, "else a tenth says nothing"
    assert found["history"] <= len(snapshot(compacted.history)) / 10
    assert found["history"] >= 1
    assert found["state"] <= 2, "its entries, and P"
    assert found["journal"] == 0
    everything = _opened(spark, "SELECT count(*) FROM queue_messages")
    assert everything["history"] >= 6 * found["history"]


def test_one_message_opens_less_than_twenty_files(spark: SparkSession, compacted: Root) -> None:
    for message_id in (1, 1234, MESSAGES):
        query = f"SELECT * FROM message_history WHERE message_id = {message_id}"
        assert 1 <= _opened(spark, query).total() < 20
    assert spark.sql("SELECT * FROM message_history WHERE message_id = 1").count() == 3


def test_what_was_moved_to_a_queue_is_found_there(spark: SparkSession, compacted: Root) -> None:
    query = "SELECT length(body) AS size FROM queue_messages WHERE queue = '{}' AND message_id = {}"
    (row,) = spark.sql(query.format(QUEUES[50], MOVED + 5000)).collect()
    assert row.size == BODY_BYTES
    assert spark.sql(query.format(QUEUES[MOVED], MOVED + 5000)).collect() == []


def test_what_came_since_is_opened_once_by_who_asks_for_a_queue_or_a_message(
    spark: SparkSession, compacted: Root
) -> None:
    """Twenty commits after P: each may change a queue, and is counted, so that none is missing."""
    (last,) = spark.sql("SELECT max(position) FROM message_history").first() or [0]
    state = [message_enqueued(0, QUEUES[0], MESSAGES + n, HEAD, bytes(1000)) for n in range(1, 21)]
    for number, record in enumerate(state):
        table = rows.to_table([record], first_position=last + 1 + number, epoch=1, segment=99)
        write_deltalake(str(compacted.journal), table, mode="append")
    by_id = _opened(spark, "SELECT * FROM message_history WHERE message_id = 1234")
    assert by_id["journal"] == 20, "a guard counts what came since; nothing else is read of it"
    assert by_id["history"] < 20
    query = f"SELECT message_id, subject FROM queue_messages WHERE queue = '{QUEUES[1]}'"
    assert sorted(row.message_id for row in spark.sql(query).collect()) == [5801, 5901]
    of_queue = _opened(spark, query)
    assert of_queue["journal"] <= 20, "its changes; none of them brought it a message"
    assert 1 <= of_queue["history"] <= len(snapshot(compacted.history)) / 10
    of_queue_0 = f"SELECT * FROM queue_messages WHERE queue = '{QUEUES[0]}'"
    assert spark.sql(f"{of_queue_0} AND message_id > {MESSAGES}").count() == 20


def test_an_hour_opens_its_own_files(spark: SparkSession, root: Root, shipped: None) -> None:
    """What was written hours apart is not opened for an hour in between."""
    _segments_of_history(root, FEW_SEGMENTS)
    compact.run(spark, root)  # else all of it has come since the last compaction, and is counted
    (moment,) = spark.sql("SELECT timestamp_micros(3 * 3600000000 + 1)").first() or [None]
    views.register(spark, root, ("message_history",), local_rows=0)
    query = (
        "SELECT count(*) AS found FROM message_history"
        f" WHERE at BETWEEN TIMESTAMP '{moment}' AND TIMESTAMP '{moment}' + INTERVAL 59 MINUTES"
    )
    assert spark.sql(query).collect()[0].found == 10
    assert _opened(spark, query)["history"] == 1


def _segments_of_history(root: Root, count: int) -> None:
    """A file for each segment, an hour of ten records each."""
    for segment in range(count):
        records = [
            message_enqueued(segment * 3600 * SECOND_US + n, "q", 10 * segment + n, HEADER, b"abc")
            for n in range(1, 11)
        ]
        table = rows.to_table(
            records, first_position=10 * segment + 1, epoch=1, segment=3 * segment
        )
        write_deltalake(str(root.history), table, mode="append")


def _contents(root: Root) -> list[tuple[Any, ...]]:
    columns = ["position", "message_id", "queue", "body", "at"]
    found = DeltaTable(str(root.history)).to_pyarrow_table(columns=columns)
    return sorted(tuple(row.values()) for row in found.to_pylist())


def test_small_segments_become_one_and_keep_their_rows(spark: SparkSession, root: Root) -> None:
    """It is a change of files and not of data: a stream over history sees nothing of it."""
    _segments_of_history(root, FEW_SEGMENTS + 2)
    before, version = _contents(root), DeltaTable(str(root.history)).version()
    history_layout.merge_segments(spark, root, folded=1 << 40)
    assert _contents(root) == before
    assert {file.partition for file in snapshot(root.history)} == {
        3 * FEW_SEGMENTS,
        3 * (FEW_SEGMENTS + 1),
    }
    reader = spark.readStream.format("delta").option("startingVersion", version + 1)
    stream = reader.load(str(root.history)).writeStream.format("memory").queryName("since")
    stream.option("checkpointLocation", str(root.path / "since")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert spark.table("since").count() == 0
    history_layout.merge_segments(spark, root, folded=1 << 40)
    assert DeltaTable(str(root.history)).version() == version + 1, "nothing more is to do"


def test_a_root_of_a_release_before_gets_the_statistics(spark: SparkSession, root: Root) -> None:
    for name in ("history", "state"):
        table = DeltaTable(str(root.table(name)))
        table.alter.set_table_properties({"delta.dataSkippingStatsColumns": "position,message_id"})
    history_layout.keep_statistics(spark, root)
    configuration = DeltaTable(str(root.history)).metadata().configuration
    assert configuration["delta.dataSkippingStatsColumns"] == ROW_SKIPPING_COLUMNS
    version = DeltaTable(str(root.history)).version()
    history_layout.keep_statistics(spark, root)
    assert DeltaTable(str(root.history)).version() == version
