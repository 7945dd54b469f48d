"""Fully qualified queue names as values. Pure."""

from __future__ import annotations

from typing import NamedTuple

from sparkstore.core import queue_names


class BindingKey(NamedTuple):
    """The identity of a queue: its address and its name.

    Attributes:
        address: Where messages are sent.
        queue: Where they wait; unique on its address only.
    """

    address: str
    queue: str


def parse(name: str) -> BindingKey | None:
    """The queue that a full name names, there or not; None for a short name.

    Raises:
        InvalidRequest: An empty half, or a second `::`.
    """
    parts = queue_names.split(name)
    return None if parts is None else BindingKey(*parts)


def name_of(key: BindingKey) -> str:
    """Return the store's name of a queue: one text for each key."""
    return queue_names.full(key.address, key.queue)


def key_of(name: str) -> BindingKey:
    """The key of a queue that the store calls so."""
    return BindingKey(*queue_names.parts_of(name))
