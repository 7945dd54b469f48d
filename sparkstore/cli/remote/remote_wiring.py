"""Queues, exchanges, bindings and policies of a remote broker: their commands and parsers."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from sparkstore.cli.admin_commands import given_arguments, given_headers
from sparkstore.cli.output import Row
from sparkstore.cli.remote.http_client import RemoteBroker, name_in_path
from sparkstore.cli.remote.remote_commands import checked, queue_row, show, show_one
from sparkstore.cli.remote.remote_parsing import add_dry_run, added, group, is_dry
from sparkstore.core.wiring_arguments import EXCHANGE_TYPES
from sparkstore.operations.administration import DURABILITIES

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers


_DRY = "say what would be, change nothing"


def list_queues(arguments: Namespace, broker: RemoteBroker) -> int:
    """List queues and their arguments."""
    rows = [
        {name: each[key] or None if key == "arguments" else each[key] for key, name in _NAMES}
        for each in broker.pages("queues")
    ]
    return show(arguments, rows, ("queue", "depth", "durability", "arguments"))


_NAMES = (
    *(("name", "queue"), ("depth", "depth")),
    *(("durability", "durability"), ("arguments", "arguments")),
)


def show_queue(arguments: Namespace, broker: RemoteBroker) -> int:
    """Show one queue with its arguments and bindings."""
    answer = broker.ask("GET", _queue(arguments))
    row = {**queue_row(answer), "arguments": answer["arguments"] or None}
    row |= {name: value for name, value in answer.items() if name not in {*row, "name"}}
    bound = [{"exchange": each["exchange"], "binding_key": each["key"]} for each in row["bindings"]]
    show_one(arguments, {**row, "effective": row["effective"] or None, "bindings": bound})
    return 0


def create_queue(arguments: Namespace, broker: RemoteBroker) -> int:
    """Create a queue with arguments."""
    body = {"arguments": given_arguments(arguments.set), "durability": arguments.durability}
    return _ordered(arguments, broker.ask("PUT", _queue(arguments), body | _dry(arguments)))


def alter_queue(arguments: Namespace, broker: RemoteBroker) -> int:
    """Change arguments of a queue."""
    body = {"set": given_arguments(arguments.set), "unset": arguments.unset}
    return _ordered(arguments, broker.ask("PATCH", _queue(arguments), body | _dry(arguments)))


def delete_queue(arguments: Namespace, broker: RemoteBroker) -> int:
    """Delete a queue and its bindings."""
    limits = {name: getattr(arguments, name) for name in ("force", "if_unused", "if_empty")}
    limits |= _dry(arguments)
    return _ordered(arguments, broker.ask("DELETE", _queue(arguments), None, **limits))


def purge_queue(arguments: Namespace, broker: RemoteBroker) -> int:
    """Delete all messages of a queue for good."""
    told = broker.ask("POST", f"{_queue(arguments)}/purge", _dry(arguments))
    row = {"act": "purge-queue", "queue": told["queue"]}
    if is_dry(arguments):
        show_one(arguments, {**row, "dry_run": True, "count": told["would"], "left": told["left"]})
        return checked(arguments, told["would"])
    names = ("operation", "done", "left", "gone")
    show_one(arguments, {**row, **{name: told[name] for name in names}})
    return 0


def list_exchanges(arguments: Namespace, broker: RemoteBroker) -> int:
    """List exchanges, the broker's own ones too."""
    columns = ("exchange", "type", "durability", "alternate_exchange")
    rows = [
        {"exchange": each["name"], **{name: each[name] for name in columns[1:]}}
        for each in broker.pages("exchanges")
    ]
    return show(arguments, rows, columns)


def create_exchange(arguments: Namespace, broker: RemoteBroker) -> int:
    """Create an exchange with arguments."""
    body = {"type": arguments.type, "arguments": given_arguments(arguments.set)}
    return _ordered(arguments, broker.ask("PUT", _exchange(arguments), body | _dry(arguments)))


def delete_exchange(arguments: Namespace, broker: RemoteBroker) -> int:
    """Delete an exchange by its name."""
    limits = {name: getattr(arguments, name) for name in ("force", "if_unused")}
    limits |= _dry(arguments)
    return _ordered(arguments, broker.ask("DELETE", _exchange(arguments), None, **limits))


def list_bindings(arguments: Namespace, broker: RemoteBroker) -> int:
    """List bindings of queues to exchanges."""
    chosen = {"queue": arguments.queue, "exchange": arguments.exchange}
    rows = [
        {
            "exchange": each["exchange"],
            "binding_key": each["key"],
            "queue": each["queue"],
            "arguments": each["arguments"] or None,
        }
        for each in broker.pages("bindings", **chosen)
    ]
    return show(arguments, rows, ("exchange", "binding_key", "queue", "arguments"))


def add_one_binding(arguments: Namespace, broker: RemoteBroker) -> int:
    """Bind a queue to an exchange."""
    body = {**_binding(arguments), "arguments": given_headers(arguments.set)} | _dry(arguments)
    return _ordered(arguments, broker.ask("POST", "bindings", body))


