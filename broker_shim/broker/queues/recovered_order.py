"""The order in which messages of a queue wait after a restart. Pure.

A message whose delivery time came while the broker ran waits behind what had come by then, and
before what came later (`delayed_messages`). Its entry says that time and when it came, so a restart
puts it there again: behind every message that came at its time or before. What is still to wait is
hidden afterwards, so it stays where it is. Where a clock was set back, others stay in their order,
and a delayed one may stand behind some that came after its time.

Most stretches of a queue have none that moves: they are passed on as they are, since an object for
each message of a long queue would cost seconds of a start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from sparkstore.core.annotations import delivery_time_of
from sparkstore.core.entries import Entries, Entry, Stretch, stretches

_PART = 10_000
_SOON_US = 60_000_000
"""A start may take so long until it hides what is to wait."""


class _Delayed(NamedTuple):
    """A message that was to wait after it had been put on the queue; they sort by their time."""

    due_us: int
    position: int
    message_id: int
    entry: Entry


def in_order_of_delivery(entries: Mapping[int, Entry], now_us: int) -> Iterator[Stretch]:
    """Iterate over the entries of a queue in the order of their delivery, many at a time.

    Args:
        entries: All that are on the queue.
        now_us: The time, UTC µs: what is to be delivered much later is hidden before it is due.
    """
    delayed = sorted(_delayed(entries, now_us + _SOON_US))
    return _merged(entries, delayed) if delayed else stretches(entries)


def _delayed(entries: Mapping[int, Entry], until_us: int) -> Iterator[_Delayed]:
    if isinstance(entries, Entries):
        few = entries.marked() if entries.has_delays else iter(())
    else:
        few = iter(entries.items())
    for message_id, entry in few:
        due_us = delivery_time_of(entry.detail)
        if due_us is not None and entry.at < due_us <= until_us:
            yield _Delayed(due_us, entry.position, message_id, entry)


def _merged(entries: Mapping[int, Entry], delayed: list[_Delayed]) -> Iterator[Stretch]:
    elsewhere, waiting = {message.message_id for message in delayed}, deque(delayed)
    for stretch in stretches(entries):
        ids = stretch.message_ids
        is_moved = any(message_id in elsewhere for message_id, _entry in stretch.marked)
        if is_moved or (waiting and waiting[0].due_us < entries[ids[-1]].at):
            stays = (message_id for message_id in ids if message_id not in elsewhere)
            yield from stretches(dict(_with_due(entries, stays, waiting)))
        else:
            yield stretch
    rest = ((message.message_id, message.entry) for message in waiting)
    while part := dict(islice(rest, _PART)):
        yield from stretches(part)


def _with_due(
    entries: Mapping[int, Entry], ids: Iterator[int], waiting: deque[_Delayed]
) -> Iterator[tuple[int, Entry]]:
    """Put each that waited before the first that came after its time."""
    for message_id in ids:
        entry = entries[message_id]
        while waiting and waiting[0].due_us < entry.at:
            due = waiting.popleft()
            yield due.message_id, due.entry
        yield message_id, entry
