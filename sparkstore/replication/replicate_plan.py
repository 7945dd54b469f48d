"""Decide what a replication may do, from two identities and a few numbers. Pure: no Spark."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from sparkstore.errors import CorruptData, Fenced, InvalidRequest
from sparkstore.tables.root import Identity

AGAIN = "empty that folder and replicate into it anew"


BACKUP_FILE = "backup"
"""Says of a folder that `backup` writes it: no replica that Spark writes has this file."""


def check_apart(primary: Path | str, replica: Path | str) -> None:
    """Refuse two names of one place, and one root inside the other; links are followed.

    Args:
        primary: A folder, or a prefix of a bucket.
        replica: Another of its kind.

    Raises:
        InvalidRequest: They are not two places side by side.
    """
    place = "folder" if isinstance(replica, Path) else "prefix"
    one, other = (
        name.resolve() if isinstance(name, Path) else PurePosixPath(name)
        for name in (primary, replica)
    )
    if one == other:
        message = f"{replica} is the primary itself: a replica needs a {place} of its own"
        raise InvalidRequest(message)
    if one in other.parents or other in one.parents:
        message = f"{primary} and {replica} lie one in the other: choose another {place}"
        raise InvalidRequest(message)


def check_primary(where: Path | str, identity: Identity) -> None:
    """Refuse to copy from what is itself a copy.

    Raises:
        InvalidRequest: Its role is replica.
    """
    if identity.role == "replica":
        message = f"{where} is a replica: replicate from its primary, {identity.primary}"
        raise InvalidRequest(message)


def check_pair(where: Path | str, replica: Identity, primary: Identity) -> None:
    """Refuse a root that is not a copy of this primary, in this generation.

    Raises:
        InvalidRequest: It is a primary, was one, or holds another store's data.
        Fenced: It has a higher generation: it was promoted, or its primary restored from a backup.
    """
    is_copy = replica.primary_id == primary.root_id
    if is_copy and replica.generation > primary.generation:
        message = (
            f"{where} has generation {replica.generation}, its primary {primary.generation}: it"
            " was promoted; use it instead"
        )
        raise Fenced(message)
    if replica.role != "replica":
        message = f"{where} is a {replica.role}, not a replica: choose another folder"
        raise InvalidRequest(message)
    if not is_copy:
        message = f"{where} holds another store's data (of {replica.primary}): {AGAIN}"
        raise InvalidRequest(message)
    if replica.generation != primary.generation:
        message = (
            f"{where} has generation {replica.generation}, its primary has {primary.generation}:"
            f" {AGAIN}"
        )
        raise InvalidRequest(message)


def check_reach(where: Path, replica_last: int, history_start: int) -> None:
    """Refuse to go on where the primary keeps no longer every record.

    The record at the replica's end must be there too, to be compared.

    Raises:
        InvalidRequest: The replica is too old.
    """
    if 0 < replica_last < history_start:
        message = (
            f"{where} ends at position {replica_last}, the primary has every record only from"
            f" {history_start} on: {AGAIN}"
        )
        raise InvalidRequest(message)


def check_not_ahead(where: Path | str, replica_last: int, primary_last: int) -> None:
    """Refuse a replica that knows more than its primary.

    Raises:
        CorruptData: The primary lost records: it was restored from an old backup, say.
    """
    if replica_last > primary_last:
        message = (
            f"{where} ends at position {replica_last}, its primary at {primary_last}: the primary"
            f" lost records; promote the replica, or {AGAIN}"
        )
        raise CorruptData(message)
