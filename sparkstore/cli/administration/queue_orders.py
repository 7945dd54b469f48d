"""The commands `queue create`, `alter`, `delete` and `purge`: orders about a queue."""

from __future__ import annotations

from argparse import Namespace
from contextlib import suppress
from typing import TYPE_CHECKING

from sparkstore.cli.administration.orders import (
    ARGUMENT_HELP,
    add_deletion,
    add_order,
    add_set,
    given_arguments,
    ordered,
)
from sparkstore.cli.administration.queues import add_looks
from sparkstore.cli.notes import note_unreplayed, shower
from sparkstore.cli.output import Row, show_row
from sparkstore.cli.parsing import add_progress, check_code, group, is_dry
from sparkstore.cli.target import (
    opened_broker,
    opened_control,
    opened_root,
    queue_named,
    recovered,
)
from sparkstore.control.broker_control import path_of
from sparkstore.core.queue_arguments import ARGUMENTS
from sparkstore.declared_arguments import AT_ANY_TIME
from sparkstore.errors import InvalidRequest, StoreError
from sparkstore.operations.administration import DURABILITIES, AdminAction, Order
from sparkstore.operations.bulk import new_operation

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers

_QUEUE = ("queue", "name of the queue")
_CHANGES = "".join(
    f"{argument.name} changes only {argument.changes}.\n"
    for argument in ARGUMENTS.values()
    if argument.changes != AT_ANY_TIME
)


def add(subparsers: Subparsers) -> None:
    """Add the commands `queue …` to the command line."""
    queue = group(subparsers, "queue", "list, show, create, alter, delete or purge queues")
    add_looks(queue)
    parser = add_order(
        *(queue, create_queue, "create", "create a queue"),
        ARGUMENT_HELP + "example:\n  sparkstore queue create ROOT orders"
        " --set message_ttl_ms=3600000 --set dead_letter_queue=dead",
        _QUEUE,
    )
    add_set(parser, "an argument of the queue; may be given again")
    parser.add_argument(
        "--durability",
        choices=DURABILITIES,
        default=DURABILITIES[-1],
        help="what of it survives a restart (default: its messages, too)",
    )
    _add_alter(queue)
    _add_delete_and_purge(queue)


def _add_alter(queue: Subparsers) -> None:
    parser = add_order(
        *(queue, alter_queue, "alter", "change arguments of a queue; the others stay"),
        ARGUMENT_HELP
        + _CHANGES
        + "message_ttl_ms, max_depth and max_bytes hold for what is enqueued\n"
        "from then on. Its durability stays. What a broker's settings say of a queue holds at its\n"
        "next start.\n\n"
        "examples:\n  sparkstore queue alter ROOT orders --set max_delivery_count=5\n"
        "  sparkstore queue alter ROOT orders --unset message_ttl_ms",
        _QUEUE,
    )
    add_set(parser, "what changes; may be given again")
    parser.add_argument(
        "--unset",
        action="append",
        default=[],
        metavar="NAME",
        help="what the queue has no more; may be given again",
    )


def _add_delete_and_purge(queue: Subparsers) -> None:
    parser = add_order(
        *(queue, delete_queue, "delete", "delete a queue and its bindings"),
        "One with messages or consumers, that is a subscription's, or that another queue sends\n"
        "its dead letters to is refused; the refusal says what would be lost.\n\n"
        "example:\n  sparkstore queue delete ROOT ordres",
        _QUEUE,
    )
    add_deletion(parser, "delete it with its messages, and end its consumers", "a consumer")
    parser.add_argument(
        "--if-empty", action="store_true", help="not, by --force either, if a message is on it"
    )
    parser = add_order(
        *(queue, purge_queue, "purge", "delete all messages of a queue for good"),
        "Those that were on it when the command began; what a consumer has acquired is left.\n"
        "message_history shows the outcome purged. For some of them: sparkstore purge --where.\n\n"
        "example:\n  sparkstore queue purge ROOT orders",
        _QUEUE,
    )
    add_progress(parser)


def create_queue(arguments: Namespace) -> int:
    """Create the queue that the command names."""
    order = Order(
        AdminAction.CREATE_QUEUE,
        arguments.queue,
        arguments=given_arguments(arguments.given),
        durability=DURABILITIES.index(arguments.durability),
    )
    return ordered(arguments, order)


def alter_queue(arguments: Namespace) -> int:
    """Change some arguments of a queue."""
    changes = given_arguments(arguments.given)
    if twice := changes.keys() & set(arguments.unset):
        message = f"--set and --unset of {min(twice)!r}: say one of them"
        raise InvalidRequest(message)
    changes |= dict.fromkeys(arguments.unset)
    return ordered(arguments, Order(AdminAction.ALTER_QUEUE, arguments.queue, arguments=changes))


def delete_queue(arguments: Namespace) -> int:
    """Delete the queue that the command names."""
    order = Order(AdminAction.DELETE_QUEUE, arguments.queue, force=arguments.force)
    order = order._replace(if_unused=arguments.if_unused, if_empty=arguments.if_empty)
    if is_dry(arguments) or arguments.url is not None:
        return ordered(arguments, order)
    with opened_control(arguments) as control:
        answer = control.order(order)
        with suppress(StoreError):  # the queue is gone; its id can be asked for later
            control.flush()
    show_row(arguments, {**answer, "operation": _deletion(arguments, answer["queue"])})
    return 0


def _deletion(arguments: Namespace, queue: str) -> str | None:
    """Name a deletion that was just done; None: `sparkstore operations` will list it."""
    from sparkstore.recovery.operation_log import deletion_of
    from sparkstore.storage.objects import is_object_uri

    if is_object_uri(arguments.root):
        return None  # of a bucket, all of history would have to come here
    try:
        with opened_root(arguments.root) as root:
            return deletion_of(root, queue)
    except StoreError:
        return None


def purge_queue(arguments: Namespace) -> int:
    """Take everything off a queue."""
    if is_dry(arguments):
        queue, count, left = _would_purge(arguments)
        row: Row = {"queue": queue, "dry_run": True, "count": count, "left": left}
        show_row(arguments, {"act": "purge-queue", **row})
        return check_code(arguments, count)
    operation = new_operation()
    with opened_control(arguments) as control:
        answer = control.purge(arguments.queue, shower(arguments, "purge"), operation)
    row = {"queue": arguments.queue, "operation": answer.named(operation), **answer.counts()}
    show_row(arguments, {"act": "purge-queue", **row})
    return 0


def _would_purge(arguments: Namespace) -> tuple[str, int, int]:
    """Return the queue, how many messages a purge would take, and how many it would leave."""
    if arguments.url is not None:
        with opened_broker(arguments) as broker:
            path = path_of("queues", arguments.queue, "purge")
            answer = broker.ask("POST", path, {"dry_run": True})
        return answer["queue"], answer["would"], answer["left"]
    with opened_root(arguments.root, whole=True) as root:
        state = recovered(root)
        queue = queue_named(arguments, state)
        entries = state.queues[queue].entries.values()
        held = sum(entry.acquired_by is not None for entry in entries)
        note_unreplayed(root)
    return queue, len(entries) - held, held
