"""Sides of a comparison: a copy of a store's records, folded by the views' own SQL, and compared.

Two sides are compared by sums first: rows go into buckets by their key, and each bucket is counted
and hashed where its rows are read. Only buckets that differ are compared row by row; equal sides
cost one pass each and no shuffle of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sparkstore.core.fold import MemberState, State
from sparkstore.sql.queries import STEPS_OF_OTHERS, VIEWS
from sparkstore.tables.schema import ROW, STATE
from sparkstore.views.spark_tables import text

ENTRY_KEY = ("queue", "message_id")
ENTRY_VALUES = (
    "position",
    "at",
    "acquired_by",
    "delivery_count",
    "priority",
    "expires_at",
    "message_bytes",
    "detail",
)
WIRING_KEY = ("queue", "exchange", "binding_key")
WIRING_VALUES = ("detail",)
OTHER_KEY = ("part", "member", "message_id", "exchange", "binding_key")
OTHER_VALUES = ("position", "at", "request", "told")
REFUSED = "array_join(array_sort(json_object_keys(detail)), ' ')"
"""The column `told` of a member: which of its requests were refused."""

_BUCKETS = 256
_ENTRIES = pa.schema([STATE.field(name) for name in (*ENTRY_KEY, *ENTRY_VALUES)])
_OTHERS = pa.schema(
    [
        *(STATE.field(name) for name in (*OTHER_KEY, *OTHER_VALUES[:-1])),
        pa.field("told", pa.string()),
    ]
)
_WIRING = pa.schema([STATE.field(name) for name in (*WIRING_KEY, *WIRING_VALUES)])


@dataclass(frozen=True, slots=True)
class TableCopy:
    """A copy of a store: SQL names of its three tables, or of views that stand for them."""

    state: str
    history: str
    journal: str

    def names(self) -> dict[str, str]:
        """Values for the placeholders of the views' SQL."""
        return {"state": self.state, "history": self.history, "journal": self.journal}


def entries(spark: SparkSession, side: TableCopy) -> DataFrame:
    """Every entry, by the steps of the view `queues`; with its guard against gaps."""
    return spark.sql(text("reconcile_entries", VIEWS["queues"], side.names()))


def wiring(spark: SparkSession, side: TableCopy) -> DataFrame:
    """Every queue, exchange, binding and configured object, by the steps of the view `bindings`."""
    return spark.sql(text("reconcile_wiring", VIEWS["bindings"], side.names()))


def others(spark: SparkSession, side: TableCopy) -> DataFrame:
    """Every member, staged message, link, delivery, by `OTHER_KEY`; `detail` is a member's only."""
    values = side.names() | {"refused": REFUSED}
    return spark.sql(text("reconcile_others", STEPS_OF_OTHERS, values))


def frames_of(spark: SparkSession, state: State) -> tuple[DataFrame, DataFrame, DataFrame]:
    """Entries, wiring, and the others of a state in memory."""
    entry_rows = [
        (name, message_id, *(getattr(entry, field) for field in ENTRY_VALUES))
        for name, queue in state.queues.items()
        for message_id, entry in queue.entries.items()
    ]
    wiring_rows: list[tuple[str | None, ...]] = [
        *((name, None, None, queue.detail) for name, queue in state.queues.items()),
        *((None, name, None, detail) for name, detail in state.exchanges.items()),
        *((key.queue, key.exchange, key.binding_key, d) for key, d in state.bindings.items()),
        *((None, *key, detail) for key, detail in state.configured.items()),
        *((None, None, key, detail) for key, detail in state.prepared.items()),
    ]
    return (
        spark.createDataFrame(_table(entry_rows, _ENTRIES)),
        spark.createDataFrame(_table(wiring_rows, _WIRING)),
        spark.createDataFrame(_table(_other_rows(state), _OTHERS)),
    )


