"""What must be true of the records and of the tables that hold them, one function a check.

Each looks at one moment (`inspection`), asks Spark, and gives findings; none changes anything. All
of them decide on narrow columns, by sums first; what they bring to the driver is capped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame, Row

from sparkstore.errors import CorruptData
from sparkstore.reconcile.findings import ERROR, MAX_SHOWN, PROPOSED, WARNING, Finding, capped
from sparkstore.reconcile.inspection import Look, digests
from sparkstore.reconcile.sides import by_position, differing
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.healing import check as first_broken
from sparkstore.tables.marks import read_marks
from sparkstore.tables.root import TABLES, Root

Check = Callable[[Look], list[Finding]]

REPAIR = "run reconcile --repair"
_BY_A_START = "start the store: it heals its journal from the write-ahead log"


def listed(check: str, frame: DataFrame | None, finding: Callable[[Row], Finding]) -> list[Finding]:
    """A finding for each row, the first few and a count; none for no frame."""
    if frame is None:
        return []
    rows = frame.limit(MAX_SHOWN + 1).collect()
    count = len(rows) if len(rows) <= MAX_SHOWN else frame.count()
    found = [finding(row) for row in rows]
    assert all(one.check == check for one in found)
    return capped(found, count)


def tables_open(root: Root) -> list[Finding]:
    """Tables that do not open, or end before their mark: no look is possible before that is mended.

    Returns:
        Findings of `tables_are_whole` and `marks_are_not_ahead`.
    """
    found = []
    marked = read_marks(root).versions
    for table in TABLES:
        newest = newest_version(root.table(table))
        if newest < marked.get(table, -1):
            evidence = {"marked": marked[table], "newest": newest}
            found.append(Finding("marks_are_not_ahead", ERROR, table, evidence, _GONE))
            continue
        try:
            first = first_broken(root, table)
        except CorruptData as reason:
            found.append(Finding(_WHOLE, ERROR, table, {"reason": str(reason)}, _GONE))
            continue
        if first is not None:
            advice = _BY_A_START if table == "journal" else REPAIR
            evidence = {"first_broken_version": first}
            found.append(Finding(_WHOLE, ERROR, table, evidence, advice, PROPOSED))
    return found


_GONE = "restore the root from a replica or a backup: what was durable is gone"
_WHOLE = "tables_are_whole"
_LOST = {
    "journal": "if history has its positions, nothing is lost and the next trim drops it; else"
    " restore it from a backup or promote a replica",
    "history": REPAIR + ", with --replica if there is one",
    "state": REPAIR,
}


def tables_are_whole(seen: Look) -> list[Finding]:
    """Every data file that a table names is there, with its size and footer."""
    found = []
    for table, lost in seen.lost.items():
        files = [
            Finding(_WHOLE, ERROR, f"{table}/{path}", {"reason": why}, _LOST[table], PROPOSED)
            for path, why in sorted(lost.items())
        ]
        found += capped(files, len(files))
    return found


def positions_are_gapless(seen: Look) -> list[Finding]:
    """History, and the journal after its end, have every position once."""
    check, spark = "positions_are_gapless", seen.names.spark
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
        advice = REPAIR + ", with --replica if there is one" if where == "history" else _BY_A_START
        return Finding(check, ERROR, subject, evidence, advice, PROPOSED)

    return listed(check, islands, finding)


def epochs_rise(seen: Look) -> list[Finding]:
    """Each epoch is one run of positions that its `opened` begins, after the epoch before."""
    check = "epochs_rise"
    advice = "two writers wrote at once, or records were changed: restore the root from a replica"
    return listed(
        check,
        seen.rows("reconcile_epochs"),
        lambda row: Finding(check, ERROR, f"epoch {row.epoch}", told(row), advice),
    )


def transactions_are_whole(seen: Look) -> list[Finding]:
    """All records of a transaction count, in a row, or none does."""
    check = "transactions_are_whole"
    advice = "see the positions around it in message_history; restore the rest from a replica"

    def finding(row: Row) -> Finding:
        subject = f"transaction {row.transaction} of epoch {row.epoch}"
        return Finding(check, ERROR, subject, told(row), advice)

    return listed(check, seen.rows("reconcile_transactions"), finding)


def requests_rise(seen: Look) -> list[Finding]:
    """Each request of a member was decided once, and after those before it."""
    check = "requests_rise"
    advice = "a request was done twice: see the records around it, and undo one of them"
    return listed(
        check,
        seen.rows("reconcile_requests"),
        lambda row: Finding(check, ERROR, f"member {row.member!r}", told(row), advice),
    )


def message_ids_were_reserved(seen: Look) -> list[Finding]:
    """No message has an id that a store might give out again."""
    (row,) = seen.rows("reconcile_ids").collect()
    if row.used < row.next:
        return []
    subject = f"message {row.used}"
    advice = "stop the store: the next start would give this id to another message"
    return [Finding("message_ids_were_reserved", ERROR, subject, told(row), advice)]


def layers_agree(seen: Look) -> list[Finding]:
    """A position that is in history and in the journal is the same record in both."""
    check, spark = "layers_agree", seen.names.spark
    journal = spark.table(seen.counting).where(f"position <= {seen.history_end}")
    ends = journal.selectExpr("min(position) AS first").collect()[0]
    if ends["first"] is None:
        return []
    first = max(ends["first"], seen.start)
    there = journal.where(f"position >= {first}").select("position", "digest")
    history = digests(spark, seen.side.history).where(f"position >= {first}")
    wrong = differing(
        history, there, ["position"], ["digest"], by_position(first, seen.history_end)
    )
    if wrong is not None:  # what one of them lacks, or history repeats, is told elsewhere
        wrong = wrong.where("(left_copies = 1 AND right_copies = 1) OR right_copies > 1")
    advice = "one of the two was changed: compare with a replica, restore history from it"
    return listed(
        check,
        wrong,
        lambda row: Finding(check, ERROR, f"position {row.position}", told(row), advice),
    )


def content_is_there(seen: Look) -> list[Finding]:
    """Every message that is on a queue has its header, and as many bytes as its body has."""
    check = "content_is_there"
    advice = "restore its record from a backup, or give it up: reconcile --repair --purge-lost"
    return listed(
        check,
        seen.lost_content().orderBy("message_id"),
        lambda row: Finding(check, ERROR, f"message {row.message_id}", told(row), advice, PROPOSED),
    )


def staged_content_is_used(seen: Look) -> list[Finding]:
    """Content that came in pieces belongs to a message that was enqueued, or may be yet."""
    check = "staged_content_is_used"
    newest = seen.names.spark.table(seen.records).selectExpr("max(epoch) AS epoch").collect()[0]
    ended = (newest.epoch or 0) + (0 if seen.is_written else 1)
    advice = "nothing to do: it is on no queue, and goes when its segment passes history_days"
    return listed(
        check,
        seen.rows("reconcile_orphans", ended=ended),
        lambda row: Finding(check, WARNING, f"message {row.message_id}", told(row), advice),
    )


def told(row: Row) -> Mapping[str, Any]:
    """A row as evidence: what it says, without what it does not."""
    return {name: value for name, value in row.asDict().items() if value is not None}
