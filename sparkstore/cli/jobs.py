"""The commands that run a Spark job: their options, and how they end.

`jobs/*.py` are these same commands for spark-submit. Spark is loaded when a job runs, not before.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from sparkstore.cli.current import check_may_publish, publish_views
from sparkstore.cli.output import fields
from sparkstore.cli.parsing import at_least_0, command
from sparkstore.compaction.plans.compact_plan import Limits, Upkeep
from sparkstore.errors import InvalidRequest, Locked, StoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkstore.cli.parsing import Subparsers
    from sparkstore.config import StoreConfig
    from sparkstore.jobs.report import JobReport
    from sparkstore.tables.root import Root

_LEAST_PRIORITY = 19


def add(subparsers: Subparsers) -> None:
    """Add the commands that run a job: `compact` and its companions."""
    parser = command(
        subparsers,
        compact,
        "run the compaction job once",
        "Moves the journal's records to history and folds them into state. Safe to kill, to\n"
        "repeat, and to run beside a serving store. Exit code 75: another job is at work.\n"
        "Then messages that expired, or failed more often than their queue allows, go to its\n"
        "dead_letter_queue, or leave the store if it has none.\n\n"
        "examples, in a crontab: every ten minutes; every minute, if enough has come together:\n"
        "  */10 * * * * sparkstore compact ROOT\n"
        "  * * * * *    sparkstore compact --min-records 500000 ROOT\n"
        "  */10 * * * * sparkstore compact s3://lake/queues",
    )
    _add_upkeep(parser)
    parser.add_argument(
        "--step-records", type=at_least_0, metavar="N", help="records folded at a time"
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="settings of the store, if it has its own: to end messages while no broker runs",
    )
    job_options(parser)


def _add_upkeep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--min-records",
        type=at_least_0,
        default=0,
        metavar="N",
        help="do nothing, and start no JVM, if fewer records wait to be folded (default 0)",
    )
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument(
        "--history-days",
        type=_days,
        default=Upkeep().history_days,
        metavar="N",
        help="history older than this loses what no message on a queue needs (default 30)",
    )
    kept.add_argument(
        "--keep-history",
        dest="history_days",
        action="store_const",
        const=None,
        help="drop nothing from history",
    )
    parser.add_argument(
        "--publish",
        metavar="SCHEMA",
        help="make the views permanent in this schema of the catalog that Spark is configured with,"
        " and name the tables of --current there",
    )
    parser.add_argument(
        "--current",
        action="store_true",
        help="then write the tables for readers without Spark, as `sparkstore current` does",
    )


def job_options(parser: argparse.ArgumentParser) -> None:
    """The options that every job has."""
    group = parser.add_argument_group("how the job runs")
    group.add_argument("--heap", type=_heap, default="2g", help="heap of the JVM (default 2g)")
    group.add_argument(
        "--nice", type=_priority, default=_LEAST_PRIORITY, metavar="N",
        help="priority, 0 (as it is) to 19 (least, default)",
    )  # fmt: skip
    group.add_argument(
        "--textfile", type=Path, metavar="DIR", help="write metrics here, for Prometheus"
    )
    group.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show each step on standard error (default: if that is a terminal)",
    )


def compact(arguments: Namespace) -> int:
    """Run the compaction job once; then end messages as their queues say of expired ones."""
    from sparkstore.config import read_config
    from sparkstore.settings_file import audit_file
    from sparkstore.storage.objects import is_object_uri
    from sparkstore.tables.root import open_root

    config = read_config(arguments.config) if arguments.config else None
    audited = audit_file(arguments.config) if arguments.config else None
    if is_object_uri(arguments.root):
        return _compact_bucket(arguments, config, audited)
    root = open_root(arguments.root)
    if _is_too_early(root, arguments):
        return 0

    def work(spark: SparkSession) -> JobReport:
        from sparkstore.compaction import compact
        from sparkstore.compaction.expiry import try_to_end_messages

        check_may_publish(spark, arguments)
        report = compact.run(spark, root, limits=_limits(arguments), upkeep=_upkeep(arguments))
        ended = try_to_end_messages(spark, root, config, audited)
        if arguments.current:
            _make_current(root)
        publish_views(spark, root, arguments)
        return replace(report, messages_ended=ended.done)

    return run_job("compact", root.path, work, arguments)


def _compact_bucket(arguments: Namespace, config: StoreConfig | None, audited: Path | None) -> int:
    """Run the compaction of a root in a bucket, by a copy whose commits are published there."""
    from sparkstore.bucket.job_copy import TABLES as JOB_TABLES
    from sparkstore.bucket.job_copy import folder_of_jobs, job_copy
    from sparkstore.current.publication import TABLES as CURRENT_TABLES
    from sparkstore.current.publication import publish
    from sparkstore.storage.objects import ObjectStorage

    executors_at = _executors_at(arguments)
    bucket = ObjectStorage(arguments.root)
    folder = folder_of_jobs(bucket.location, config.copy_dir if config else "")
    tables = (*JOB_TABLES, *CURRENT_TABLES) if arguments.current else JOB_TABLES
    as_of = datetime.now(UTC)
    with job_copy(bucket, "compact", folder, executors_at, tables=tables) as copy:
        if _is_too_early(copy.root, arguments):
            return 0

        def work(spark: SparkSession) -> JobReport:
            from sparkstore.compaction import compact
            from sparkstore.compaction.expiry import try_to_end_messages
            from sparkstore.session import tell_hadoop

            check_may_publish(spark, arguments, copy.location)
            if copy.root.remote is not None:
                tell_hadoop(spark, copy.root.remote.hadoop_settings())
            report = compact.run(
                spark,
                copy.root,
                limits=_limits(arguments),
                upkeep=_upkeep(arguments),
                at=copy.publish,
                check=lambda _: None,  # it was, where the bucket was asked
            )
            if arguments.current:
                publish(copy.root, at=copy.publish, as_of=as_of)
            deleted, where = copy.finish(), copy.location
            ended = try_to_end_messages(spark, copy.root, config, audited, where)
            publish_views(spark, copy.root, arguments, where)
            return replace(report, root=where, files_deleted=deleted, messages_ended=ended.done)

        return run_job("compact", copy.root.path, work, arguments, uri=copy.location)


def _executors_at(arguments: Namespace) -> str:
    """Return the URI by which executors read a bucket, as `where_executors_read`, for a compaction.

    Raises:
        InvalidRequest: An option is not for a bucket, or not there.
    """
    named = where_executors_read(arguments.root)
    if named and arguments.current:
        message = "--current reads the tables on this machine: leave it out on a cluster, and run"
        raise InvalidRequest(f"{message} sparkstore current {arguments.root}")
    return named


def where_executors_read(uri: str) -> str:
    """A bucket as executors on other machines name it; empty if they are threads of this one.

    Raises:
        InvalidRequest: They could not read it.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else Spark is loaded for nothing
        return ""
    from sparkstore.bucket.cluster_tables import s3a
    from sparkstore.session import cluster, reads_s3a

    if not (master := cluster()):
        return ""
    named = s3a(uri)
    if not reads_s3a():
        message = f"{uri}: the executors of {master} have no client of S3: give spark-submit"
        raise InvalidRequest(f"{message} --properties-file conf/spark-cluster.conf")
    return named


