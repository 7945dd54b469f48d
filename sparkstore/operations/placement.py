"""Decide changes of place, message by message: the road of `resubmit` and of `undo`. Pure.

A placement takes a message off a queue, puts one on a queue, or does both. What is put there may be
the same message, or a new one in its place. A request has many of them, for any queues, in one
transaction of the store: all of it becomes true together, and its messages stand on their queues in
the order of the placements.

As of a bulk request, each is decided anew on the state as it is now: a message that has left its
queue, or is held, is left out, and nothing is put for one that could not be taken.
Limits of queues say nothing about a message that comes back (`core.state_machine.admission` has the
same rule for what is moved); a new one in place of another has its room.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sparkstore.core.annotations import RESUBMITTED_FROM, Annotations, origin_of
from sparkstore.core.fold import Entry
from sparkstore.core.queue_arguments import QueueTerms
from sparkstore.core.queue_names import find, shown
from sparkstore.core.state_machine.call_values import DequeueCall
from sparkstore.errors import InvalidRequest
from sparkstore.operations.bulk import (
    RUN_IDS,
    Answer,
    BulkStep,
    MessageDraft,
    Plan,
    new_operation,
    plan_of,
    puts,
)
from sparkstore.operations.entry_runs import EntryRun

SHIFTED = "shifted"
"""The outcome of a message that is put again behind what an undo brought back to its queue."""


class Placement(NamedTuple):
    """A change of place, of one message or of a run of them.

    Attributes:
        message_id: The message that is taken, the first of a run; 0: none is.
        source: Name of the queue that it is taken off; None: of none.
        target: Name of the queue that it, or the new message, is put on; None: on none.
        draft: The message that is put in its place; None: the same.
        expires_at: When the entry there expires, UTC µs; None: never. Of a draft, its header says.
        delivery_count: Failed deliveries that the entry there begins with.
        annotations: What the entry there adds to those of its message; None: nothing.
        is_shift: It is put on its own queue again, behind what comes back there.
        messages: How many, whose ids rise by one: one, where another is put in its place.
    """

    message_id: int = 0
    source: str | None = None
    target: str | None = None
    draft: MessageDraft | None = None
    expires_at: int | None = None
    delivery_count: int = 0
    annotations: Annotations | None = None
    is_shift: bool = False
    messages: int = 1

    @property
    def message_ids(self) -> range:
        """The messages that are taken, if any are."""
        return range(self.message_id, self.message_id + self.messages)


def joined(placements: Iterable[Placement]) -> Iterator[Placement]:
    """Make one of neighbours that differ in nothing but messages whose ids rise by one."""
    run: Placement | None = None
    for placement in placements:
        if run is not None and placement.message_id == run.message_ids.stop:
            longer = run._replace(messages=run.messages + placement.messages)
            alike = placement._replace(message_id=run.message_id, messages=longer.messages)
            if alike == longer and run.source is not None and run.draft is None:
                run = longer
                continue
        if run is not None:
            yield run
        run = placement
    if run is not None:
        yield run


class PlacementRequest(NamedTuple):
    """Placements that become true together.

    Attributes:
        placements: Of at most `RUN_IDS` messages, in the order in which they stand on their queues.
        operation: The command that this is a part of, for history.
        undoes: The operation that it undoes; None: it is no undo.
    """

    placements: tuple[Placement, ...]
    operation: str
    undoes: str | None = None


def check_placements(request: PlacementRequest, terms: Callable[[str], QueueTerms | None]) -> None:
    """Refuse a request that names a wrong queue, or too many messages.

    Raises:
        InvalidRequest: It does; nothing of it may be done.
    """
    count = sum(placement.messages for placement in request.placements)
    if count > RUN_IDS:
        raise InvalidRequest(f"{count} messages in one request: at most {RUN_IDS}")
    if any(one.messages != 1 and (one.draft or one.source is None) for one in request.placements):
        raise InvalidRequest("a run of messages is taken off a queue, and none comes in its place")
    for name in taken_from(request.placements):
        if terms(name) is None:
            raise InvalidRequest(f"unknown queue {shown(name)}: see sparkstore queues")
    for name in {one.target for one in request.placements if one.target is not None}:
        target = terms(name)
        if target is None:
            raise InvalidRequest(f"unknown queue {shown(name)}: create it first")
        if not target.keeps_messages:
            message = f"queue {shown(name)} is transient: what is put there would not survive a"
            raise InvalidRequest(f"{message} restart")


def plan_placement(
    placement: Placement,
    request: PlacementRequest,
    message_ids: Iterable[Sequence[int]],
    entries: Mapping[int, Entry],
    new_id: int = 0,
) -> Plan:
    """Decide the steps of a placement but for putting a new message.

    Args:
        placement: What is to be done.
        request: The request that it is of.
        message_ids: Runs of the messages that are taken, as far as they can be.
        entries: On their queue now.
        new_id: Id of the new message that is put; 0: none is.
    """
    outcome, source = _outcome(placement, request, new_id), placement.source or ""
    target = None if placement.draft is not None else placement.target

    def decided(run: EntryRun) -> Iterator[tuple[list[BulkStep], EntryRun]]:
        if run.acquired_by is not None:
            return
        steps: list[BulkStep] = [DequeueCall(run.message_ids, source, None, outcome)]
        if target is not None:
            headers = run.headers(run.expiring(placement.expires_at))
            carried = placement.annotations, placement.delivery_count
            steps += puts(target, run, headers, *carried)
        yield steps, run

    return plan_of(message_ids, entries, decided)


def _outcome(placement: Placement, request: PlacementRequest, new_id: int) -> dict[str, str]:
    named = {"operation": request.operation}
    if request.undoes is not None:
        named |= {"undoes": request.undoes}
    if new_id:
        return {"outcome": "resubmitted", "as": str(new_id), "to": placement.target or "", **named}
    if placement.target is None:
        return {"outcome": "purged", **named}
    if placement.target == placement.source:
        return {"outcome": SHIFTED if placement.is_shift else "requeued", **named}
    return {"outcome": "moved", "to": placement.target, **named}


def taken_from(placements: Sequence[Placement]) -> set[str]:
    """Return the names of the queues that messages are taken off."""
    return {placement.source for placement in placements if placement.source is not None}


def place_of(message_id: int, entries: Mapping[str, Entry], named: str | None) -> tuple[str, Entry]:
    """Find the queue of a message that is to be resubmitted, and its entry there.

    Args:
        message_id: The message that is to be repaired.
        entries: Its entries, by the queues that it is on.
        named: The queue that somebody says, as the store has it; None: the only one.

    Raises:
        InvalidRequest: It is on none, or on several and none was named.
    """
    places = {name: entry for name, entry in entries.items() if named in {None, name}}
    if len(places) > 1:
        names = ", ".join(sorted(places))
        raise InvalidRequest(f"message {message_id} is on {names}: name one as its queue")
    for name, entry in places.items():
        return name, entry
    where = "any queue" if named is None else shown(named)
    message = f"message {message_id} is not on {where}: sparkstore browse shows ids, and"
    raise InvalidRequest(f"{message} sparkstore replay brings back what left")


def target_of(entry: Entry, queue: str, to: str | None, queues: Collection[str]) -> str:
    """Name the queue that a repaired message is put on: as somebody says, or where it came from.

    A dead letter goes back to the queue that it died on, if that is there; any other message to the
    end of its own.
    """
    if to is not None:
        return find(to, queues)
    origin = origin_of(entry.detail)
    return queue if origin is None or origin not in queues else origin


def resubmission(message_id: int, queue: str, target: str, draft: MessageDraft) -> PlacementRequest:
    """Request that a repaired message comes in the place of another; history links both."""
    annotations: Annotations = {RESUBMITTED_FROM: ("ulong", str(message_id))}
    placement = Placement(message_id, queue, target, draft, annotations=annotations)
    return PlacementRequest((placement,), new_operation())


def check_resubmitted(message_id: int, queue: str, answer: Answer) -> None:
    """Refuse to call it done if the message could not be taken. Raises InvalidRequest."""
    if not answer.done:
        why = "a consumer holds it" if answer.left else f"it left {shown(queue)} meanwhile"
        raise InvalidRequest(f"message {message_id}: {why}; nothing was done")
