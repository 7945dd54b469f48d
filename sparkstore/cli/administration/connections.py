"""The command `connections`: clients of the broker that runs, and the end of one of them."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from sparkstore.cli.output import Row, show_row, show_rows, time_said
from sparkstore.cli.parsing import at_least_0, command
from sparkstore.cli.target import running_broker
from sparkstore.control.connection_columns import COLUMNS, row_of
from sparkstore.log_format import say

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers

_COLUMNS = tuple(column.name for column in COLUMNS)


def add(subparsers: Subparsers) -> None:
    """Add the command `connections` to the command line."""
    parser = command(
        subparsers,
        connections,
        "list the clients of the running broker, or end one connection",
        "The client of an ended connection gets amqp:connection:forced, and its messages are\n"
        "released. It may connect again: remove its permission to keep it away\n"
        "(docs/security.md).\n\n"
        "The list includes connections of members of the store service; end one of those with\n"
        "--member.\n\n"
        "examples:\n  sparkstore connections ROOT\n  sparkstore connections ROOT --close 7\n"
        "  sparkstore connections ROOT --close 7 --member host:5672",
        by_url=True,
    )
    parser.add_argument("--close", type=at_least_0, metavar="N", help="end this connection")
    parser.add_argument("--member", metavar="NAME", help="of this member of the service")


def connections(arguments: Namespace) -> int:
    """Show the clients that are connected, or end one connection."""
    with running_broker(arguments) as broker:
        if arguments.close is not None:
            show_row(arguments, _row(broker.close_connection(arguments.close, arguments.member)))
            return 0
        clients, silent = broker.connections()
    for member in silent:
        say("sparkstore connections", f"member {member} did not answer")
    rows = [_row(row_of(client)) for client in clients]
    wanted = {arguments.member} if arguments.member is not None else {row["member"] for row in rows}
    show_rows(arguments, [row for row in rows if row["member"] in wanted], _COLUMNS)
    return 0


def _row(client: Row) -> dict[str, Any]:
    return {**client, "connected_at": time_said(client["connected_at"])}
