"""The command `current`: the queues as plain Delta tables, for readers without Spark.

`compact --publish` enters them in the catalog that Spark has, beside the views.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from sparkstore.cli.notes import note_unreplayed
from sparkstore.cli.output import fields, one_line
from sparkstore.cli.parsing import command
from sparkstore.errors import InvalidRequest, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkstore.cli.parsing import Subparsers
    from sparkstore.current.publication import CurrentReport
    from sparkstore.tables.root import Root

_NAMES = {"current_queues": "queues", "current_queue_messages": "queue_messages"}
"""What the plain tables are called there, where `queues` is a view."""


def add(subparsers: Subparsers) -> None:
    """Add the command `current` to the command line."""
    command(
        subparsers,
        current,
        "write the queues as plain tables, for readers without Spark",
        "Brings the Delta tables ROOT/current/queues and ROOT/current/queue_messages up to date,\n"
        "for deltalake, Polars, DuckDB and whatever else reads Delta. Needs no Java, and may run\n"
        "beside a serving store and jobs. Only message ids whose messages changed are written\n"
        "anew; as_of of current/queues says how old the tables are. A root in a bucket, also a\n"
        "replica, has the tables there; it is read by a copy on this machine, under the jobs'\n"
        "lease. Exit code 75: another publication, or of a bucket another job, is at work.\n\n"
        "examples, in a crontab, every five minutes:\n"
        "  */5 * * * * sparkstore current ROOT\n"
        "  */5 * * * * sparkstore current s3://lake/queues",
        positional=(("root", "folder of the root, or its URI in a bucket"),),
    )


def current(arguments: Namespace) -> int:
    """Bring the tables `current` up to date."""
    from sparkstore.current.publication import publish
    from sparkstore.storage.objects import is_object_uri
    from sparkstore.tables.root import open_root

    root = None if is_object_uri(arguments.root) else open_root(arguments.root)
    try:
        report = _publish_in_bucket(arguments.root) if root is None else publish(root)
    except DeltaError as reason:
        message = f"{arguments.root}: {one_line(str(reason))}: look at the storage, run it again"
        raise Unavailable(message) from reason
    if arguments.json:
        print(report.as_json())
    else:
        for line in fields(asdict(report)):
            print(line)
    if root is not None:
        note_unreplayed(root)
    return 0


def _publish_in_bucket(uri: str) -> CurrentReport:
    """Publish the tables `current` of a root in a bucket, by a copy whose commits go there."""
    from sparkstore.bucket.job_copy import folder_of_jobs, job_copy
    from sparkstore.current.publication import TABLES, publish
    from sparkstore.storage.objects import ObjectStorage
    from sparkstore.tables.fencing import PRIMARY, REPLICA

    bucket, as_of = ObjectStorage(uri), datetime.now(UTC)
    folder, roles = folder_of_jobs(bucket.location), (PRIMARY, REPLICA)
    with job_copy(bucket, "current", folder, tables=TABLES, roles=roles) as copy:
        report = publish(copy.root, at=copy.publish, as_of=as_of)
        copy.finish()
    return replace(report, root=copy.location)


def check_may_publish(spark: SparkSession, arguments: Namespace, uri: str = "") -> None:
    """Refuse what `publish_views` would refuse, before hours of work.

    Args:
        spark: The job's session.
        arguments: Those of the command.
        uri: The URI of a root in a bucket.

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
        uri: The URI of a root in a bucket, which Spark reads as `s3a://`.

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
