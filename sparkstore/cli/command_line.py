"""`sparkstore …`: parse arguments, run one command, print, and end with an exit code.

What is wrong is one line on standard error; `sparkstore.exit_codes` has the codes.

Spark is imported only by the commands that need it. `serve` and whatever else lives above this
package is found by its entry point in the group `sparkstore.commands`, called as main(argv) -> int.
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

import sparkstore
from sparkstore.cli import completion, current, failover, jobs, replicas
from sparkstore.cli.administration import (
    connections,
    exchanges,
    policies,
    queue_orders,
    queues,
    transactions,
)
from sparkstore.cli.health import check, doctor, migrate, reconcile, verify
from sparkstore.cli.messages import browse, bulk, diff, export, redrive, resubmit, undo
from sparkstore.cli.output import escape_what_cannot_be_encoded, of_the_system, one_line, show_row
from sparkstore.cli.parsing import check_target, command, with_url_as_root
from sparkstore.cli.queries import sql
from sparkstore.cli.transfer import backups, definitions
from sparkstore.errors import StoreError
from sparkstore.exit_codes import ExitCode, end_process, exit_code_of
from sparkstore.extras import missing_extra
from sparkstore.jobs.durations import process_began
from sparkstore.log_format import say, use
from sparkstore.storage.access import use_storage_settings

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers

_EXAMPLES = """\
examples:
  sparkstore serve /var/lib/queues              a broker on 127.0.0.1:5672
  sparkstore queues /var/lib/queues             depth, bytes and age of every queue
  sparkstore browse /var/lib/queues orders      its messages, in order
  sparkstore sql /var/lib/queues "SELECT queue, depth FROM queues"
  sparkstore compact /var/lib/queues            the compaction job, once
  sparkstore verify --deep /var/lib/queues      every invariant; exit code 1 if one is broken

Most commands ask a broker elsewhere, too, by its HTTP port instead of a root (--url):
  sparkstore queues --url https://broker.example:8161 --user ann
`sparkstore COMMAND --help` tells the rest. With --json every command prints one JSON object a line.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that a command line names.

    Args:
        argv: Arguments after the program's name; None for those of the process.

    Returns:
        The exit code.
    """
    escape_what_cannot_be_encoded(sys.stdout)
    _escape_what_output_lacks()
    words = bulk.with_queue_as_argument(sys.argv[1:] if argv is None else argv)
    try:
        others = {point.name: point for point in entry_points(group="sparkstore.commands")}
        if words and words[0] in others:
            code = int(others[words[0]].load()(words[1:]))
            if argv is None:
                end_process(code)
            return code
        parser = _parser(others)
        arguments = parser.parse_args(with_url_as_root(parser, words))
        use(arguments.log_format)
        check_target(arguments)
        arguments.began = process_began() if argv is None else time.monotonic()
        use_storage_settings(getattr(arguments, "config", None))
        code = int(arguments.run(arguments))
        sys.stdout.flush()
    except (StoreError, ModuleNotFoundError) as failure:
        error = missing_extra(failure) if isinstance(failure, ModuleNotFoundError) else failure
        if error is None:
            raise
        return _failed(str(error), exit_code_of(error))
    except BrokenPipeError:  # `sparkstore browse … | head`: nobody reads on, and that is no error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as reason:
        return _failed(of_the_system(reason), exit_code_of(reason))
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return code


def _escape_what_output_lacks() -> None:
    r"""Print a character that the encoding of standard output lacks as `\u20ac`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _failed(message: str, code: int) -> int:
    say("sparkstore", one_line(message), logging.ERROR)
    return code


def _parser(others: Mapping[str, EntryPoint]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sparkstore",
        description="A message store whose queues are Delta tables.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"sparkstore {sparkstore.__version__}"
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in sorted(others):
        subparsers.add_parser(name, help=_ABOVE.get(name), add_help=False)
    for add in (*_COMMANDS, _add_version):
        add(subparsers)
    completion.add(subparsers, parser, others)
    return parser


_COMMANDS = (
    queues.add,
    browse.add,
    sql.add,
    diff.add,
    queue_orders.add,
    exchanges.add_exchange,
    exchanges.add_binding,
    policies.add,
    connections.add,
    transactions.add,
    definitions.add,
    backups.add,
    bulk.add,
    redrive.add,
    export.add,
    resubmit.add,
    undo.add,
    jobs.add,
    current.add,
    replicas.add,
    failover.add,
    reconcile.add,
    doctor.add,
    migrate.add,
    verify.add,
    check.add,
)
"""Add the commands of this package to a command line, in the order of its help."""
_ENGINES = ("deltalake", "pyarrow", "pyspark", "delta-spark")
_ABOVE = {
    "passwd": "add, change, delete or list users of a broker",
    "serve": "run a broker for AMQP 1.0 and 0-10 over a root",
}
"""Help of the commands that live above this package."""


def _add_version(subparsers: Subparsers) -> None:
    """Add the command `version` to the command line."""
    summary = "show the versions of sparkstore and its engines"
    command(subparsers, version, summary, "", positional=())


def version(arguments: argparse.Namespace) -> int:
    """Print versions of sparkstore, Python and the engines; None for one that is not installed."""
    versions: dict[str, str | None] = {
        "sparkstore": sparkstore.__version__,
        "python": sys.version.split()[0],
    }
    for name in _ENGINES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    show_row(arguments, versions)
    return 0
