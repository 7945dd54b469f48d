"""The primary of a replication: a root in a folder, or one in a bucket by a copy of its tables.

Who it is, and which replicas it has, stands in its own `root.json`, wherever that is. The copy of
one in a bucket is a folder of this machine, one for each replica that is made here: what an earlier
run left there is used. It is brought up state before journal before history, as recovery reads
them, so it fits together beside a store and jobs that are at work.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from sparkstore.bucket import working_copy
from sparkstore.bucket.bucket_download import identified
from sparkstore.errors import InvalidRequest
from sparkstore.recovery.recovery import journal_tail
from sparkstore.storage.local import LocalStorage
from sparkstore.storage.objects import ObjectStorage, is_object_uri
from sparkstore.storage.storage import Storage
from sparkstore.tables.delta_contents import contents, largest
from sparkstore.tables.fencing import PRIMARY, REPLICA, change_stored_identity
from sparkstore.tables.lock import FileLock
from sparkstore.tables.private_folder import private_folder
from sparkstore.tables.root import Identity, Root, open_root


class Primary(NamedTuple):
    """A root that is copied to a replica.

    Attributes:
        storage: Where it is.
        identity: What its `root.json` says.
    """

    storage: Storage
    identity: Identity

    @property
    def location(self) -> str:
        """Return the primary's location, as a user would write it."""
        return self.storage.location

    @property
    def folder(self) -> Path | None:
        """Return the primary's folder; None if it is in a bucket."""
        return Path(self.location) if isinstance(self.storage, LocalStorage) else None

    @contextmanager
    def tables(self, replica: str) -> Iterator[Root]:
        """Bring the primary's tables into a folder, for one run.

        Args:
            replica: Where they are copied to.

        Raises:
            Locked: Another run of this machine copies the same to the same replica.
            CorruptData: A file is gone, or cannot be read.
            Unavailable: The bucket did not answer.
        """
        if self.folder is not None:
            yield Root(self.folder, self.identity)
            return
        folder = working_copy.folder_of(f"{self.location} {replica}", "")
        private_folder(folder)
        lock = FileLock(folder / "writer.lock", f"the copy of {self.location} for {replica}")
        try:
            copy = working_copy.bring_up(self.storage, self.identity, folder)
            yield Root(folder, self.identity)
            working_copy.keep(copy)
        finally:
            lock.release()

    def lag(self, root: Root, last: int) -> int:
        """Count the records that the primary committed after a position; `root` has its tables."""
        if self.folder is not None:
            return max(0, journal_tail(root).last_position - last)
        ends = (
            largest(contents(self.storage, name).adds.values(), "position")
            for name in ("journal", "history")
        )
        return max(0, max(ends) - last)

    def new_replica(self) -> Identity:
        """Return the identity of a new copy, with a root id of its own."""
        primary, generation = self.identity.root_id, self.identity.generation
        new = Identity(uuid4().hex, role=REPLICA, generation=generation, primary_id=primary)
        return replace(new, primary=self.location)

    def register(self, replica: str) -> Identity:
        """Add a replica to those that its store watches; what its `root.json` says now.

        Raises:
            InvalidRequest: It is the primary no more.
        """

        def registered(identity: Identity) -> dict[str, Any]:
            if identity.role != PRIMARY:
                message = f"a {identity.role} gets no replica: it was fenced meanwhile"
                raise InvalidRequest(message)
            if replica in identity.replicas:
                return {}
            return {"replicas": [*identity.replicas, replica]}

        return change_stored_identity(self.storage, registered)


def primary_at(where: str | Path) -> Primary:
    """The root that is to be copied.

    Raises:
        InvalidRequest: There is none.
        CorruptData: Its `root.json` cannot be read, or is from a newer schema version.
        Unavailable: The bucket did not answer.
    """
    if is_object_uri(where):
        bucket = ObjectStorage(str(where))
        return Primary(bucket, identified(bucket))
    root = open_root(where)
    return Primary(LocalStorage(root.path), root.identity)
