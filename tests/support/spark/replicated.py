"""Histories to replicate, and what a replica must hold of them."""

from __future__ import annotations

from deltalake import DeltaTable

from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.marks import read_marks
from sparkstore.tables.root import Root
from tests.support.histories.histories import Row, fold_rows
from tests.support.histories.history_builder import HistoryBuilder
from tests.support.spark.tables import expected, stored


def history(length: int) -> HistoryBuilder:
    """Of two epochs, with what a fenced writer left between them."""
    builder = HistoryBuilder()
    for number in range(length):
        builder.create_queue(number, number)
        builder.publish(number, number)
        builder.acquire(number, number)
        builder.create_exchange(number, number)
        builder.bind(number, number)
        builder.attach(number, number)
        builder.unsettle(number, number)
        builder.detach(number, number)
        if number == 6:
            builder.open(1, 5)
    builder.destroy_queue(1, 0)
    for number in range(5):
        builder.release(number, number)
        builder.dequeue(number, number)
    assert builder.history.ghosts
    return builder


def positions(root: Root) -> list[int]:
    table = DeltaTable(str(root.history)).to_pyarrow_table(columns=["position"])
    return sorted(table["position"].to_pylist())


def assert_is_fold_of(root: Root, rows: list[Row]) -> None:
    """The replica has these records, each once, and state is their fold; all of it is durable."""
    assert positions(root) == [*range(1, len(rows) + 1)]
    assert stored(root) == (len(rows), *expected(fold_rows(rows)))
    marks = read_marks(root).versions
    assert {name: marks[name] for name in ("history", "state")} == {
        name: newest_version(root.table(name)) for name in ("history", "state")
    }
