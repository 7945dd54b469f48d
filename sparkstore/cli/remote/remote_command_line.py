"""The command line of `sparkstore COMMAND --url URL`: the commands that a broker's port can do."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import closing
from difflib import get_close_matches
from typing import TYPE_CHECKING

from sparkstore.cli.parsing import at_least_0
from sparkstore.cli.remote import remote_commands as commands
from sparkstore.cli.remote import remote_repairs, remote_wiring
from sparkstore.cli.remote.http_client import RemoteBroker, RemoteLogin
from sparkstore.cli.remote.remote_parsing import EXAMPLES, OPTION, Run, add_dry_run, added
from sparkstore.errors import InvalidRequest
from sparkstore.log_format import use

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers


_NEAR = 0.8
"""Less would take `replicate`, a command about a root, for `replay`."""


def is_remote(words: Sequence[str]) -> bool:
    """Tell whether a command line is about a broker's HTTP port."""
    return any(word == OPTION or word.startswith(f"{OPTION}=") for word in words)


def run(words: Sequence[str]) -> int:
    """Run the command that a command line names, and return its exit code.

    Raises:
        StoreError: The broker refused, or does not answer.
    """
    name = next((word for word in words if not word.startswith("-")), "")
    if name not in _REMOTE:
        near = get_close_matches(name, _REMOTE, 1, _NEAR)
        hint = "if there is one, run it where the root is."
        hint = f"did you mean {near[0]!r}?" if near else hint
        text = f"there is no command {name!r} with {OPTION}: {hint} Those are"
        raise InvalidRequest(f"{text} {', '.join(sorted(_REMOTE))}")
    arguments = _parser().parse_args(words)
    use(arguments.log_format)
    with closing(RemoteBroker(arguments.url, _login_of(arguments))) as broker:
        code: int = arguments.run(arguments, broker)
    return code


def _login_of(arguments: Namespace) -> RemoteLogin:
    if (arguments.cert is None) != (arguments.cert_key is None):
        raise InvalidRequest("--cert and --cert-key: give both, or neither")
    if arguments.password_file is not None and arguments.user is None:
        raise InvalidRequest("--password-file: whose? give --user NAME, too")
    certificate = None if arguments.cert is None else (arguments.cert, arguments.cert_key)
    if arguments.token_file is not None and arguments.user is not None:
        raise InvalidRequest("--token-file says who logs in: leave --user out")
    files = arguments.password_file, arguments.ca_file, certificate, arguments.token_file
    return RemoteLogin(arguments.user, *files)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sparkstore",
        description="Administer a broker by its HTTP port (serve --http).",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, add in _REMOTE.items():
        add(subparsers, name)
    return parser


def _add_queues(subparsers: Subparsers, name: str) -> None:
    parser = added(subparsers, name, commands.queues)
    parser.add_argument("--match", default="", metavar="TEXT", help="a part of their names")


def _add_browse(subparsers: Subparsers, name: str) -> None:
    parser = added(subparsers, name, commands.browse)
    parser.add_argument("queue", help="name of the queue")
    parser.add_argument("--limit", type=at_least_0, metavar="N", help="messages, 0: all")
    parser.add_argument("--body", action="store_true", help="content, too")


def _add_bulk(run: Run, to: bool | None = None) -> Callable[[Subparsers, str], None]:  # noqa: FBT001  # three values
    """Return what adds a bulk command; `to`: it needs a target, may have one, or has none."""

    def add(subparsers: Subparsers, name: str) -> None:
        parser = added(subparsers, name, run)
        parser.add_argument("queue", help="the queue of the messages")
        parser.add_argument(
            "--id", type=int, action="append", default=[], metavar="N", dest="ids",
            help="this message; may be given again (default: all that nobody holds)",
        )  # fmt: skip
        if to is not None:
            parser.add_argument("--to", required=to, metavar="QUEUE", help="where they go")
        if run is commands.redrive:
            parser.add_argument("--limit", type=int, metavar="N", help="the first N of them")
        add_dry_run(parser, "count, change nothing")

    return add


def _add_undo(subparsers: Subparsers, name: str) -> None:
    parser = added(subparsers, name, commands.undo)
    parser.add_argument("operation", help="what is to be undone")
    add_dry_run(parser, "say what would be")


def _add_operations(subparsers: Subparsers, name: str) -> None:
    parser = added(subparsers, name, commands.operations)
    parser.add_argument("--limit", type=at_least_0, metavar="N", help="the newest N (default 100)")


def _add_history(subparsers: Subparsers, name: str) -> None:
    parser = added(subparsers, name, commands.history)
    parser.add_argument("message", help="the id of a message, as browse shows it")


def _add_sql(subparsers: Subparsers, name: str) -> None:
    parser = added(subparsers, name, commands.sql)
    parser.add_argument("statement", help="one SELECT over the views")
    parser.add_argument("--limit", type=at_least_0, metavar="N", help="rows, 0: as many as may be")
    parser.add_argument("--as-of", metavar="TIME", help="a time, or position=N (default: now)")


def _add_connections(subparsers: Subparsers, name: str) -> None:
    parser = added(subparsers, name, commands.connections)
    parser.add_argument("--close", type=at_least_0, metavar="N", help="end this connection")
    parser.add_argument("--member", metavar="NAME", help="of this member")


def _add_check(subparsers: Subparsers, name: str) -> None:
    parser = added(subparsers, name, commands.check)
    for option in ("depth", "age", "dead"):
        parser.add_argument(
            f"--{option}", action="append", default=[], metavar="LIMIT",
            help="WARN, WARN:CRIT or :CRIT, QUEUE=LIMIT for one queue",
        )  # fmt: skip


_REMOTE: dict[str, Callable[[Subparsers, str], None]] = {
    "queues": _add_queues,
    "browse": _add_browse,
    "purge": _add_bulk(commands.purge),
    "requeue": _add_bulk(commands.requeue),
    "move": _add_bulk(commands.move, to=True),
    "redrive": _add_bulk(commands.redrive, to=False),
    "undo": _add_undo,
    "operations": _add_operations,
    "history": _add_history,
    "sql": _add_sql,
    "connections": _add_connections,
    "check": _add_check,
    "queue": remote_wiring.add_queue,
    "exchange": remote_wiring.add_exchange,
    "binding": remote_wiring.add_binding,
    "policy": remote_wiring.add_policy,
    "transactions": remote_repairs.add_transactions,
    "resubmit": remote_repairs.add_resubmit,
    "replay": remote_repairs.add_replay,
    "export": remote_repairs.add_export,
    "definitions": remote_repairs.add_definitions,
}
