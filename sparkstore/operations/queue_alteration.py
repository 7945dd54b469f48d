"""Decide which arguments of a queue may change, and when. Pure.

Each argument says when it may be altered (`declared_arguments`). message_ttl_ms, max_depth
and max_bytes hold for what is enqueued from then on, the others for what is on the queue, too.
What the store asks nothing of may change at any time.

Decision: a change of `last_value_key` on a queue with messages is refused, not applied. Applied, it
would take messages off the queue that have the same value of the new key: who wants that says so,
by purging it or moving them away.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from sparkstore.core.queue_arguments import ARGUMENTS, own_arguments_of, terms_of
from sparkstore.core.queue_names import shown
from sparkstore.core.state_machine.definitions import as_json
from sparkstore.declared_arguments import (
    NOT_FOR_SEVERAL,
    WHILE_EMPTY,
    WHILE_UNUSED,
    Argument,
)
from sparkstore.errors import InvalidRequest

_END_THEM = "(sparkstore connections ROOT --close N)"


class QueueUsage(NamedTuple):
    """Usage of a queue now: messages and consumers.

    Attributes:
        depth: Messages on it, and those on their way to it.
        consumer_count: How many consumers are attached to it.
    """

    depth: int = 0
    consumer_count: int = 0


def definition(arguments: Mapping[str, Any], durability: int) -> str:
    """The definition of a queue as records carry it; an argument that is None is none.

    Raises:
        InvalidRequest: JSON cannot hold it.
    """
    kept = {name: value for name, value in arguments.items() if value is not None}
    return as_json({"arguments": kept, "durability": durability})


def durability_of(detail: str) -> int:
    """The durability in a definition."""
    return int(json.loads(detail).get("durability", 2))


def altered(detail: str, changes: Mapping[str, Any]) -> str:
    """A definition with some arguments changed; None takes one away."""
    return definition(own_arguments_of(detail) | dict(changes), durability_of(detail))


def check_alteration(queue: str, detail: str, wanted: str, standing: QueueUsage) -> None:
    """Refuse what may not change on a queue as it stands.

    Args:
        queue: Name of the queue that shall be altered.
        detail: Definition (JSON) that the queue has.
        wanted: The definition that it shall have.
        standing: What it has.

    Raises:
        InvalidRequest: See the module; nothing may be changed then.
    """
    old, new = terms_of(detail).arguments, terms_of(wanted).arguments
    name = shown(queue)
    for argument in ARGUMENTS.values():
        value = getattr(new, argument.name)
        if value == getattr(old, argument.name):
            continue
        if reason := _why_not(argument, value, standing, name):
            message = f"queue {name} has {reason}"
            raise InvalidRequest(message)


def _why_not(argument: Argument, value: object, standing: QueueUsage, queue: str) -> str:
    """Return why an argument may not get this value now; empty: it may."""
    depth, consumers = standing.depth, standing.consumer_count
    if argument.changes == WHILE_EMPTY and depth:
        reason = f"{depth} messages: {argument.name} changes only while it is empty"
        return f"{reason} (sparkstore queue purge ROOT {queue})"
    if argument.changes == WHILE_UNUSED and consumers:
        reason = f"{consumers} consumers: {argument.name} changes only while it has none"
        return f"{reason} {_END_THEM}"
    if argument.changes == NOT_FOR_SEVERAL and value and consumers > 1:
        reason = f"{consumers} consumers, {argument.name} is for one at most: end the others first"
        return f"{reason} {_END_THEM}"
    return ""
