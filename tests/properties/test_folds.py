"""The fold over Arrow means what the oracle means, wherever the state was cut off."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkstore.core import fold
from sparkstore.recovery.arrow_fold import fold_tables, rows_that_count
from sparkstore.tables.schema import FOLD_COLUMNS
from tests.support.histories.strategies import History, Layers, fold_rows, histories, layers
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
