"""Upkeep of a replica in a bucket: a checkpoint now and then, and no log that grows for ever.

It works on a copy of one table's log and publishes what came of it. deltalake would do the same on
the URI, but it decodes that twice, so it misses a prefix that has a `%` in its name.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from sparkstore.bucket.table_publisher import TablePublisher
from sparkstore.bucket.working_copy import bring_up_log
from sparkstore.errors import StoreError
from sparkstore.storage.storage import Storage
from sparkstore.tables.delta_files import committed_at_s, log_file, versions
from sparkstore.tables.root import Identity, Root

_log = logging.getLogger(__name__)

_READER_HOURS = 24
"""A query elsewhere may take so long."""


def tidy(replica: Storage, table: str) -> None:
    """Keep the log of a replica's table short, and remove files that it has not named for a day.

    A file that was uploaded and never named stays, since a run may be about to name it. A failure
    is a line in the log: the next time does it.
    """
    try:
        with TemporaryDirectory(prefix="sparkstore-upkeep-") as name:
            _tidy(replica, Root(Path(name), Identity("")), table)
    except (StoreError, DeltaError, OSError) as reason:
        _log.warning("%s/%s was not tidied: %s", replica.location, table, reason)


def _tidy(replica: Storage, copy: Root, table: str) -> None:
    bring_up_log(replica, copy.path, table)
    publisher = TablePublisher(replica, copy, table, None)
    opened = DeltaTable(str(copy.table(table)))
    opened.create_checkpoint()
    publisher.publish_checkpoint()
    oldest = min(versions(copy.table(table)))
    entry = log_file(copy.table(table), oldest)
    if oldest and time.time() - committed_at_s(entry) >= _READER_HOURS * 3600:
        publisher.clean_log(oldest)
    for path in opened.vacuum(_READER_HOURS, dry_run=True, enforce_retention_duration=False):
        replica.delete(f"{table}/{path}")