def _is_too_early(root: Root, arguments: Namespace) -> bool:
    """Tell whether fewer records wait than were asked for, and say so."""
    least = arguments.min_records
    is_early = bool(least) and _waiting(root) < least
    if is_early:
        print(f"fewer than {least} records wait: nothing done", file=sys.stderr)
    return is_early


def _limits(arguments: Namespace) -> Limits:
    return Limits(arguments.step_records or Limits().step_records)


def _upkeep(arguments: Namespace) -> Upkeep:
    return Upkeep(history_days=arguments.history_days)


def _make_current(root: Root) -> None:
    """Write `current`; if somebody else is at it, that is done and the job has not failed."""
    from sparkstore.cli.notes import note
    from sparkstore.current.publication import publish

    try:
        publish(root)
    except Locked as reason:
        note(str(reason))


def run_job(
    job: str,
    root: str | Path,
    work: Callable[[SparkSession], JobReport],
    arguments: Namespace,
    shown: Callable[[JobReport], Iterable[str]] = lambda report: fields(asdict(report)),
    uri: str = "",
) -> int:
    """Run a job in its frame and print its report.

    Args:
        job: Name of the job, as `job_runs` and the metrics show it.
        root: The root that it changes.
        work: The job; imports what loads Spark itself.
        arguments: With those of `job_options`.
        shown: Lines of its report for people.
        uri: The URI of a root in a bucket, whose copy `root` is.
    """
    from sparkstore.jobs import job as frame

    settings = frame.JobSettings(
        heap=arguments.heap,
        nice=arguments.nice,
        textfile=arguments.textfile,
        progress=arguments.progress,
        uri=uri,
        began=getattr(arguments, "began", None),
    )
    report = frame.run(job, root, work, settings)
    if arguments.json:
        print(report.as_json())
    else:
        for line in shown(report):
            print(line)
    return report.exit_code


def _heap(text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]*[kmgKMG]", text):
        message = f"{text!r} is no size of a heap: write 2g, or 1500m"
        raise argparse.ArgumentTypeError(message)
    return text


def _waiting(root: Root) -> float:
    """Records to fold; more than any number if the tables are broken: the job heals, or says so."""
    from sparkstore.views.join_hints import waiting_records

    try:
        return waiting_records(root)
    except (StoreError, DeltaError, OSError):
        return math.inf


def _days(text: str) -> float:
    days = float(text)
    if not days >= 1:  # not-a-number is refused, too
        message = f"{text!r}: it must be a day at least"
        raise argparse.ArgumentTypeError(message)
    return days


def _priority(text: str) -> int:
    number = int(text)
    if not 0 <= number <= _LEAST_PRIORITY:
        message = f"{number} is not between 0 and {_LEAST_PRIORITY}"
        raise argparse.ArgumentTypeError(message)
    return number
