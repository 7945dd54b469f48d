"""The commands of an administrator: queues, exchanges, bindings, connections, branches.

    queue list|show|create|alter|delete|purge     exchange list|create|delete
    policy list|set|delete
    binding list|add|remove                       connections [--close N]
    transactions [--commit XID | --rollback XID | --forget XID]

The running broker carries them out, over its control socket; where none runs, the command itself
under the writer's lock. No JVM is started.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from sparkstore.cli import admin_commands as commands
from sparkstore.cli import wiring_lists
from sparkstore.cli.parsing import ROOT, add_check, command
from sparkstore.core.queue_arguments import ARGUMENTS
from sparkstore.core.wiring_arguments import EXCHANGE_TYPES
from sparkstore.declared_arguments import AT_ANY_TIME
from sparkstore.operations.administration import DURABILITIES

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers

_HOW = (
    "The running broker does it, or, if none serves the root, this command under the writer's\n"
    "lock. Done again it does nothing more. A queue is named address::queue or plainly.\n\n"
)
_ARGUMENTS = (
    "arguments (docs/queues.md):\n"
    + "\n".join(
        fill(
            f"{each.name}: {each.listed}",
            98,
            initial_indent="  ",
            subsequent_indent="      ",
            break_on_hyphens=False,
        )
        for each in ARGUMENTS.values()
    )
    + "\n\n"
)
_CHANGES = "".join(
    f"{each.name} changes only {each.changes}.\n"
    for each in ARGUMENTS.values()
    if each.changes != AT_ANY_TIME
)
_HEADERS = (
    "A binding to an exchange of the type headers says which application properties a message\n"
    "has: --set land=eu --set year=2026; null: whatever the value is. x-match=any: one of them\n"
    "is enough (default: all).\n\n"
)


def add(subparsers: Subparsers) -> None:
    """Add the commands `queue`, `exchange`, `binding` and the other administrator's commands."""
    queue = _group(subparsers, "queue", "list, show, create, alter, delete or purge queues")
    wiring_lists.add_queue(queue)
    _add_queue(queue)
    exchange = _group(subparsers, "exchange", "list, create or delete exchanges")
    wiring_lists.add_exchange(exchange)
    _add_exchange(exchange)
    binding = _group(subparsers, "binding", "list, add or remove bindings of queues to exchanges")
    wiring_lists.add_binding(binding)
    _add_binding(binding)
    _add_policy(_group(subparsers, "policy", "list, set or delete policies of queues by pattern"))
    parser = command(
        subparsers,
        commands.connections,
        "list the clients of the running broker, or end one connection",
        "The client of an ended connection gets amqp:connection:forced, and its messages are\n"
        "released. It may connect again: remove its permission to keep it away\n"
        "(docs/security.md).\n\n"
        "The list includes connections of members of the store service; end one of those with\n"
        "--member.\n\n"
        "examples:\n  sparkstore connections ROOT\n  sparkstore connections ROOT --close 7\n"
        "  sparkstore connections ROOT --close 7 --member host:5672",
    )
    parser.add_argument("--close", type=int, metavar="N", help="end this connection")
    parser.add_argument("--member", metavar="NAME", help="end that of this member of the service")
    _add_transactions(subparsers)


def _add_transactions(subparsers: Subparsers) -> None:
    parser = command(
        subparsers,
        commands.transactions,
        "list branches of distributed transactions in doubt, or decide one",
        "Only its coordinator knows whether a branch is to be committed, so decide one only if\n"
        "the coordinator is gone for good. The decision is remembered, with your name, until the\n"
        "coordinator decides the same or forgets the branch; a different decision is refused. An\n"
        "xid is FORMAT:GLOBAL:BRANCH, the ids in hexadecimal.\n\n"
        "examples:\n  sparkstore transactions ROOT\n"
        "  sparkstore transactions ROOT --rollback 1:6f72646572:71",
    )
    decision = parser.add_mutually_exclusive_group()
    for act, what in (
        ("commit", "commit this branch"),
        ("rollback", "roll this branch back"),
        ("forget", "forget an operator's decision that the coordinator knows"),
    ):
        decision.add_argument(f"--{act}", metavar="XID", help=what)
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings of the store, if it has its own"
    )


def _add_queue(queue: Subparsers) -> None:
    parser = _admin(
        queue,
        commands.create_queue,
        "create",
        "create a queue",
        _ARGUMENTS + "example:\n  sparkstore queue create ROOT orders --set message_ttl_ms=3600000"
        " --set dead_letter_queue=dead",
        positional=(_QUEUE,),
    )
    _add_set(parser, "an argument of the queue; may be given again")
    parser.add_argument(
        "--durability",
        choices=DURABILITIES,
        default=DURABILITIES[-1],
        help="what of it survives a restart (default: its messages, too)",
    )
    parser = _admin(
        queue,
        commands.alter_queue,
        "alter",
        "change arguments of a queue; the others stay",
        _ARGUMENTS
        + _CHANGES
        + "message_ttl_ms, max_depth and max_bytes hold for what is enqueued\n"
        "from then on. Its durability stays. What a broker's settings say of a queue holds at its\n"
        "next start.\n\n"
        "examples:\n  sparkstore queue alter ROOT orders --set max_delivery_count=5\n"
        "  sparkstore queue alter ROOT orders --unset message_ttl_ms",
        positional=(_QUEUE,),
    )
    _add_set(parser, "what changes; may be given again")
    parser.add_argument(
        "--unset",
        action="append",
        default=[],
        metavar="NAME",
        help="what the queue has no more; may be given again",
    )
    _add_delete_and_purge(queue)


