"""Start a store in a bucket: the steps that come before and beside those of a start on a disk.

In this order:

1. probe the store's conditional puts
2. lock the working copy, which keeps a second process of this machine out
3. check that the bucket has what this machine has seen in it (`seen_journal`)
4. look for the root; create it if the prefix is free
5. look for the write-ahead log of the store that served last, which must be here if it may hold
   what the bucket lacks
6. claim the next epoch

Why a creation may be cut off anywhere, and why two may create one root at a time: without
`root.json` no record was ever taken, and whoever comes next puts what is missing. Version 0 of a
table and `root.json` are those of whoever was first, and everybody reads them back.

From step 6 on the writer before stops (`epochs`), and the copy is brought up, replayed
into and opened. Where that writer committed once more meanwhile, which the first put finds out, the
copy is brought up again, under the same claim. It gives up when a later epoch is in the journal: of
two who start at a time the one that opened last serves.
"""

from __future__ import annotations

import logging
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sparkstore.bucket import epochs, working_copy
from sparkstore.bucket.epochs import Claim
from sparkstore.bucket.publisher import CommitPublisher
from sparkstore.bucket.seen_journal import check_not_behind
from sparkstore.config import StoreConfig
from sparkstore.errors import CorruptData, Fenced, InvalidRequest, Unavailable
from sparkstore.recovery.recovery import journal_tail
from sparkstore.storage.probe import check_is_conditional
from sparkstore.storage.storage import Storage
from sparkstore.tables.delta_contents import version_name
from sparkstore.tables.delta_files import log_file
from sparkstore.tables.fencing import check_primary_at, identity_at
from sparkstore.tables.lock import FileLock
from sparkstore.tables.private_folder import private_folder
from sparkstore.tables.root import (
    ROOT_FILE,
    TABLES,
    Identity,
    Root,
    as_root_file,
    open_or_create_root,
    open_root,
)

_log = logging.getLogger(__name__)

_PATIENCE_S = 60.0
"""A writer that is overtaken notices within `fence_check_s`, 10 s unless somebody says so."""
_ROUND_S = 0.5
_LEFT_BY_A_CREATION = re.compile(
    rf"({'|'.join(TABLES)})/_delta_log/{0:020}\.json|epoch/.*|probe-[0-9a-f]+"
)
_OF_A_TABLE = re.compile(rf"({'|'.join(TABLES)})/")


@dataclass(frozen=True, slots=True)
class OpenedCopy:
    """A working copy that says what the bucket says.

    Attributes:
        root: The folder, as a root.
        publisher: Publishes what is committed to it.
        wal_folders: Where a write-ahead log may be that is to be replayed.
    """

    root: Root
    publisher: CommitPublisher
    wal_folders: list[Path]


