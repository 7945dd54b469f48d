"""The commands `exchange …` and `binding …`: what is routed where."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sparkstore.cli.administration.orders import (
    add_deletion,
    add_list,
    add_order,
    add_set,
    given_arguments,
    given_headers,
    ordered,
)
from sparkstore.cli.output import Row
from sparkstore.cli.parsing import group
from sparkstore.cli.target import show_list
from sparkstore.core.queue_arguments import arguments_of, own_arguments_of
from sparkstore.core.wiring_arguments import ALTERNATE_EXCHANGE, EXCHANGE_TYPES
from sparkstore.operations.administration import DURABILITIES, AdminAction, Order
from sparkstore.operations.queue_alteration import durability_of

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.control.http_client import BrokerClient
    from sparkstore.core.fold import State

_EXCHANGES = ("exchange", "type", "durability", "arguments")
_BINDINGS = ("exchange", "binding_key", "queue", "arguments")
_EXCHANGE = ("exchange", "name of the exchange")
_HEADERS = (
    "A binding to an exchange of the type headers says which application properties a message\n"
    "has: --set land=eu --set year=2026; null: whatever the value is. x-match=any: one of them\n"
    "is enough (default: all).\n\n"
)


def add_exchange(subparsers: Subparsers) -> None:
    """Add the commands `exchange …` to the command line."""
    exchange = group(subparsers, "exchange", "list, create or delete exchanges")
    summary = "list exchanges that somebody declared"
    add_list(exchange, list_exchanges, summary, "exchange list ROOT")
    parser = add_order(
        *(exchange, create_exchange, "create", "create an exchange"),
        "arguments: alternate_exchange, which gets the messages that go to no queue of this.\n\n"
        "examples:\n  sparkstore exchange create ROOT news --type topic\n"
        "  sparkstore exchange create ROOT news --type topic --set alternate_exchange=amq.fanout",
        _EXCHANGE,
    )
    parser.add_argument("--type", required=True, choices=EXCHANGE_TYPES, help="how it routes")
    add_set(parser, "an argument of the exchange; may be given again")
    parser = add_order(
        *(exchange, delete_exchange, "delete", "delete an exchange"),
        "One with bindings, or that is somebody's alternate exchange, is refused; amq.direct,\n"
        "amq.fanout, amq.match and amq.topic are every broker's.\n\n"
        "example:\n  sparkstore exchange delete ROOT news --force",
        _EXCHANGE,
    )
    add_deletion(parser, "delete it with its bindings", "a binding")


def add_binding(subparsers: Subparsers) -> None:
    """Add the commands `binding …` to the command line."""
    binding = group(subparsers, "binding", "list, add or remove bindings of queues to exchanges")
    example = "binding list ROOT --queue orders"
    parser = add_list(binding, list_bindings, "list bindings of queues", example)
    parser.add_argument("--queue", help="of this queue alone")
    parser.add_argument("--exchange", help="of this exchange alone")
    for run, name, summary, more in (
        (bind, "add", "bind a queue to an exchange", _HEADERS),
        (unbind, "remove", "remove a binding", ""),
    ):
        example = f"example:\n  sparkstore binding {name} ROOT amq.topic orders --key 'order.#'"
        queue = ("queue", "name of the queue")
        parser = add_order(binding, run, name, summary, more + example, _EXCHANGE, queue)
        parser.add_argument("--key", default="", help="the binding key (default: empty)")
        if run is bind:
            add_set(parser, "x-match, or a header that messages have; may be given again")


def list_exchanges(arguments: Namespace) -> int:
    """Show each exchange; of a root amq.direct and the like, which are every broker's, are not."""

    def of_tables(state: State) -> Iterator[Row]:
        for name, detail in sorted(state.exchanges.items()):
            yield {"exchange": name, **_defined(detail)}

    def of_broker(broker: BrokerClient) -> Iterator[Row]:
        for row in broker.pages("exchanges"):
            alternate = row.pop(ALTERNATE_EXCHANGE)
            given = None if alternate is None else {ALTERNATE_EXCHANGE: alternate}
            yield {"exchange": row.pop("name"), **row, "arguments": given}

    return show_list(arguments, _EXCHANGES, of_tables, of_broker)


def create_exchange(arguments: Namespace) -> int:
    """Create the exchange that the command names."""
    values, name, kind = given_arguments(arguments.given), arguments.exchange, arguments.type
    act = AdminAction.CREATE_EXCHANGE
    return ordered(arguments, Order(act, exchange=name, type=kind, arguments=values))


def delete_exchange(arguments: Namespace) -> int:
    """Delete the exchange that the command names."""
    order = Order(AdminAction.DELETE_EXCHANGE, exchange=arguments.exchange, force=arguments.force)
    return ordered(arguments, order._replace(if_unused=arguments.if_unused))


def list_bindings(arguments: Namespace) -> int:
    """Show each binding of a queue to an exchange."""

    def of_tables(state: State) -> Iterator[Row]:
        for key, detail in sorted(state.bindings.items()):
            is_wanted = arguments.queue in {None, key.queue}
            if is_wanted and arguments.exchange in {None, key.exchange}:
                yield {**key._asdict(), "arguments": arguments_of(detail) or None}

    def of_broker(broker: BrokerClient) -> Iterator[Row]:
        chosen = {"queue": arguments.queue, "exchange": arguments.exchange}
        for row in broker.pages("bindings", **chosen):
            row |= {"binding_key": row["key"], "arguments": row["arguments"] or None}
            yield {name: row[name] for name in ("exchange", "queue", "binding_key", "arguments")}

    return show_list(arguments, _BINDINGS, of_tables, of_broker)


def bind(arguments: Namespace) -> int:
    """Bind a queue to an exchange."""
    order = _binding(AdminAction.ADD_BINDING, arguments)
    return ordered(arguments, order._replace(arguments=given_headers(arguments.given)))


def unbind(arguments: Namespace) -> int:
    """Take a binding away."""
    return ordered(arguments, _binding(AdminAction.REMOVE_BINDING, arguments))


def _binding(act: AdminAction, arguments: Namespace) -> Order:
    return Order(act, arguments.queue, arguments.exchange, arguments.key)


def _defined(detail: str) -> dict[str, Any]:
    """A definition, with None for an argument list that is empty."""
    content: dict[str, Any] = json.loads(detail)
    durability = DURABILITIES[durability_of(detail)]
    return {**content, "durability": durability, "arguments": own_arguments_of(detail) or None}
