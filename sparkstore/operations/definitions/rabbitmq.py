"""Read the definitions of RabbitMQ (`rabbitmqctl export_definitions`), as far as they map.

The default exchange and the bindings to it have no counterpart, because a queue is reached by its
own name. `amq.headers` is `amq.match`. Sources: RabbitMQ's documentation of queue arguments, of
`definitions.json`, of policies, and of maximum length, where a full queue drops its head if nothing
is said.

A policy comes if its regular expression says the same as a pattern of words, and gives the queues
what a queue's arguments of these names would.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from sparkstore.core.wiring_arguments import EXCHANGE_TYPES
from sparkstore.operations.administration import DEFAULT_EXCHANGES, AdminAction, Order
from sparkstore.operations.definitions.drafts import (
    Definitions,
    Draft,
    PlacedOrder,
    set_policy,
)

_QUEUE = {"name": str, "vhost": str, "durable": bool, "auto_delete": bool, "arguments": dict}
_EXCHANGE = {**_QUEUE, "type": str, "internal": bool}
_BINDING = {
    "source": str, "vhost": str, "destination": str, "destination_type": str, "routing_key": str,
    "arguments": dict,
}  # fmt: skip
_POLICY = {
    "name": str, "vhost": str, "pattern": str, "apply-to": str, "priority": int,
    "definition": dict,
}  # fmt: skip
_ANY = {"", "^", ".*", ".+", "^.*", "^.+", ".*$", ".+$", "^.*$", "^.+$"}
_WORDS = re.compile(r"\^(?P<words>[\w-]+(?:\\\.[\w-]+)*)(?P<end>\$|\\\.(?:\.[*+]\$?)?)")
"""Words with escaped dots between them; then the end, or a dot and anything."""
_RENAMED = {
    "x-message-ttl": "message_ttl_ms",
    "x-max-length": "max_depth",
    "x-max-length-bytes": "max_bytes",
    "x-delivery-limit": "max_delivery_count",
    "x-single-active-consumer": "single_active_consumer",
}
_OVERFLOW = {
    "drop-head": "drop_head", "reject-publish": "reject", "reject-publish-dlx": "dead_letter",
}  # fmt: skip
_NO_EFFECT = {"x-max-priority", "x-queue-mode", "x-queue-version", "x-queue-leader-locator"}
"""Every queue here has ten priorities, and keeps its messages on disk."""
_OTHER_PARTS = {
    "users": "users: make them with sparkstore passwd",
    "permissions": "rights: write them into [security] of the settings",
    "topic_permissions": "rights by topic",
    "parameters": "parameters, such as shovels and federation",
}


def read(document: Mapping[str, Any], vhost: str | None) -> Definitions:
    """Read the definitions of one virtual host.

    Args:
        document: The whole of it.
        vhost: The virtual host; None: the only one.
    """
    draft = Draft()
    parts = {
        part: draft.entries(document, part, fields, is_ours=False)
        for part, fields in (
            ("exchanges", _EXCHANGE),
            ("queues", _QUEUE),
            ("bindings", _BINDING),
            ("policies", _POLICY),
        )
    }
    hosts = {entry.get("vhost", "/") for entries in parts.values() for _, entry in entries}
    if vhost is not None and vhost not in hosts:
        draft.fail("vhosts", f"the document has no {vhost!r:.60}, but {_listed(hosts, ', ')}")
    elif vhost is None and len(hosts) > 1:
        draft.fail("vhosts", f"a root is one virtual host: choose {_listed(hosts, ' or ')}")
    read_entry: dict[str, Callable[[Draft, str, dict[str, Any]], None]] = {
        "exchanges": _exchange, "queues": _queue, "bindings": _binding, "policies": _policy,
    }  # fmt: skip
    for part, entries in parts.items():
        for place, entry in entries:
            if vhost in {None, entry.get("vhost", "/")}:
                read_entry[part](draft, place, entry)
    _leave_the_rest(draft, document)
    return draft.done()


def _leave_the_rest(draft: Draft, document: Mapping[str, Any]) -> None:
    if len(draft.policies) > 1:
        text = "of several that fit a queue RabbitMQ takes one; here each argument is that of the"
        draft.leave("policies", f"{text} first by priority that says it")
    for part, text in _OTHER_PARTS.items():
        if count := len(document.get(part) or ()):
            draft.leave(part, f"{count} {text}")


def _listed(hosts: set[str], mark: str) -> str:
    return mark.join(sorted(map(repr, hosts))) or "nothing to import"


def _exchange(draft: Draft, place: str, entry: dict[str, Any]) -> None:
    name, kind = entry.get("name", ""), entry.get("type", "")
    if name in {"", *DEFAULT_EXCHANGES, "amq.headers"}:
        return
    if kind not in EXCHANGE_TYPES:
        draft.leave(place, f"type {kind!r:.40}: exchanges here are {', '.join(EXCHANGE_TYPES)}")
        return
    if not entry.get("durable", True):
        draft.leave(place, "it is not durable, and ends with its broker")
        return
    arguments: dict[str, Any] = {"auto_delete": True} if entry.get("auto_delete") else {}
    for argument, value in entry.get("arguments", {}).items():
        if argument == "alternate-exchange":
            arguments["alternate_exchange"] = value
        else:
            draft.leave(place, f"argument {argument!r:.60}")
    if entry.get("internal"):
        draft.leave(place, "internal: clients can publish to it here")
    order = Order(AdminAction.CREATE_EXCHANGE, exchange=name, type=kind, arguments=arguments)
    draft.exchanges.append(PlacedOrder(place, order))


def _queue(draft: Draft, place: str, entry: dict[str, Any]) -> None:
    if not entry.get("durable", True):
        draft.leave(place, "it is not durable, and ends with its broker")
        return
    given = dict(entry.get("arguments", {}))
    if given.pop("x-queue-type", "classic") == "stream":
        draft.leave(place, "a stream: history here keeps what consumers took")
        return
    arguments = _arguments(draft, place, given)
    if entry.get("auto_delete"):
        arguments["auto_delete"] = True
    order = Order(AdminAction.CREATE_QUEUE, queue=entry.get("name", ""), arguments=arguments)
    draft.queues.append(PlacedOrder(place, order))


def _arguments(draft: Draft, place: str, given: dict[str, Any]) -> dict[str, Any]:
    """Turn arguments of RabbitMQ's into those of a queue; those that have none are left out."""
    arguments: dict[str, Any] = {}
    if when_full := _when_full(draft, place, given):
        arguments["when_full"] = when_full
    if given.get("x-dead-letter-exchange") == "" and "x-dead-letter-routing-key" in given:
        del given["x-dead-letter-exchange"]
        arguments["dead_letter_queue"] = given.pop("x-dead-letter-routing-key")
    for argument, value in given.items():
        if argument in _RENAMED:
            arguments[_RENAMED[argument]] = value
        elif argument not in _NO_EFFECT:
            draft.leave(place, _why(argument))
    return arguments