def _add_delete_and_purge(queue: Subparsers) -> None:
    parser = _admin(
        queue,
        commands.delete_queue,
        "delete",
        "delete a queue and its bindings",
        "One with messages or consumers, that is a subscription's, or that another queue sends\n"
        "its dead letters to is refused; the refusal says what would be lost.\n\n"
        "example:\n  sparkstore queue delete ROOT ordres",
        positional=(_QUEUE,),
    )
    _add_force(parser, "delete it with its messages, and end its consumers")
    _add_if_unused(parser, "a consumer")
    parser.add_argument(
        "--if-empty", action="store_true", help="not, by --force either, if a message is on it"
    )
    parser = _admin(
        queue,
        commands.purge_queue,
        "purge",
        "delete all messages of a queue for good",
        "Those that were on it when the command began; what a consumer has acquired is left.\n"
        "message_history shows the outcome purged. For some of them: sparkstore purge --where.\n\n"
        "example:\n  sparkstore queue purge ROOT orders",
        positional=(_QUEUE,),
    )
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show how far it is on standard error (default: if that is a terminal)",
    )


def _add_exchange(exchange: Subparsers) -> None:
    parser = _admin(
        exchange,
        commands.create_exchange,
        "create",
        "create an exchange",
        "arguments: alternate_exchange, which gets the messages that go to no queue of this.\n\n"
        "examples:\n  sparkstore exchange create ROOT news --type topic\n"
        "  sparkstore exchange create ROOT news --type topic --set alternate_exchange=amq.fanout",
        positional=(_EXCHANGE,),
    )
    parser.add_argument("--type", required=True, choices=EXCHANGE_TYPES, help="how it routes")
    _add_set(parser, "an argument of the exchange; may be given again")
    parser = _admin(
        exchange,
        commands.delete_exchange,
        "delete",
        "delete an exchange",
        "One with bindings, or that is somebody's alternate exchange, is refused; amq.direct,\n"
        "amq.fanout, amq.match and amq.topic are every broker's.\n\n"
        "example:\n  sparkstore exchange delete ROOT news --force",
        positional=(_EXCHANGE,),
    )
    _add_force(parser, "delete it with its bindings")
    _add_if_unused(parser, "a binding")


def _add_binding(binding: Subparsers) -> None:
    for run, name, summary, more in (
        (commands.add_binding, "add", "bind a queue to an exchange", _HEADERS),
        (commands.remove_binding, "remove", "remove a binding", ""),
    ):
        parser = _admin(
            binding,
            run,
            name,
            summary,
            more + f"example:\n  sparkstore binding {name} ROOT amq.topic orders --key 'order.#'",
            positional=(_EXCHANGE, _QUEUE),
        )
        parser.add_argument("--key", default="", help="the binding key (default: empty)")
        if name == "add":
            _add_set(parser, "x-match, or a header that messages have; may be given again")


def _add_policy(policy: Subparsers) -> None:
    wiring_lists.add_policy(policy)
    parser = _admin(
        policy,
        commands.set_policy,
        "set",
        "give all queues on addresses that fit a pattern these arguments",
        "In a pattern * is any one word of an address, # any number of them. What a queue says\n"
        "itself wins; then the highest priority, then the first name. A policy of this name is\n"
        "replaced. It tells which queues say otherwise, and how many messages leave their queue\n"
        "at once, as they failed too often (over_delivered).\n\n"
        + _ARGUMENTS
        + "example:\n  sparkstore policy set ROOT orders --match 'orders.#'"
        " --set max_delivery_count=5",
        positional=(_POLICY,),
    )
    parser.add_argument("--match", required=True, metavar="PATTERN", help="of the addresses")
    parser.add_argument("--priority", type=int, default=0, help="the highest counts (default: 0)")
    _add_set(parser, "an argument of those queues; may be given again")
    _admin(
        policy,
        commands.delete_policy,
        "delete",
        "delete a policy; queues have only what they and other policies say",
        "example:\n  sparkstore policy delete ROOT orders",
        positional=(_POLICY,),
    )


_POLICY = ("policy", "name of the policy")
_QUEUE = ("queue", "name of the queue")
_EXCHANGE = ("exchange", "name of the exchange")


def _group(subparsers: Subparsers, name: str, summary: str) -> Subparsers:
    parser = subparsers.add_parser(name, help=summary, description=f"{summary.capitalize()}.")
    return parser.add_subparsers(metavar="COMMAND", required=True)


def _admin(  # what a command is made of
    subparsers: Subparsers,
    run: Callable[[Namespace], int],
    name: str,
    summary: str,
    more: str,
    positional: tuple[tuple[str, str], ...],
) -> argparse.ArgumentParser:
    parser = command(
        subparsers, run, summary, _HOW + more, positional=(ROOT, *positional), name=name
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings of the store, if it has its own"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what it would do by the tables, change nothing"
    )
    add_check(parser)
    return parser


def _add_set(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="given", help=what
    )


def _add_force(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--force", action="store_true", help=what)


def _add_if_unused(parser: argparse.ArgumentParser, user: str) -> None:
    text = f"not, by --force either, if it has {user}"
    parser.add_argument("--if-unused", action="store_true", help=text)
