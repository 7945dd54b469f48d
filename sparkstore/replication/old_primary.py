"""The old primary of a promotion: what it holds more than its replica, and that it stops.

One in a bucket is stopped by its next commit. After its `root.json` says `fenced`, the next version
of its journal is taken by an empty commit, so that whatever its store puts next finds its name
taken. A start that had looked at `root.json` before looks again after it has committed, before it
serves.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from uuid import uuid4

from deltalake.exceptions import DeltaError

from sparkstore.bucket import epochs
from sparkstore.errors import Fenced, InvalidRequest, StoreError, Unavailable
from sparkstore.log.unreplayed_records import unreplayed
from sparkstore.replication.primary import Primary, primary_at
from sparkstore.storage.storage import Storage
from sparkstore.tables.delta_contents import COPY, commit, contents, largest
from sparkstore.tables.fencing import FENCED, change_stored_identity, successor_at
from sparkstore.tables.root import Identity, Root
from sparkstore.tables.snapshot import snapshot
from sparkstore.witness.place import witness_at
from sparkstore.witness.turn import take_over

_log = logging.getLogger(__name__)

_RECORDS = ("history", "journal")
_ROUNDS = 100
"""A store commits five times a second, or as fast as its bucket answers."""


def check_not_behind(old: Primary, where: str | Path, last_position: int) -> None:
    """Check that no readable record of the old primary is given up by mistake.

    Raises:
        InvalidRequest: It holds more than the replica.
    """
    try:
        end, more = _end(old), _more(old)
    except (StoreError, DeltaError, OSError) as reason:
        _log.warning("%s cannot be compared with: %s", old.location, reason)
        return
    missing = end - last_position
    if missing > 0:
        message = f"{old.location} holds {missing} records that {where} has not: stop its"
        message += " store and let sparkstore replicate run once more, or --accept-loss"
        raise InvalidRequest(message)
    if more:
        message = f"{old.location}: {more}; then stop it and let sparkstore replicate run once"
        raise InvalidRequest(f"{message} more, or --accept-loss")


def _end(old: Primary) -> int:
    """Return the last position in the old primary's tables, 0 without any."""
    if old.folder is not None:
        root = Root(old.folder, old.identity)
        ends = [file.positions[1] for name in _RECORDS for file in snapshot(root.table(name))]
        return max(ends, default=0)
    return max(largest(contents(old.storage, name).adds.values(), "position") for name in _RECORDS)


def _more(old: Primary) -> str:
    """Tell of records that the old primary may have and no table shows; empty without any."""
    if old.folder is not None:
        return str(unreplayed(Root(old.folder, old.identity)) or "")
    objects = epochs.names(old.storage)
    last = epochs.unclosed(old.storage, epochs.highest(objects), objects)
    if last is None or not last.wal_id:
        return ""
    return f"the write-ahead log of its store, in {last.wal_dir} of {last.host}, may hold more"


def fence(old: Primary, successor: str | Path, *, required: bool) -> bool:
    """Fence the old primary; False if it cannot be written, which fences it only later.

    Raises:
        Unavailable: It cannot be written, and was named.
    """
    try:
        changes = {"role": FENCED, "successor": str(successor)}
        change_stored_identity(old.storage, lambda _: changes)
        if old.folder is None:
            _take_version(old.storage)
    except (StoreError, OSError) as reason:
        message = f"{old.location} cannot be fenced: {reason}"
        if required:
            raise Unavailable(f"{message}: stop its store, and leave it out") from reason
        _log.warning("%s: stop its store", message)
        return False
    return True


def ask(replica: Identity, new: Identity, where: str | Path, old: Primary | None) -> str:
    """Have the witness, if there is one, keep the old primary from acknowledging any more.

    Returns:
        Where the witness is; empty if there is none.
    """
    witness = old.identity.witness if old is not None else replica.witness
    if witness:
        take_over(witness_at(witness), replica, new, str(where))
    return witness


def old_primary(where: str | Path, replica: Identity, named: str | Path | None) -> Primary | None:
    """Find the old primary; None if nobody named it and it is not where it was.

    Raises:
        InvalidRequest: The one named is not the one this is a copy of.
        Fenced: Another of its replicas was promoted.
    """
    try:
        old = primary_at(named if named is not None else replica.primary)
    except (StoreError, OSError):
        if named is not None:
            raise
        return None
    if old.identity.root_id != replica.primary_id:
        if named is None:
            return None
        message = f"{old.location} is not the primary that {where} is a copy of: leave it out"
        raise InvalidRequest(message)
    for sibling in old.identity.replicas:
        _check_not_promoted(sibling, old.identity)
    return old


def _check_not_promoted(sibling: str, old: Identity) -> None:
    other = successor_at(sibling, old)
    if other is not None:
        message = f"{sibling} was promoted before, to generation {other.generation}: use that"
        raise Fenced(message)


def _take_version(bucket: Storage) -> None:
    """Take the journal's next version by an empty commit, so that its store's next one fails.

    Raises:
        StoreError: The bucket did not answer, or the store was faster each time.
    """
    for _ in range(_ROUNDS):
        base = contents(bucket, "journal")
        info, now_ms = {COPY: uuid4().hex}, time.time_ns() // 1_000_000
        if commit(bucket, "journal", base, base.adds, base, info, now_ms=now_ms):
            return
    message = f"{bucket.location}: its store commits all the time"
    raise Unavailable(message)
