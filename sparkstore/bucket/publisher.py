"""Publish what a store committed to the working copy's journal, under the epoch that it claimed.

Why a commit is published once, and none overwrites another's: `table_publisher`. The bytes of a
log entry name the writer, its epoch and its number, so a store that finds another's in its way is
`Fenced`. What the bucket holds of the journal is, at each moment, what one chain of writers
committed, each after the one before. Whoever starts after a kill begins with that, and with the
write-ahead log if there is one.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

from sparkstore.bucket import epochs, working_copy
from sparkstore.bucket.epochs import Claim
from sparkstore.bucket.follower import Follower
from sparkstore.bucket.seen_journal import note_seen
from sparkstore.bucket.table_publisher import TablePublisher
from sparkstore.errors import Fenced, InvalidRequest, StoreError, Unavailable
from sparkstore.storage.durable_files import SyncFailed
from sparkstore.storage.local import LocalStorage
from sparkstore.storage.storage import Storage
from sparkstore.tables.delta_contents import contents, version_name
from sparkstore.tables.delta_files import versions
from sparkstore.tables.fencing import check_primary_at
from sparkstore.tables.root import Root

_log = logging.getLogger(__name__)

_UPLOADS = 4


class UnnamedFiles:
    """Data files of the journal that no version names any more: they leave the bucket after a time.

    They are of two kinds. The first are files that versions of this store removed, as merges and
    trims do. The second lay there when it began, named by no version: merged or trimmed before, or
    left by a store that was killed before its commit.

    Why none goes that a version names, even if this store was fenced and does not know it yet: a
    name is used once. The first kind was removed by a version that is in the bucket. The second was
    there before this store's `opened` was; whoever had uploaded it and had not committed it by then
    finds the next version taken, and begins anew with other names. The committer's thread notes
    them, another thread removes them.
    """

    def __init__(self, bucket: Storage, grace_s: float) -> None:
        """Begin without any file to remove.

        Args:
            bucket: Where they are.
            grace_s: How long each stays, for whoever reads an old version.
        """
        self._bucket, self._grace_s = bucket, grace_s
        self._noted: deque[tuple[float, str]] = deque()

    def note(self, names: Iterable[str]) -> None:
        """Note files that are to be removed after the grace."""
        since_s = time.monotonic()
        self._noted.extend((since_s, name) for name in names)

    def remove(self) -> None:
        """Remove those whose time has come; on one thread at a time.

        Raises:
            StoreError: The bucket did not answer; the rest is left for the next time.
        """
        while self._noted and time.monotonic() - self._noted[0][0] >= self._grace_s:
            self._bucket.delete(self._noted[0][1])
            self._noted.popleft()


class CommitPublisher:
    """Publishes a store's commits to its bucket.

    Used by the committer's thread, and by a start before.

    Attributes:
        claim: The epoch that is published under.
        lacks_log: A write-ahead log was given up at this start: what it alone held is lost.
        jobs: Follows what jobs commit to the bucket.
    """

    def __init__(
        self,
        bucket: Storage,
        root: Root,
        claim: Claim,
        reader_grace_s: float,
        *,
        lacks_log: bool = False,
    ) -> None:
        """Take the copy as published: it was just brought up.

        Args:
            bucket: Where the root is.
            root: The working copy, just brought up.
            claim: The epoch that is published under.
            reader_grace_s: How long old log entries stay for whoever reads an old version.
            lacks_log: A write-ahead log is given up.
        """
        self._bucket, self._root, self.claim = bucket, root, claim
        self.lacks_log = lacks_log
        self._clean_after_s = time.monotonic() + reader_grace_s
        self._pool = ThreadPoolExecutor(_UPLOADS, thread_name_prefix="upload")
        self._journal = TablePublisher(bucket, root, "journal", self._pool)
        self._seen = self._journal.published
        self._unnamed = UnnamedFiles(bucket, reader_grace_s)
        self._unnamed.note(_unnamed_in(bucket, root))
        self.jobs = Follower(bucket, root, reader_grace_s, self._unnamed.remove)

    @property
    def location(self) -> str:
        """Return the location of the bucket's root."""
        return self._bucket.location

    def publish(self) -> None:
        """Publish all that the copy's journal has and the bucket lacks, and remember it here.

        Raises:
            Unavailable: Not known how far it got: call again. Also if this user may not put there
                any more, or this disk is full: somebody can repair that while the store pushes
                back.
            SyncFailed: The disk of the copy failed.
            Fenced: Another writer committed.
        """
        try:
            taken = self._journal.publish()
            self._note_seen()
            self._unnamed.note(self._journal.take_removed())
            if taken is not None:
                self.check_may_serve()
                raise Fenced(self._who_was_first(taken))
        except InvalidRequest as reason:
            raise Unavailable(str(reason)) from reason

    def tidy(self) -> None:
        """Publish the newest checkpoint, and let go of log entries as the copy did.

        A failure costs nothing but a line in the log: both are for whoever reads next.
        """
        try:
            self._journal.publish_checkpoint()
            if time.monotonic() >= self._clean_after_s:
                self._journal.clean_log(min(versions(self._root.journal), default=0))
        except (StoreError, OSError) as reason:
            _log.warning("the log of %s/journal was not tidied: %s", self.location, reason)

    def check_is_alone(self) -> None:
        """Check that no other store takes over. Any thread may call this.

        Raises:
            Fenced: Another store claimed the next epoch, or a replica was promoted; or the bucket
                has not any more what was published, as it was put back.
            StoreError: The bucket did not answer.
        """
        epochs.check_not_claimed(self._bucket, self.claim.epoch)
        self.check_may_serve()
        self._check_not_put_back()

    def check_may_serve(self) -> None:
        """Check that the root is still a primary, and that no replica of it was promoted.

        Raises:
            Fenced: It is not.
            StoreError: The bucket did not answer.
        """
        check_primary_at(self._bucket)

    def close(self, *, is_well: bool) -> None:
        """End the publisher; `is_well`: all that was acknowledged is published."""
        self.jobs.stop()
        self._pool.shutdown()
        if is_well:
            epochs.close(self._bucket, self.claim.epoch)
            working_copy.keep(self._root)

    def _check_not_put_back(self) -> None:
        """Check that the newest version that was published is there: nothing removes it.

        A store that went on would put later versions after a gap, which nobody can read.
        """
        version = self._seen
        if self._bucket.read(version_name("journal", version)) is None:
            message = f"{self.location} was put back while it was served: it has no version"
            raise Fenced(f"{message} {version} of its journal any more; this store stops")

    def _note_seen(self) -> None:
        if self._journal.published == self._seen:
            return
        try:
            note_seen(self._root, self._journal.published)
        except SyncFailed:
            raise
        except OSError as reason:
            message = f"{self._root.path} cannot remember what it published: {reason}"
            raise Unavailable(message) from reason
        self._seen = self._journal.published

    def _who_was_first(self, version: int) -> str:
        stored = self._bucket.read(version_name("journal", version))
        writer, epoch = "another writer", "?"
        for line in stored.content.splitlines() if stored is not None else ():
            info = json.loads(line).get("commitInfo", {})
            writer = str(info.get("sparkstore.writer", writer))[:8]
            epoch = str(info.get("sparkstore.epoch", epoch))
        return (
            f"{self.location} is owned by writer {writer} of epoch {epoch}: it committed version"
            f" {version}; this writer, of epoch {self.claim.epoch}, stops"
        )


def _unnamed_in(bucket: Storage, root: Root) -> list[str]:
    """Data files of the journal that lie in the bucket and are not in a copy just brought up."""
    named = {
        f"journal/{unquote(path)}" for path in contents(LocalStorage(root.path), "journal").adds
    }
    return [
        file.name
        for file in bucket.files("journal")
        if "/_delta_log/" not in file.name and file.name not in named
    ]
