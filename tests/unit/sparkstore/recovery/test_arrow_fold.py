"""What the property test of the folds cannot draw: damage, and numbers at their limits."""

from __future__ import annotations

import gc

import pyarrow as pa
import pytest

from sparkstore.core import fold
from sparkstore.core.link_records import LinkKey, attached, detached, link_text, unsettled
from sparkstore.core.records import (
    MessageHeader,
    Record,
    message_acquired,
    message_dequeued,
    message_enqueued,
    message_released,
    opened,
    queue_altered,
    queue_created,
    queue_destroyed,
)
from sparkstore.errors import CorruptData
from sparkstore.recovery.arrow_fold import fold_tables, rows_that_count
from sparkstore.tables.schema import FOLD_COLUMNS, STATE
from tests.support.histories.strategies import Row, fold_rows
from tests.support.roots.roots import rows_table, state_table

HEADER = MessageHeader("raw", header_bytes=3, body_bytes=4)
LARGEST_ID = (1 << 63) - 1


def rows_of(*records: Record, first: int = 1, epoch: int = 1) -> list[Row]:
    return [Row(first + index, epoch, record) for index, record in enumerate(records)]


def table(rows: list[Row]) -> pa.Table:
    return rows_table(rows, 0).select(FOLD_COLUMNS)


def folded(rows: list[Row]) -> fold.State:
    return fold_tables(STATE.empty_table(), table(rows))


def enqueued(queue: str, message_id: int) -> Record:
    return message_enqueued(0, queue, message_id, HEADER, b"body")


def test_nothing_folds_to_an_empty_state() -> None:
    assert folded([]) == fold.State()


def test_an_entry_has_the_annotations_that_it_was_enqueued_or_given_back_with() -> None:
    told, later = '{"x-opt-n":["string","1"]}', '{"x-opt-n":["string","2"]}'
    rows = rows_of(
        queue_created(0, "q", "{}"),
        enqueued("q", 1)._replace(detail=told),
        enqueued("q", 2)._replace(detail=told),
        message_acquired(0, "q", 2, "c"),
        message_released(0, "q", 2, 0, detail=later),
    )
    found = folded(rows)
    assert found == fold_rows(rows)
    assert [entry.detail for entry in found.queues["q"].entries.values()] == [told, later]


def test_a_link_is_closed_by_a_detached_record_with_any_detail() -> None:
    link = link_text(LinkKey("c", "l", "receiver"))
    rows = rows_of(
        attached(0, link, "{}"),
        unsettled(0, link, b"t", None),
        detached(0, link, closed=True)._replace(detail='{"closed": true, "why": "later"}'),
        attached(0, link, "{}"),
    )
    assert folded(rows) == fold_rows(rows)
    assert folded(rows).links[link].unsettled == {}


def test_the_largest_message_ids_do_not_collide_between_queues() -> None:
    ids = [LARGEST_ID, LARGEST_ID - 1, LARGEST_ID >> 1, 1]
    rows = rows_of(
        *(queue_created(0, queue, "{}") for queue in ("a", "b", "c")),
        *(enqueued(queue, id_) for queue in ("a", "b", "c") for id_ in ids),
        message_dequeued(0, "b", LARGEST_ID, None),
        message_acquired(0, "c", LARGEST_ID, "me"),
        message_acquired(0, "a", LARGEST_ID >> 1, "you"),
    )
    assert folded(rows) == fold_rows(rows)


def test_a_message_that_comes_back_to_a_queue_is_not_acquired_by_who_had_it_before() -> None:
    rows = rows_of(
        queue_created(0, "q", "{}"),
        enqueued("q", 1),
        message_acquired(0, "q", 1, "me"),
        message_released(0, "q", 1, 3),
        message_acquired(0, "q", 1, "me"),
        message_dequeued(0, "q", 1, "me"),
        enqueued("q", 1),
    )
    entry = folded(rows).queues["q"].entries[1]
    assert (entry.acquired_by, entry.delivery_count, entry.position) == (None, 0, 7)


