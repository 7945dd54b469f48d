"""Make the parsers of remote commands: alike, each with the broker's URL and the login."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sparkstore.cli.parsing import add_check
from sparkstore.cli.remote.http_client import PASSWORD_VARIABLE, TOKEN_VARIABLE, RemoteBroker
from sparkstore.log_format import add_log_format
from sparkstore.secret_file import refuse_secret

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers

OPTION = "--url"
EXAMPLES = f"""\
examples:
  sparkstore queues --url http://127.0.0.1:8161
  sparkstore purge orders --url https://broker.example:8161 --user ann --dry-run
  sparkstore redrive dead --url https://broker.example:8161 --cert ann.pem --cert-key ann.key

The queue is named without a root. The password comes from --password-file or {PASSWORD_VARIABLE}.
"""
Run = Callable[[Namespace, RemoteBroker], int]


def added(subparsers: Subparsers, name: str, run: Run) -> argparse.ArgumentParser:
    """Add a remote command, with the options of every one; its summary is the function's own."""
    summary = (run.__doc__ or "").splitlines()[0]
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    parser.add_argument(OPTION, required=True, help="the broker's port: https://HOST:PORT")
    parser.add_argument("--user", metavar="NAME", help="the user who logs in")
    parser.add_argument(
        "--password-file", type=Path, metavar="FILE", help=f"instead of {PASSWORD_VARIABLE}"
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help=f"a user's token, or {TOKEN_VARIABLE}"
    )
    refuse_secret(parser.add_argument, "--password", f"--password-file or {PASSWORD_VARIABLE}")
    refuse_secret(parser.add_argument, "--token", f"--token-file or {TOKEN_VARIABLE}")
    parser.add_argument(
        "--ca-file", type=Path, metavar="FILE", help="authorities of the broker's certificate, PEM"
    )
    parser.add_argument("--cert", type=Path, metavar="FILE", help="the client's certificate, PEM")
    parser.add_argument("--cert-key", type=Path, metavar="FILE", help="the key of --cert, PEM")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for machines")
    add_log_format(parser.add_argument)
    return parser


def add_dry_run(parser: argparse.ArgumentParser, summary: str) -> None:
    """Let a command try what it would do, with an exit code for scripts. See `is_dry`."""
    parser.add_argument("--dry-run", action="store_true", help=summary)
    add_check(parser)


def is_dry(arguments: Namespace) -> bool:
    """Tell whether a command is to change nothing."""
    return bool(arguments.dry_run or arguments.check)


def group(subparsers: Subparsers, name: str, summary: str) -> Subparsers:
    """Add a group of remote commands."""
    parser = subparsers.add_parser(name, help=summary)
    return parser.add_subparsers(metavar="COMMAND", required=True)
