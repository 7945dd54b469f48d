"""Name holders among all members: what a member calls its own, as the store knows it. Pure."""

from __future__ import annotations

from sparkstore.core.records import Record
from sparkstore.core.state_machine.state_machine import StoreStateMachine


def holder_of(machine: StoreStateMachine, prefix: str, record: Record) -> str:
    """Name a holder among all members: one of a member has its name before it.

    But a link that is kept with its deliveries is one and the same wherever it comes back. To the
    member both are one holder: what it acquired before the link was kept, or while it was, it still
    has as what it was then.
    """
    holder = record.holder or ""
    now = _held_by(machine, record)
    if now == prefix + holder or (now == holder and holder.startswith("[")):
        return now
    return holder if machine.is_resumable(holder) else prefix + holder


def _held_by(machine: StoreStateMachine, record: Record) -> str | None:
    """Find who holds an entry, or claims it in an open transaction."""
    place = (record.queue or "", record.message_id or 0)
    if (claimant := machine.claims.get(place)) is not None:
        return claimant.claims[place]
    queue = machine.state.queues.get(place[0])
    entry = None if queue is None else queue.entries.get(place[1])
    return None if entry is None else entry.acquired_by
