"""The fold over Arrow means what the oracle means, wherever the state was cut off."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkstore.core import codec, fold, records
from sparkstore.core.records import Kind, MessageHeader, RecordRun, Run
from sparkstore.recovery.arrow_fold import fold_tables, rows_that_count
from sparkstore.tables.rows import to_table
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


_HEADER = MessageHeader(body_bytes=1)


@settings(deadline=None)  # the machine is shared
@given(histories(), st.data())
def test_runs_mean_what_their_records_mean_one_by_one(
    history: History, data: st.DataObject
) -> None:
    rows = [*history.rows, *_more(history, data)]
    state = fold.State()
    for run, epoch in _drawn_runs(rows, data):
        fold.apply(state, state.position + 1, run, epoch)
    expected = fold_rows(rows)
    assert state == expected
    assert same_queue_order(state, expected)
    assert [*state.messages.rising()] == [*expected.messages.rising()]


@settings(deadline=None)  # the machine is shared
@given(histories(max_steps=20), st.data())
def test_runs_are_logged_and_become_rows_as_their_records_do(
    history: History, data: st.DataObject
) -> None:
    rows = [*history.rows, *_more(history, data)]
    records_alone = [row.record for row in rows]
    runs = [run for run, _ in _drawn_runs(rows, data)]
    packed = b"".join(map(codec.packer(), runs))
    assert [*codec.unpack_all(packed)] == records_alone
    place = {"first_position": 7, "epoch": 2, "segment": 1}
    assert to_table(runs, **place).equals(to_table(records_alone, **place))


def _more(history: History, data: st.DataObject) -> list[Row]:
    """Records of one kind on one queue that follow each other, as those of a busy client do."""
    queue = data.draw(st.sampled_from([*fold_rows(history.rows).queues] or [None]))
    chance = data.draw(st.randoms(use_true_random=False))
    first, every = 1 << 20, data.draw(st.integers(2, 99))
    ids = [first + n for n in range(data.draw(st.integers(0, 99))) if chance.randrange(every)]
    if queue is None:
        return []
    at, last = history.rows[-1].record.at, history.rows[-1]
    other = _HEADER._replace(priority=9, expires_at=at)
    headers = data.draw(st.sampled_from([[_HEADER], [_HEADER, other]]))
    more = [
        records.message_enqueued(at, queue, each, headers[index % len(headers)], b"1")
        for index, each in enumerate(ids)
    ]
    begin = data.draw(st.integers(0, len(ids)))
    more += [records.message_acquired(at, queue, each, "c") for each in ids[begin:]]
    more += [records.message_released(at, queue, each, 1) for each in ids[begin::7]]
    end = data.draw(st.integers(begin, len(ids)))
    more += [records.message_dequeued(at, queue, each, "c") for each in ids[begin:end]]
    if data.draw(st.booleans()):
        asked = 1 + max((r.record.request or 0 for r in history.rows), default=0)
        more = [each._replace(member="m", request=asked + n) for n, each in enumerate(more)]
    return [Row(last.position + 1 + n, last.epoch, each) for n, each in enumerate(more)]


def _drawn_runs(rows: list[Row], data: st.DataObject) -> Iterator[tuple[Run, int]]:
    """The records of rows as runs, cut where they must be, and anywhere else."""
    chance = data.draw(st.randoms(use_true_random=False))
    most = data.draw(st.sampled_from([1, 2, 7, 1000]))
    together: list[Row] = []
    for row in rows:
        if together and (not _follows(together, row) or len(together) >= chance.randint(1, most)):
            yield _run(together), together[0].epoch
            together = []
        together.append(row)
    if together:
        yield _run(together), together[0].epoch


def _follows(together: list[Row], row: Row) -> bool:
    first, record, count = together[0].record, row.record, len(together)
    return (
        record.kind in {Kind.ENQUEUED, Kind.ACQUIRED, Kind.DEQUEUED}
        and row.epoch == together[0].epoch
        and (record.message is None) == (first.message is None)
        and (record.body is None) == (first.body is None) == (first.message is None)
        and record
        == first._replace(
            message_id=(first.message_id or 0) + count,
            message=record.message,
            body=record.body,
            request=None if first.request is None else first.request + count,
        )
    )


def _run(together: list[Row]) -> Run:
    found = [row.record for row in together]
    if len(found) == 1:
        return found[0]
    headers = [record.message for record in found if record.message is not None]
    shared = headers[:1] if headers.count(_HEADER) == len(headers) else headers
    bodies = [record.body for record in found if record.body is not None]
    first = found[0]._replace(message=None, body=None)
    return RecordRun(first, len(found), shared, bodies)
