"""The commands that run a Spark job: their options, and how they end.

`jobs/*.py` are these same commands for spark-submit. Spark is loaded when a job runs, not before.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
from argparse import Namespace
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from sparkstore.cli.output import fields
from sparkstore.cli.parsing import at_least_0, command
from sparkstore.compaction.plans.compact_plan import Limits, Upkeep
from sparkstore.errors import InvalidRequest
from sparkstore.extras import check_spark
from sparkstore.log_format import say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkstore.cli.parsing import Subparsers
    from sparkstore.jobs.report import JobReport

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
    _add_publication(parser)


def _add_publication(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--publish",
        metavar="SCHEMA",
        help="make the views permanent in this schema of the catalog that Spark is configured with,"
        " and name the tables of --current there",
    )
    parser.add_argument(
        "--conf",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Spark, as for a catalog: --publish lake --conf"
        " spark.sql.catalogImplementation=hive",
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
    check_spark("compact")
    from sparkstore.compaction.compaction_job import CompactionOptions, compaction_job
    from sparkstore.config import read_config
    from sparkstore.settings_file import audit_file

    options = CompactionOptions(
        limits_of(arguments),
        Upkeep(history_days=arguments.history_days),
        arguments.min_records,
        arguments.current,
        arguments.publish or "",
        read_config(arguments.config) if arguments.config else None,
        audit_file(arguments.config) if arguments.config else None,
    )
    executors_at = where_executors_read(arguments.root)
    with compaction_job(arguments.root, options, executors_at) as job:
        if job.is_too_early():
            least = arguments.min_records
            say(
                "sparkstore compact", f"fewer than {least} records wait: nothing done", logging.INFO
            )
            return 0
        return run_job("compact", job.root.path, job.run, arguments, uri=job.uri)


def limits_of(arguments: Namespace) -> Limits:
    """Return how much one commit folds, as `--step-records` says."""
    return Limits(arguments.step_records or Limits().step_records)


def where_executors_read(uri: str) -> str:
    """Name a bucket as executors on other machines do; empty: they are threads of this one.

    Raises:
        InvalidRequest: They could not read it.
    """
    from sparkstore.storage.objects import is_object_uri

    # Without spark-submit Spark would be loaded for nothing.
    if not is_object_uri(uri) or "PYSPARK_GATEWAY_PORT" not in os.environ:
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
        spark=dict(getattr(arguments, "conf", [])),
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


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name.startswith("spark.") and equals):
        shown = repr(name) if equals else "a text without ="  # which may be a key of a bucket
        raise argparse.ArgumentTypeError(f"{shown} is no setting: write spark.NAME=VALUE")
    return name, value


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
