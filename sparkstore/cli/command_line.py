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
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

import sparkstore
from sparkstore.cli import admin, commands, completion, current, jobs, replicas
from sparkstore.cli.health import check, doctor, migrate, reconcile
from sparkstore.cli.messages import browse, bulk, diff, resubmit, undo
from sparkstore.cli.output import escape_what_cannot_be_encoded, of_the_system, one_line
from sparkstore.cli.parsing import at_least_0, command
from sparkstore.cli.remote import remote_command_line
from sparkstore.cli.remote.remote_command_line import is_remote
from sparkstore.cli.transfer import backups, definitions
from sparkstore.errors import StoreError
from sparkstore.exit_codes import ExitCode, end_process, exit_code_of
from sparkstore.extras import missing_extra
from sparkstore.jobs.durations import process_began
from sparkstore.log_format import say, use
from sparkstore.storage.access import use_storage_settings

_EXAMPLES = """\
examples:
  sparkstore serve /var/lib/queues              a broker on 127.0.0.1:5672
  sparkstore queues /var/lib/queues             depth, bytes and age of every queue
  sparkstore browse /var/lib/queues orders      its messages, in order
  sparkstore sql /var/lib/queues "SELECT queue, depth FROM queues"
  sparkstore compact /var/lib/queues            the compaction job, once
  sparkstore verify --deep /var/lib/queues      every invariant; exit code 1 if one is broken

Of a broker elsewhere, by its HTTP port: sparkstore queues --url https://HOST:PORT
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
        found = {point.name: point for point in entry_points(group="sparkstore.commands")}
        if (words and words[0] in found) or is_remote(words):
            code = _run_other(words, found)
            if argv is None:
                end_process(code)
            return code
        arguments = _parser(found).parse_args(words)
        use(arguments.log_format)
        arguments.began = process_began() if argv is None else time.monotonic()
        use_storage_settings(getattr(arguments, "config", None))
        code = int(arguments.run(arguments))
        sys.stdout.flush()
    except (StoreError, ModuleNotFoundError) as failure:
        told = missing_extra(failure) if isinstance(failure, ModuleNotFoundError) else failure
        if told is None:
            raise
        return _failed(str(told), exit_code_of(told))
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


def _run_other(words: Sequence[str], found: Mapping[str, EntryPoint]) -> int:
    """Run a command that parses its own arguments: one above this package, or a remote one."""
    if words[0] in found:
        return int(found[words[0]].load()(words[1:]))
    return remote_command_line.run(words)


def _failed(message: str, code: int) -> int:
    say("sparkstore", one_line(message), logging.ERROR)
    return code


def _parser(found: Mapping[str, EntryPoint]) -> argparse.ArgumentParser:
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
    for name in sorted(found):
        subparsers.add_parser(name, help=_ABOVE.get(name), add_help=False)
    for add in (
        _queues,
        browse.add,
        _sql,
        diff.add,
        admin.add,
        definitions.add,
        backups.add,
        bulk.add,
        resubmit.add,
        undo.add,
        jobs.add,
        current.add,
        replicas.add,
        reconcile.add,
        doctor.add,
        migrate.add,
        _verify,
        check.add,
        _version,
    ):
        add(subparsers)
    completion.add(subparsers, parser, found)
    return parser


_ABOVE = {
    "passwd": "add, change, delete or list users of a broker",
    "serve": "run a broker for AMQP 1.0 and 0-10 over a root",
}
"""Help of the commands that live above this package."""

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers


def _queues(subparsers: Subparsers) -> None:
    parser = command(
        subparsers,
        commands.queues,
        "show depth, bytes, acquired and oldest age of every queue",
        "Needs no Java and changes nothing. It shows the messages in Delta: a running store is\n"
        "ahead by its commit interval (200 ms) and the time of a commit. A crashed one is ahead\n"
        "by its write-ahead log until its next start; a line on standard error says so, with\n"
        '--json also a last object {"unreplayed": {"records": N, …}}. The exit code stays 0,\n'
        "because nothing is lost. not_durable: messages in the memory of the running broker;\n"
        "they end with it, and depth and SQL do not count them.\n\n"
        "examples:\n  sparkstore queues --json ROOT | jq .depth\n"
        "  sparkstore queues --holders ROOT           what a consumer keeps, and which",
    )
    parser.add_argument(
        "--holders",
        action="store_true",
        help="show held messages and their holders, by asking the running broker",
    )
    parser.add_argument(
        "--limit", type=at_least_0, metavar="N",
        help="messages of --holders, 0: all (default 10000, with --json all)",
    )  # fmt: skip


def _sql(subparsers: Subparsers) -> None:
    parser = command(
        subparsers,
        commands.sql,
        "answer a question with SQL",
        "Views: queues, queue_messages, messages (consumed ones too), message_history, bindings,\n"
        "configuration, members, links, deliveries, transactions, and after a job job_runs and\n"
        "findings.\n"
        "DuckDB answers, in its SQL. --engine spark asks the same views in Spark's SQL, and the\n"
        "root's own tables as delta.`PATH`; it starts a JVM (seconds).\n"
        "A line on standard error says when rows are left out. A query changes nothing, runs no\n"
        "program (TRANSFORM, reflect) and reads no other file. Columns of equal names get\n"
        "numbers: depth, depth_2.\n\n"
        "examples:\n"
        '  sparkstore sql ROOT "SELECT * FROM queues ORDER BY depth DESC"\n'
        "  sparkstore sql ROOT \"SELECT properties['carrier'], count(*) FROM queue_messages"
        ' GROUP BY 1"\n'
        '  sparkstore sql ROOT "SELECT name, source, attached, unsettled FROM links"\n'
        '  sparkstore sql ROOT "SELECT outcome, count(*) FROM messages GROUP BY outcome"\n'
        '  sparkstore sql s3://lake/queues "SELECT * FROM queues"\n'
        '  sparkstore sql ROOT --engine spark "SELECT queue, depth FROM queues"\n'
        "  sparkstore sql ROOT --as-of '2026-11-22 10:00' \"SELECT queue, depth FROM queues\"",
    )
    parser.add_argument("statement", help="one SELECT")
    _add_engine(parser)
    parser.add_argument(
        "--limit", type=at_least_0, metavar="N",
        help="rows, 0: all (default 1000, with --json all)",
    )  # fmt: skip
    parser.add_argument(
        "--as-of", metavar="TIME",
        help="every view as it stood then: '2026-11-22 10:00' (UTC if no zone is named), or"
        " position=N",
    )  # fmt: skip


def _add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine", choices=("spark", "duckdb"), default="duckdb",
        help="who answers, in whose SQL (default duckdb)",
    )  # fmt: skip


def _verify(subparsers: Subparsers) -> None:
    parser = command(
        subparsers,
        commands.verify,
        "check every invariant of a root",
        "Needs no Java and changes nothing. Exit code 0: all hold; 1: one is broken, and its line\n"
        "says what to do. Check a root that nobody writes: a running store may show half a\n"
        "commit. Records in a crashed store's write-ahead log break nothing; they are reported\n"
        "(log_can_be_replayed, and on standard error). A damaged log is broken.\n\n"
        "example:\n  sparkstore verify --deep ROOT",
    )
    parser.add_argument(
        "--deep", action="store_true", help="also read the content of every message"
    )


def _version(subparsers: Subparsers) -> None:
    command(
        subparsers,
        commands.version,
        "show the versions of sparkstore and its engines",
        "",
        positional=(),
    )
