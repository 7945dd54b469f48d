"""A step of the fold: records after P up to Q change `state`, in one MERGE (ARCHITECTURE: Rule 4).

The step decides on narrow columns of `history`; no body moves. What it computes it keeps while it
works, and nothing else: a job killed here has changed nothing, or everything of the step.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from uuid import uuid4

from deltalake import DeltaTable
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sparkstore.compaction.plans.compact_plan import Limits, PositionRange, steps, target_condition
from sparkstore.compaction.state_changes import (
    TAIL_VIEW,
    StepContents,
    changes_of,
    tail_of,
    touched_by,
)
from sparkstore.errors import CorruptData, Unavailable
from sparkstore.jobs.failpoints import Failpoint
from sparkstore.tables.root import Root
from sparkstore.tables.schema import STATE
from sparkstore.tables.snapshot import snapshot
from sparkstore.views.spark_tables import settings, statement, table_names

_log = logging.getLogger(__name__)

_CHANGES_VIEW = "sparkstore_fold_changes"
_TXN = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")
METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_MATERIALIZE = "spark.databricks.delta.merge.materializeSource"


@dataclass(frozen=True, slots=True)
class Meta:
    """The meta row of `state`; `position` is P, `message_id` the least id never reserved."""

    position: int = 0
    epoch: int = 0
    segment: int = 0
    message_id: int = 1
    history_start: int = 1


def read_meta(root: Root) -> Meta:
    """Read the meta row of `state`; without one, return what an empty state means."""
    columns = list(Meta.__dataclass_fields__)
    table = DeltaTable(str(root.state)).to_pyarrow_table(
        filters=[("part", "=", "meta")], columns=columns
    )
    rows = table.to_pylist()
    return Meta(**rows[0]) if rows else Meta()


def commit_metadata(job: str, position: int) -> str:
    """Return the metadata of a job's commit; no two commits have the same."""
    return json.dumps(
        {"sparkstore.job": job, "sparkstore.run": uuid4().hex, "sparkstore.position": position}
    )


def check_is_newest(root: Root, table: str, metadata: str) -> None:
    """Read the newest version of a table back.

    Raises:
        Unavailable: It is not the commit that said `metadata`: Spark skipped that, or another
            process committed. What is in the table is valid; the job can run again.
    """
    if root.remote is not None:
        root.remote.fetch(table)
    newest = DeltaTable(str(root.table(table))).history(1)[0]
    if newest.get("userMetadata") != metadata:
        message = f"version {newest.get('version')} of {table} is not this job's: run it again"
        raise Unavailable(message)


def append_once(
    rows: DataFrame,
    root: Root,
    table: str,
    *,
    app: str,
    version: int,
    job: str,
    options: Mapping[str, int] | None = None,
) -> None:
    """Append to a table in one Delta commit; Spark skips it if `app` has made `version` before.

    `options` are more of Spark's options for what is written.

    Raises:
        Unavailable: The commit is not there afterwards.
    """
    metadata = commit_metadata(job, version)
    (
        rows.write.format("delta")
        .mode("append")
        .option("txnAppId", app)
        .option("txnVersion", version)
        .option("userMetadata", metadata)
        .options(**(options or {}))
        .save(root.spark_location(table))
    )
    check_is_newest(root, table, metadata)


def fold_all(
    spark: SparkSession, root: Root, last: int, limits: Limits, at: Failpoint
) -> list[int]:
    """Fold what `history` has after P, up to `last`; the number of entries changed by each step.

    Raises:
        CorruptData, Unavailable: As `fold`; the steps before are done.
    """
    changed: list[int] = []
    meta = read_meta(root)
    for step in steps(meta.position, last, limits):
        at("fold started")
        changed.append(fold(spark, root, meta, step))
        meta = read_meta(root)
        at("folded")
    return changed


