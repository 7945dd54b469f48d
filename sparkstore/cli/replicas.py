"""The commands of a replica: copy to it, and make it the primary."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from sparkstore.cli.jobs import job_options, limits_of, run_job
from sparkstore.cli.notes import note_unreplayed
from sparkstore.cli.output import fields, json_lines
from sparkstore.cli.parsing import at_least_0, command
from sparkstore.errors import InvalidRequest
from sparkstore.extras import check_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkstore.cli.parsing import Subparsers
    from sparkstore.jobs.report import JobReport

_PRIMARY = ("primary", "folder of the root to copy, or s3://BUCKET/PREFIX")
_REPLICA = ("replica", "folder of its copy, or s3://BUCKET/PREFIX")


def add(subparsers: Subparsers) -> None:
    """Add the commands `replicate` and `promote` to the command line."""
    _add_replicate(subparsers)
    _add_promote(subparsers)


def _add_replicate(subparsers: Subparsers) -> None:
    parser = command(
        subparsers,
        replicate,
        "copy new records to a replica, once",
        "The first run makes the replica, in a folder that is absent or empty. Safe to kill, to\n"
        "repeat, and to run beside a serving store. Records that the store had committed to Delta\n"
        "at its begin are in the replica at its end. Exit code 75: another job is at work there,\n"
        "or the primary's store must start first. 1: the two are no longer primary and replica;\n"
        "the line says why.\n"
        "A replica in a bucket (s3://…, with the extra s3) is made without Java: any engine can\n"
        "read its tables, its state is as fresh as the last `compact` of the primary, and its\n"
        "journal has the rest. Credentials and endpoint come from the environment (AWS_…) or from\n"
        "the role of the machine.\n\n"
        "examples, every five minutes in a crontab:\n"
        "  */5 * * * * sparkstore replicate ROOT /mnt/other/replica\n"
        "  */5 * * * * sparkstore replicate ROOT s3://lake/queues\n"
        "  */5 * * * * sparkstore replicate s3://lake/queues s3://far/queues",
        positional=(_PRIMARY, _REPLICA),
    )
    parser.add_argument(
        "--step-records", type=at_least_0, metavar="N", help="records folded at a time"
    )
    job_options(parser)


def _add_promote(subparsers: Subparsers) -> None:
    parser = command(
        subparsers,
        promote,
        "make a replica or a standby the primary",
        "Needs no Java. An old primary that can be reached is fenced: its store stops within\n"
        "`fence_check_s` (10 s) and does not start again. If it cannot be reached, stop it\n"
        "yourself, or give the root a witness beforehand (docs/jobs.md). Then this command waits\n"
        "until the old primary's lease has expired, and the two never both serve.\n"
        "Messages accepted after the last `replicate` are lost. For a planned change stop the\n"
        "store, replicate once more, and promote. A replica that is behind a readable primary is\n"
        "refused without --accept-loss.\n"
        "A replica in a bucket is promoted in place, to be served by its URI. With --into it is\n"
        "copied to a folder of this machine, and the bucket becomes that folder's replica.\n\n"
        "examples:\n"
        "  sparkstore promote /mnt/other/replica && sparkstore serve /mnt/other/replica\n"
        "  sparkstore promote s3://lake/queues && sparkstore serve s3://lake/queues\n"
        "  sparkstore promote s3://lake/queues --into /var/lib/queues",
        positional=(_REPLICA,),
    )
    parser.add_argument(
        "--primary",
        metavar="ROOT",
        help="where the old primary is now, and must be fenced (default: where it was, if it is)",
    )
    parser.add_argument(
        "--into",
        metavar="FOLDER",
        help="of a replica in a bucket: the new primary's folder, absent or empty",
    )
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="promote also if the old primary can be read and holds more than the replica",
    )
    parser.add_argument(
        "--no-witness",
        action="store_true",
        help="of a root with a witness that is lost for good: do not ask it; stop the old primary",
    )


def replicate(arguments: Namespace) -> int:
    """Run the replication job once."""
    from sparkstore.replication import replicas
    from sparkstore.storage.objects import is_object_uri

    if is_object_uri(arguments.replica):
        return _replicate_to_bucket(arguments)
    check_spark("replicate to a folder")
    # Before the frame: a root that may not be this replica gets no row in its `job_runs` either.
    replicas.check(arguments.primary, arguments.replica)

    def work(spark: SparkSession) -> JobReport:
        from sparkstore.replication import replicate

        limits = limits_of(arguments)
        return replicate.run(spark, arguments.primary, arguments.replica, limits=limits)

    code = run_job("replicate", arguments.replica, work, arguments)
    _note_unreplayed(arguments.primary)
    return code


def _note_unreplayed(primary: str) -> None:
    """Note records that the tables lack.

    A bucket is left out: its start says where a fuller log is.
    """
    from sparkstore.storage.objects import is_object_uri
    from sparkstore.tables.root import open_root

    if not is_object_uri(primary):
        note_unreplayed(open_root(primary))


def _replicate_to_bucket(arguments: Namespace) -> int:
    """Replicate to a bucket, which needs no Spark and no frame of a Spark job."""
    from sparkstore.jobs.job import run_without_spark
    from sparkstore.replication.bucket_copy import replicate_to_bucket
    from sparkstore.replication.bucket_replica import paired
    from sparkstore.storage.objects import ObjectStorage

    with paired(arguments.primary, ObjectStorage(arguments.replica)) as pair:
        report = run_without_spark(
            "replicate",
            pair.replica.location,
            lambda: replicate_to_bucket(pair),
            nice=arguments.nice,
            folder=arguments.textfile,
        )
    print(report.as_json() if arguments.json else "\n".join(fields(asdict(report))))
    _note_unreplayed(arguments.primary)
    return report.exit_code


def promote(arguments: Namespace) -> int:
    """Make a replica the primary."""
    from sparkstore.replication import bucket_promote
    from sparkstore.replication.promote import promote
    from sparkstore.storage.objects import ObjectStorage, is_object_uri

    more = {
        "primary": arguments.primary,
        "accept_loss": arguments.accept_loss,
        "ask_witness": not arguments.no_witness,
    }
    if is_object_uri(arguments.replica):
        replica = ObjectStorage(arguments.replica)
        if arguments.into is None:
            done = asdict(bucket_promote.promote_in_place(replica, **more))
        else:
            done = asdict(bucket_promote.promote_into(replica, arguments.into, **more))
    elif arguments.into is not None:
        raise InvalidRequest("--into is for a replica in a bucket: leave it out")
    else:
        done = asdict(promote(arguments.replica, **more))
    for line in json_lines([done]) if arguments.json else fields(done):
        print(line)
    return 0
