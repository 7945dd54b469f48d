"""A whole reconciliation of a root, in a folder or in a bucket; repairs are published there.

The command, `jobs/reconcile.py` and every schedule run this; they differ in how they are started.
Spark is loaded when the job runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparkstore.bucket.bucket_download import local_copy
from sparkstore.bucket.job_copy import JobCopy, folder_of_jobs, job_copy
from sparkstore.config import StoreConfig
from sparkstore.errors import InvalidRequest
from sparkstore.reconcile.comparable_roots import check_roots
from sparkstore.replication import replicas
from sparkstore.storage.objects import ObjectStorage, is_object_uri
from sparkstore.tables.root import Root, open_root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkstore.jobs.report import JobReport


@dataclass(frozen=True, slots=True)
class ReconcileOptions:
    """Options of a reconciliation.

    Attributes:
        replica: Folder of the root's replica, which is compared as well; None: none is.
        repair: Whether what is found is repaired.
        purge_lost: Whether messages are dropped whose content is lost in every copy.
        config: Settings of the store, for when no broker runs.
        audit_file: Gets the audit lines then; None: `audit.log` in the root.
    """

    replica: str | None = None
    repair: bool = False
    purge_lost: bool = False
    config: StoreConfig = field(default_factory=StoreConfig)
    audit_file: Path | None = None


@dataclass(frozen=True, slots=True)
class ReconcileJob:
    """A reconciliation that is about to run.

    Attributes:
        root: The root; of one in a bucket a copy.
        replica: Its replica, if there is one to compare.
        options: What it does.
        uri: The URI of a root in a bucket; empty for a folder.
        copy: The copy by which a root in a bucket is repaired.
        put_back: Data files that the bucket had lost, and has back from that copy.
    """

    root: Root
    replica: Root | str | None
    options: ReconcileOptions
    uri: str
    copy: JobCopy | None = None
    put_back: tuple[str, ...] = ()

    def run(self, spark: SparkSession) -> JobReport:
        """Check the root once, and repair what is wrong if that was asked for.

        Raises:
            StoreError: As `reconcile.run` and `JobCopy.publish`.
        """
        # Not before: they load Spark.
        from sparkstore.reconcile import reconcile  # noqa: PLC0415
        from sparkstore.session import tell_hadoop  # noqa: PLC0415

        if self.root.remote is not None:
            tell_hadoop(spark, self.root.remote.hadoop_settings())
        report = reconcile.run(
            spark,
            self.root,
            replica=self.replica,
            repair=self.options.repair,
            purge_lost=self.options.purge_lost,
            config=self.options.config,
            audit_file=self.options.audit_file,
            at=self._published,
        )
        if self.copy is not None:
            self.copy.finish()
        return replace(report, root=self.uri or report.root)

    def _published(self, step: str) -> None:
        if self.copy is not None:
            self.copy.publish(step)
            if step == "store":
                self.copy.follow_journal()


@contextmanager
def reconcile_job(
    where: str, options: ReconcileOptions, executors_at: str = ""
) -> Iterator[ReconcileJob]:
    """Open a root for a reconciliation.

    A root in a bucket is checked by a copy that is thrown away; it is repaired by the jobs' copy,
    under the jobs' lease, whose commits are published.

    Args:
        where: The folder of a root, or its URI in a bucket.
        options: What the reconciliation does.
        executors_at: The bucket as executors on other machines name it; empty: they are here.

    Raises:
        InvalidRequest: There is no root, or no replica of it; an option is not for it.
        StoreError: As `open_root`, `local_copy` and `job_copy`.
    """
    if executors_at and (options.replica or options.repair):
        message = "--repair and --replica work on this machine, which executors do not see"
        raise InvalidRequest(f"{message}: give spark-submit --master 'local[2]'")
    if not is_object_uri(where):
        yield _checked(open_root(where), options, "")
    elif options.repair:
        with _repair(ObjectStorage(where), where, options) as job:
            yield job
    else:
        with local_copy(where, whole=True, executors_at=executors_at) as root:
            yield _checked(root, options, where)


def _checked(root: Root, options: ReconcileOptions, uri: str) -> ReconcileJob:
    # Before the frame: what may not be compared gets no row in its `job_runs` either.
    roots = check_roots(root.path, options.replica)
    # The root as it was opened: of one in a bucket it knows where executors read it.
    return ReconcileJob(root, roots.replica, options, uri)


@contextmanager
def _repair(bucket: ObjectStorage, where: str, options: ReconcileOptions) -> Iterator[ReconcileJob]:
    if options.replica:
        open_root(options.replica)  # it may not be absent, as one that is about to be made
        replicas.check(where, options.replica)
    folder = folder_of_jobs(bucket.location, options.config.copy_dir)
    with job_copy(bucket, "reconcile", folder, mends=True) as copy:
        back = tuple(copy.put_back())
        yield ReconcileJob(copy.root, options.replica, options, bucket.location, copy, back)
