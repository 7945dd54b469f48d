"""The commands `queues`, `queue list` and `queue show`: figures, definitions and holders."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from sparkstore.cli.administration.orders import add_list
from sparkstore.cli.notes import note, tell_unreplayed
from sparkstore.cli.output import (
    Row,
    fields,
    json_lines,
    print_lines,
    show_rows,
    time_of,
    time_said,
)
from sparkstore.cli.parsing import (
    add_limit,
    command,
    row_limit,
)
from sparkstore.cli.target import (
    by_url,
    opened_broker,
    opened_root,
    queue_named,
    recovered,
    show_list,
)
from sparkstore.control.broker_control import path_of
from sparkstore.core.fold import QueueState
from sparkstore.errors import InvalidRequest, StoreError
from sparkstore.queue_columns import Road, columns_of, facts_at_rest, row_of

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.control.broker_control import BrokerControl
    from sparkstore.control.http_client import BrokerClient
    from sparkstore.core.fold import State
    from sparkstore.tables.root import Root

_LISTED = ("queue", "depth", "durability", "arguments")
_HELD = 10_000
"""Held messages that people see unless they ask for more."""


def add(subparsers: Subparsers) -> None:
    """Add the command `queues` to the command line."""
    parser = command(
        subparsers,
        queues,
        "show depth, bytes, acquired and oldest age of every queue",
        "Needs no Java and changes nothing. Of a ROOT it shows the messages in Delta: a\n"
        "running store is ahead by its commit interval (200 ms) and the time of a commit. A\n"
        "crashed one is ahead by its write-ahead log until its next start; a line on standard\n"
        'error says so, with --json also a last object {"unreplayed": {"records": N, …}}. The\n'
        "exit code stays 0, because nothing is lost. A broker at a URL shows what it has now.\n"
        "not_durable: messages in the memory of the running broker; they end with it, and depth\n"
        "and SQL do not count them.\n\n"
        "examples:\n  sparkstore queues --json ROOT | jq .depth\n"
        "  sparkstore queues --url https://broker.example:8161 --user ann\n"
        "  sparkstore queues --holders ROOT           what a consumer keeps, and which",
        by_url=True,
    )
    parser.add_argument("--match", default="", metavar="TEXT", help="a part of their names")
    what = "show held messages and their holders, by asking the running broker"
    parser.add_argument("--holders", action="store_true", help=what)
    add_limit(parser, "messages of --holders, 0: all (default 10000, with --json all)")


def add_looks(queue: Subparsers) -> None:
    """Add the commands `queue list` and `queue show` to a group of commands."""
    add_list(queue, list_queues, "list queues and their arguments", "queue list ROOT")
    summary = "show one queue and its arguments"
    parser = add_list(queue, show_queue, summary, "queue show ROOT orders")
    parser.add_argument("queue", help="name of the queue")


def queues(arguments: Namespace) -> int:
    """Show every queue with its figures, by name."""
    if arguments.limit is not None and not arguments.holders:
        raise InvalidRequest("--limit is of --holders: every queue is shown")
    if arguments.url is not None:
        with by_url(arguments) as served:
            if arguments.holders:
                return _show_held(arguments, *_held(arguments, served))
            listed = served.broker.pages("queues", match=arguments.match)
            _show_rows(arguments, [served_row(answer) for answer in listed])
        return 0
    with opened_root(arguments.root) as root:
        return _holders(arguments, root) if arguments.holders else _queues(arguments, root)


def _queues(arguments: Namespace, root: Root) -> int:
    from sparkstore.storage.objects import is_object_uri

    state, now_us = recovered(root), time.time_ns() // 1000
    in_memory = None if is_object_uri(arguments.root) else _not_durable(root)
    rows = [
        queue_row(name, state.queues.get(name), now_us, in_memory)
        for name in sorted({*state.queues, *(in_memory or ())})
        if arguments.match in name
    ]
    _show_rows(arguments, rows)
    tell_unreplayed(arguments, root)
    return 0


def _not_durable(root: Root) -> dict[str, int] | None:
    """Messages that only the broker that runs has; None if it does not say."""
    from sparkstore.control.client import connect

    try:
        if (served := connect(root)) is None:
            return {}
        with closing(served):
            return served.not_durable()
    except StoreError:
        return None


def _holders(arguments: Namespace, root: Root) -> int:
    """Show the holders of messages: by the running broker, or as they were when it ended."""
    from sparkstore.control.client import connect_to

    if (served := connect_to(arguments.root)) is not None:
        with closing(served):
            return _show_held(arguments, *_held(arguments, served))
    at_rest = [*_held_at_rest(root)]
    rows = at_rest[: row_limit(arguments, _HELD) or None]
    _show_held(arguments, rows, len(at_rest) - len(rows))
    tell_unreplayed(arguments, root)
    return 0


def _held(arguments: Namespace, served: BrokerControl) -> tuple[list[Row], int]:
    """Ask the broker who holds which messages, and how many more are held."""
    held = served.holders(row_limit(arguments, _HELD) or None)
    rows: list[Row] = [
        {"queue": it["queue"], "message_id": it["message"], "holders": it["holders"], "since": at}
        for it in held.shown
        for at in (None if it["since"] is None else time_said(it["since"]),)
    ]
    return rows, held.left_out


def _show_held(arguments: Namespace, rows: list[Row], left_out: int) -> int:
    show_rows(arguments, rows, ("queue", "message_id", "holders", "since"))
    if left_out:
        note(f"{left_out} more messages are held than are shown: --limit 0 shows all")
    return 0


def _held_at_rest(root: Root) -> Iterator[Row]:
    from sparkstore.core.holders import since_by_holder, since_of

    state = recovered(root)
    since = since_by_holder(state)
    for name, queue in state.queues.items():
        for message_id, entry in queue.entries.items():
            if (holder := entry.acquired_by) is not None:
                since_us = since_of(holder, since)  # it came then, or the branch was prepared
                row = {"queue": name, "message_id": message_id, "holders": [holder]}
                yield row | {"since": time_of(since_us)}


def queue_row(
    name: str, queue: QueueState | None, now_us: int, in_memory: dict[str, int] | None = None
) -> dict[str, Any]:
    """Return the row of a queue in the tables; `in_memory` is the running broker's count by queue.

    What only a broker knows is None.
    """
    facts = facts_at_rest(name, queue or QueueState("{}", 0), now_us)
    count = None if in_memory is None else in_memory.get(name, 0)
    return _with_nulls(row_of(Road.COMMAND, facts) | {"not_durable": count})


def served_row(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a queue by a broker's answer."""
    names = [column.name for column in columns_of(Road.COMMAND)]
    return _with_nulls({name: answer.get(name) for name in names} | {"queue": answer["name"]})


