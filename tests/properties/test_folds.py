"""The fold over Arrow means what the oracle means, wherever the state was cut off."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkstore.core import fold, records
from sparkstore.core.records import MessageHeader
from sparkstore.recovery.arrow_fold import fold_tables, rows_that_count
from sparkstore.tables.schema import FOLD_COLUMNS
from tests.support.histories.strategies import History, Layers, Row, fold_rows, histories, layers
from tests.support.roots.roots import rows_table, state_table


def same_queue_order(found: fold.State, expected: fold.State) -> bool:
    """Dictionaries are equal whatever their order, but entries must come in queue order."""
    return all(
        [*found.queues[name].entries] == [*queue.entries] for name, queue in expected.queues.items()
    )


@settings(deadline=None)  # the machine is shared
@given(histories(), st.data())
def test_state_and_tail_fold_to_the_oracle_for_every_prefix(
    history: History, data: st.DataObject
) -> None:
    expected = fold_rows(history.rows)
    rows = rows_table(history.rows, 0).select(FOLD_COLUMNS)
    prefix = data.draw(st.integers(0, history.last_position))
    base = fold_rows(history.rows[:prefix])
    state_rows = state_table(base) if prefix else state_table(base).slice(0, 0)
    found = fold_tables(state_rows, rows.slice(prefix))
    assert found == expected
    assert same_queue_order(found, expected)


@settings(deadline=None)  # the machine is shared
@given(layers())
def test_rows_of_a_fenced_writer_never_count(drawn: Layers) -> None:
    rows = rows_table(drawn.journal_rows, 0).select(FOLD_COLUMNS)
    expected = [row.position for row in drawn.history.rows[drawn.journal_start - 1 :]]
    before = fold_rows(drawn.history.rows[: drawn.journal_start - 1]).epoch
    counting = rows_that_count(rows, epoch=before)
    assert counting["position"].to_pylist() == expected
    whole = rows_table(drawn.history.rows, 0).select(FOLD_COLUMNS)
    assert counting.equals(whole.slice(drawn.journal_start - 1))


@settings(deadline=None)  # the machine is shared
@given(histories(), st.data())
def test_records_that_are_folded_alike_mean_what_the_oracle_means(
    history: History, data: st.DataObject
) -> None:
    # A history's records of one kind on one queue are made to follow each other more often.
    record = history.rows[-1].record
    state, rows = fold.State(), [*history.rows]
    ids = data.draw(st.sets(st.integers(1 << 20, (1 << 20) + 600), max_size=12).map(sorted))
    queue = data.draw(st.sampled_from([*fold_rows(rows).queues] or [None]))
    if queue is not None and ids:
        at, end = record.at, history.last_position
        header = MessageHeader(body_bytes=1)
        more = [records.message_enqueued(at, queue, each, header, b"1") for each in ids]
        taken = data.draw(st.lists(st.sampled_from(ids), unique=True))
        more += [records.message_acquired(at, queue, each, "c") for each in taken]
        more += [records.message_dequeued(at, queue, each, "c") for each in taken]
        if data.draw(st.booleans()):
            asked = 1 + max((r.record.request or 0 for r in rows), default=0)
            more = [each._replace(member="m", request=asked + n) for n, each in enumerate(more)]
        rows += [Row(end + 1 + n, history.rows[-1].epoch, each) for n, each in enumerate(more)]
    # What another member numbered, or nobody, would be in the way of what follows it.
    runs = groupby(
        rows,
        lambda r: (r.record.kind, r.record.queue, r.record.member, r.record.request is None),
    )
    alike = 0
    for _, run in runs:
        together = [*run]
        if fold.apply_alike(state, [row.record for row in together]):
            alike += len(together)
            continue
        for position, epoch, each in together:
            fold.apply(state, position, each, epoch)
    expected = fold_rows(rows)
    assert state == expected
    assert same_queue_order(state, expected)
    assert alike >= (len(ids) if queue is not None else 0)
