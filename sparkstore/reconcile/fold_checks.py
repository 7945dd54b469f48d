"""Every way to fold the same records says the same: views, recovery, `state`, the replica.

The sides are compared entry by entry and wiring by wiring, at one position.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from sparkstore.compaction.state_fold import Meta
from sparkstore.reconcile.catalogue import (
    ACQUISITIONS_ARE_ALIVE,
    BINDINGS_JOIN_WHAT_IS_THERE,
    DELIVERIES_HAVE_LINKS,
    ENTRIES_HAVE_QUEUES,
    INFO,
    RECOVERY_AGREES,
    STATE_IS_THE_FOLD_OF_HISTORY,
    VIEWS_ANSWER,
    Invariant,
)
from sparkstore.reconcile.findings import Finding, finding_of
from sparkstore.reconcile.inspection import MAX_RECOVERED, Look, Names
from sparkstore.reconcile.record_checks import evidence_of, listed
from sparkstore.reconcile.table_copies import (
    ENTRY_KEY,
    ENTRY_VALUES,
    OTHER_KEY,
    OTHER_VALUES,
    REFUSED,
    WIRING_KEY,
    WIRING_VALUES,
    TableCopy,
    by_key,
    differing,
    entries,
    frames_of,
    others,
    wiring,
)
from sparkstore.tables.schema import STATE
from sparkstore.views.spark_tables import statement


class Folded(NamedTuple):
    """The result of a fold; `wiring` has every queue, exchange, binding and configured object."""

    entries: DataFrame
    wiring: DataFrame
    others: DataFrame


def compared(broken: Invariant, left: Folded, right: Folded) -> list[Finding]:
    """Findings about what is not the same on two sides: entries, wiring, and the others.

    Args:
        broken: What does not hold if they differ.
        left: What is there.
        right: What should be there.
    """

    def entry(row: Row) -> Finding:
        subject = f"message {row.message_id} on {row.queue!r}"
        return finding_of(broken, subject, _both(row))

    def wired(row: Row) -> Finding:
        what = " ".join(repr(row[name]) for name in WIRING_KEY if row[name] is not None)
        return finding_of(broken, f"wiring {what}", _both(row))

    def other(row: Row) -> Finding:
        subject = {
            "member": f"member {row.member!r}",
            "staged": f"staged message {row.message_id}",
            "link": f"link {row.exchange}",
            "delivery": f"delivery {row.binding_key} on link {row.exchange}",
        }[row.part]
        return finding_of(broken, subject, _both(row))

    return [
        *listed(_differing(left.entries, right.entries, ENTRY_KEY, ENTRY_VALUES), entry),
        *listed(_differing(left.wiring, right.wiring, WIRING_KEY, WIRING_VALUES), wired),
        *listed(_differing(left.others, right.others, OTHER_KEY, OTHER_VALUES), other),
    ]


def _differing(
    left: DataFrame, right: DataFrame, keys: tuple[str, ...], values: tuple[str, ...]
) -> DataFrame | None:
    rows = differing(left, right, keys, values, by_key(keys))
    return rows if rows is None else rows.orderBy(*keys)


def _both(row: Row) -> dict[str, object]:
    return {
        "found": row.left_values,
        "expected": row.right_values,
        "copies": [row.left_copies, row.right_copies],
    }


def views_answer(seen: Look) -> list[Finding]:
    """Findings of `VIEWS_ANSWER`: one, with the reason."""
    if not seen.refusal:
        return []
    return [finding_of(VIEWS_ANSWER, "views", {"reason": seen.refusal})]


def recovery_agrees(seen: Look) -> list[Finding]:
    """Find where recovery would start a broker with something other than the views show."""
    if seen.recovery_failure:
        evidence = {"reason": seen.recovery_failure}
        advice = "a store cannot start: repair what else is found first"
        return [finding_of(RECOVERY_AGREES, "recovery", evidence, advice)]
    if seen.recovered is None:
        evidence = {"rows": f"more than {MAX_RECOVERED}"}
        advice = "not compared: too much for this process; the other folds were"
        return [Finding(RECOVERY_AGREES.name, INFO, "recovery", evidence, advice)]
    spark = seen.names.spark
    shown = Folded(*(spark.table(name) for name in (seen.entries, seen.wiring, seen.others)))
    return compared(RECOVERY_AGREES, shown, Folded(*frames_of(spark, seen.recovered.state)))


def entries_have_queues(seen: Look) -> list[Finding]:
    """Find entries on queues that do not exist."""
    return listed(
        seen.rows("reconcile_unqueued", entries=seen.entries, wiring=seen.wiring),
        lambda row: finding_of(
            ENTRIES_HAVE_QUEUES, f"queue {row.queue!r}: {row.what}", evidence_of(row)
        ),
    )


def bindings_join_what_is_there(seen: Look) -> list[Finding]:
    """Find bindings of queues or exchanges that do not exist."""

    def finding(row: Row) -> Finding:
        subject = f"binding {row.exchange!r} {row.queue!r} {row.binding_key!r}"
        return finding_of(BINDINGS_JOIN_WHAT_IS_THERE, subject, evidence_of(row))

    return listed(seen.rows("reconcile_unjoined", wiring=seen.wiring), finding)


def deliveries_have_links(seen: Look) -> list[Finding]:
    """Find deliveries of links that do not exist."""
    return listed(
        seen.rows("reconcile_unlinked", others=seen.others),
        lambda row: finding_of(DELIVERIES_HAVE_LINKS, f"link {row.link}", evidence_of(row)),
    )


def acquisitions_are_alive(seen: Look) -> list[Finding]:
    """Find entries whose holder cannot be alive, as no store serves the root."""
    if seen.is_written or seen.root.identity.role != "primary":
        return []
    held = seen.names.add("held", seen.held())
    return listed(
        seen.rows("reconcile_holders", held=held),
        lambda row: finding_of(ACQUISITIONS_ARE_ALIVE, f"holder {row.holder!r}", evidence_of(row)),
    )


def state_is_the_fold_of_history(seen: Look) -> list[Finding]:
    """Find where `state` differs from the fold of history up to the same position."""
    broken, spark = STATE_IS_THE_FOLD_OF_HISTORY, seen.names.spark
    if seen.history_end < seen.meta.position:
        evidence = {"history_end": seen.history_end, "state_position": seen.meta.position}
        advice = "history lost its end: run compact, it brings it again from the journal"
        return [finding_of(broken, "history", evidence, advice)]
    stored = spark.table(seen.side.state)
    actual = Folded(
        stored.where("part = 'entry'"),
        stored.where("part = 'wiring'"),
        stored.where("part IN ('member', 'staged', 'link', 'delivery')").withColumn(
            "told", F.expr(f"IF(part = 'member', {REFUSED}, detail)")
        ),
    )
    side = history_side(seen.names, seen.side, seen.meta, seen.meta.position)
    # Kept: what differs is looked for by the same rows, and the plan of a fold takes seconds.
    folds = (entries(spark, side), wiring(spark, side), others(spark, side))
    kept = [seen.names.keep("of_history", fold) for fold in folds]
    expected = Folded(*(spark.table(name) for name in kept))
    return [*_meta(seen), *compared(broken, actual, expected)]


def _meta(seen: Look) -> list[Finding]:
    rows = [
        row.asDict()
        for row in seen.names.spark.table(seen.side.state).where("part = 'meta'").limit(2).collect()
    ]
    if not rows:  # before the first fold; if it was lost, what it says is missed by all folds
        return []
    up_to = seen.rows("reconcile_meta", position=seen.meta.position).collect()[0].asDict()
    expected = {name: value for name, value in up_to.items() if value is not None}
    stored = {name: rows[0][name] if len(rows) == 1 else None for name in expected}
    if stored == expected:
        return []
    evidence = {"found": stored, "expected": expected, "copies": len(rows)}
    return [finding_of(STATE_IS_THE_FOLD_OF_HISTORY, "meta", evidence)]


def history_side(names: Names, side: TableCopy, meta: Meta, last: int) -> TableCopy:
    """A side that is folded from history alone, as far as history is gapless, up to `last`."""
    spark, start = names.spark, meta.history_start
    base = spark.sql(statement("reconcile_base", {"state": side.state, "start": str(start)}))
    meta_row = spark.range(1).select(
        *(
            F.lit({"part": "meta", "position": start - 1, "epoch": 0}.get(name))
            .cast(base.schema[name].dataType)
            .alias(name)
            for name in STATE.names
        )
    )
    rows = spark.table(side.history).where(f"position >= {start} AND position <= {last}")
    return TableCopy(
        names.add("base", base.select(*STATE.names).unionByName(meta_row)),
        names.add("history_part", rows),
        names.add("no_journal", spark.table(side.history).where("false")),
    )
