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
from sparkstore.errors import Unavailable

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.current.publication import CurrentReport


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
