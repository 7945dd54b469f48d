"""Publish what was committed to the working copy's journal: one version after the other.

A version is in the bucket when the put of its log entry was answered, or read back: its data files
are there before, and nobody can replace it, since every put of a log entry is `put_if_absent`.

Why a commit is published once, and none overwrites another's: the version number is the name, and
the bytes name the writer, its epoch, its number and data files with UUIDs. Whoever is told that
the name is taken reads what stands: these bytes, then an answer was lost and it is published; other
bytes, then another writer was first, and this one is `Fenced`: it publishes nothing more, because
each later version of its copy would come after one that is not its own. So what the bucket holds of
the journal is, at each moment, what one chain of writers committed, each after the one before.

Why a kill between any two puts is harmless: data files without their log entry are named by nobody;
a log entry is whole or absent. Whoever starts next begins with what the bucket holds, and with the
write-ahead log if there is one.
"""

from __future__ import annotations

import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor

from sparkstore.bucket import epochs, working_copy
from sparkstore.bucket.epochs import Claim
from sparkstore.errors import Fenced, InvalidRequest, StoreError, Unavailable
from sparkstore.storage.storage import Storage
from sparkstore.tables.delta_contents import version_name
from sparkstore.tables.delta_files import (
    checkpoints,
    log_file,
    newest_version,
    read_version,
    version_of,
    versions,
)
from sparkstore.tables.root import Root

_log = logging.getLogger(__name__)

_UPLOADS = 4


class CommitPublisher:
    """Used on the committer's thread, and by a start before there is one."""

    def __init__(self, bucket: Storage, root: Root, claim: Claim, reader_grace_s: float) -> None:
        """Take the copy as published: it was just brought up.

        Args:
            bucket: Where the root is.
            root: The working copy, just brought up.
            claim: The epoch that is published under.
            reader_grace_s: How long old log entries stay for whoever reads an old version.
        """
        self._bucket, self._root, self.claim = bucket, root, claim
        self._published = newest_version(root.journal)
        self._checkpoint = max(checkpoints(root.journal), default=-1)
        self._clean_after_s = time.monotonic() + reader_grace_s
        self._pool = ThreadPoolExecutor(_UPLOADS, thread_name_prefix="upload")

    @property
    def location(self) -> str:
        """Where the bucket's root is."""
        return self._bucket.location

    def publish(self) -> None:
        """Publish all that the copy's journal has and the bucket lacks.

        Raises:
            Unavailable: Not known how far it got: call again. Also if this user may not put there
                any more: somebody can repair that while the store pushes back.
            Fenced: Another writer committed.
        """
        try:
            while log_file(self._root.journal, self._published + 1).exists():
                self._publish(self._published + 1)
                self._published += 1
        except InvalidRequest as reason:
            raise Unavailable(str(reason)) from reason

    def tidy(self) -> None:
        """Publish the newest checkpoint, and let go of log entries as the copy did.

        A failure costs nothing but a line in the log: both are for whoever reads next.
        """
        try:
            self._publish_checkpoint()
            if time.monotonic() >= self._clean_after_s:
                self._clean_log()
        except (StoreError, OSError) as reason:
            _log.warning("the log of %s/journal was not tidied: %s", self.location, reason)

    def check_is_alone(self) -> None:
        """See that nobody takes over; from any thread.

        Raises:
            Fenced: Another store claimed the next epoch.
            StoreError: The bucket did not answer.
        """
        epochs.check_not_claimed(self._bucket, self.claim.epoch)

    def close(self, *, is_well: bool) -> None:
        """End; `is_well`: all that was acknowledged is published."""
        self._pool.shutdown()
        if is_well:
            epochs.close(self._bucket, self.claim.epoch)
            working_copy.keep(self._root)

    def _publish(self, version: int) -> None:
        journal = self._root.journal
        content = log_file(journal, version).read_bytes()
        added = [file.path for file in read_version(journal, version).adds]
        uploads = [
            self._pool.submit(self._bucket.upload, f"journal/{path}", journal / path)
            for path in added
        ]
        for upload in uploads:
            upload.result()
        if not self._bucket.put_if_absent(version_name("journal", version), content):
            raise Fenced(self._who_was_first(version))

    def _who_was_first(self, version: int) -> str:
        found = self._bucket.read(version_name("journal", version))
        writer, epoch = "another writer", "?"
        for line in found.content.splitlines() if found is not None else ():
            info = json.loads(line).get("commitInfo", {})
            writer = str(info.get("sparkstore.writer", writer))[:8]
            epoch = str(info.get("sparkstore.epoch", epoch))
        return (
            f"{self.location} is owned by writer {writer} of epoch {epoch}: it committed version"
            f" {version}; this writer, of epoch {self.claim.epoch}, stops"
        )

    def _publish_checkpoint(self) -> None:
        found = checkpoints(self._root.journal)
        newest = max((each for each in found if each <= self._published), default=-1)
        if newest > self._checkpoint:
            for file in found[newest]:
                self._bucket.upload(f"journal/_delta_log/{file.name}", file)
            self._checkpoint = newest

    def _clean_log(self) -> None:
        oldest = min(versions(self._root.journal), default=0)
        for file in self._bucket.files("journal/_delta_log"):
            version = version_of(file.name.rpartition("/")[2])
            if version is not None and version < oldest:
                self._bucket.delete(file.name)