def _other_rows(state: State) -> list[tuple[object, ...]]:
    """The columns of `OTHER_KEY` and `OTHER_VALUES`."""
    return [
        *(
            ("member", name, None, None, None, None, None, member.last_request, _refused(member))
            for name, member in state.members.items()
        ),
        *(
            ("staged", None, message_id, None, None, position, None, None, None)
            for message_id, position in state.staged.items()
        ),
        *(
            ("link", None, None, name, None, link.position, link.detached_at, None, link.detail)
            for name, link in state.links.items()
        ),
        *(
            ("delivery", None, None, name, tag.hex(), None, None, None, state_text)
            for name, link in state.links.items()
            for tag, state_text in link.unsettled.items()
        ),
    ]


def _refused(member: MemberState) -> str:
    """Return a member's refused requests in the form of the SQL text `REFUSED`."""
    return " ".join(sorted(map(str, member.refusals)))


def _table(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [
        pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def digest(names: Sequence[str]) -> Column:
    """A hash of some columns, nulls told from values: Spark's own skips a null."""
    parts = [part for name in names for part in (_hashable(name), F.col(name).isNull())]
    return F.xxhash64(*parts) if parts else F.lit(0).cast("bigint")


def _hashable(name: str) -> Column:
    return F.map_entries(name) if name == "properties" else F.col(name)


def record_digest() -> Column:
    """A hash of all that a row says; not of its segment, which is only where it lies."""
    return digest([name for name in ROW.names if name != "segment"])


def by_key(keys: Sequence[str]) -> Column:
    """Bucket of a row by the hash of its key."""
    return F.pmod(digest(keys), F.lit(_BUCKETS))


def by_position(first: int, last: int) -> Column:
    """Bucket of a row by its position: neighbours together, so that few files are read again."""
    width = max(1, (last - first) // _BUCKETS + 1)
    return F.expr(f"(position - {first}) div {width}")


def differing(
    left: DataFrame,
    right: DataFrame,
    keys: Sequence[str],
    values: Sequence[str],
    bucket: Column,
) -> DataFrame | None:
    """Keys that are not on both sides, once, with the same values; None if there is none.

    Returns:
        The key, and per side `…_copies` (0: not there) and `…_values`.
    """
    row_digest = digest([*keys, *values])
    sums = [_sums(side, row_digest, bucket) for side in (left, right)]
    buckets = [at for at in {*sums[0], *sums[1]} if sums[0].get(at) != sums[1].get(at)]
    if not buckets:
        return None
    is_in = bucket.isin(buckets)
    sides = [
        _by_key(side.where(is_in), name, keys, values)
        for side, name in ((left, "left"), (right, "right"))
    ]
    on = [sides[0][f"left_{key}"].eqNullSafe(sides[1][f"right_{key}"]) for key in keys]
    same = "left_copies = 1 AND right_copies = 1 AND left_hash = right_hash"
    both = sides[0].join(sides[1], on, "full_outer")
    return both.where(f"NOT coalesce({same}, false)").select(
        *(F.coalesce(f"left_{key}", f"right_{key}").alias(key) for key in keys),
        *(F.coalesce(f"{name}_copies", F.lit(0)).alias(f"{name}_copies") for name in _SIDES),
        *(f"{name}_values" for name in _SIDES),
    )


_SIDES = ("left", "right")


def _sums(frame: DataFrame, row_digest: Column, bucket: Column) -> dict[int, tuple[int, int]]:
    """Rows and hash of each bucket: at most as many as there are buckets.

    The count is what notices a row that is there twice: it takes itself out of the hash.
    """
    rows = frame.groupBy(bucket.alias("bucket")).agg(
        F.count("*").alias("row_count"), F.bit_xor(row_digest).alias("hash")
    )
    return {row["bucket"]: (row["row_count"], row["hash"]) for row in rows.collect()}


def _by_key(frame: DataFrame, name: str, keys: Sequence[str], values: Sequence[str]) -> DataFrame:
    packed = F.to_json(F.struct(*values), _WHOLE_TIMES) if values else F.lit("{}")
    return frame.groupBy(*(F.col(key).alias(f"{name}_{key}") for key in keys)).agg(
        F.count("*").alias(f"{name}_copies"),
        F.max(digest([*keys, *values])).alias(f"{name}_hash"),
        F.max(packed).alias(f"{name}_values"),
    )


_WHOLE_TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
