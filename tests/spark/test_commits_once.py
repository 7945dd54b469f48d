"""A commit of a job that is made a second time changes nothing, and whoever makes it is told.

A job that was killed while it committed does not know whether it did. The next one goes by what the
tables say; these are for one that does not: two that run at once on a lease that the storage lost,
or Delta's own second try of a commit whose answer was lost.
"""

from __future__ import annotations

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sparkstore.compaction import state_fold
from sparkstore.compaction.history import append, last_position
from sparkstore.compaction.plans.compact_plan import PositionRange
from sparkstore.core.records import (
    ids_reserved,
    message_dequeued,
    message_enqueued,
    opened,
    queue_created,
)
from sparkstore.errors import Unavailable
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.root import Root
from sparkstore.views.spark_tables import delta_name
from tests.support.histories.histories import fold_rows
from tests.support.spark.tables import HEADER, expected, journal, numbered, stored

RECORDS = [
    opened(1, "w"),
    ids_reserved(1, 100),
    queue_created(1, "q", "{}"),
    *(message_enqueued(2, "q", number, HEADER, b"abc") for number in (1, 2)),
    message_dequeued(3, "q", 1, None),
]


@pytest.mark.slow
def test_what_is_appended_or_folded_a_second_time_is_there_once(
    spark: SparkSession, root: Root
) -> None:
    last = journal(root, RECORDS)
    rows = spark.sql(f"SELECT * FROM {delta_name(root.journal)}")
    append(root, rows, [PositionRange(0, last)], last=last, job="compact")
    with pytest.raises(Unavailable, match="not this job's"):
        append(root, rows, [PositionRange(0, last)], last=last, job="compact")
    positions = DeltaTable(str(root.history)).to_pyarrow_table(columns=["position"])["position"]
    assert sorted(positions.to_pylist()) == [*range(1, last + 1)]
    assert last_position(root.history) == last

    before = state_fold.read_meta(root)
    state_fold.fold(spark, root, before, PositionRange(0, last))
    version = newest_version(root.state)
    with pytest.raises(Unavailable, match="not this job's"):
        state_fold.fold(spark, root, before, PositionRange(0, last))
    assert newest_version(root.state) == version
    assert stored(root) == (last, *expected(fold_rows(numbered(RECORDS))))
