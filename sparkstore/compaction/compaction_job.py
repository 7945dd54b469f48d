"""A whole compaction of a root, in a folder or in a bucket, with all that belongs to a run of it.

    refuse      what cannot be published afterwards, before hours of work
    compact     records move and are folded (`compact`); in a bucket each commit is published
    current     the tables for readers without Spark, if they were asked for
    end         messages that stayed too long or failed too often (`expiry`)
    publish     the views, in the catalog of the session, if that was asked for

The command, `jobs/compact.py` and every schedule run this; they differ in how they are started.
Spark is loaded when the job runs: what is wrong with the root, and that too few records wait, is
said before.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from sparkstore.bucket.job_copy import TABLES, JobCopy, folder_of_jobs, job_copy
from sparkstore.compaction.plans.compact_plan import Limits, Upkeep
from sparkstore.config import StoreConfig
from sparkstore.current import publication
from sparkstore.errors import InvalidRequest, Locked, StoreError
from sparkstore.storage.objects import ObjectStorage, is_object_uri
from sparkstore.tables.root import Root, open_root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkstore.jobs.report import CompactReport

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """Options of a compaction.

    Attributes:
        limits: How much one commit folds.
        upkeep: What of history is kept.
        min_records: With fewer records to fold there is nothing to do.
        is_current: Whether the tables `current` are written, too.
        schema: Where the views are published in the session's catalog; empty: nowhere.
        config: Settings of the store, for when no broker runs.
        audit_file: Gets the audit lines then; None: `audit.log` in the root.
    """

    limits: Limits = field(default_factory=Limits)
    upkeep: Upkeep = field(default_factory=Upkeep)
    min_records: int = 0
    is_current: bool = False
    schema: str = ""
    config: StoreConfig | None = None
    audit_file: Path | None = None


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """A compaction that is about to run.

    Attributes:
        root: The root; of one in a bucket the job's copy.
        options: What it does.
        copy: The copy of a root in a bucket; None: the root is a folder.
        began_at: When the copy was brought up: the tables `current` are as of then.
    """

    root: Root
    options: CompactionOptions
    copy: JobCopy | None
    began_at: datetime

    @property
    def uri(self) -> str:
        """The URI of a root in a bucket; empty for a folder."""
        return "" if self.copy is None else self.copy.location

    def is_too_early(self) -> bool:
        """True if fewer records wait than were asked for.

        Tables that are broken do not count as few: the job heals them, or says what to do.
        """
        if not self.options.min_records:
            return False
        # It loads Spark's Python, and most runs ask for no number.
        from sparkstore.views.join_hints import waiting_records  # noqa: PLC0415

        try:
            waiting: float = waiting_records(self.root)
        except (StoreError, DeltaError, OSError):
            waiting = math.inf
        return waiting < self.options.min_records

    def run(self, spark: SparkSession) -> CompactReport:
        """Run the compaction once; each commit leaves a valid root, so a kill costs nothing.

        Raises:
            StoreError: As `compact.run`, `JobCopy.publish` and `catalog.publish_views`.
        """
        # Not before: they load Spark.
        from sparkstore.compaction import catalog, compact  # noqa: PLC0415
        from sparkstore.compaction.message_expiry import try_to_end_messages  # noqa: PLC0415

        root, options, copy = self.root, self.options, self.copy
        wanted = catalog.CatalogViews(options.schema, options.is_current, self.uri)
        catalog.check_may_publish(spark, wanted)
        if copy is None:
            report = compact.run(spark, root, limits=options.limits, upkeep=options.upkeep)
            deleted = report.files_deleted
        else:
            report = compact.run_in_copy(
                spark, root, copy.publish, limits=options.limits, upkeep=options.upkeep
            )
            # Now: what is ended below goes to the bucket, and not to this copy of it.
            self._make_current()
            deleted = copy.finish()
        where = self.uri or report.root
        ended = try_to_end_messages(spark, root, options.config, options.audit_file, self.uri)
        if copy is None:
            self._make_current()
        catalog.publish_views(spark, root, wanted)
        return replace(report, root=where, files_deleted=deleted, messages_ended=ended.done)

    def _make_current(self) -> None:
        """Write `current`; if somebody else is at it, that is done and the job has not failed."""
        if not self.options.is_current:
            return
        if self.copy is not None:
            publication.publish(self.root, at=self.copy.publish, as_of=self.began_at)
            return
        try:
            publication.publish(self.root)
        except Locked as reason:
            _log.warning("%s", reason)


@contextmanager
def compaction_job(
    where: str, options: CompactionOptions, executors_at: str = ""
) -> Iterator[CompactionJob]:
    """Open a root for a compaction; of one in a bucket a copy, under the jobs' lease.

    Args:
        where: The folder of a root, or its URI in a bucket.
        options: What the compaction does.
        executors_at: The bucket as executors on other machines name it; empty: they are here.

    Raises:
        InvalidRequest: There is no root, or an option is not for it.
        StoreError: As `open_root` and `job_copy`.
    """
    began_at = datetime.now(UTC)
    if not is_object_uri(where):
        yield CompactionJob(open_root(where), options, None, began_at)
        return
    if executors_at and options.is_current:
        message = "--current reads the tables on this machine: leave it out on a cluster, and run"
        raise InvalidRequest(f"{message} sparkstore current {where}")
    bucket = ObjectStorage(where)
    folder = folder_of_jobs(bucket.location, options.config.copy_dir if options.config else "")
    tables = (*TABLES, *publication.TABLES) if options.is_current else TABLES
    with job_copy(bucket, "compact", folder, executors_at, tables=tables) as copy:
        yield CompactionJob(copy.root, options, copy, began_at)
