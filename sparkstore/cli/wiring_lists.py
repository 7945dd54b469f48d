"""The commands that show wiring without Java: queues, exchanges and bindings as Delta has them."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from sparkstore.cli.commands import (
    opened_root,
    print_lines,
    queue_named,
    queue_row,
    recovered,
    tell_unreplayed,
)
from sparkstore.cli.output import Row, fields, json_lines, table
from sparkstore.cli.parsing import ROOT, command
from sparkstore.core.policies import policies_of
from sparkstore.core.queue_arguments import arguments_of, own_arguments_of, sources
from sparkstore.operations.administration import DURABILITIES
from sparkstore.operations.queue_alteration import durability_of

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.core.fold import State

_QUEUES = ("queue", "depth", "durability", "arguments")
_EXCHANGES = ("exchange", "type", "durability", "arguments")
_BINDINGS = ("exchange", "binding_key", "queue", "arguments")
_POLICIES = ("policy", "match", "priority", "arguments", "queues")
_HOW = "Needs no Java and changes nothing; it shows the state in Delta, as `queues` does.\n\n"


def add_queue(queue: Subparsers) -> None:
    """Add `queue list` and `queue show`."""
    _add(queue, list_queues, "list", "list queues and their arguments", "queue list ROOT")
    parser = _add(
        queue, show_queue, "show", "show one queue and its arguments", "queue show ROOT orders"
    )
    parser.add_argument("queue", help="name of the queue")


def add_exchange(exchange: Subparsers) -> None:
    """Add the command `exchange list` to the command line."""
    _add(
        exchange,
        list_exchanges,
        "list",
        "list exchanges that somebody declared",
        "exchange list ROOT",
    )


def add_binding(binding: Subparsers) -> None:
    """Add the command `binding list` to the command line."""
    parser = _add(
        binding,
        list_bindings,
        "list",
        "list bindings of queues",
        "binding list ROOT --queue orders",
    )
    parser.add_argument("--queue", help="of this queue alone")
    parser.add_argument("--exchange", help="of this exchange alone")


def add_policy(policy: Subparsers) -> None:
    """Add the command `policy list` to the command line."""
    summary = "list policies, those that count most first"
    _add(policy, list_policies, "list", summary, "policy list ROOT")


def list_queues(arguments: Namespace) -> int:
    """Show each queue with its definition."""

    def rows(state: State) -> Iterator[Row]:
        for name in sorted(state.queues):
            there = state.queues[name]
            yield {"queue": name, "depth": len(there.entries), **_defined(there.detail)}

    return _show(arguments, rows, _QUEUES)


def show_queue(arguments: Namespace) -> int:
    """Show what there is to know of one queue."""
    with opened_root(arguments.root) as root:
        state = recovered(root)
        name = queue_named(arguments, state)
        row = queue_row(name, state.queues[name], time.time_ns() // 1000, None)
        detail = state.queues[name].detail
        row = {**row, **_defined(detail), "effective": sources(arguments_of(detail)) or None}
        row.pop("not_durable")
        row["bindings"] = [
            {"exchange": key.exchange, "binding_key": key.binding_key}
            for key in sorted(state.bindings)
            if key.queue == name
        ]
        print_lines(json_lines([row]) if arguments.json else fields(_flat(row)))
        tell_unreplayed(arguments, root)
    return 0


def list_exchanges(arguments: Namespace) -> int:
    """Show each exchange that was made; amq.direct and the like are every broker's."""

    def rows(state: State) -> Iterator[Row]:
        for name in sorted(state.exchanges):
            yield {"exchange": name, **_defined(state.exchanges[name])}

    return _show(arguments, rows, _EXCHANGES)


def list_policies(arguments: Namespace) -> int:
    """Show each policy, and on how many queues it is about."""

    def rows(state: State) -> Iterator[Row]:
        for policy in policies_of(state.configured):
            count = sum(map(policy.fits, state.queues))
            yield {"policy": policy.name, **policy.detail, "queues": count}

    return _show(arguments, rows, _POLICIES)


def list_bindings(arguments: Namespace) -> int:
    """Show each binding of a queue to an exchange."""

    def rows(state: State) -> Iterator[Row]:
        for key in sorted(state.bindings):
            is_wanted = arguments.queue in {None, key.queue}
            if is_wanted and arguments.exchange in {None, key.exchange}:
                given = arguments_of(state.bindings[key])
                yield {**key._asdict(), "arguments": given or None}

    return _show(arguments, rows, _BINDINGS)


def _defined(detail: str) -> dict[str, Any]:
    """A definition, with None for an argument list that is empty."""
    defined: dict[str, Any] = json.loads(detail)
    durability = DURABILITIES[durability_of(detail)]
    return {**defined, "durability": durability, "arguments": own_arguments_of(detail) or None}


def _flat(row: Row) -> dict[str, Any]:
    """The row for people: the arguments by name, and a line for each binding."""
    lists = {"arguments", "bindings", "effective"}
    told = {name: value for name, value in row.items() if name not in lists}
    for name, each in (row["effective"] or {}).items():
        is_own = each["from"] == "queue"
        told[name] = each["value"] if is_own else f"{each['value']} ({each['from']})"
    for number, binding in enumerate(row["bindings"], 1):
        told[f"binding {number}"] = f"{binding['exchange']} {binding['binding_key']}".strip()
    return told


def _show(
    arguments: Namespace, rows: Callable[[State], Iterator[Row]], columns: tuple[str, ...]
) -> int:
    with opened_root(arguments.root) as root:
        found = [*rows(recovered(root))]
        shown = ({name: row.get(name) for name in columns} for row in found)
        print_lines(json_lines(found) if arguments.json else table([*shown], columns))
        tell_unreplayed(arguments, root)
    return 0


def _add(
    subparsers: Subparsers,
    run: Callable[[Namespace], int],
    name: str,
    summary: str,
    example: str,
) -> Any:
    more = f"{_HOW}example:\n  sparkstore {example}"
    return command(subparsers, run, summary, more, positional=(ROOT,), name=name)
