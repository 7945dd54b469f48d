"""The views of a root in the catalog of a session that has one, published after a compaction."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from sparkstore.bucket.cluster_tables import PublicTables, s3a
from sparkstore.current.publication import FOLDER
from sparkstore.errors import InvalidRequest
from sparkstore.jobs import job_runs
from sparkstore.session import reads_s3a, tell_hadoop
from sparkstore.storage.objects import ObjectStorage
from sparkstore.tables.root import Root
from sparkstore.views import views

_NAMES = {"current_queues": "queues", "current_queue_messages": "queue_messages"}
"""What the plain tables are called there, where `queues` is a view."""


@dataclass(frozen=True, slots=True)
class CatalogViews:
    """Describe the views that were asked for in a catalog.

    Attributes:
        schema: Where the views go; empty: nothing is published.
        is_current: Whether the tables `current` are named there, too.
        uri: The URI of a root in a bucket, which Spark reads as `s3a://`.
    """

    schema: str
    is_current: bool
    uri: str


def check_may_publish(spark: SparkSession, wanted: CatalogViews) -> None:
    """Refuse what `publish_views` would refuse, before hours of work.

    Raises:
        InvalidRequest: The session has no catalog that outlives it, or could not read the bucket;
            no such name.
    """
    if not wanted.schema:
        return
    views.check_may_publish(spark, wanted.schema)
    if wanted.uri and s3a(wanted.uri) and not reads_s3a():
        message = f"{wanted.uri}: Spark has no client of S3 for views of it: give spark-submit"
        raise InvalidRequest(f"{message} --properties-file conf/spark-cluster.conf")


def publish_views(spark: SparkSession, root: Root, wanted: CatalogViews) -> None:
    """Publish what was asked for, if anything was.

    Args:
        spark: The job's session.
        root: The root; of one in a bucket the job's copy.
        wanted: What was asked for.

    Raises:
        StoreError: The catalog does not take them, or the session has none.
        OSError, DeltaError: The table `job_runs` cannot be made.
    """
    if not wanted.schema:
        return
    where = str(root.path)
    if wanted.uri:
        where = s3a(wanted.uri)
        remote = PublicTables(ObjectStorage(wanted.uri), root.path, where, {})
        tell_hadoop(spark, remote.hadoop_settings())
        root = replace(root, remote=remote)
    else:
        job_runs.create(root)  # whose first row is written when this run is over
    tables = {name: f"{where}/{FOLDER}/{of}" for name, of in _NAMES.items()}
    views.publish(spark, root, wanted.schema, tables if wanted.is_current else {})