def _policy(draft: Draft, place: str, entry: dict[str, Any]) -> None:
    pattern, of = entry.get("pattern", ""), entry.get("apply-to", "all")
    match = _pattern_of(pattern)
    if of not in {"all", "queues"}:
        draft.leave(place, f"applies to {of!r:.40}: policies here are about all queues that fit")
        return
    if match is None:
        text = f"pattern {pattern!r:.60}: say it as whole words, with sparkstore policy set"
        draft.leave(place, text)
        return
    given = {f"x-{name}": value for name, value in entry.get("definition", {}).items()}
    arguments = _arguments(draft, place, given)
    if not arguments:
        draft.leave(place, "says nothing that queues here have")
        return
    order = set_policy(entry.get("name", ""), match, entry.get("priority", 0), arguments)
    draft.policies.append(PlacedOrder(place, order))


def _pattern_of(expression: str) -> str | None:
    """The pattern that fits just what a regular expression fits; None: there is none."""
    if expression in _ANY:
        return "#"
    match = _WORDS.fullmatch(expression)
    if match is None:
        return None
    words = match["words"].replace("\\.", ".")
    return words if match["end"] == "$" else f"{words}.*.#"


def _when_full(draft: Draft, place: str, given: dict[str, Any]) -> str | None:
    """Take what a full queue does out of the arguments; None: it has no limit."""
    if not {"x-max-length", "x-max-length-bytes"} & given.keys():
        given.pop("x-overflow", None)
        return None
    overflow = given.pop("x-overflow", "drop-head")
    if overflow not in _OVERFLOW:
        draft.fail(place, f"x-overflow is {overflow!r:.40}: say {', '.join(_OVERFLOW)}")
        return None
    return _OVERFLOW[overflow]


def _why(argument: str) -> str:
    hint = ""
    if argument.startswith("x-dead-letter"):
        hint = ": dead letters go to a queue here: queue alter --set dead_letter_queue=NAME"
    return f"argument {argument!r:.60}{hint}"


def _binding(draft: Draft, place: str, entry: dict[str, Any]) -> None:
    source, to = entry.get("source", ""), entry.get("destination", "")
    place = f"{place} {source!r:.60} → {to!r:.60}"
    if not source:
        return
    if entry.get("destination_type", "queue") != "queue":
        draft.leave(place, "of an exchange to an exchange: bind its queues to the first")
        return
    source = "amq.match" if source == "amq.headers" else source
    key, arguments = entry.get("routing_key", ""), entry.get("arguments", {})
    order = Order(AdminAction.ADD_BINDING, to, source, key, arguments=arguments)
    draft.bindings.append(PlacedOrder(place, order))
