"""Write the findings of reconcile: rows of `<root>/findings`, a Delta table for jobs alone.

run       string     one run of reconcile: when it began (UTC), and a random end
found_at  timestamp  UTC µs
check     string     which invariant; the names are in `catalogue`
severity  string     info | warning | error; an error left makes the job exit with 1
subject   string     what it is about: a table, a position, a message, an entry, a queue
evidence  string     JSON object: what was counted or compared
repair    string     none: nothing to do by hand; proposed: `advice` says what; done
advice    string     what to do next, or what the repair did
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from sparkstore.compaction.state_fold import check_is_newest, commit_metadata
from sparkstore.errors import CorruptData
from sparkstore.reconcile.catalogue import INFO, Invariant
from sparkstore.tables.delta_files import newest_version, versions
from sparkstore.tables.healing import heal
from sparkstore.tables.marks import lower_mark, mark_durable
from sparkstore.tables.root import Root

_log = logging.getLogger(__name__)

TABLE = "findings"
NONE, PROPOSED, DONE = "none", "proposed", "done"

MAX_SHOWN = 20
"""Findings of one check in one run; the last one says how many more there are."""

FINDINGS = pa.schema(
    [
        pa.field("run", pa.string()),
        pa.field("found_at", pa.timestamp("us", tz="UTC")),
        pa.field("check", pa.string()),
        pa.field("severity", pa.string()),
        pa.field("subject", pa.string()),
        pa.field("evidence", pa.string()),
        pa.field("repair", pa.string()),
        pa.field("advice", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding: one thing that is not as it should be. Its fields are columns of the table."""

    check: str
    severity: str
    subject: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    advice: str = ""
    repair: str = NONE

    @property
    def key(self) -> tuple[str, str]:
        """Return the key by which another look recognises the same finding."""
        return self.check, self.subject

    def as_row(self) -> dict[str, Any]:
        """Return the columns that this finding knows itself."""
        return {
            "check": self.check,
            "severity": self.severity,
            "subject": self.subject,
            "evidence": json.dumps(dict(self.evidence), default=str),
            "repair": self.repair,
            "advice": self.advice,
        }


def finding_of(
    broken: Invariant, subject: str, evidence: Mapping[str, Any], advice: str | None = None
) -> Finding:
    """A finding about an invariant that does not hold; `advice` if it knows better than that."""
    return Finding(
        broken.name,
        broken.severity,
        subject,
        evidence,
        broken.advice if advice is None else advice,
        PROPOSED if broken.is_repaired else NONE,
    )


def capped(findings: Sequence[Finding], count: int) -> list[Finding]:
    """Return at most `MAX_SHOWN` findings of one check; the last counts those left out.

    Args:
        findings: Some of them, at least `MAX_SHOWN` if there are so many.
        count: How many there are.
    """
    if count <= MAX_SHOWN:
        return list(findings)
    shown = list(findings[: MAX_SHOWN - 1])
    last = findings[MAX_SHOWN - 1]
    more = Finding(
        last.check,
        last.severity,
        f"{count - len(shown)} more",
        {"count": count},
        last.advice,
        last.repair,
    )
    return [*shown, more]


def write(spark: SparkSession, root: Root, run: str, findings: Sequence[Finding]) -> None:
    """Append the findings of one run; the caller holds the jobs' lease.

    A run that found nothing writes one row that says so if the run before it had findings. So the
    newest run in the table tells how things are, and a store where all is well gets no commit.

    Raises:
        Unavailable: The commit is not there afterwards.
        OSError: No room, or no permission.
    """
    _heal(root)
    rows = [finding.as_row() for finding in findings]
    if not rows:
        if _newest_is_clean(root.path / TABLE):
            return
        rows = [Finding("all", INFO, "root", {}, "nothing is wrong").as_row()]
    now = datetime.now(UTC)
    table = pa.Table.from_pylist([row | {"run": run, "found_at": now} for row in rows], FINDINGS)
    metadata = commit_metadata("reconcile", 0)
    (
        spark.createDataFrame(table)
        .coalesce(1)
        .write.format("delta")
        .mode("append")
        .option("userMetadata", metadata)
        .save(str(root.path / TABLE))
    )
    check_is_newest(root, TABLE, metadata)
    mark_durable(root, {TABLE: newest_version(root.path / TABLE)})


def _heal(root: Root) -> None:
    """Let the table open: what a power cut broke is set aside, if need be all of it.

    Nothing is decided by what it says, so it may not keep a run from saying what is wrong now.
    """
    if not versions(root.path / TABLE):
        return
    try:
        heal(root, [TABLE])
        DeltaTable(str(root.path / TABLE))
    except (CorruptData, DeltaError) as reason:
        aside = root.path / "set-aside" / TABLE / uuid4().hex
        _log.warning("%s is broken, it is now %s: %s", root.path / TABLE, aside, reason)
        aside.parent.mkdir(parents=True, exist_ok=True)
        (root.path / TABLE).rename(aside)
        lower_mark(root, TABLE, -1)


def _newest_is_clean(table: Path) -> bool:
    if not versions(table):
        return True
    rows = DeltaTable(str(table)).to_pyarrow_table(columns=["run", "check"]).to_pylist()
    newest = max((row["run"] for row in rows), default="")
    return all(row["check"] == "all" for row in rows if row["run"] == newest)
