"""The commands of a replica: copy to it, and make it the primary."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from sparkstore.cli.jobs import job_options, run_job
from sparkstore.cli.notes import note_unreplayed
from sparkstore.cli.output import fields, json_lines
from sparkstore.cli.parsing import at_least_0, command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkstore.cli.parsing import Subparsers
    from sparkstore.jobs.report import JobReport

_PRIMARY = ("primary", "folder of the root to copy")
_REPLICA = ("replica", "folder of its copy")


def add(subparsers: Subparsers) -> None:
    """Add the commands."""
    parser = command(
        subparsers,
        replicate,
        "copy what is new to a replica, once",
        "The first run makes the replica, in a folder that is absent or empty. Safe to kill, to\n"
        "repeat, and to run beside a serving store: what the store has committed to Delta when\n"
        "this begins is in the replica when it ends. Exit code 75: another job is at work there,\n"
        "or the primary's store must start first; 1: the two may not be primary and replica any\n"
        "more, and the line says why.\n\n"
        "example, every five minutes in a crontab:\n"
        "  */5 * * * * sparkstore replicate ROOT /mnt/other/replica",
        positional=(_PRIMARY, _REPLICA),
    )
    parser.add_argument(
        "--step-records", type=at_least_0, metavar="N", help="records folded at a time"
    )
    job_options(parser)
    parser = command(
        subparsers,
        promote,
        "make a replica the primary",
        "Needs no Java. The old primary, where it can be reached, is fenced: its store stops\n"
        "within `fence_check_s` (10 s) and does not start again. If it cannot be reached, see to\n"
        "it that it is stopped. What it took after the last `replicate` is not here: for a\n"
        "planned change stop the store, replicate once more, and promote; a replica that is\n"
        "behind a primary that can be read is refused without --accept-loss.\n\n"
        "example:\n  sparkstore promote /mnt/other/replica && sparkstore serve /mnt/other/replica",
        positional=(_REPLICA,),
    )
    parser.add_argument(
        "--primary",
        metavar="ROOT",
        help="where the old primary is now, and must be fenced (default: where it was, if it is)",
    )
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="promote also if the old primary can be read and holds more than the replica",
    )


def replicate(arguments: Namespace) -> int:
    """The replication job, once."""
    from sparkstore.replication import replicas
    from sparkstore.tables.root import open_root

    # Before the frame: a root that may not be this replica gets no row in its `job_runs` either.
    replicas.check(arguments.primary, arguments.replica)

    def work(spark: SparkSession) -> JobReport:
        from sparkstore.compaction.plans.compact_plan import Limits
        from sparkstore.replication import replicate

        limits = Limits(arguments.step_records or Limits().step_records)
        return replicate.run(spark, arguments.primary, arguments.replica, limits=limits)

    code = run_job("replicate", arguments.replica, work, arguments)
    note_unreplayed(open_root(arguments.primary))
    return code


def promote(arguments: Namespace) -> int:
    """Make a replica the primary."""
    from sparkstore.replication.promote import promote

    done = asdict(
        promote(arguments.replica, primary=arguments.primary, accept_loss=arguments.accept_loss)
    )
    for line in json_lines([done]) if arguments.json else fields(done):
        print(line)
    return 0
