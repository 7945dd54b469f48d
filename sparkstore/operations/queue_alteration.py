"""Decide which arguments of a queue may change, and when. Pure.

    message_ttl_ms, max_depth, max_bytes,  at any time. These hold for what is enqueued from now on;
    when_full, max_delivery_count,         the others for what is on the queue, too
    dead_letter_queue, on_reject,
    alternate_exchange, auto_delete,
    whatever the store asks nothing of
    exclusive                              not to true while it has several consumers
    message_groups                         while it has no consumer
    last_value_key                         while it is empty

Decision: a change of `last_value_key` on a queue with messages is refused, not applied. Applied, it
would take messages off the queue that have the same value of the new key: who wants that says so,
by purging it or moving them away.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from sparkstore.core.queue_arguments import own_arguments_of, terms_of
from sparkstore.core.queue_names import shown
from sparkstore.core.state_machine.definitions import as_json
from sparkstore.errors import InvalidRequest


class QueueUsage(NamedTuple):
    """Usage of a queue now: messages and consumers.

    Attributes:
        depth: Messages on it, and those on their way to it.
        consumer_count: How many consumers are attached to it.
        held_count: Messages on it that somebody holds, a prepared branch too.
    """

    depth: int = 0
    consumer_count: int = 0
    held_count: int = 0


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
    there, new = terms_of(detail).arguments, terms_of(wanted).arguments
    name = shown(queue)
    if new.last_value_key != there.last_value_key and standing.depth:
        message = f"queue {name} has {standing.depth} messages: last_value_key changes only while"
        message += f" it is empty (sparkstore queue purge ROOT {name})"
        raise InvalidRequest(message)
    if new.message_groups != there.message_groups and standing.consumer_count:
        message = f"queue {name} has {standing.consumer_count} consumers: message_groups changes"
        message += " only while it has none (sparkstore connections ROOT --close N)"
        raise InvalidRequest(message)
    if new.exclusive and not there.exclusive and standing.consumer_count > 1:
        message = f"queue {name} has {standing.consumer_count} consumers, an exclusive one has"
        message += " one at most: end the others first (sparkstore connections ROOT --close N)"
        raise InvalidRequest(message)