def remove_binding(arguments: Namespace, broker: RemoteBroker) -> int:
    """Remove a binding of a queue."""
    told = broker.ask("DELETE", "bindings", None, **_binding(arguments), **_dry(arguments))
    return _ordered(arguments, told)


def list_policies(arguments: Namespace, broker: RemoteBroker) -> int:
    """List policies, those that count most first."""
    columns = ("policy", "match", "priority", "arguments", "queues")
    rows = [
        {"policy": each["name"], **{name: each[name] for name in columns[1:]}}
        for each in broker.pages("policies")
    ]
    return show(arguments, rows, columns)


def set_policy(arguments: Namespace, broker: RemoteBroker) -> int:
    """Give all queues that fit a pattern these arguments."""
    body = {"match": arguments.match, "priority": arguments.priority}
    body["arguments"] = given_arguments(arguments.set)
    return _ordered(arguments, broker.ask("PUT", _policy(arguments), body | _dry(arguments)))


def delete_policy(arguments: Namespace, broker: RemoteBroker) -> int:
    """Delete a policy by its name."""
    return _ordered(arguments, broker.ask("DELETE", _policy(arguments), None, **_dry(arguments)))


def _ordered(arguments: Namespace, told: Row) -> int:
    """Print what came of an order, in the form of the local command."""
    dry = {"dry_run": True} if told["dry_run"] else {}
    show_one(arguments, {**dry, "act": told["act"], **told["details"], "changed": told["changed"]})
    return checked(arguments, told["changed"])


def _dry(arguments: Namespace) -> dict[str, bool]:
    return {"dry_run": is_dry(arguments)}


def _queue(arguments: Namespace) -> str:
    return f"queues/{name_in_path(arguments.queue)}"


def _exchange(arguments: Namespace) -> str:
    return f"exchanges/{name_in_path(arguments.exchange)}"


def _policy(arguments: Namespace) -> str:
    return f"policies/{name_in_path(arguments.policy)}"


def _binding(arguments: Namespace) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in ("exchange", "queue", "key")}


def add_queue(subparsers: Subparsers, name: str) -> None:
    """Add the commands about queues."""
    ways = group(subparsers, name, "Create, alter, purge, delete, list or show queues.")
    added(ways, "list", list_queues)
    for way, run in (
        ("create", create_queue),
        ("alter", alter_queue),
        ("delete", delete_queue),
        ("purge", purge_queue),
        ("show", show_queue),
    ):
        parser = added(ways, way, run)
        parser.add_argument("queue", help="name of the queue")
        if way != "show":
            add_dry_run(parser, _DRY)
        if way in {"create", "alter"}:
            _add_set(parser)
        if way == "create":
            parser.add_argument("--durability", choices=DURABILITIES, default=DURABILITIES[-1])
        if way == "alter":
            parser.add_argument("--unset", action="append", default=[], metavar="NAME")
        if way == "delete":
            _add_limits(parser, "--force", "--if-unused", "--if-empty")


def add_exchange(subparsers: Subparsers, name: str) -> None:
    """Add the commands about exchanges."""
    ways = group(subparsers, name, "List, create or delete exchanges.")
    added(ways, "list", list_exchanges)
    for way, run in (("create", create_exchange), ("delete", delete_exchange)):
        parser = added(ways, way, run)
        parser.add_argument("exchange", help="name of the exchange")
        add_dry_run(parser, _DRY)
        if way == "create":
            parser.add_argument("--type", required=True, choices=EXCHANGE_TYPES)
            _add_set(parser)
        else:
            _add_limits(parser, "--force", "--if-unused")


def add_binding(subparsers: Subparsers, name: str) -> None:
    """Add the commands about bindings."""
    ways = group(subparsers, name, "List, add or remove bindings of queues to exchanges.")
    parser = added(ways, "list", list_bindings)
    parser.add_argument("--queue", help="of this queue alone")
    parser.add_argument("--exchange", help="of this exchange alone")
    for way, run in (("add", add_one_binding), ("remove", remove_binding)):
        parser = added(ways, way, run)
        parser.add_argument("exchange", help="name of the exchange")
        parser.add_argument("queue", help="name of the queue")
        parser.add_argument("--key", default="", help="the binding key (default: empty)")
        add_dry_run(parser, _DRY)
        if way == "add":
            _add_set(parser)


def add_policy(subparsers: Subparsers, name: str) -> None:
    """Add the commands about policies."""
    ways = group(subparsers, name, "List, set or delete policies of queues by pattern.")
    added(ways, "list", list_policies)
    for way, run in (("set", set_policy), ("delete", delete_policy)):
        parser = added(ways, way, run)
        parser.add_argument("policy", help="name of the policy")
        add_dry_run(parser, _DRY)
        if way == "set":
            parser.add_argument("--match", required=True, metavar="PATTERN")
            parser.add_argument("--priority", type=int, default=0)
            _add_set(parser)


def _add_set(parser: ArgumentParser) -> None:
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")


def _add_limits(parser: ArgumentParser, *limits: str) -> None:
    for limit in limits:
        parser.add_argument(limit, action="store_true")
