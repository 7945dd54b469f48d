"""`sparkstore reconcile`: check every copy of a store, repair what can be repaired."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparkstore.cli.commands import opened_root
from sparkstore.cli.jobs import job_options, run_job, where_executors_read
from sparkstore.cli.notes import note, note_unreplayed
from sparkstore.cli.output import fields, table
from sparkstore.cli.parsing import command
from sparkstore.errors import InvalidRequest
from sparkstore.tables.root import open_root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkstore.cli.parsing import Subparsers
    from sparkstore.jobs.report import JobReport

_SHOWN = ("severity", "check", "subject", "repair", "advice")


def add(subparsers: Subparsers) -> None:
    """Add the command `reconcile` to the command line."""
    parser = command(
        subparsers,
        reconcile,
        "check that all copies of a store agree; repair them",
        "Checks every invariant, and compares state, history, journal, views, recovery and a\n"
        "replica entry by entry. Findings are rows of the Delta table ROOT/findings. Safe to\n"
        "kill, to repeat, and to run beside a serving store. Exit code 0: nothing is wrong; 1: an\n"
        "error is left; 75: another job is at work.\n\n"
        "examples:\n"
        "  sparkstore reconcile --replica /mnt/other/replica ROOT\n"
        "  sparkstore reconcile --repair ROOT && sparkstore sql ROOT 'SELECT * FROM queues'\n"
        "  sparkstore reconcile s3://lake/queues       checks a copy; findings are only printed\n"
        "  sparkstore reconcile --repair s3://lake/queues",
    )
    parser.add_argument("--replica", metavar="DIR", help="folder of its copy, compared as well")
    parser.add_argument(
        "--repair",
        action="store_true",
        help="repair history and state by Spark, acquisitions through the broker",
    )
    parser.add_argument(
        "--purge-lost",
        action="store_true",
        help="with --repair: drop messages whose content is lost in every copy",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings of the store, if no broker runs"
    )
    job_options(parser)


def reconcile(arguments: Namespace) -> int:
    """Run the reconciliation job once."""
    from sparkstore.config import StoreConfig, read_config
    from sparkstore.reconcile.comparable_roots import check_roots
    from sparkstore.settings_file import audit_file
    from sparkstore.storage.objects import is_object_uri

    uri = arguments.root if is_object_uri(arguments.root) else ""
    executors_at = where_executors_read(uri) if uri else ""
    if executors_at and (arguments.replica or arguments.repair):
        message = "--repair and --replica work on this machine, which executors do not see"
        raise InvalidRequest(f"{message}: give spark-submit --master 'local[2]'")
    if uri and arguments.repair:
        return _repair_bucket(arguments)
    config = read_config(arguments.config) if arguments.config else StoreConfig()
    with opened_root(arguments.root, whole=True, executors_at=executors_at) as root:
        # Before the frame: what may not be compared gets no row in its `job_runs` either.
        roots = check_roots(root.path, arguments.replica)

        def work(spark: SparkSession) -> JobReport:
            from sparkstore.reconcile import reconcile
            from sparkstore.session import tell_hadoop

            if root.remote is not None:
                tell_hadoop(spark, root.remote.hadoop_settings())
            report = reconcile.run(
                spark,
                root,
                replica=roots.replica,
                repair=arguments.repair,
                purge_lost=arguments.purge_lost,
                config=config,
                audit_file=audit_file(arguments.config) if arguments.config else None,
            )
            return replace(report, root=uri or report.root)

        code = run_job("reconcile", roots.root.path, work, arguments, _printed, uri)
        note_unreplayed(roots.root)
    return code


def _repair_bucket(arguments: Namespace) -> int:
    """Reconcile a root in a bucket, by a copy whose commits are published there."""
    from sparkstore.bucket.job_copy import folder_of_jobs, job_copy
    from sparkstore.config import StoreConfig, read_config
    from sparkstore.replication import replicas
    from sparkstore.settings_file import audit_file
    from sparkstore.storage.objects import ObjectStorage

    if arguments.replica:
        open_root(arguments.replica)  # it may not be absent, as one that is about to be made
        replicas.check(arguments.root, arguments.replica)
    config = read_config(arguments.config) if arguments.config else StoreConfig()
    bucket = ObjectStorage(arguments.root)
    folder = folder_of_jobs(bucket.location, config.copy_dir)
    with job_copy(bucket, "reconcile", folder, mends=True) as copy:
        back = copy.put_back()
        if back:
            note(f"{len(back)} data files that the bucket had lost are back, from {folder}")

        def published(step: str) -> None:
            copy.publish(step)
            if step == "store":
                copy.follow_journal()

        def work(spark: SparkSession) -> JobReport:
            from sparkstore.reconcile import reconcile

            report = reconcile.run(
                spark,
                copy.root,
                replica=arguments.replica,
                repair=True,
                purge_lost=arguments.purge_lost,
                config=config,
                audit_file=audit_file(arguments.config) if arguments.config else None,
                at=published,
            )
            copy.finish()
            return replace(report, root=bucket.location)

        return run_job("reconcile", folder, work, arguments, _printed, bucket.location)


def _printed(report: JobReport) -> Iterator[str]:
    """The findings as a table, then the figures."""
    told = asdict(report)
    found = told.pop("findings")
    if found:
        yield from table([{name: row[name] for name in _SHOWN} for row in found])
        yield ""
    yield from fields(told)