def fold(spark: SparkSession, root: Root, meta: Meta, step: PositionRange) -> int:
    """Fold one step of `history` into `state`; returns the number of entries changed.

    Raises:
        CorruptData: A position is missing in `history`, or there twice.
        Unavailable: The commit is not there afterwards.
    """
    metadata = commit_metadata("compact", step.last)
    with ExitStack() as kept:
        tail_of(spark, root, step).createOrReplaceTempView(TAIL_VIEW)
        kept.callback(spark.catalog.dropTempView, TAIL_VIEW)
        new_meta, contents = _new_meta(spark.table(TAIL_VIEW), meta, step)
        parts = {file.partition for file in snapshot(root.state)}
        contents = contents._replace(
            has_staged=contents.has_staged or "staged" in parts, has_deliveries="delivery" in parts
        )
        changes = kept.enter_context(_kept(changes_of(spark, root, contents)))
        touched = touched_by(changes)
        changes.unionByName(_meta_row(changes, meta, new_meta)).createOrReplaceTempView(
            _CHANGES_VIEW
        )
        kept.callback(spark.catalog.dropTempView, _CHANGES_VIEW)
        target = target_condition({"meta", *touched.parts}, touched.blocks)
        with published_once(spark, "fold", step.last, metadata):
            spark.sql(_merge(root, target))
    check_is_newest(root, "state", metadata)
    _log.info("folded up to position %d: %d entries changed", step.last, touched.row_count)
    return touched.row_count


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Compute a frame once, for as long as the block runs.

    As a local checkpoint, which Delta takes as the source of a MERGE without writing it down a
    second time; `persist` it refuses there.
    """
    kept = frame.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK)
    try:
        yield kept
    finally:
        kept._jdf.queryExecution().analyzed().rdd().unpersist(False)  # noqa: SLF001, FBT003


def _new_meta(tail: DataFrame, old: Meta, step: PositionRange) -> tuple[Meta, StepContents]:
    """The meta row after a step, and what its records are about.

    Raises:
        CorruptData: A position is missing, or there twice.
    """

    def last(column: str, kind: str) -> Column:
        return F.max_by(column, F.when(F.col("kind") == kind, F.col("position")))

    counted = tail.agg(
        F.count("*").alias("row_count"),
        F.sum("position").alias("total"),
        F.max("position").alias("last"),
        F.max_by("segment", "position").alias("segment"),
        last("epoch", "opened").alias("epoch"),
        last("message_id", "ids_reserved").alias("message_id"),
        F.collect_set("kind").alias("kinds"),
        F.count("request").alias("request_count"),
        F.count(F.when(F.col("kind") == "content", F.col("body_bytes"))).alias("header_count"),
    ).first()
    assert counted is not None
    contents = StepContents(
        frozenset(counted.kinds),
        has_requests=counted.request_count > 0,
        has_staged=counted.header_count > 0,
    )
    length = step.last - step.after
    total = length * (step.after + step.last + 1) // 2
    if (counted.row_count, counted.total, counted.last) != (length, total, step.last):
        message = (
            f"history has {counted.row_count} records after position {step.after} up to"
            f" {step.last}, not {length}: restore it from a replica, or call the operator"
        )
        raise CorruptData(message)
    meta = Meta(
        step.last,
        old.epoch if counted.epoch is None else counted.epoch,
        counted.segment,
        old.message_id if counted.message_id is None else counted.message_id,
        old.history_start,
    )
    return meta, contents


def _meta_row(like: DataFrame, old: Meta, new: Meta) -> DataFrame:
    """The change of meta: one row in the columns of `like`. Without rows that Python would feed."""
    values: dict[str, object] = {name: getattr(new, name) for name in Meta.__dataclass_fields__}
    values |= {"part": "meta", "change": "put", "was_there": True, "match_id": old.message_id}
    columns = [
        F.lit(values.get(field.name)).cast(field.dataType).alias(field.name)
        for field in like.schema
    ]
    return like.sparkSession.range(1).select(*columns)


def _merge(root: Root, target: str) -> str:
    columns = [f"`{name}`" for name in STATE.names]
    return statement(
        "merge",
        table_names(root)
        | {
            "changes": _CHANGES_VIEW,
            "target": target,
            "columns": ", ".join(columns),
            "values": ", ".join(f"s.{name}" for name in columns),
            "set": ", ".join(f"{name} = s.{name}" for name in columns),
        },
    )


@contextmanager
def published_once(spark: SparkSession, app: str, version: int, metadata: str) -> Iterator[None]:
    """Make one statement idempotent, and sign its commit.

    The source of the MERGE is computed already (`_kept`): Delta need not write it down again.

    While these are set, Spark silently skips every other commit of the session whose number is
    not higher: so one statement, and never without the `finally`.
    """
    names = (*_TXN, METADATA, _MATERIALIZE)
    values = (app, str(version), metadata, "none")
    with settings(spark, dict(zip(names, values, strict=True))):
        yield
