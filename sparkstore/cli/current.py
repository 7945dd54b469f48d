"""The command `current`: the queues as plain Delta tables, for readers without Spark."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from sparkstore.cli.notes import note_unreplayed
from sparkstore.cli.output import fields, one_line
from sparkstore.cli.parsing import command
from sparkstore.errors import Unavailable

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    command(
        subparsers,
        current,
        "write the queues as plain tables, for readers without Spark",
        "Brings the Delta tables ROOT/current/queues and ROOT/current/queue_messages up to date,\n"
        "for deltalake, Polars, DuckDB and whatever else reads Delta. Needs no Java, and may run\n"
        "beside a serving store and jobs. Only message ids whose messages changed are written\n"
        "anew; as_of of current/queues says how old the tables are. Exit code 75: another\n"
        "publication is at work.\n\n"
        "example, in a crontab, every five minutes:\n"
        "  */5 * * * * sparkstore current ROOT",
        positional=(("root", "folder of the root"),),
    )


def current(arguments: Namespace) -> int:
    """The tables `current`, as of now."""
    from sparkstore.current.publication import publish
    from sparkstore.tables.root import open_root

    root = open_root(arguments.root)
    try:
        report = publish(root)
    except DeltaError as reason:
        message = f"{root.path}: {one_line(str(reason))}: look at the storage, run it again"
        raise Unavailable(message) from reason
    if arguments.json:
        print(report.as_json())
    else:
        for line in fields(asdict(report)):
            print(line)
    note_unreplayed(root)
    return 0
