"""`<root>/job_runs`: a row for each run of a job, a Delta table that SQL can ask.

    run_id, job, began_at, seconds, outcome (`done`, `failed`, or what the report says),
    figures (JSON: what the job's report has beyond these), error

It is a log and no more: nothing is decided by what it says, a row that cannot be written is a
warning. A table that is broken is set aside and begun anew.

Who commits: only deltalake (ARCHITECTURE: Rule 2), and only the holder of `job_runs.lock`, which a
run takes for the milliseconds of its row. Not the jobs' lease: a run has released it before its
seconds are known, and a run that failed may never have had it. The kernel lets go of the lock when
a process ends; a row is one Delta commit, so a kill leaves it whole or not at all. After a power
cut the end of the table is healed and marked as that of any other (`healing`, `marks`).
"""

from __future__ import annotations

import fcntl
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, write_deltalake
from deltalake.exceptions import DeltaError

from sparkstore.errors import CorruptData
from sparkstore.tables.delta_files import versions
from sparkstore.tables.delta_log_cleaning import clean_log
from sparkstore.tables.healing import heal
from sparkstore.tables.marks import lower_mark, mark_durable
from sparkstore.tables.root import Root

NAME = "job_runs"
KEPT_RUNS = 1000
TIDY_EVERY = 100
_READER_HOURS = 1

SCHEMA = pa.schema(
    [
        pa.field("run_id", pa.string(), nullable=False),
        pa.field("job", pa.string(), nullable=False),
        pa.field("began_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("figures", pa.string(), nullable=False),
        pa.field("error", pa.string()),
    ]
)

_log = logging.getLogger(__name__)
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


@dataclass(frozen=True, slots=True)
class JobRun:
    """The record of a job's run that is over.

    Attributes:
        run_id: A UUID drawn for this run, in hexadecimal.
        job: Name of the job that ran.
        began_at: When it began, UTC.
        seconds: How long it took.
        outcome: `done`, `failed`, or what its report says.
        figures: What its report has beyond these; nothing if it failed.
        error: Why it failed, one line.
    """

    run_id: str
    job: str
    began_at: datetime
    seconds: float
    outcome: str
    figures: Mapping[str, Any]
    error: str | None = None


def record(root: Root, run: JobRun) -> None:
    """Append a row; every so many rows drop the oldest, so that the table stays small.

    Raises:
        OSError: No room, or no permission; the table is as it was.
        DeltaError: The same, as deltalake says it.
        CorruptData: What was fsynced cannot be found.
    """
    with _alone(root):
        table = _opened(root)
        _append(table, run)
        if table.version() % TIDY_EVERY == 0:
            table = _tidied(root, table, run)
        mark_durable(root, {NAME: table.version()})


def create(root: Root) -> None:
    """Make the table, without rows, if there is none: views of it can be published then.

    Raises:
        OSError: No room, or no permission.
        DeltaError: The same, as deltalake says it.
        CorruptData: What was fsynced cannot be found.
    """
    with _alone(root):
        if not versions(root.table(NAME)):
            mark_durable(root, {NAME: _begun_anew(root).version()})


def last_success(root: Root, job: str) -> datetime | None:
    """Return when the last run of a job that did not fail ended, UTC; None: none is known."""
    return max(successes(root, job), default=None)


def successes(root: Root, job: str) -> list[datetime]:
    """Return when the runs of a job that did not fail ended, UTC, `KEPT_RUNS` and few more at most.

    A table that cannot be read knows of none.
    """
    try:
        table = DeltaTable(str(root.table(NAME)))
        names = ["began_at", "seconds", "outcome"]
        rows = table.to_pyarrow_table(filters=[("job", "=", job)], columns=names).to_pylist()
    except (OSError, DeltaError, pa.ArrowException):
        return []
    return [
        row["began_at"] + timedelta(seconds=row["seconds"])
        for row in rows
        if row["outcome"] != "failed"
    ]


def first_line(reason: BaseException) -> str:
    """Return the first line of an error, without the stack that engines write below it."""
    lines = [line.strip() for line in str(reason).splitlines() if line.strip()]
    return lines[0] if lines else type(reason).__name__


@contextmanager
def _alone(root: Root) -> Iterator[None]:
    with (root.path / f"{NAME}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _opened(root: Root) -> DeltaTable:
    """Open the table, healed; a new one if there is none, or none that can be read."""
    path = root.table(NAME)
    try:
        if versions(path):
            heal(root, [NAME])
            return DeltaTable(str(path))
    except (CorruptData, DeltaError) as reason:
        _tell(path, reason)
    return _begun_anew(root)


def _tell(path: Path, reason: BaseException) -> None:
    why = first_line(reason)
    _log.warning("%s is broken, it is set aside and begun anew: %s", path, why)


def _begun_anew(root: Root) -> DeltaTable:
    path = root.table(NAME)
    if path.exists():
        _set_aside(root, path)
    lower_mark(root, NAME, -1)
    return DeltaTable.create(str(path), schema=SCHEMA, partition_by=["job"])


def _append(table: DeltaTable, run: JobRun) -> None:
    write_deltalake(
        table,
        pa.Table.from_pylist([_row(run)], SCHEMA),
        mode="append",
        commit_properties=_signed(run),
        post_commithook_properties=_NO_HOOKS,
    )
    table.update_incremental()


def _tidied(root: Root, table: DeltaTable, run: JobRun) -> DeltaTable:
    """The table, small again; one that lost rows is begun anew, or it would grow for ever."""
    try:
        rows = table.to_pyarrow_table()
    except (OSError, DeltaError, pa.ArrowException) as reason:
        _tell(root.table(NAME), reason)
        table = _begun_anew(root)
        _append(table, run)
        return table
    newest = rows.sort_by([("began_at", "descending")]).slice(0, KEPT_RUNS)
    _rewrite(root, table, newest, run)
    return table


def _set_aside(root: Root, path: Path) -> None:
    aside = root.path / "set-aside" / NAME
    aside.mkdir(parents=True, exist_ok=True)
    taken = (int(child.name) for child in aside.iterdir() if child.name.isdigit())
    path.rename(aside / f"{max(taken, default=0) + 1:06d}")


def _row(run: JobRun) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "job": run.job,
        "began_at": run.began_at,
        "seconds": run.seconds,
        "outcome": run.outcome,
        "figures": json.dumps(run.figures),
        "error": run.error,
    }


def _rewrite(root: Root, table: DeltaTable, newest: pa.Table, run: JobRun) -> None:
    """Keep these rows, in one file a job; the rest goes when no reader can be on its way."""
    write_deltalake(
        table,
        newest.select(SCHEMA.names).cast(SCHEMA),
        mode="overwrite",
        commit_properties=_signed(run),
        post_commithook_properties=_NO_HOOKS,
    )
    table.update_incremental()
    table.create_checkpoint()
    mark_durable(root, {NAME: table.version()})
    table.vacuum(
        retention_hours=_READER_HOURS,
        dry_run=False,
        enforce_retention_duration=False,
        commit_properties=_signed(run),
        post_commithook_properties=_NO_HOOKS,
    )
    table.update_incremental()
    clean_log(root, NAME, 3600.0 * _READER_HOURS)


def _signed(run: JobRun) -> CommitProperties:
    return CommitProperties(custom_metadata={"sparkstore.job_run": run.run_id})
