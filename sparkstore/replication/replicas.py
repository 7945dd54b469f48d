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
from typing import Any, NamedTuple
from uuid import uuid4

from deltalake.exceptions import DeltaError

from sparkstore.errors import InvalidRequest, Unavailable
from sparkstore.replication.replicate_plan import check_apart, check_pair, check_primary
from sparkstore.tables.fencing import REPLICA, change_identity, check_may_work
from sparkstore.tables.lease import jobs_lease
from sparkstore.tables.private_folder import private_folder
from sparkstore.tables.root import (
    Identity,
    Root,
    check_may_be_root,
    is_root,
    open_or_create_root,
    open_root,
    path_of,
)


class Pair(NamedTuple):
    """Two roots, the second a copy of the first."""

    primary: Root
    replica: Root


def check(primary: str | Path, replica: str | Path) -> None:
    """Everything that can be refused by looking; needs no Java and changes nothing.

    Raises:
        InvalidRequest: One of them is no root, the second may not be a replica of the first, or
            this user may not write what must be written.
        Fenced: The first was superseded.
        CorruptData: A `root.json` cannot be read, or is from a newer schema version.
    """
    source, path = open_root(primary), path_of(replica)
    check_apart(source.path, path)
    check_primary(source.path, source.identity)
    check_may_be_root(path)
    if is_root(path):
        check_pair(path, open_root(path).identity, source.identity)
    check_may_work(source.path)
    _check_writable(path)
    if str(path) not in source.identity.replicas:
        _check_writable(source.path)


def _check_writable(folder: Path) -> None:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        raise InvalidRequest(_NO_RIGHT.format(there))


_NO_RIGHT = "{} cannot be written: give this user the right to"


@contextmanager
def paired(primary: str | Path, replica: str | Path) -> Iterator[Pair]:
    """Both roots, under the replica's lease; the replica is created if its folder is empty.

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
            pair = _registered_pair(open_root(primary), path)
        except PermissionError as reason:
            raise InvalidRequest(_NO_RIGHT.format(reason.filename or path)) from reason
        except (OSError, DeltaError) as reason:
            message = f"{path} cannot be made a replica: {reason}"
            raise Unavailable(message) from reason
        # Again: somebody may have been faster before the lease was taken.
        check(primary, replica)
        yield pair


def _registered_pair(primary: Root, replica: Path) -> Pair:
    change_identity(primary, lambda identity: _registered(identity, replica))
    new = Identity(
        uuid4().hex,
        role=REPLICA,
        generation=primary.identity.generation,
        primary_id=primary.identity.root_id,
        primary=str(primary.path),
    )
    made = open_or_create_root(replica, new)
    witness = open_root(primary.path).identity.witness
    if made.identity.witness != witness:  # a promotion asks it
        made = Root(made.path, change_identity(made, lambda _: {"witness": witness}))
    return Pair(primary, made)


def _registered(identity: Identity, replica: Path) -> dict[str, Any]:
    if identity.role != "primary":
        message = f"a {identity.role} gets no replica: it was fenced meanwhile"
        raise InvalidRequest(message)
    if str(replica) in identity.replicas:
        return {}
    return {"replicas": [*identity.replicas, str(replica)]}
