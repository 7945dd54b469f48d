"""A replica says what its primary says: record by record, and as the views fold them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pyspark.sql import DataFrame, Row

from sparkstore.reconcile.catalogue import INFO, REPLICA_AGREES, REPLICA_FOLDS_AGREE
from sparkstore.reconcile.findings import Finding, finding_of
from sparkstore.reconcile.fold_checks import Folded, compared, state_is_the_fold_of_history
from sparkstore.reconcile.inspection import Look, digests
from sparkstore.reconcile.record_checks import (
    evidence_of,
    listed,
    positions_are_gapless,
    tables_are_whole,
)
from sparkstore.reconcile.table_copies import (
    TableCopy,
    by_position,
    differing,
    entries,
    others,
    wiring,
)

_OWN = (tables_are_whole, positions_are_gapless, state_is_the_fold_of_history)


def checks_of_replica(seen: Look, replica: Look) -> list[Finding]:
    """Findings about a replica; both roots under their jobs' leases."""
    return [*_own(replica), *_records(seen, replica), *_folds(seen, replica)]


def _own(replica: Look) -> Iterator[Finding]:
    """Check the invariants of any root on a replica, which has no store that would notice."""
    for check in _OWN:
        for finding in check(replica):
            yield replace(
                finding,
                subject=f"replica {replica.root.path.name}: {finding.subject}",
                advice=f"run reconcile --repair on {replica.root.path}, or replicate anew",
            )


def _records(seen: Look, replica: Look) -> list[Finding]:
    """Check that both have the same record at every common position."""
    first, last = max(seen.start, replica.start), min(seen.end, replica.end)
    ends = []
    if replica.end > seen.end:
        evidence = {"replica": replica.end, "primary": seen.end}
        advice = "the primary lost records: promote the replica, or make it anew"
        ends.append(finding_of(REPLICA_AGREES, "end", evidence, advice))
    if last < first:
        return ends
    wrong = differing(
        _part(_records_of(replica), first, last),
        _part(_records_of(seen), first, last),
        ["position"],
        ["digest"],
        by_position(first, last),
    )
    if wrong is not None:  # what one of them lacks is told by its own positions_are_gapless
        wrong = wrong.where("left_copies > 0 AND right_copies > 0").orderBy("position")

    def finding(row: Row) -> Finding:
        return finding_of(REPLICA_AGREES, f"position {row.position}", evidence_of(row))

    return [*ends, *listed(wrong, finding)]


def _records_of(seen: Look) -> DataFrame:
    spark = seen.names.spark
    journal = spark.table(seen.counting).where(f"position > {seen.history_end}")
    return digests(spark, seen.side.history).union(journal.select("position", "digest"))


def _part(records: DataFrame, first: int, last: int) -> DataFrame:
    return records.where(f"position >= {first} AND position <= {last}")


def _folds(seen: Look, replica: Look) -> list[Finding]:
    """Check that both roots fold to the same wiring, entries and the others, where both end."""
    last = min(seen.end, replica.end)
    if last < max(seen.meta.position, replica.meta.position) or seen.refusal or replica.refusal:
        evidence = {"replica": replica.end, "state_position": seen.meta.position}
        advice = "not compared: replicate first; the records were"
        return [Finding(REPLICA_FOLDS_AGREE.name, INFO, "position", evidence, advice)]
    ours, theirs = _folded(seen, last), _folded(replica, last)
    return compared(REPLICA_FOLDS_AGREE, theirs, ours)


def _folded(seen: Look, last: int) -> Folded:
    """Return the fold of the views at a position, P or later."""
    spark, names = seen.names.spark, seen.names
    if last == seen.end:
        return Folded(*(spark.table(name) for name in (seen.entries, seen.wiring, seen.others)))
    side = TableCopy(
        seen.side.state,
        names.add("history_at", spark.table(seen.side.history).where(f"position <= {last}")),
        names.add("journal_at", spark.table(seen.side.journal).where(f"position <= {last}")),
    )
    return Folded(entries(spark, side), wiring(spark, side), others(spark, side))
