"""The commands that change or copy many messages: Spark chooses them, the store acts.

    move      to another queue            requeue   to the end of their own
    redrive   back to where dead letters came from
    purge     off the queue, for good     replay    back from history, as copies
    export    to a file: changes nothing

Wrong queues are refused before Spark looks for messages, and the root before the JVM starts.

The queue is an argument without a name, as of `browse` and `queue purge`. Earlier versions named it
`--from`, of `replay` `--queue`: both are still understood of all of them, and shown by none.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparkstore.cli.messages import bulk_commands as commands
from sparkstore.cli.messages.redrive import redrive
from sparkstore.cli.parsing import add_check, at_least_0, command

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers

_HOW = (
    "PREDICATE is what may stand after WHERE in a query of queue_messages, about its columns\n"
    "only; Spark finds the messages. --id, --older-than, --property and --subject\n"
    "need no Java, and select the messages for which all of them hold. The running broker\n"
    "changes the messages in transactions of 250; if none runs, this command does, under the\n"
    "writer's lock. Messages that a consumer has acquired are left alone. After an\n"
    "interruption run it again.\n\n"
)


_COMMANDS = frozenset({"move", "requeue", "purge", "replay", "export", "redrive"})
_FORMER = ("--from", "--queue")


def with_queue_as_argument(words: Sequence[str]) -> list[str]:
    """Return a command line with the queue as an argument, where an option names it.

    The last argument is the queue, wherever an option may stand: so the name goes to the end.
    """
    if not words or words[0] not in _COMMANDS:
        return list(words)
    kept, names, rest = [], [], iter(words)
    for word in rest:
        option, is_joined, value = word.partition("=")
        if option not in _FORMER:
            kept.append(word)
        elif is_joined:
            names.append(value)
        else:
            names += [name for name in (next(rest, None),) if name is not None]
    return kept + names


def add(subparsers: Subparsers) -> None:
    """Add the bulk commands: move, requeue, purge and replay."""
    parser = _bulk(
        subparsers,
        commands.move,
        "move messages to another queue",
        "examples:\n  sparkstore move ROOT orders --to late --older-than 1h --property land=eu\n"
        "  sparkstore move ROOT orders --to late --where"
        ' "enqueued_at < now() - INTERVAL 1 HOUR"',
    )
    parser.add_argument("--to", required=True, metavar="QUEUE", help="where they go")
    _bulk(
        subparsers,
        commands.requeue,
        "put messages at the end of their queue, with delivery count 0",
        "Messages keep their ids and their order among themselves.\n\n"
        'example:\n  sparkstore requeue ROOT orders --where "delivery_count > 3"',
    )
    _add_redrive(subparsers)
    _bulk(
        subparsers,
        commands.purge,
        "delete messages of a queue for good",
        "example:\n  sparkstore purge ROOT orders --dry-run --where"
        " \"properties['carrier'] = 'UA'\"",
    )
    parser = _bulk(
        subparsers,
        commands.replay,
        "put messages from history back on a queue",
        "PREDICATE may also name dequeued_at, outcome (JSON), holder and replayed_to, as history\n"
        "has them. Copies get new ids and the property sparkstore.replayed; a message\n"
        "that has a copy on the target is not put there again.\n\n"
        "An age counts from when a message left.\n\n"
        "examples:\n  sparkstore replay ROOT orders --property land=eu\n"
        '  sparkstore replay ROOT orders --where "dequeued_at > now() - INTERVAL 1 DAY"',
    )
    parser.add_argument("--to", metavar="QUEUE", help="where the copies go (default: QUEUE)")
    _add_export(subparsers)


def _add_redrive(subparsers: Subparsers) -> None:
    parser = _bulk(
        subparsers,
        redrive,
        "put dead letters back on the queues that they came from",
        "All dead letters of the queue, unless some are chosen. They keep their order, and their\n"
        "delivery counts begin anew. A message stays, and is listed, if the queue that it came\n"
        "from is gone, or has no room (max_depth, max_bytes), or if it is no dead letter.\n\n"
        "examples:\n  sparkstore redrive ROOT dead --dry-run\n"
        "  sparkstore redrive ROOT dead --limit 10\n"
        "  sparkstore redrive ROOT dead --to repair --property land=eu",
    )
    parser.add_argument(
        "--to", metavar="QUEUE", help="where all of them go (default: each to its own)"
    )
    parser.add_argument(
        "--limit", type=at_least_0, metavar="N", help="the first N of them (default: all)"
    )


def _add_export(subparsers: Subparsers) -> None:
    parser = command(
        subparsers,
        commands.export,
        "write messages of a queue to a file",
        "Header, properties and body, in the order of the queue; the store is not touched.\n"
        "JSON: one object a line; a body that is not UTF-8 is body_base64.\n\n"
        "examples:\n  sparkstore export ROOT orders --where \"subject = 'eggs'\" "
        "| jq .body\n"
        "  sparkstore export ROOT orders --format parquet --output orders.parquet",
    )
    _choice(parser)
    parser.add_argument("--format", choices=("json", "parquet"), default="json")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="JSON goes to standard output without it"
    )


def _bulk(
    subparsers: Subparsers,
    run: Callable[[Namespace], int],
    summary: str,
    more: str,
) -> argparse.ArgumentParser:
    parser = command(subparsers, run, summary, _HOW + more)
    _choice(parser)
    parser.add_argument("--dry-run", action="store_true", help="count and sample, change nothing")
    add_check(parser)
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings of the store, if it has its own"
    )
    return parser


def _choice(parser: argparse.ArgumentParser) -> None:
    """Say which messages are meant: by a predicate, or by conditions that need no Java."""
    parser.add_argument("queue", metavar="QUEUE", help="the queue of the messages")
    parser.add_argument("--where", metavar="PREDICATE", help="which messages, in SQL")
    parser.add_argument(
        "--id", type=int, action="append", default=[], metavar="N", dest="ids",
        help="this message; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--older-than",
        metavar="AGE",
        help="on the queue for at least so long: 90s, 15m, 2h, 7d",
    )
    parser.add_argument(
        "--property", action="append", default=[], metavar="NAME=VALUE", dest="properties",
        help="with this application property; may be given again",
    )  # fmt: skip
    parser.add_argument("--subject", metavar="TEXT", help="with this subject")
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show how far it is on standard error (default: if that is a terminal)",
    )
