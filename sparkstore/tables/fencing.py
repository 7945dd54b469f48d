"""Check that a root may be written: its role is primary, and none of its replicas took over.

Three replace `root.json`, and no change is lost: the creator of a root, once, by a hard link;
`replicate`, which adds itself to the primary's `replicas`; `promote`, which changes the role of
both. The last two replace it only if it is still what they read (`change_stored_identity`): so a
replication that registers cannot write an old role back over `fenced`. Everybody else only reads:
the file is replaced atomically and durably, so what is read is whole.

What a cut-off costs: a primary that can read neither its own `root.json` nor its replicas' keeps
serving. The messages that it accepts from then on are lost to the new primary. A witness prevents
this (`sparkstore.witness`).
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparkstore.errors import CorruptData, Fenced, StoreError
from sparkstore.storage.local import LocalStorage
from sparkstore.storage.objects import ObjectStorage, is_object_uri
from sparkstore.storage.storage import Storage
from sparkstore.tables.root import ROOT_FILE, Identity, Root, identity_in, open_root, path_of

_log = logging.getLogger(__name__)

_BUCKET_PATIENCE_S = 5.0
"""A start must not wait for long for a bucket that does not answer."""

_silent_buckets: set[str] = set()
"""Those that did not answer, and that the log was told of."""

PRIMARY, REPLICA, FENCED, COPY = "primary", "replica", "fenced", "copy"
STANDBY = "standby"
"""Roles; a copy is what a store that serves a bucket works on, and never a root of its own. A
standby gets its primary's records as they are written (`sparkstore.standby`), a replica by jobs."""


def check_may_serve(where: Path) -> None:
    """Refuse to write to a root that is not, or is no longer, the primary of its copies.

    Raises:
        Fenced: Its role is not primary, or a replica of it was promoted.
        StoreError: Its own `root.json` cannot be read; a replica's that cannot is passed over.
    """
    identity = open_root(where).identity
    _check_is_primary(where, identity)


def check_primary_at(storage: Storage) -> Identity:
    """Return the identity of the root in a bucket, after checking that it may be served.

    Raises:
        Fenced: Its role is not primary, or a replica of it was promoted.
        StoreError: Its own `root.json` is gone or cannot be read; a replica's that cannot is passed
            over.
    """
    identity, where = identity_at(storage), storage.location
    if identity is None:
        message = f"{where}/{ROOT_FILE} is gone: restore it from a replica or a backup"
        raise CorruptData(message)
    _check_is_primary(where, identity)
    return identity


def check_may_work(where: Path) -> None:
    """Refuse a job on a root that was superseded; a replica is worked on like a primary.

    Raises:
        Fenced: Its role is fenced, or a replica of it was promoted.
        StoreError: Its own `root.json` cannot be read.
    """
    check_not_superseded(where, open_root(where).identity)


def check_not_superseded(where: Path | str, identity: Identity) -> None:
    """Refuse a root that is not, or is no longer, the primary of its copies, wherever it is.

    Raises:
        Fenced: Its role is fenced, or a replica of it was promoted.
    """
    if identity.role == COPY:
        message = f"{where} is a working copy of {identity.primary}: use that, by its URI"
        raise Fenced(message)
    if identity.role not in {PRIMARY, REPLICA, STANDBY}:
        message = (
            f"{where} is fenced: {identity.successor or 'a replica of it'} took over; use that, or"
            f" empty this {_place(where)} to make it a replica"
        )
        raise Fenced(message)
    for replica in identity.replicas:
        other = successor_at(replica, identity)
        if other is not None:
            message = (
                f"{where} has generation {identity.generation}, its replica {replica} was promoted"
                f" to {other.generation}: use that, or empty this {_place(where)} to make it a"
                " replica"
            )
            raise Fenced(message)


def _check_is_primary(where: Path | str, identity: Identity) -> None:
    if identity.role == REPLICA:
        message = f"{where} is a replica of {identity.primary}: to serve it, sparkstore promote it"
        raise Fenced(message)
    if identity.role == STANDBY:
        message = f"{where} is a standby of {identity.primary}: serve it with --standby-of, or"
        raise Fenced(f"{message} promote it if that machine is gone")
    check_not_superseded(where, identity)


