"""Take turns in writing to a root in a bucket: an object for each epoch, put if absent.

    <prefix>/epoch/00000000000000000007.json      who claimed epoch 7, and where its log is
                   00000000000000000007.closed    its store ended well: the bucket has everything

A store claims the next epoch before it commits anything, and serves only once its `opened` record
is in the journal. Of several who claim one epoch one wins, the others take the next; the epoch in
the journal decides among them (ARCHITECTURE: Rule 3). A store that serves sees a later claim and
stops (`check_not_claimed`), so that one that commits all the time does not keep its successor out.
One that does not look is stopped by its next commit.

How a start knows that a write-ahead log is missing: the claim says whether its store acknowledges
by a log on its own disk. It names the log by an id that is in a file of its folder, too. The store
that served last is that of the newest epoch in the journal, whoever claimed one since. No `.closed`
object beside its claim means that its log may hold what the bucket lacks. A folder with that id is
that log; any other folder of the same name is not.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

from sparkstore.errors import CorruptData, Fenced, Locked, StoreError
from sparkstore.storage.local import LocalStorage
from sparkstore.storage.storage import Storage

_log = logging.getLogger(__name__)

FOLDER = "epoch"
_NAME = re.compile(rf"{FOLDER}/(\d{{20}})\.(json|closed)$")
_KEPT = 10
"""Claims that stay, for whoever asks who wrote when."""
_WAL_ID_FILE = "wal.id"


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of one epoch, with the process that made it.

    Attributes:
        epoch: The number that was claimed.
        writer: UUID drawn for this claim, so that its owner knows it when an answer was lost.
        host: Name of the machine, to tell people.
        wal_dir: Folder of the write-ahead log there; empty: complete means in the bucket.
        wal_id: What is in a file of that folder, too.
        at_s: When, in seconds since 1970, to tell people: no clock decides anything.
    """

    epoch: int
    writer: str
    host: str = ""
    wal_dir: str = ""
    wal_id: str = ""
    at_s: int = 0


def names(bucket: Storage) -> list[str]:
    """Objects of all claims, in the order of their epochs."""
    return sorted(file.name for file in bucket.files(FOLDER) if _NAME.fullmatch(file.name))


def highest(objects: list[str]) -> int:
    """The highest epoch that was claimed, 0 if there is none."""
    return max((int(match[1]) for name in objects if (match := _NAME.fullmatch(name))), default=0)


def unclosed(bucket: Storage, epoch: int, objects: list[str]) -> Claim | None:
    """The claim of an epoch whose store has not ended well, or not yet; None if it has.

    Args:
        bucket: Where the root is.
        epoch: That of the newest `opened` in the journal: no other store acknowledged anything
            that the bucket may lack.
        objects: `names` of the bucket.

    Raises:
        CorruptData: It cannot be read.
        StoreError: The bucket did not answer.
    """
    name = _name(epoch)
    if name not in objects or _closed(epoch) in objects:
        return None
    content = bucket.read(name)
    try:
        return Claim(**json.loads(content.content if content is not None else b""))
    except (ValueError, TypeError) as reason:
        message = f"{bucket.location}/{name} cannot be read ({reason}): restore it from a backup"
        raise CorruptData(message) from reason


def check_nobody_serves(bucket: Storage) -> None:
    """Refuse what only a root at rest may be changed by.

    A store that starts at this moment may be overtaken by whoever was let through: then it stops,
    as at any take-over, and nothing is lost.

    Raises:
        Locked: A store serves it, or did not end well: nobody here can tell which.
        StoreError: The bucket did not answer.
    """
    objects = names(bucket)
    last = unclosed(bucket, highest(objects), objects)
    if last is not None:
        message = (
            f"{bucket.location}: a store on {last.host} serves it, or did not end well: run this"
            " there, with --config if it has copy_dir; or serve it once and stop that"
        )
        raise Locked(message)


def claim_after(bucket: Storage, epoch: int, wal: tuple[Path, str] | None) -> Claim:
    """Claim the first epoch after this one that nobody has claimed.

    Args:
        bucket: Where the root is.
        epoch: The highest that is known.
        wal: Folder and id of the write-ahead log that the store will acknowledge by, if it does.
    """
    folder, wal_id = (str(wal[0]), wal[1]) if wal is not None else ("", "")
    while True:
        epoch += 1
        claim = Claim(epoch, uuid4().hex, socket.gethostname(), folder, wal_id, int(time.time()))
        if bucket.put_if_absent(_name(epoch), json.dumps(asdict(claim)).encode()):
            return claim


def check_not_claimed(bucket: Storage, epoch: int) -> None:
    """Check that no other store claimed the next epoch.

    Raises:
        Fenced: Somebody did: it takes over.
        StoreError: The bucket did not answer.
    """
    claim = bucket.read(_name(epoch + 1))
    if claim is not None:
        who = ""
        with suppress(ValueError, TypeError):
            who = f" on {Claim(**json.loads(claim.content)).host}"
        message = f"{bucket.location}: another store{who} takes over with epoch {epoch + 1}"
        raise Fenced(f"{message}; this one, of epoch {epoch}, stops")


def close(bucket: Storage, epoch: int) -> None:
    """Say that the bucket has all that the store of this epoch acknowledged; remove old claims.

    The newest claims stay: whoever made an older one finds a later one in the journal.
    """
    try:
        bucket.put_if_absent(_closed(epoch), b"")
        for name in names(bucket)[: -2 * _KEPT]:
            bucket.delete(name)
    except StoreError as reason:
        _log.warning("the bucket was not told that this store ended well: %s", reason)


def wal_id_in(folder: Path) -> str:
    """The id of a write-ahead log's folder; empty if it has none."""
    stored = LocalStorage(folder).read(_WAL_ID_FILE)
    return stored.content.decode(errors="replace") if stored is not None else ""


def own_wal_id(folder: Path) -> str:
    """Return the id of a write-ahead log's folder; a folder without one is given an id."""
    LocalStorage(folder).put_if_absent(_WAL_ID_FILE, uuid4().hex.encode())
    return wal_id_in(folder)


def _name(epoch: int) -> str:
    return f"{FOLDER}/{epoch:020d}.json"


def _closed(epoch: int) -> str:
    return f"{FOLDER}/{epoch:020d}.closed"
