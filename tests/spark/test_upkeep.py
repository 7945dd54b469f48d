"""What of history is kept, which files go: and nothing that is needed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from sparkstore.compaction import compact, retention, state_fold, upkeep
from sparkstore.compaction.plans import cluster_plan
from sparkstore.compaction.plans.compact_plan import Upkeep
from sparkstore.content.reader import ContentReader
from sparkstore.core.records import (
    Record,
    content_staged,
    ids_reserved,
    message_dequeued,
    message_enqueued,
    opened,
    queue_created,
    staging_aborted,
)
from sparkstore.embedded.answers import answer
from sparkstore.reconcile.invariants import check
from sparkstore.recovery.recovery import recover
from sparkstore.tables import rows
from sparkstore.tables.root import Root
from sparkstore.views import views
from tests.support.spark.killing import Stopped, stop_at
from tests.support.spark.tables import HEADER, stored, viewed_entries

KEEP_ALL = Upkeep(history_days=None)
KEEP_NEEDED = Upkeep(history_days=0.0, reader_grace_s=0.0)
LARGE = HEADER._replace(header_bytes=1, body_bytes=6)
STAGED = HEADER._replace(header_bytes=1, body_bytes=4)


def _segment(root: Root, number: int, records: Sequence[Record], first: int) -> int:
    """Commit a segment of the journal; returns the position after it."""
    table = rows.to_table(records, first_position=first, epoch=1, segment=number)
    write_deltalake(str(root.journal), table, mode="append")
    return first + len(records)


def _filled(spark: SparkSession, root: Root) -> int:
    """Three segments, of a compaction each, the last not yet moved; returns the next position.

    Ten messages, of which 6 to 10 stay, 7 in pieces. Staged with their header, as Broker-J's XA
    does: 11, which nobody enqueued, and 12, enqueued two segments later. 13 was staged without a
    header and left there.
    """
    start = [opened(1, "w"), ids_reserved(1, 1000), queue_created(1, "q", "{}")]
    small = [message_enqueued(2, "q", number, HEADER, b"abc") for number in range(1, 7)]
    pieces = [content_staged(3, 7, 0, b"abc"), content_staged(3, 7, 3, b"def")]
    staged = [content_staged(3, 11, 0, b"kept"), content_staged(3, 12, 0, b"late")]
    staged = [record._replace(message=STAGED) for record in staged]
    pieces += [*staged, content_staged(3, 13, 0, b"left")]
    position = _segment(root, 0, [*start, *small, *pieces], 1)
    compact.run(spark, root, upkeep=KEEP_ALL)
    position = _segment(root, 1, [message_enqueued(4, "q", 7, LARGE, None)], position)
    compact.run(spark, root, upkeep=KEEP_ALL)
    gone = [message_dequeued(5, "q", number, None) for number in range(1, 6)]
    put = [message_enqueued(6, "q", number, HEADER, b"xyz") for number in (8, 9, 10)]
    put.append(message_enqueued(6, "q", 12, STAGED, None))
    return _segment(root, 2, [*gone, *put], position)


def _held(root: Root) -> list[tuple[int, str, int | None]]:
    table = DeltaTable(str(root.history)).to_pyarrow_table(
        columns=["position", "kind", "message_id"]
    )
    return sorted(tuple(row.values()) for row in table.to_pylist())


def _bodies(root: Root) -> dict[int, bytes]:
    reader, state = ContentReader(root), recover(root).state
    return {number: reader.read(number)[1] for number in [*state.messages, *state.staged]}


def _assert_right(spark: SparkSession, root: Root) -> None:
    """Views, state, recovery and content say what they said before anything was dropped."""
    _, entries, queues, *_ = stored(root)
    assert sorted(key[1] for key in entries) == [6, 7, 8, 9, 10, 12]
    assert viewed_entries(spark) == (entries, queues)
    bodies = {6: b"abc", 7: b"abcdef", 8: b"xyz", 9: b"xyz", 10: b"xyz"}
    assert _bodies(root) == bodies | {11: b"kept", 12: b"late"}
    assert [finding for finding in check(root, deep=True) if not finding.holds] == []


@pytest.mark.slow
def test_a_passed_segment_keeps_only_the_content_of_messages_that_wait(
    spark: SparkSession, root: Root
) -> None:
    end = _filled(spark, root)
    compact.run(spark, root, upkeep=KEEP_ALL)
    assert len(_held(root)) == end - 1
    for boundary in (*retention.BOUNDARIES, *upkeep.BOUNDARIES):
        with pytest.raises(Stopped):
            compact.run(spark, root, upkeep=KEEP_NEEDED, at=stop_at(boundary))
    report = compact.run(spark, root, upkeep=KEEP_NEEDED)
    assert report.history_start == 16, "the newest segment stays whole"
    assert _held(root)[:7] == [
        (1, "opened", None),
        (9, "enqueued", 6),
        (10, "content", 7),
        (11, "content", 7),
        (12, "content", 11),
        (13, "content", 12),
        (15, "enqueued", 7),
    ]
    assert [position for position, _, _ in _held(root)[7:]] == [*range(16, end)]
    views.register(spark, root, ("queue_messages", "queues"))
    _assert_right(spark, root)
    _goes_on(spark, root, end)


def _goes_on(spark: SparkSession, root: Root, end: int) -> None:
    """What comes after is folded, and the queues are right again, again and again."""
    for number, message_ids in enumerate([(6, 7), (8, 9, 10, 12), (), ()]):
        gone = [message_dequeued(7, "q", message_id, None) for message_id in message_ids]
        gone += [staging_aborted(7, 11)] if number == 1 else []
        end = _segment(root, 3 + number, [opened(7, "w"), *gone], end)
        compact.run(spark, root, upkeep=KEEP_NEEDED)
        state = recover(root).state
        assert state.position == end - 1
        waiting = spark.sql("SELECT message_id FROM queue_messages").collect()
        assert sorted(row.message_id for row in waiting) == sorted(state.messages)
    assert {kind for _, kind, _ in _held(root)} == {"opened"}, "nothing else is needed any more"


@pytest.mark.slow
def test_small_files_are_put_together_and_old_ones_go(
    spark: SparkSession, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "MOST_FILES", 1)
    monkeypatch.setattr(cluster_plan, "FEW_SEGMENTS", 0)
    start = [opened(1, "w"), ids_reserved(1, 1000), queue_created(1, "q", "{}")]
    position = _segment(root, 0, start, 1)
    for number in (1, 2):
        put = [message_enqueued(2, "q", number, HEADER, b"abc")]
        position = _segment(root, 0, put, position)
        compact.run(spark, root)
    assert len(_files(root, "history")) == 2, "the newest segment is left alone"
    assert len(_files(root, "state")) > len(_named(root, "state")), "what a reader needs stays"
    position = _segment(root, 1, [message_dequeued(3, "q", 1, None)], position)
    monkeypatch.setattr(upkeep, "kept_s", lambda *_: 0.0)  # as if all that were long ago
    report = compact.run(spark, root)
    assert report.files_deleted > 0
    for table in ("history", "state"):
        assert _files(root, table) == _named(root, table)
    assert len(_files(root, "history")) == 2, "one file for each segment"
    views.register(spark, root, ("queue_messages", "queues"))
    assert sorted(key[1] for key in viewed_entries(spark)[0]) == [2]
    assert state_fold.read_meta(root).position == position - 1
    read = spark.read.format("sparkstore").option("path", str(root.path)).load()
    assert [row.message_id for row in read.select("message_id").collect()] == [2]
    assert answer(root, "SELECT message_id FROM queue_messages").table.to_pylist() == [
        {"message_id": 2}
    ]


def _files(root: Root, table: str) -> set[str]:
    return {path.name for path in root.table(table).glob("*=*/**/*.parquet")}


def _named(root: Root, table: str) -> set[str]:
    return {uri.rpartition("/")[2] for uri in DeltaTable(str(root.table(table))).file_uris()}