def _with_nulls(row: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value == {} else value for name, value in row.items()}


def _show_rows(arguments: Namespace, rows: list[dict[str, Any]]) -> None:
    """Print rows; people see some columns, and of arguments no origin."""
    names = [column.name for column in columns_of(Road.LIST)]
    if not arguments.json:
        for row in rows:
            by_name = (row["effective"] or {}).items()
            row["effective"] = {name: source["value"] for name, source in by_name} or None
    show_rows(arguments, rows, names)


def list_queues(arguments: Namespace) -> int:
    """Show each queue with its definition."""

    def of_tables(state: State) -> Iterator[Row]:
        return (_listed(queue_row(name, state.queues[name], 0)) for name in sorted(state.queues))

    def of_broker(broker: BrokerClient) -> Iterator[Row]:
        return (_listed(served_row(answer)) for answer in broker.pages("queues"))

    return show_list(arguments, _LISTED, of_tables, of_broker)


def _listed(row: Row) -> Row:
    return {name: row[name] for name in _LISTED}


def show_queue(arguments: Namespace) -> int:
    """Show one queue with its figures, arguments and bindings."""
    if arguments.url is not None:
        with opened_broker(arguments) as broker:
            answer = broker.ask("GET", path_of("queues", arguments.queue))
        _show_queue(arguments, served_row(answer), answer["bindings"])
        return 0
    with opened_root(arguments.root) as root:
        state = recovered(root)
        name = queue_named(arguments, state)
        row = queue_row(name, state.queues[name], time.time_ns() // 1000)
        keys = (key for key in sorted(state.bindings) if key.queue == name)
        bindings = [{"exchange": key.exchange, "key": key.binding_key} for key in keys]
        _show_queue(arguments, row, bindings)
        tell_unreplayed(arguments, root)
    return 0


def _show_queue(arguments: Namespace, row: dict[str, Any], bindings: list[Any]) -> None:
    row["bindings"] = [
        {"exchange": binding["exchange"], "binding_key": binding["key"]} for binding in bindings
    ]
    print_lines(json_lines([row]) if arguments.json else fields(_flat(row)))


def _flat(row: Row) -> dict[str, Any]:
    """The row for people: what is known, the arguments by name, and a line for each binding."""
    lists = {"arguments", "bindings", "effective"}
    flat = {name: value for name, value in row.items() if not (value is None or name in lists)}
    for name, source in (row["effective"] or {}).items():
        is_own = source["from"] == "queue"
        flat[name] = source["value"] if is_own else f"{source['value']} ({source['from']})"
    for number, binding in enumerate(row["bindings"], 1):
        flat[f"binding {number}"] = f"{binding['exchange']} {binding['binding_key']}".strip()
    return flat
