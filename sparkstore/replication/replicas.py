"""A primary and its replica: who may be which, registered with each other before any record.

In this order: checks, which change nothing; the replica's lease; the replica is added to the
primary's `replicas`, durably; the replica's root is created. So a replica that exists is one that
its primary watches (`fencing`), and a registration without a replica harms nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from deltalake.exceptions import DeltaError

from sparkstore.errors import InvalidRequest, Unavailable
from sparkstore.replication.primary import Primary, primary_at
from sparkstore.replication.replicate_plan import (
    BACKUP_FILE,
    check_apart,
    check_pair,
    check_primary,
)
from sparkstore.tables.fencing import change_identity, check_not_superseded
from sparkstore.tables.lease import jobs_lease
from sparkstore.tables.private_folder import private_folder
from sparkstore.tables.root import (
    Root,
    check_may_be_root,
    is_root,
    open_or_create_root,
    open_root,
    path_of,
)


class Pair(NamedTuple):
    """A primary and its replica: two roots, the second a copy of the first.

    Attributes:
        source: Where the first is.
        primary: Its tables, in a folder.
        replica: The root that gets the records of the first.
    """

    source: Primary
    primary: Root
    replica: Root


def check(primary: str | Path, replica: str | Path) -> None:
    """Check everything that can be refused by looking; needs no Java and changes nothing.

    Raises:
        InvalidRequest: One of them is no root, the second may not be a replica of the first, or
            this user may not write what must be written.
        Fenced: The first was superseded.
        CorruptData: A `root.json` cannot be read, or is from a newer schema version.
    """
    source, path = primary_at(primary), path_of(replica)
    if source.folder is not None:
        check_apart(source.folder, path)
    check_primary(source.location, source.identity)
    check_may_be_root(path)
    if (path / BACKUP_FILE).exists():  # other code commits there, and no table has two engines
        raise InvalidRequest(f"{path} is a backup: name another folder, or use backup")
    if is_root(path):
        check_pair(path, open_root(path).identity, source.identity)
    check_not_superseded(source.location, source.identity)
    _check_writable(path)
    if source.folder is not None and str(path) not in source.identity.replicas:
        _check_writable(source.folder)


def _check_writable(folder: Path) -> None:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InvalidRequest(_NO_RIGHT.format(existing))


_NO_RIGHT = "{} cannot be written: give this user the right to"


@contextmanager
def paired(primary: str | Path, replica: str | Path) -> Iterator[Pair]:
    """Open both roots under the replica's lease; the replica is created if its folder is empty.

    Decision: a replica has a root id of its own, and names its primary's. A root id says to which
    place a write-ahead log belongs: with one id for both, a log folder that primary and promoted
    replica use in turn would bring one's records into the other.

    Raises:
        Locked: Another job works on the replica.
        InvalidRequest, Fenced, CorruptData: As `check`; also after the lease was taken; this user
            may not write to the replica's folder, or to `root.json` of the primary.
        Unavailable: The storage of one of them failed.
    """
    check(primary, replica)
    path = path_of(replica)
    with ExitStack() as held:
        try:
            private_folder(path)
            held.enter_context(jobs_lease(path))
            source = primary_at(primary)
            copy = _registered_replica(source, path)
            root = held.enter_context(source.tables(str(path)))
        except PermissionError as reason:
            raise InvalidRequest(_NO_RIGHT.format(reason.filename or path)) from reason
        except (OSError, DeltaError) as reason:
            message = f"{path} cannot be made a replica: {reason}"
            raise Unavailable(message) from reason
        # Again: somebody may have been faster before the lease was taken.
        check(primary, replica)
        yield Pair(source, root, copy)


def _registered_replica(primary: Primary, replica: Path) -> Root:
    witness = primary.register(str(replica)).witness
    made = open_or_create_root(replica, primary.new_replica())
    if made.identity.witness == witness:
        return made
    return Root(made.path, change_identity(made, lambda _: {"witness": witness}))  # promote asks it
