"""Compute the changes of one step's records in `state`, as rows for the MERGE (`state_fold`).

Nothing here writes: these are plans over the step's narrow rows, made of the steps in `sql/`.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sparkstore.compaction.plans.compact_plan import PositionRange
from sparkstore.core.link_records import LINK_KINDS
from sparkstore.tables.root import Root
from sparkstore.tables.schema import BLOCK_IDS, FOLD_COLUMNS, STATE
from sparkstore.views.spark_tables import table_names, text

TAIL_VIEW = "sparkstore_fold_tail"
"""Name of the temporary view that the records of a step are registered under."""

_NULL = "CAST(NULL AS BIGINT)"
_MADE_KINDS = {"created", "altered", "bound", "configured", "prepared"}
_ENDED_KINDS = {"destroyed", "unbound", "unconfigured", "committed", "rolled_back"}
_WIRING_KINDS = _MADE_KINDS | _ENDED_KINDS
_LINK_KINDS = {kind.column for kind in LINK_KINDS}


class StepContents(NamedTuple):
    """Facts about a step's records. Work that none of them needs is left out.

    Attributes:
        kinds: The kinds of the records, as the tables spell them.
        has_requests: Some of them name a request of a member.
        has_staged: Some of them bring the header of a staged message, or `state` has one that they
            may end.
        has_deliveries: `state` has deliveries that a link remembers: they may end some.
    """

    kinds: frozenset[str]
    has_requests: bool
    has_staged: bool
    has_deliveries: bool = False


def tail_of(spark: SparkSession, root: Root, step: PositionRange) -> DataFrame:
    """The records of a step, narrow."""
    columns = ", ".join(f"`{name}`" for name in [*FOLD_COLUMNS, "segment", "protocol"])
    history = table_names(root)["history"]
    return spark.sql(f"SELECT {columns} FROM {history}").where(  # noqa: S608
        f"position > {step.after} AND position <= {step.last}"
    )


def changes_of(spark: SparkSession, root: Root, step: StepContents) -> DataFrame:
    """Compute the rows for the MERGE, but for meta; `TAIL_VIEW` is the step's records."""
    kinds = step.kinds
    names = table_names(root) | {
        "tailview": TAIL_VIEW,
        "blocksize": str(BLOCK_IDS),
        "membersguard": "true",  # the records of a step were counted
    }
    steps = (
        "fold_tail",
        "changes",
        "destroyed_queues" if "destroyed" in kinds else "no_destroyed_queue",
    )
    folded = spark.sql(text("folded", steps, names)).where("change <> 'drop' OR was_there")
    changes = _shaped(folded.withColumn("part", F.lit("entry")))
    if "destroyed" in kinds:
        emptied = spark.sql(text("orphaned_entries", (*steps, "folded"), names))
        changes = changes.unionByName(
            _shaped(emptied.selectExpr("*", "'entry' part", "'drop' change", "true was_there"))
        )
    if kinds & _WIRING_KINDS:
        wired = spark.sql(text("wiring_changes", ("fold_tail", "changes"), names))
        changes = changes.unionByName(_shaped(wired.selectExpr("*", "'wiring' part")))
    if kinds & _LINK_KINDS:
        ended = "ended_deliveries" if step.has_deliveries else "no_ended_delivery"
        linked = text("link_changes", ("fold_tail", "touched_links", "delivered", ended), names)
        changes = changes.unionByName(_shaped(spark.sql(linked)))
    if step.has_requests:
        membered = spark.sql(
            text("member_state", ("fold_tail", "last_requests", "refusals"), names)
        )
        changes = changes.unionByName(
            _shaped(membered.selectExpr("*", "'member' part", "'put' change"))
        )
    if step.has_staged:
        staged = spark.sql(text("staged", ("fold_tail", "staged_content"), names))
        content = staged.selectExpr("*", "'staged' part")
        changes = changes.unionByName(_shaped(content, has_block=False))
    return changes


def _shaped(frame: DataFrame, *, has_block: bool = True) -> DataFrame:
    """The columns of `state`, null where `frame` has none, and what the MERGE decides by."""
    types = {"string": "string", "int64": "bigint", "int32": "int"}
    has_id = "message_id" in frame.columns
    computed = {
        "block": F.expr(f"message_id div {BLOCK_IDS}" if has_id and has_block else _NULL),
        "was_there": F.expr("was_there" if "was_there" in frame.columns else "false"),
        "match_id": F.expr("message_id" if has_id else _NULL),
    }
    columns = [
        F.col(field.name)
        if field.name in frame.columns
        else F.lit(None).cast(types.get(str(field.type), "timestamp")).alias(field.name)
        for field in STATE
        if field.name not in computed
    ]
    named = [column.alias(name) for name, column in computed.items()]
    return frame.select(*columns, "change", *named)


class Touched(NamedTuple):
    """Rows that change; the parts they are in; blocks that may hold what they change."""

    row_count: int
    parts: set[str]
    blocks: set[int]


def touched_by(changes: DataFrame) -> Touched:
    """Bring one row for each block of a step to the driver: these are few, as ids rise."""
    rows = (
        changes.groupBy("part", "block")
        .agg(F.count("*").alias("row_count"), F.max("was_there").alias("was_there"))
        .collect()
    )
    return Touched(
        sum(row["row_count"] for row in rows),
        {row["part"] for row in rows} - {"entry"},
        {row["block"] for row in rows if row["part"] == "entry" and row["was_there"]},
    )
