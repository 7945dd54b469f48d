"""Definitions of queues and exchanges as the JSON that records carry, and the checks of names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest
from broker_shim.store.entries import LiveEntries
from broker_shim.store.interface import Exchange, Queue, Recovered
from sparkstore.fold import Link, State
from sparkstore.link_records import link_key
from sparkstore.queue_arguments import check_arguments


def detail_of(wiring: Queue | Exchange) -> str:
    """A definition as JSON, the same text for equal definitions.

    Raises:
        InvalidRequest: The arguments are not what JSON can hold, or not what a queue can do.
    """
    if isinstance(wiring, Queue):
        check_arguments(wiring.name, wiring.arguments)
    content: dict[str, Any] = {
        "arguments": dict(wiring.arguments),
        "durability": int(wiring.durability),
    }
    if isinstance(wiring, Exchange):
        content["type"] = wiring.type
    return as_json(content)


def as_json(content: Mapping[str, Any]) -> str:
    """JSON with sorted keys.

    Raises:
        InvalidRequest: It holds something that JSON cannot.
    """
    try:
        return json.dumps(content, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as reason:
        message = f"arguments must be what JSON can hold: {reason}"
        raise InvalidRequest(message) from reason


def durability_of(detail: str) -> TerminusDurability:
    """The durability that a definition asks for."""
    return TerminusDurability(json.loads(detail)["durability"])


def queue_of(name: str, detail: str) -> Queue:
    """The definition that a record carried."""
    content = json.loads(detail)
    return Queue(name, TerminusDurability(content["durability"]), content["arguments"])


def exchange_of(name: str, detail: str) -> Exchange:
    """The definition that a record carried."""
    content = json.loads(detail)
    durability = TerminusDurability(content["durability"])
    return Exchange(name, content["type"], durability, content["arguments"])


def recovered_of(state: State) -> Recovered:
    """What is in a store; entries are a live view of the state."""
    return Recovered(
        [queue_of(name, queue.detail) for name, queue in state.queues.items()],
        [exchange_of(name, detail) for name, detail in state.exchanges.items()],
        {key: json.loads(detail)["arguments"] for key, detail in state.bindings.items()},
        LiveEntries(state.queues),
        {key: json.loads(detail) for key, detail in state.configured.items()},
        {link_key(text): json.loads(link.detail) for text, link in state.links.items()},
        {link_key(text): states_of(link) for text, link in state.links.items() if link.unsettled},
    )


def states_of(link: Link) -> dict[bytes, Any]:
    """The deliveries that a link remembers, by tag, with their states."""
    return {
        tag: None if state is None else json.loads(state) for tag, state in link.unsettled.items()
    }


def what(wiring: Queue | Exchange) -> str:
    """A queue or exchange, for an error."""
    return f"{type(wiring).__name__.lower()} {wiring.name!r}"


def check_name(name: str) -> None:
    """A name may be any text that UTF-8 can spell: it never becomes a path or SQL.

    Raises:
        InvalidRequest: It holds half a surrogate pair, or is longer than 10,000 characters.
    """
    try:
        name.encode()
    except UnicodeEncodeError as reason:
        message = f"name {name!r} is not valid Unicode"
        raise InvalidRequest(message) from reason
    if len(name) > MAX_NAME_CHARACTERS:
        message = f"name {name[:40]!r}… is longer than {MAX_NAME_CHARACTERS} characters"
        raise InvalidRequest(message)


MAX_NAME_CHARACTERS = 10_000
