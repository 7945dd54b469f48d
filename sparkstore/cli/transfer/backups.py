"""The commands `backup` and `restore`: a copy of a root that is served, and a root of the copy."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from sparkstore.cli.notes import note, note_unreplayed
from sparkstore.cli.output import fields, json_lines, print_lines
from sparkstore.cli.parsing import ROOT, command
from sparkstore.cli.target import flush_broker

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers

_PLACE = "a folder, or s3://BUCKET/PREFIX (extra s3)"


def add(subparsers: Subparsers) -> None:
    """Add the commands `backup` and `restore` to the command line."""
    parser = command(
        subparsers,
        backup,
        "copy a root to a folder or a bucket, while it is served; the next time what is new",
        "The copy is consistent: it has all that the running broker had acknowledged when this\n"
        "began. Needs no Java. Safe to kill and to repeat. A folder must be absent, empty, or a\n"
        "backup of this root, and should be on another disk. Exit code 75: try again.\n\n"
        "With --at it is what the root was then, in a place of its own. That goes back as far as\n"
        "history is kept whole (compact --history-days). If a message of then has no content any\n"
        "more, nothing is made, and such messages are named.\n\n"
        "examples, in a crontab: every hour:\n"
        "  0 * * * * sparkstore backup /var/lib/queues /mnt/backup/queues\n"
        "  0 * * * * sparkstore backup /var/lib/queues s3://lake/backups/queues\n"
        "as of a time:\n"
        "  sparkstore backup /var/lib/queues /mnt/backup/before --at '2026-11-22 10:00'",
        positional=(ROOT, ("to", f"where the backup is kept: {_PLACE}")),
    )
    parser.add_argument(
        "--at", metavar="TIME",
        help="the root as it stood then: '2026-11-22 10:00' (UTC if no zone is named), or"
        " position=N",
    )  # fmt: skip
    command(
        subparsers,
        restore,
        "make a root of a backup, which stays as it is",
        "The folder must be absent or empty: a root that is there is never touched. Stop the old\n"
        "broker before you serve the new root: both have the same messages. Members that have\n"
        "seen more are fenced. It takes replicas in a bucket, too; promote takes those over.\n\n"
        "example:\n  sparkstore restore /mnt/backup/queues /var/lib/queues-again",
        positional=(
            ("backup", f"what `sparkstore backup` made: {_PLACE}"),
            ("root", "folder of the new root, absent or empty"),
        ),
    )


def backup(arguments: Namespace) -> int:
    """Bring a backup up to date."""
    from sparkstore.recovery.point_in_time import has_zone
    from sparkstore.replication.backup import back_up, backup_at
    from sparkstore.storage.objects import is_object_uri
    from sparkstore.tables.root import open_root

    backup_at(arguments.to)  # what is wrong with it is told before anything else
    if arguments.at is not None and not has_zone(arguments.at):
        note(f"{arguments.at} has no time zone: UTC is assumed")
    is_served = flush_broker(arguments.root)
    report = back_up(arguments.root, arguments.to, arguments.at)
    done = {**asdict(report), "job": "backup"}
    print_lines(json_lines([done]) if arguments.json else fields(done))
    if not is_served and not is_object_uri(arguments.root):
        note_unreplayed(open_root(arguments.root))
    return report.exit_code


def restore(arguments: Namespace) -> int:
    """Make a root of a backup."""
    from sparkstore.replication.backup import restore

    done = asdict(restore(arguments.backup, arguments.root))
    print_lines(json_lines([done]) if arguments.json else fields(done))
    return 0
