"""Recover the state of a root while a store or a job may be changing its tables."""

from __future__ import annotations

from deltalake.exceptions import DeltaError

from sparkstore.core.fold import State
from sparkstore.errors import CorruptData, StoreError, Unavailable
from sparkstore.recovery.recovery import recover
from sparkstore.tables.root import TABLES, Root
from sparkstore.tables.snapshot import RESTORE

_TRIES = 3


def recovered_state(root: Root) -> State:
    """Return the fold of all that Delta has.

    Tables are read one after the other while a store or a job may move records between them, and
    then they do not fit together. Nothing is wrong unless it stays so.

    Raises:
        CorruptData: A table is gone, or the tables do not fit together.
        Unavailable: The tables cannot be read now.
    """
    failure: Exception | None = None
    for _ in range(_TRIES):
        try:
            return recover(root).state
        except (CorruptData, DeltaError, OSError) as reason:
            failure = reason
    if isinstance(failure, CorruptData):
        raise failure
    raise _unreadable(root, failure) from failure


def _unreadable(root: Root, failure: Exception | None) -> StoreError:
    gone = [name for name in TABLES if not (root.table(name) / "_delta_log").is_dir()]
    if gone:
        return CorruptData(f"{root.table(gone[0])} is gone, or has no Delta log: {RESTORE}")
    return Unavailable(f"{root.path} cannot be read: {failure}: look at the storage, run it again")
