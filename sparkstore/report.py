"""What a job did, as one value that JSON can hold."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class JobReport:
    """The outcome of one run of a job.

    Attributes:
        job: Its name.
        root: The folder it worked on.
        position_before: P, the last position that `state` held before.
        position_after: The same, afterwards.
        history_before: H, the last position that `history` held before.
        history_after: The same, afterwards.
        records_moved: Records appended to `history`.
        entries_changed: Entries put, changed or dropped in `state`.
        fold_count: Delta commits to `state`.
        bytes_moved: Size of the journal's files that held the records moved.
        tables_healed: Tables whose broken end was set aside first.
        seconds: How long it took.
    """

    job: str
    root: str
    position_before: int
    position_after: int
    history_before: int
    history_after: int
    records_moved: int
    entries_changed: int
    fold_count: int
    bytes_moved: int
    tables_healed: list[str]
    seconds: float

    def as_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))