def test_a_queue_that_was_created_again_is_empty_though_the_state_had_entries() -> None:
    before = rows_of(queue_created(0, "q", "{}"), enqueued("q", 1), enqueued("q", 2))
    after = rows_of(
        message_acquired(0, "q", 1, "me"),
        queue_destroyed(0, "q"),
        queue_created(0, "q", '{"n": 2}'),
        first=4,
    )
    found = fold_tables(state_table(fold_rows(before)), table(after))
    assert found == fold_rows([*before, *after])
    assert found.messages == {}


def test_names_of_queues_may_exceed_what_one_column_of_strings_holds() -> None:
    """2.1 GiB of names, which share their memory; nothing may put them together."""
    long = "q" * (1 << 20)
    records = [enqueued("", message_id) for message_id in range(1, 34 * 64 + 1)]
    rows = table(rows_of(queue_created(0, "p", "{}"), queue_created(0, "q", "{}"), *records))
    names = pa.array([long] * 63 + ["p"])
    chunks = [pa.array(["p", long]), *[names] * 34]
    place = rows.schema.get_field_index("queue")
    state = fold_tables(
        STATE.empty_table(), rows.set_column(place, "queue", pa.chunked_array(chunks))
    )
    assert list(state.queues["p"].entries) == [*range(64, 34 * 64 + 1, 64)]
    assert list(state.queues[long].entries) == [i for i in range(1, 34 * 64 + 1) if i % 64]


def test_an_entry_on_a_queue_that_is_not_there_is_corrupt() -> None:
    with pytest.raises(CorruptData, match="1 entries are on queue 'nowhere'"):
        folded(rows_of(enqueued("nowhere", 1)))


def test_wiring_of_a_queue_that_is_not_there_is_corrupt() -> None:
    with pytest.raises(CorruptData, match=r"record 1 \(destroyed\) is about 'nowhere'"):
        folded(rows_of(queue_destroyed(0, "nowhere")))


def test_an_altered_queue_keeps_its_entries_whether_they_are_in_the_state_or_after_it() -> None:
    before = rows_of(queue_created(0, "q", '{"n": 1}'), enqueued("q", 1))
    after = rows_of(queue_altered(0, "q", '{"n": 2}'), enqueued("q", 2), first=3)
    found = fold_tables(state_table(fold_rows(before)), table(after))
    assert found == fold_rows([*before, *after])
    assert (found.queues["q"].detail, [*found.queues["q"].entries]) == ('{"n": 2}', [1, 2])


def test_records_of_a_kind_that_a_newer_version_writes_are_not_passed_over() -> None:
    rows = table(rows_of(queue_created(0, "q", "{}"), queue_altered(0, "q", "{}")))
    kinds = pa.array(["created", "renamed"])
    newer = rows.set_column(rows.schema.get_field_index("kind"), "kind", kinds)
    with pytest.raises(CorruptData, match="unknown kind 'renamed': install a newer"):
        fold_tables(STATE.empty_table(), newer)


def test_rows_after_a_newer_opened_do_not_count_though_it_is_only_in_the_state() -> None:
    stale = table(rows_of(enqueued("q", 1), first=8, epoch=1))
    assert rows_that_count(stale, epoch=2).num_rows == 0
    assert rows_that_count(stale, epoch=1).num_rows == 1


def test_of_two_fenced_writers_neither_counts_nor_fences() -> None:
    rows = [
        Row(1, 1, opened(0, "a")),
        Row(2, 3, opened(0, "c")),
        Row(2, 1, enqueued("q", 1)),
        Row(3, 2, opened(0, "b")),
        Row(3, 3, enqueued("q", 2)),
        Row(4, 2, enqueued("q", 3)),
    ]
    counting = rows_that_count(table(rows))
    pairs = zip(counting["position"].to_pylist(), counting["epoch"].to_pylist(), strict=True)
    assert [*pairs] == [(1, 1), (2, 3), (3, 3)]


def test_the_collector_is_on_again_even_after_a_failure() -> None:
    assert gc.isenabled()
    with pytest.raises(CorruptData):
        folded(rows_of(enqueued("nowhere", 1)))
    assert gc.isenabled()
