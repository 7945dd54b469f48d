"""What a replication may do: decided from two identities and a few numbers. Pure: no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from sparkstore.errors import CorruptData, Fenced, InvalidRequest
from sparkstore.root import Identity

FILE_BYTES, LEAST_FILE_BYTES = 64 << 20, 8 << 20
"""Size that a file of the replica's history should have; at least, to have a task for each core."""
AGAIN = "empty that folder and replicate into it anew"


class Found(NamedTuple):
    """What the primary holds after the replica's end, counted without ghosts.

    Attributes:
        row_count: Records.
        total: Sum of their positions.
        last: Largest position; None without records.
    """

    row_count: int
    total: int
    last: int | None


def check_apart(primary: Path, replica: Path) -> None:
    """Refuse two names of one folder, and one root inside the other; links are followed.

    Raises:
        InvalidRequest: They are not two folders side by side.
    """
    one, other = primary.resolve(), replica.resolve()
    if one == other:
        message = f"{replica} is the primary itself: a replica needs a folder of its own"
        raise InvalidRequest(message)
    if one in other.parents or other in one.parents:
        message = f"{primary} and {replica} lie one in the other: choose another folder"
        raise InvalidRequest(message)


def check_primary(where: Path, identity: Identity) -> None:
    """Refuse to copy from what is itself a copy.

    Raises:
        InvalidRequest: Its role is replica.
    """
    if identity.role == "replica":
        message = f"{where} is a replica: replicate from its primary, {identity.primary}"
        raise InvalidRequest(message)


def check_pair(where: Path, replica: Identity, primary: Identity) -> None:
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


def end_of(found: Found, after: int) -> int | None:
    """The last position, if what was found goes on after `after` without a gap; else None."""
    if found.last is None or found.last <= after:
        return after
    length = found.last - after
    is_whole = (found.row_count, found.total) == (
        length,
        length * (found.last + after + 1) // 2,
    )
    return found.last if is_whole else None


class Opening(NamedTuple):
    """An `opened` record."""

    position: int
    epoch: int


def counts(openings: Iterable[Opening], after: int) -> str:
    """What a row of the journal after a position must fulfil to count, as a condition in SQL.

    A row is a ghost if an `opened` of a higher epoch has a position at or before its own (Rule 3):
    so it counts if its epoch is no less than the highest opened up to its position. Few numbers,
    no join.
    """
    least, higher = 0, list[Opening]()
    for opening in sorted(openings):
        if opening.position <= after:
            least = max(least, opening.epoch)
        elif opening.epoch > max([least, *(known.epoch for known in higher)]):
            higher.append(opening)
    if not higher:
        return f"epoch >= {least}"
    cases = "".join(f" WHEN position >= {at} THEN {epoch}" for at, epoch in reversed(higher))
    return f"epoch >= CASE{cases} ELSE {least} END"


class Extent(NamedTuple):
    """Largest position that a file of the primary holds, and its size."""

    last: int
    size_bytes: int


def cuts(after: int, last: int, files: Sequence[Extent], cores: int) -> list[tuple[int, int]]:
    """Ranges of positions (after, up to), one for each file to write, in order.

    Each ends where a file of the primary does, so that few are read twice.
    """
    share = sum(file.size_bytes for file in files) // cores
    enough = max(LEAST_FILE_BYTES, min(FILE_BYTES, share))
    ends = [after]
    size_bytes = 0
    for file in sorted(files):
        size_bytes += file.size_bytes
        if size_bytes >= enough and ends[-1] < file.last < last:
            ends.append(file.last)
            size_bytes = 0
    return [*pairwise([*ends, last])]


def check_not_ahead(where: Path, replica_last: int, primary_last: int) -> None:
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
