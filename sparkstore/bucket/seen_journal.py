"""Remember which version of a root's journal a machine has seen, and notice a bucket without it.

A bucket that is put back from an older copy looks like any other root. A start that believed it
would throw away what this machine alone still has, and give its positions out again. So each
working copy has the file `seen.json`: the newest version of the journal that was in the bucket for
certain, and a digest of its log entry. Before a copy is brought up, that version must be there.

Why whatever was acknowledged is seen: the file is replaced, durably, after the put of a log entry
was answered and before any completion of its records fires (`publisher`). Why the journal is
enough: records leave it by a later version of it, so a bucket whose journal goes on from that
version, and lacks records, has a gap, which recovery finds.

Why a bucket that was not put back is never refused. Versions of the journal only rise, each is put
if absent, and none is changed; so what was there once is there, or a later checkpoint holds it.

- A new machine has no such file. One whose copy was made by an older release has none either.
- At an ordinary take-over another machine has put more versions after the one that was seen.
- A kill between a commit and its put leaves a version in the copy that was never published, and
  whose completions never fired. It was not seen, as only the answer of a put is, and goes.
- A kill between the put and this file leaves an older version in it, which the bucket has, too.
- A promotion raises the generation: whoever made it looked at what the replica lacks.
- A replica is not looked at: its primary has more, and brings it up.

Limit: a log entry that was let go of behind a checkpoint has no bytes to compare. A bucket that was
put back, and served elsewhere until then, passes for one that went on.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from sparkstore.errors import InvalidRequest
from sparkstore.storage.durable_files import fsync_path, replace_durably
from sparkstore.storage.storage import Storage
from sparkstore.tables.delta_contents import version_name
from sparkstore.tables.delta_files import log_file, version_of
from sparkstore.tables.fencing import REPLICA
from sparkstore.tables.root import Identity, Root

SEEN_FILE = "seen.json"
SET_ASIDE = "set-aside"


@dataclass(frozen=True, slots=True)
class SeenJournal:
    """The newest version of a journal that a machine knows to have been in its bucket.

    Attributes:
        location: The URI of the root.
        root_id: Identity of the root.
        generation: Generation of the root.
        version: Number of the version.
        digest: SHA-256 of its log entry.
    """

    location: str
    root_id: str
    generation: int
    version: int
    digest: str


def note_seen(copy: Root, version: int) -> None:
    """Remember that a version of the journal is in the bucket; the copy has its log entry.

    Raises:
        OSError: It is not remembered; nothing that it brought may be acknowledged.
    """
    own = copy.identity
    digest = _digest(log_file(copy.journal, version).read_bytes())
    seen = SeenJournal(own.primary, own.root_id, own.generation, version, digest)
    replace_durably(copy.path / SEEN_FILE, json.dumps(asdict(seen)).encode())


def seen_in(folder: Path) -> SeenJournal | None:
    """Return what a working copy remembers; None if it does not."""
    try:
        return SeenJournal(**json.loads((folder / SEEN_FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def check_not_behind(bucket: Storage, identity: Identity | None, folder: Path) -> None:
    """Refuse a bucket that lacks what this machine has seen in it.

    Args:
        bucket: Where the root is.
        identity: What it says of itself now; None if there is no root any more.
        folder: The working copy.

    Raises:
        InvalidRequest: It lacks it; nothing was changed.
        StoreError: It did not answer.
    """
    reason = _reason(bucket, identity, folder)
    if reason is not None:
        message = f"{reason}: put the newer bucket back; to go on without it, serve with"
        message += " --accept-loss, which keeps that copy, or move that folder away"
        raise InvalidRequest(message)


def _reason(bucket: Storage, identity: Identity | None, folder: Path) -> str | None:
    seen = seen_in(folder)
    if seen is None or seen.location != bucket.location:
        return None
    if identity is None:
        where = f"{bucket.location} has no root any more, and lacks the journal of {folder}"
        return f"{where}, which has version {seen.version}"
    if identity.role == REPLICA or identity.generation > seen.generation:
        return None
    return _reason_of_journal(bucket, identity, seen, folder)


def _reason_of_journal(
    bucket: Storage, identity: Identity, seen: SeenJournal, folder: Path
) -> str | None:
    where, copy = bucket.location, f"{folder}, which has version {seen.version}"
    entry = bucket.read(version_name("journal", seen.version))
    if entry is not None and _digest(entry.content) == seen.digest:
        return None
    newest = _newest(file.name for file in bucket.files("journal/_delta_log"))
    if identity.root_id != seen.root_id:
        return f"{where} is another root, with version {newest} of its journal, than {copy}"
    if entry is None and newest > seen.version:
        return None
    ends = f"{where} was put back: its journal ends with version {newest}"
    if entry is None:
        return f"{ends}, and lacks what was acknowledged in {copy}"
    return f"{ends}, and has another version {seen.version} than {copy}"


def set_aside(folder: Path, names: Iterable[str]) -> Path:
    """Move a working copy out of the way, within its folder, and return where it is.

    What it remembers is moved last: a kill before that leaves a start that is refused, and asked
    again.
    """
    aside = folder / SET_ASIDE
    aside.mkdir(mode=0o700, exist_ok=True)
    seen = seen_in(folder)
    target = aside / f"{len([*aside.iterdir()]):04d}-journal-{seen.version if seen else 0}"
    target.mkdir(mode=0o700)
    for name in (*names, SEEN_FILE):
        if (folder / name).exists():
            shutil.move(folder / name, target / name)
    fsync_path(target)
    fsync_path(aside)
    fsync_path(folder)
    return target


def _newest(names: Iterable[str]) -> int:
    numbers = (version_of(name.rpartition("/")[2]) for name in names)
    return max((number for number in numbers if number is not None), default=-1)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