class BucketStart:
    """One start of a store in a bucket, from the checks to the opened copy.

    Attributes:
        accepted_loss: The bucket lacks what this machine has seen in it, and that was accepted: no
            write-ahead log that is here goes with it.
    """

    def __init__(
        self,
        bucket: Storage,
        config: StoreConfig,
        locks: ExitStack,
        wal_folder: Path | None,
        *,
        accept_loss: bool = False,
    ) -> None:
        """Look at everything that may refuse this start; nothing is claimed yet.

        Args:
            bucket: Where the root is.
            config: Where the copy is, and which log is given up.
            locks: Gets the lock of the copy, and of the log that is replayed.
            wal_folder: Where this start's write-ahead log will be, locked; None without one.
            accept_loss: Go on where the bucket lacks what this machine has seen in it, which is
                set aside.

        Raises:
            InvalidRequest: The store is not conditional; something else is there; a write-ahead
                log is not here; the bucket lacks what this machine has seen in it.
            Locked: Another process of this machine serves it.
            Fenced: It is a replica.
            StoreError: The bucket did not answer, or holds what cannot be read.
        """
        self._bucket, self._config, self._locks = bucket, config, locks
        self._wal_folder, self._lacks_log = wal_folder, False
        self.accepted_loss, self._epoch_before = False, 0
        check_is_conditional(bucket)
        self._folder = working_copy.folder_of(bucket.location, config.copy_dir)
        private_folder(self._folder)
        locks.callback(FileLock(self._folder / "writer.lock", bucket.location).release)
        _log.info("%s: the working copy is in %s", bucket.location, self._folder)
        self._check_not_behind(accept_loss=accept_loss)
        open_or_create(bucket)
        self._identity = check_primary_at(bucket)

    def rounds(self) -> Iterator[OpenedCopy]:
        """Bring up the copy, and again each time that the writer before was faster than our put.

        Raises:
            Fenced: A later start was faster, or the root is a primary no more.
            Unavailable: The writer before does not stop.
        """
        names, claim, folders = epochs.names(self._bucket), None, list[Path]()
        end = time.monotonic() + _PATIENCE_S
        while True:
            check_primary_at(self._bucket)
            root = working_copy.bring_up(self._bucket, self._identity, self._folder)
            tail = journal_tail(root)
            if claim is None:
                folders = self._wal_folders(epochs.unclosed(self._bucket, tail.epoch, names))
                known = (tail.epoch, epochs.highest(names), self._epoch_before)
                claim = self._claim(max(known))
            elif tail.epoch >= claim.epoch:
                message = f"{self._bucket.location}: another start was faster, and has epoch"
                message += f" {tail.epoch}; this one, of epoch {claim.epoch}, stops"
                raise Fenced(message)
            grace_s, lacks_log = self._config.reader_grace_s, self._lacks_log
            publisher = CommitPublisher(self._bucket, root, claim, grace_s, lacks_log=lacks_log)
            yield OpenedCopy(root, publisher, folders)
            publisher.close(is_well=False)
            if time.monotonic() > end:
                message = f"{self._bucket.location}: the writer before commits all the time, and"
                raise Unavailable(f"{message} does not look who takes over: stop it first")
            time.sleep(_ROUND_S)

    def _check_not_behind(self, *, accept_loss: bool) -> None:
        """Refuse a bucket that was put back; if its loss is accepted, set the copy aside.

        The next epoch is one after the copy's: positions are given out again, and whoever has read
        a record is to tell it from another at its position.
        """
        identity = identity_at(self._bucket)
        try:
            check_not_behind(self._bucket, identity, self._folder)
        except InvalidRequest as reason:
            if not accept_loss:
                raise
            aside = working_copy.set_aside(self._folder)
            _log.error("%s; the loss is accepted, and the copy is kept in %s", reason, aside)
            self.accepted_loss = self._lacks_log = True
            try:
                self._epoch_before = journal_tail(open_root(aside)).epoch
            except (CorruptData, OSError) as damage:
                _log.warning("%s cannot be read: %s", aside, damage)

    def _claim(self, after: int) -> Claim:
        folder = self._wal_folder
        wal = None if folder is None else (folder, epochs.own_wal_id(folder))
        return epochs.claim_after(self._bucket, after, wal)

    def _wal_folders(self, last: Claim | None) -> list[Path]:
        """Return log folders of the store that served last, if they may hold what the bucket lacks.

        Raises:
            InvalidRequest: It is not here.
            Locked: That store runs here.
        """
        own = [] if self._wal_folder is None else [self._wal_folder]
        if self.accepted_loss:
            return own
        if last is None or not last.wal_id:
            return own  # what is there of an earlier epoch is set aside
        for folder in (*own, Path(last.wal_dir)):
            if epochs.wal_id_in(folder) == last.wal_id:
                if folder not in own:
                    self._locks.callback(FileLock(folder / "wal.lock", str(folder)).release)
                    return [folder, *own]
                return own
        where = self._bucket.location
        if self._config.lost_wal == last.wal_id:
            _log.error(
                "%s: the write-ahead log %s is given up: what it alone held is lost",
                where,
                last.wal_id,
            )
            self._lacks_log = True
            return own
        message = (
            f"{where}: the store that served it last, on {last.host}, did not end well, and its"
            f" write-ahead log in {last.wal_dir} may hold what was acknowledged and is not in the"
            f" bucket: start there, or bring that folder here and name it as wal_dir; or give it"
            f' up: lost_wal = "{last.wal_id}"'
        )
        raise InvalidRequest(message)


def open_or_create(bucket: Storage) -> Identity:
    """Return the identity of the root in a bucket; create it as a primary if the prefix is free.

    Raises:
        InvalidRequest: There is something else.
        CorruptData: There are tables with records, and no `root.json`; or it cannot be read.
        StoreError: The bucket did not answer.
    """
    identity = identity_at(bucket)
    if identity is not None:
        return identity
    _check_free(bucket)
    with tempfile.TemporaryDirectory(prefix="sparkstore-new-root-") as name:
        new = open_or_create_root(Path(name) / "root")
        for table in TABLES:
            first = log_file(new.table(table), 0).read_bytes()
            bucket.put_if_absent(version_name(table, 0), first)
        bucket.put_if_absent(ROOT_FILE, as_root_file(new.identity))
    identity = identity_at(bucket)
    if identity is None:
        message = f"{bucket.location}/{ROOT_FILE} went while it was created: try again"
        raise CorruptData(message)
    return identity


def _check_free(bucket: Storage) -> None:
    for file in bucket.files():
        if _LEFT_BY_A_CREATION.fullmatch(file.name):
            continue
        if _OF_A_TABLE.match(file.name):
            message = f"{bucket.location} holds {file.name} but no {ROOT_FILE}: restore that"
            raise CorruptData(f"{message} from a backup")
        message = f"{bucket.location} is no sparkstore root, and holds {file.name!r}: choose"
        raise InvalidRequest(f"{message} another prefix")