def _place(where: Path | str) -> str:
    return "prefix" if is_object_uri(where) else "folder"


def successor_at(where: str, primary: Identity) -> Identity | None:
    """Return the identity of a replica that was promoted; None if it was not, or cannot be read."""
    try:
        if is_object_uri(where):
            other = identity_at(ObjectStorage(where, patience_s=_BUCKET_PATIENCE_S))
        else:
            other = identity_at(LocalStorage(path_of(where)))
    except (StoreError, OSError) as reason:
        if is_object_uri(where) and where not in _silent_buckets:
            _silent_buckets.add(where)  # a watch looks every few seconds
            _log.warning("whether %s was promoted is not known: %s", where, reason)
        return None
    _silent_buckets.discard(where)
    if other is None or primary.root_id not in {other.primary_id, *other.superseded}:
        return None
    return other if other.generation > primary.generation else None


def identity_at(storage: Storage) -> Identity | None:
    """Return the identity of the root in a folder or a bucket; None if there is none.

    Raises:
        CorruptData: Its `root.json` cannot be read, or is from a newer schema version.
        StoreError: The storage did not answer.
    """
    stored = storage.read(ROOT_FILE)
    where = f"{storage.location}/{ROOT_FILE}"
    return None if stored is None else identity_in(stored.content, where)


def change_identity(root: Root, change: Callable[[Identity], dict[str, Any]]) -> Identity:
    """Replace `root.json` of a root on a disk: see `change_stored_identity`.

    Raises:
        CorruptData: It cannot be read.
        OSError: It cannot be written; the old one stands.
    """
    return change_stored_identity(LocalStorage(root.path), change)


def change_stored_identity(
    storage: Storage, change: Callable[[Identity], dict[str, Any]]
) -> Identity:
    """Replace `root.json`, durably, with what it says now and some fields changed.

    Fields that this version does not know are kept. Why no change of another is lost: it is
    replaced only if it is still what `change` was shown, else `change` is shown what it is now.

    Args:
        storage: Where the root is whose `root.json` is replaced.
        change: Gets what the file says; returns the fields to change, and is asked again where
            somebody else was faster. Nothing is written if there are none; what it raises leaves
            everything as it was.

    Raises:
        CorruptData: It cannot be read.
        OSError: It cannot be written; the old one stands.
        StoreError: The same of a bucket, as `Storage` says it.
    """
    where = f"{storage.location}/{ROOT_FILE}"
    while True:
        stored = storage.read(ROOT_FILE)
        if stored is None:
            message = f"{where} is gone: restore it from a replica or a backup"
            raise CorruptData(message)
        identity = identity_in(stored.content, where)
        changed = change(identity)
        if not changed:
            return identity
        content = json.dumps(json.loads(stored.content) | changed, indent=2).encode()
        if storage.replace_if_unchanged(ROOT_FILE, content, stored.tag):
            return identity_in(content, where)


class FenceWatch:
    """Looks every so often whether the root may still be written to; once fenced, says so.

    Decision: a thread of its own, not a turn of the committer's. A replica may lie on a mount that
    hangs, and reading its `root.json` must not hold up Delta commits. While Delta fails, which
    is when an operator promotes a replica, the committer is busy trying again.
    """

    def __init__(
        self,
        check: Callable[[], None],
        interval_s: float,
        on_fenced: Callable[[StoreError], None],
    ) -> None:
        """Start a thread that checks at intervals.

        Args:
            check: Raises `Fenced` if somebody took over, as `check_may_serve` does.
            interval_s: Between two looks, in seconds.
            on_fenced: Called at most once, on the watch's thread.
        """
        self._check, self._interval_s, self._on_fenced = check, interval_s, on_fenced
        self._stopping = threading.Event()
        self._complained = False
        threading.Thread(target=self._run, name="fence", daemon=True).start()

    def stop(self) -> None:
        """Look no more. Does not wait for a look that hangs."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            try:
                self._check()
            except Fenced as fenced:
                self._on_fenced(fenced)
                return
            except (StoreError, OSError) as reason:
                if not self._complained:
                    _log.warning("not known whether a replica took over: %s", reason)
                self._complained = True
            else:
                self._complained = False
