"""Check the records and the tables that hold them, one function for each invariant.

Each looks at one moment (`inspection`), asks Spark, and gives findings; none changes anything. All
of them decide on narrow columns, by sums first; what they bring to the driver is capped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, Row

from sparkstore.errors import CorruptData
from sparkstore.reconcile.catalogue import (
    BY_A_START,
    CONTENT_IS_THERE,
    EPOCHS_RISE,
    GONE,
    LAYERS_AGREE,
    LOST_FILE,
    MARKS_ARE_NOT_AHEAD,
    MESSAGE_IDS_WERE_RESERVED,
    POSITIONS_ARE_GAPLESS,
    REQUESTS_RISE,
    STAGED_CONTENT_IS_USED,
    TABLES_ARE_WHOLE,
    TRANSACTIONS_ARE_WHOLE,
)
from sparkstore.reconcile.findings import MAX_SHOWN, NONE, Finding, capped, finding_of
from sparkstore.reconcile.inspection import Look, digests
from sparkstore.reconcile.table_copies import by_position, differing
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.healing import check as first_broken
from sparkstore.tables.marks import read_marks
from sparkstore.tables.root import TABLES, Root

Check = Callable[[Look], list[Finding]]


def listed(frame: DataFrame | None, finding: Callable[[Row], Finding]) -> list[Finding]:
    """A finding for each row, the first few and a count; none for no frame."""
    if frame is None:
        return []
    rows = frame.limit(MAX_SHOWN + 1).collect()
    count = len(rows) if len(rows) <= MAX_SHOWN else frame.count()
    return capped([finding(row) for row in rows], count)


def tables_open(root: Root) -> list[Finding]:
    """Tables that do not open, or end before their mark: no look is possible before that is mended.

    Returns:
        Findings of `TABLES_ARE_WHOLE` and `MARKS_ARE_NOT_AHEAD`.
    """
    findings: list[Finding] = []
    if root.remote is not None:  # the logs were read, and in a bucket there are no marks
        return findings
    marked = read_marks(root).versions
    for table in TABLES:
        newest = newest_version(root.table(table))
        if newest < marked.get(table, -1):
            evidence = {"marked": marked[table], "newest": newest}
            findings.append(finding_of(MARKS_ARE_NOT_AHEAD, table, evidence))
            continue
        try:
            first = first_broken(root, table)
        except CorruptData as reason:
            lost = finding_of(TABLES_ARE_WHOLE, table, {"reason": str(reason)}, GONE)
            findings.append(replace(lost, repair=NONE))
            continue
        if first is not None:
            advice = BY_A_START if table == "journal" else None
            evidence = {"first_broken_version": first}
            findings.append(finding_of(TABLES_ARE_WHOLE, table, evidence, advice))
    return findings


def tables_are_whole(seen: Look) -> list[Finding]:
    """Findings of `TABLES_ARE_WHOLE`: a data file that is lost, or is not what its table says."""
    findings = []
    for table, lost in seen.lost.items():
        files = [
            finding_of(TABLES_ARE_WHOLE, f"{table}/{path}", {"reason": why}, LOST_FILE[table])
            for path, why in sorted(lost.items())
        ]
        findings += capped(files, len(files))
    return findings


def positions_are_gapless(seen: Look) -> list[Finding]:
    """Find positions that are missing, or are there more than once."""
    spark = seen.names.spark
    records = spark.table(seen.records).where(f"position >= {seen.start}").select("position")
    wanted = spark.range(seen.start, seen.end + 1).withColumnRenamed("id", "position")
    wrong = differing(
        records, wanted, ["position"], [], by_position(seen.start, max(seen.start, seen.end))
    )
    if wrong is None:
        return []
    islands = seen.rows("reconcile_islands", positions=seen.names.add("positions", wrong))

    def finding(row: Row) -> Finding:
        where = "history" if row.first <= seen.history_end else "journal"
        evidence = {"first": row["first"], "last": row["last"], "in": where, "what": row.what}
        subject = f"positions {row['first']} to {row['last']} are {row.what}"
        advice = None if where == "history" else BY_A_START
        return finding_of(POSITIONS_ARE_GAPLESS, subject, evidence, advice)

    return listed(islands, finding)


def epochs_rise(seen: Look) -> list[Finding]:
    """Find epochs that overlap, or do not begin with their `opened` record."""
    return listed(
        seen.rows("reconcile_epochs"),
        lambda row: finding_of(EPOCHS_RISE, f"epoch {row.epoch}", evidence_of(row)),
    )


def transactions_are_whole(seen: Look) -> list[Finding]:
    """Find transactions of which only a part counts, or whose records are not in a row."""

    def finding(row: Row) -> Finding:
        subject = f"transaction {row.transaction} of epoch {row.epoch}"
        return finding_of(TRANSACTIONS_ARE_WHOLE, subject, evidence_of(row))

    return listed(seen.rows("reconcile_transactions"), finding)


def requests_rise(seen: Look) -> list[Finding]:
    """Find members whose requests were decided twice, or out of order."""
    return listed(
        seen.rows("reconcile_requests"),
        lambda row: finding_of(REQUESTS_RISE, f"member {row.member!r}", evidence_of(row)),
    )


def message_ids_were_reserved(seen: Look) -> list[Finding]:
    """Findings of `MESSAGE_IDS_WERE_RESERVED`: one, about the largest id."""
    (row,) = seen.rows("reconcile_ids", entries=seen.entries).collect()
    if row.used < row.next:
        return []
    return [finding_of(MESSAGE_IDS_WERE_RESERVED, f"message {row.used}", evidence_of(row))]


def layers_agree(seen: Look) -> list[Finding]:
    """Find positions at which history and the journal have different records."""
    spark = seen.names.spark
    journal = spark.table(seen.counting).where(f"position <= {seen.history_end}")
    ends = journal.selectExpr("min(position) AS first").collect()[0]
    if ends["first"] is None:
        return []
    first = max(ends["first"], seen.start)
    in_journal = journal.where(f"position >= {first}").select("position", "digest")
    history = digests(spark, seen.side.history).where(f"position >= {first}")
    wrong = differing(
        history, in_journal, ["position"], ["digest"], by_position(first, seen.history_end)
    )
    if wrong is not None:  # what one of them lacks, or history repeats, is told elsewhere
        wrong = wrong.where("(left_copies = 1 AND right_copies = 1) OR right_copies > 1")
    return listed(
        wrong, lambda row: finding_of(LAYERS_AGREE, f"position {row.position}", evidence_of(row))
    )


def content_is_there(seen: Look) -> list[Finding]:
    """Find messages whose content is lost."""
    return listed(
        seen.lost_content().orderBy("message_id"),
        lambda row: finding_of(CONTENT_IS_THERE, f"message {row.message_id}", evidence_of(row)),
    )


def staged_content_is_used(seen: Look) -> list[Finding]:
    """Find staged content that no message can use any more."""
    newest = seen.names.spark.table(seen.records).selectExpr("max(epoch) AS epoch").collect()[0]
    ended = (newest.epoch or 0) + (0 if seen.is_written else 1)
    return listed(
        seen.rows("reconcile_orphans", ended=ended),
        lambda row: finding_of(
            STAGED_CONTENT_IS_USED, f"message {row.message_id}", evidence_of(row)
        ),
    )


def evidence_of(row: Row) -> Mapping[str, Any]:
    """Return the fields of a row that have a value, as evidence."""
    return {name: value for name, value in row.asDict().items() if value is not None}
