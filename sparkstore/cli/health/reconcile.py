"""`sparkstore reconcile`: check every copy of a store, repair what can be repaired."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from sparkstore.cli.jobs import job_options, run_job, where_executors_read
from sparkstore.cli.notes import note, note_unreplayed
from sparkstore.cli.output import fields, table
from sparkstore.cli.parsing import command
from sparkstore.extras import check_spark

if TYPE_CHECKING:
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
    check_spark("reconcile")
    from sparkstore.config import StoreConfig, read_config
    from sparkstore.reconcile.reconcile_job import ReconcileOptions, reconcile_job
    from sparkstore.settings_file import audit_file

    options = ReconcileOptions(
        arguments.replica,
        arguments.repair,
        arguments.purge_lost,
        read_config(arguments.config) if arguments.config else StoreConfig(),
        audit_file(arguments.config) if arguments.config else None,
    )
    executors_at = where_executors_read(arguments.root)
    with reconcile_job(arguments.root, options, executors_at) as job:
        if job.put_back:
            count = len(job.put_back)
            note(f"{count} data files that the bucket had lost are back, from {job.root.path}")
        code = run_job("reconcile", job.root.path, job.run, arguments, _printed, job.uri)
        if job.copy is None:
            note_unreplayed(job.root)
    return code


def _printed(report: JobReport) -> Iterator[str]:
    """The findings as a table, then the figures."""
    figures = asdict(report)
    findings = figures.pop("findings")
    if findings:
        yield from table([{name: row[name] for name in _SHOWN} for row in findings])
        yield ""
    yield from fields(figures)
