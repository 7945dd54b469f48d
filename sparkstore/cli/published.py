"""`compact --publish`: the views in the catalog that Spark has, and the tables of `--current`."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkstore.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkstore.tables.root import Root

_NAMES = {"current_queues": "queues", "current_queue_messages": "queue_messages"}
"""What the plain tables are called there, where `queues` is a view."""


def check_may_publish(spark: SparkSession, arguments: Namespace, uri: str = "") -> None:
    """Refuse what `publish_views` would refuse, before hours of work.

    Args:
        spark: The job's session.
        arguments: Those of the command.
        uri: Of a root in a bucket.

    Raises:
        InvalidRequest: The session has no catalog that outlives it, or could not read the bucket;
            no such name.
    """
    from sparkstore.bucket.cluster_tables import s3a
    from sparkstore.session import reads_s3a
    from sparkstore.views import views

    if not arguments.publish:
        return
    views.check_may_publish(spark, arguments.publish)
    if uri and s3a(uri) and not reads_s3a():
        message = f"{uri}: Spark has no client of S3 for views of it: give spark-submit"
        raise InvalidRequest(f"{message} --properties-file conf/spark-cluster.conf")


def publish_views(spark: SparkSession, root: Root, arguments: Namespace, uri: str = "") -> None:
    """Publish what was asked for, if anything was.

    Args:
        spark: The job's session.
        root: The root; of one in a bucket the job's copy.
        arguments: Those of the command.
        uri: Of a root in a bucket, which Spark reads as `s3a://`.

    Raises:
        StoreError: The catalog does not take them, or the session has none.
    """
    from sparkstore.current.publication import FOLDER
    from sparkstore.views import views

    if not arguments.publish:
        return
    where = str(root.path)
    if uri:
        from sparkstore.bucket.cluster_tables import PublicTables, s3a
        from sparkstore.session import tell_hadoop
        from sparkstore.storage.objects import ObjectStorage

        where = s3a(uri)
        remote = PublicTables(ObjectStorage(uri), root.path, where, {})
        tell_hadoop(spark, remote.hadoop_settings())
        root = replace(root, remote=remote)
    tables = {name: f"{where}/{FOLDER}/{of}" for name, of in _NAMES.items()}
    views.publish(spark, root, arguments.publish, tables if arguments.current else {})
