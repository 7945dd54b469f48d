"""Report the figures of a job as one value that JSON can hold.

`JobReport` is what every job says; a job's own report adds its figures.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """The outcome of one run of a job; what it has beyond these fields are its figures.

    Attributes:
        job: Name of the job that ran.
        root: The folder it worked on.
        seconds: How long it took; of a command, since that was started.
        starting_seconds: What of it went by until Spark was there. This and the next three are
            told by `durations`, of a command that starts Spark.
        task_seconds: Time of Spark's tasks, divided by the cores that run them.
        planning_seconds: The rest: plans, commits, and what the driver does itself.
        waiting_seconds: How long threads were ready and waited for a core, within the others.
        outcome: `done`; a job that does its work and finds that people must act says so here,
            in one word. A job that fails raises and has no report.
    """

    job: str
    root: str
    seconds: float
    outcome: str = "done"
    starting_seconds: float | None = None
    task_seconds: float | None = None
    planning_seconds: float | None = None
    waiting_seconds: float | None = None

    @property
    def exit_code(self) -> int:
        """Return the exit code of a command that gave this report."""
        return 0

    def as_json(self) -> str:
        """Return the report as one line of JSON."""
        return json.dumps(asdict(self))

    def figures(self) -> dict[str, Any]:
        """The fields that only this kind of report has."""
        common = {"job", "root", "seconds", "outcome"}
        return {name: value for name, value in asdict(self).items() if name not in common}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport(JobReport):
    """Figures of one run of `compact`.

    Attributes:
        position_before: P, the last position that `state` held before.
        position_after: The same, afterwards.
        history_before: H, the last position that `history` held before.
        history_after: The same, afterwards.
        records_moved: Records appended to `history`.
        entries_changed: Entries put, changed or dropped in `state`.
        fold_count: Delta commits to `state`.
        bytes_moved: Size of the journal's files that held the records moved.
        tables_healed: Tables whose broken end was set aside first.
        history_start: From this position on history holds every record.
        rows_dropped: Rows of passed segments of history that nobody needed.
        files_deleted: Data files of history and state that no reader needed.
        messages_ended: Messages dead-lettered, or expired without a dead-letter queue, afterwards.
    """

    position_before: int
    position_after: int
    history_before: int
    history_after: int
    records_moved: int
    entries_changed: int
    fold_count: int
    bytes_moved: int
    tables_healed: list[str]
    history_start: int = 1
    rows_dropped: int = 0
    files_deleted: int = 0
    messages_ended: int = 0
