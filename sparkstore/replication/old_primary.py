"""The old primary of a promotion: what it holds more than its replica, and that it stops.

One in a bucket is stopped by its next commit. After its `root.json` says `fenced`, the next version
of its journal is taken by an empty commit, so that whatever its store puts next finds its name
taken. A start that had looked at `root.json` before looks again after it has committed, before it
serves.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from deltalake.exceptions import DeltaError

from sparkstore.bucket import epochs
from sparkstore.bucket.witness import take_over, witness_at
from sparkstore.errors import Fenced, InvalidRequest, StoreError, Unavailable
from sparkstore.log.unreplayed_records import unreplayed
from sparkstore.replication.primary import Primary, primary_at
from sparkstore.storage.storage import Storage
from sparkstore.tables.delta_contents import COPY, commit, contents, largest
from sparkstore.tables.fencing import FENCED, change_stored_identity, successor_at
from sparkstore.tables.root import Identity, Root
from sparkstore.tables.snapshot import snapshot

_log = logging.getLogger(__name__)

_RECORDS = ("history", "journal")
_ROUNDS = 100
"""A store commits five times a second, or as fast as its bucket answers."""


@dataclass(frozen=True, slots=True)
class OldPrimary:
    """A primary that can be read, and is not to be one any more."""

    primary: Primary

    @property
    def location(self) -> str:
        """Return the old primary's location, as a user would write it."""
        return self.primary.location

    @property
    def identity(self) -> Identity:
        """Return the identity that the old primary's `root.json` has."""
        return self.primary.identity

    def check_not_behind(self, where: str | Path, last_position: int) -> None:
        """Check that no readable record of the old primary is given up by mistake.

        Raises:
            InvalidRequest: It holds more than the replica.
        """
        try:
            end, more = self._end(), self._more()
        except (StoreError, DeltaError, OSError) as reason:
            _log.warning("%s cannot be compared with: %s", self.location, reason)
            return
        missing = end - last_position
        if missing > 0:
            message = f"{self.location} holds {missing} records that {where} has not: stop its"
            message += " store and let sparkstore replicate run once more, or --accept-loss"
            raise InvalidRequest(message)
        if more:
            message = f"{self.location}: {more}; then stop it and let sparkstore replicate run once"
            raise InvalidRequest(f"{message} more, or --accept-loss")

    def _end(self) -> int:
        """The last position in its tables, 0 without any."""
        if (folder := self.primary.folder) is not None:
            root = Root(folder, self.identity)
            ends = [file.positions[1] for name in _RECORDS for file in snapshot(root.table(name))]
            return max(ends, default=0)
        bucket = self.primary.storage
        return max(largest(contents(bucket, name).adds.values(), "position") for name in _RECORDS)

    def _more(self) -> str:
        """Tell of records that the old primary may have and no table shows; empty without any."""
        if (folder := self.primary.folder) is not None:
            return str(unreplayed(Root(folder, self.identity)) or "")
        objects = epochs.names(self.primary.storage)
        last = epochs.unclosed(self.primary.storage, epochs.highest(objects), objects)
        if last is None or not last.wal_id:
            return ""
        return f"the write-ahead log of its store, in {last.wal_dir} of {last.host}, may hold more"

    def fence(self, successor: str | Path, *, required: bool) -> bool:
        """Fence the old primary; False if it cannot be written, which fences it only later.

        Raises:
            Unavailable: It cannot be written, and was named.
        """
        storage = self.primary.storage
        try:
            changes = {"role": FENCED, "successor": str(successor)}
            change_stored_identity(storage, lambda _: changes)
            if self.primary.folder is None:
                _take_version(storage)
        except (StoreError, OSError) as reason:
            message = f"{self.location} cannot be fenced: {reason}"
            if required:
                raise Unavailable(f"{message}: stop its store, and leave it out") from reason
            _log.warning("%s: stop its store", message)
            return False
        return True


def ask(replica: Identity, new: Identity, where: str | Path, old: OldPrimary | None) -> str:
    """Have the witness, if there is one, keep the old primary from acknowledging any more.

    Returns:
        Where the witness is; empty if there is none.
    """
    witness = old.identity.witness if old is not None else replica.witness
    if witness:
        take_over(witness_at(witness), replica, new, str(where))
    return witness


def old_primary(
    where: str | Path, replica: Identity, named: str | Path | None
) -> OldPrimary | None:
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
    return OldPrimary(old)


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
