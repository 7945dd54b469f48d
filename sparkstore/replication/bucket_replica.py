"""A replica in a bucket: who it is, and that it is one primary's.

In this order: checks, which change nothing but a probe of the store's conditional puts; the replica
is added to the primary's `replicas`, durably; the replica's `root.json` is put if absent. So a
replica that exists is one that its primary watches (`fencing`), and of two primaries that begin to
copy to one prefix one is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sparkstore.errors import Fenced, InvalidRequest
from sparkstore.replication.primary import Primary, primary_at
from sparkstore.replication.replicate_plan import (
    BACKUP_FILE,
    check_apart,
    check_pair,
    check_primary,
)
from sparkstore.storage.probe import PROBE, check_is_conditional
from sparkstore.storage.storage import Storage
from sparkstore.tables.fencing import (
    change_stored_identity,
    check_not_superseded,
    identity_at,
)
from sparkstore.tables.root import ROOT_FILE, Identity, Root, as_root_file

_LEFT_OVER = re.compile(
    rf"({BACKUP_FILE}|{re.escape(ROOT_FILE)}|{PROBE}[0-9a-f]+)(\.lock|\.[0-9a-f]{{32}}(\.new)?)?"
)


class BucketPair(NamedTuple):
    """A root, and its replica elsewhere.

    Attributes:
        source: Where the root is.
        primary: Its tables, in a folder.
        replica: Where its copy is.
        identity: The identity of the replica.
    """

    source: Primary
    primary: Root
    replica: Storage
    identity: Identity


@contextmanager
def paired(where: str | Path, replica: Storage) -> Iterator[BucketPair]:
    """A primary and its replica in a bucket; registered and created if it is new.

    Args:
        where: The primary: a folder, or `s3://lake/queues`.
        replica: Where its copy is to be.

    Raises:
        InvalidRequest: They may not be primary and replica; the bucket cannot be used for it.
        Fenced: The primary was superseded.
        Locked: Another run of this machine copies the one to the other.
        Unavailable: The bucket did not answer.
    """
    primary = primary_at(where)
    identity = registered_replica(primary, replica)
    with primary.tables(replica.location) as root:
        yield BucketPair(primary, root, replica, identity)


def registered_replica(primary: Primary, replica: Storage, *, is_watched: bool = True) -> Identity:
    """Make a place the replica of a primary, if it is not: its identity. See `paired`.

    Args:
        primary: The root that is copied.
        replica: Where the copy is.
        is_watched: The primary is to know it; not of a copy that nobody promotes or brings up.
    """
    if primary.folder is None:
        check_apart(primary.location, replica.location)
    check_primary(primary.location, primary.identity)
    check_not_superseded(primary.location, primary.identity)
    standing = identity_at(replica)
    if standing is None:
        _check_free(replica)
    else:
        check_is_replica_of(replica.location, standing, primary.identity)
    check_is_conditional(replica)
    known = primary.register(replica.location) if is_watched else primary.identity
    witness = known.witness
    if standing is None:
        replica.put_if_absent(ROOT_FILE, as_root_file(primary.new_replica()))
        standing = identity_at(replica)
        assert standing is not None
        check_is_replica_of(replica.location, standing, primary.identity)
    if standing.witness != witness:  # a promotion asks it
        standing = change_stored_identity(replica, partial(_witnessed, standing, witness))
    return standing


def check_is_replica_of(where: str, replica: Identity, primary: Identity) -> None:
    """Refuse a root that is not a copy of this primary, in this generation.

    Raises:
        Fenced: It was promoted, and this primary is not the primary any more.
        InvalidRequest: It is another primary's, or a primary itself.
    """
    if primary.root_id in replica.superseded:
        message = (
            f"{where} was promoted into {replica.primary} (generation {replica.generation}):"
            " that is the primary now"
        )
        raise Fenced(message)
    check_pair(where, replica, primary)


def is_left_over(name: str) -> bool:
    """Tell whether a first run that was killed, also within a write, leaves a file of this name."""
    return _LEFT_OVER.fullmatch(name) is not None


def _check_free(replica: Storage) -> None:
    stranger = next((file.name for file in replica.files() if not is_left_over(file.name)), None)
    if stranger is not None:
        message = f"{replica.location} is no sparkstore root, and holds {stranger!r}: choose"
        raise InvalidRequest(f"{message} another prefix")


def _witnessed(seen: Identity, witness: str, now: Identity) -> dict[str, Any]:
    return {"witness": witness} if now.primary_id == seen.primary_id else {}
