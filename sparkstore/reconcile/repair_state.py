"""Repair of `state`: rebuilt from history by the views' own fold, in one commit.

Why a reader never sees half of it: the table is overwritten in one Delta commit. Why nothing is
lost: `state` is a fold, and what it is folded from stays; history is made durable first, because a
start goes on after the P that the new state names.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sparkstore.compaction.state_fold import check_is_newest, commit_metadata
from sparkstore.errors import CorruptData
from sparkstore.reconcile.fold_checks import history_side
from sparkstore.reconcile.inspection import Look
from sparkstore.reconcile.table_copies import entries, others, wiring
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.marks import mark_durable
from sparkstore.tables.schema import BLOCK_IDS, STATE


def mend(seen: Look) -> str:
    """Rebuild `state` as the fold of history up to its end; what was done, in words.

    Args:
        seen: The root, under the jobs' lease; history has every position once.

    Raises:
        CorruptData: History is not enough: it was cut at `history_start`, and files of `state`
            are lost; or it ends before P. Nothing was changed.
        Unavailable: The commit is not there afterwards.
    """
    root, last = seen.root, seen.history_end
    if last < seen.meta.position:
        message = f"history ends at position {last}, state is at {seen.meta.position}: run compact"
        raise CorruptData(message)
    if seen.start > 1 and seen.lost["state"]:
        message = (
            f"history is gapless only from position {seen.start} on, and state lost files: promote"
            " a replica, or restore state from a backup"
        )
        raise CorruptData(message)
    mark_durable(root, {"history": newest_version(root.history)})
    metadata = commit_metadata("reconcile", last)
    (
        _rebuilt(seen, last)
        .repartition("part", "block")
        .write.format("delta")
        .mode("overwrite")
        .option("userMetadata", metadata)
        .save(str(root.state))
    )
    check_is_newest(root, "state", metadata)
    mark_durable(root, {"state": newest_version(root.state)})
    return f"state rebuilt from history up to position {last}"


def _rebuilt(seen: Look, last: int) -> DataFrame:
    spark = seen.names.spark
    side = history_side(seen.names, seen.side, seen.meta, last)
    folded = seen.rows("reconcile_meta", position=last)
    meta = folded.selectExpr(
        "'meta' AS part",
        f"CAST({last} AS BIGINT) AS position",
        f"coalesce(epoch, {seen.meta.epoch}) AS epoch",
        f"coalesce(segment, {seen.meta.segment}) AS segment",
        f"coalesce(message_id, {seen.meta.message_id}) AS message_id",
        f"CAST({seen.start} AS BIGINT) AS history_start",
    )
    block = F.expr(f"message_id div {BLOCK_IDS}")
    entry_rows = entries(spark, side).selectExpr("'entry' AS part", "*").withColumn("block", block)
    wiring_rows = wiring(spark, side).selectExpr("'wiring' AS part", "*")
    detail = F.coalesce("detail", "told")
    other_rows = others(spark, side).withColumn("detail", detail).drop("told")
    rows = entry_rows
    for more in (wiring_rows, other_rows, meta):
        rows = rows.unionByName(more, allowMissingColumns=True)
    return rows.select(*STATE.names)
