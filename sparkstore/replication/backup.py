"""A backup: a copy of a root in a bucket or a folder, and a root that is made of it again.

Decision: a backup is the replica that `replicate` keeps in a bucket, and the same code writes it.
That copy is incremental, consistent while a store runs, safe to kill and to repeat, and needs no
Spark (`bucket_copy` argues each). A folder is one more storage to it. What differs is the way back:
a promotion takes the copy over and fences the old primary, a restore reads it and changes nothing
there, so one backup can be restored many times, on any machine.

Why a folder of backups and a replica in a folder are kept apart: Spark commits to the latter, this
to the former, and no table has two committing engines (ARCHITECTURE: Rule 2). A folder of backups
has the file `backup`, which comes first of all; each refuses the other's.

A backup as of a time (`rewound_root`) is the backup that this would have made then, so the next one
without a time goes on from there. It needs a place that has no backup: what is there may be later.

Why a killed restore leaves nothing: the copy is made in a folder beside the root's, and gets its
name last. Why the new root harms nobody: it has an id of its own, and is of the next generation, so
members that have seen more are fenced, and message ids of the old one are given to nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from sparkstore.bucket.bucket_download import download_tables, identified
from sparkstore.errors import InvalidRequest
from sparkstore.recovery.point_in_time import AsOf
from sparkstore.recovery.recovery import recover
from sparkstore.replication.bucket_copy import BucketReplicateReport, replicate_to_bucket
from sparkstore.replication.bucket_promote import become_root, check_free, empty_scratch
from sparkstore.replication.bucket_replica import (
    BucketPair,
    is_left_over,
    paired,
    registered_replica,
)
from sparkstore.replication.primary import primary_at
from sparkstore.replication.promote import check_not_empty
from sparkstore.replication.replicate_plan import BACKUP_FILE, check_apart
from sparkstore.replication.rewound_root import rewound
from sparkstore.storage.local import LocalStorage
from sparkstore.storage.objects import ObjectStorage, is_object_uri
from sparkstore.storage.storage import Storage
from sparkstore.tables.delta_contents import contents
from sparkstore.tables.fencing import PRIMARY, REPLICA
from sparkstore.tables.private_folder import private_folder
from sparkstore.tables.root import TABLES, Identity, Root, is_root, path_of


@dataclass(frozen=True, slots=True)
class Restored:
    """A root that was made of a backup.

    Attributes:
        root: The folder of the new root.
        backup: Where the backup is; it is as it was.
        generation: The generation of the root, one more than the backup's.
        last_position: Position of the last record in it.
        queues: Number of its queues.
        messages: Number of messages on them.
    """

    root: str
    backup: str
    generation: int
    last_position: int
    queues: int
    messages: int


def back_up(root: str | Path, to: str | Path, at: AsOf | None = None) -> BucketReplicateReport:
    """Bring a backup up to what the root had committed to Delta when this began, or at a time.

    Args:
        root: The folder of the root, or its URI.
        to: A folder that is absent, empty or a backup of this root; or a URI.
        at: A time, or `position=N`: the root as it stood then, in a place that has no backup yet.

    Raises:
        StoreError: For the reasons of `bucket_replica.paired` and `replicate_to_bucket`.
        InvalidRequest: A folder that is in the root, or a replica that Spark writes; for the
            reasons of `rewound`; of a time: there is a backup already.
    """
    storage = backup_at(to)
    if at is not None:
        return _back_up_as_of(root, storage, at)
    _begin(root, storage)
    with paired(root, storage) as pair:
        return replicate_to_bucket(pair)


def _back_up_as_of(root: str | Path, storage: Storage, at: AsOf) -> BucketReplicateReport:
    """Back up what the root was, once it is known to be whole: what is refused makes nothing."""
    if any(contents(storage, table).version >= 0 for table in TABLES):
        message = f"{storage.location} has a backup: name a place for this one alone"
        raise InvalidRequest(message)
    primary = primary_at(root)
    with primary.tables(storage.location) as tables, rewound(tables, at) as then:
        _begin(root, storage)
        in_folder = isinstance(storage, LocalStorage)  # nobody promotes it, and it lags by design
        identity = registered_replica(primary, storage, is_watched=not in_folder)
        return replicate_to_bucket(BucketPair(primary, then, storage, identity))


def _begin(root: str | Path, storage: Storage) -> None:
    """Make the folder of a backup, if it is to be in one."""
    if isinstance(storage, LocalStorage):
        folder = Path(storage.location)
        if not is_object_uri(root):
            check_apart(path_of(root), folder)
        private_folder(folder)
        if all(is_left_over(path.name) for path in folder.iterdir()):
            storage.put_if_absent(BACKUP_FILE, b"")


def restore(backup: str | Path, folder: str | Path) -> Restored:
    """Make a root of a backup, which stays as it is.

    Args:
        backup: Where the backup is: a folder or a URI.
        folder: The folder of the new root, absent or empty.

    Raises:
        InvalidRequest: There is no backup, or it has nothing yet; the folder is a root or not
            empty.
        CorruptData: The backup is not whole; nothing was made.
        Unavailable: The bucket did not answer.
    """
    storage, path = backup_at(backup), path_of(folder)
    copy = identified(storage)
    if copy.role != REPLICA:
        message = f"{storage.location} is a {copy.role}, not a backup: name one that backup made"
        raise InvalidRequest(message)
    check_free(path)
    with empty_scratch(path) as scratch:
        download_tables(storage, scratch, {})
        recovered = recover(Root(scratch, copy))
        check_not_empty(storage.location, recovered.last_position)
        identity = Identity(uuid4().hex, role=PRIMARY, generation=copy.generation + 1)
        become_root(scratch, path, identity)
    queues = recovered.state.queues
    return Restored(
        root=str(path),
        backup=storage.location,
        generation=identity.generation,
        last_position=recovered.last_position,
        queues=len(queues),
        messages=sum(len(queue.entries) for queue in queues.values()),
    )


def backup_at(where: str | Path) -> Storage:
    """Return the storage of a backup.

    Raises:
        InvalidRequest: The folder is a replica that Spark writes.
    """
    if is_object_uri(where):
        return ObjectStorage(str(where))
    folder = path_of(where)
    if is_root(folder) and not (folder / BACKUP_FILE).exists():
        message = f"{folder} is a root or a replica of one, not a backup: name another folder"
        raise InvalidRequest(message)
    return LocalStorage(folder)
