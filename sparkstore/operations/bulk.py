"""Decides bulk operations: what is done to each message. Pure but for the names it draws.

A request names messages by id; somebody else (Spark) chose them, a moment ago. So each is decided
anew here, on the state as it is now. One that is gone or acquired meanwhile is left alone, and a
request that is made again does nothing twice. Both who carry requests out use this: the running
broker (`broker_shim.broker.orders.bulk_operations`) and, if none runs, `control.offline`, which has
the state machine make records of it.

Decision: a message that is moved or requeued keeps its message id. Content is written once and
found by its id (`records`), so a new id would mean a second copy of every body. `requeue` takes
the message off its queue and puts it there again in one transaction: the new record gives it the
queue's last place, and an entry starts with delivery count 0. Its expiry stays what it was: the
sender's wish cannot be told from the queue's own limit afterwards.

Decision: limits of the target are for new messages (`core.state_machine.admission`), so a move may
overfill a queue. A `redrive` asks all the same: hundreds of dead letters at once would keep senders
of a working queue out for long. What does not fit stays, with all that come after it in the
request, so that none overtakes another.

Decision: a message that the target has already (it was routed to both queues) only leaves its old
queue and counts as done, since what was asked for is then true: it is there and not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from secrets import token_hex
from typing import NamedTuple

from sparkstore.core.annotations import (
    CYCLE,
    Annotations,
    Death,
    annotations_of,
    is_cycle,
    with_death,
)
from sparkstore.core.fold import Entry
from sparkstore.core.queue_arguments import QueueArguments, QueueTerms
from sparkstore.core.records import MessageHeader
from sparkstore.core.xids import is_branch_holder
from sparkstore.errors import InvalidRequest

MAX_IDS = 1000
"""Message ids in one request: so many records become true together."""

TURN_IDS = 250
"""Message ids that a long run asks for at a time: the broker's loop does nothing else meanwhile. A
turn of 1,000 took 70 ms on a busy machine, and was what the p99 of its clients' sends became."""


class Action(StrEnum):
    """The actions that a request can name for its messages."""

    MOVE = "move"
    PURGE = "purge"
    REQUEUE = "requeue"
    RELEASE = "release"
    DEAD_LETTER = "dead-letter"
    REDRIVE = "redrive"


def is_operation(value: object) -> bool:
    """True if a value names an operation: a text of 8 to 32 letters and digits."""
    return isinstance(value, str) and 8 <= len(value) <= 32 and value.isascii() and value.isalnum()


def new_operation() -> str:
    """Draw a name for an operation: eight digits, base 16.

    No deletion of a queue has such a name: theirs are longer (`operation_history`).
    """
    return token_hex(4)


class Request(NamedTuple):
    """A request about messages, which the log has whole or not at all.

    Attributes:
        action: What is done with each of the messages.
        queue: Name of the queue that the messages are on.
        message_ids: The messages to act on; a client names `MAX_IDS` at most.
        to: Name of the queue that they go to, in a move or a redrive; else None.
        operation: The command that this is a part of, for history; None: of none.
    """

    action: Action
    queue: str
    message_ids: Sequence[int]
    to: str | None = None
    operation: str | None = None


class Answer(NamedTuple):
    """Counts of a request's messages by their fate; they add up to the number that it named.

    Attributes:
        done: What was asked for is true of them, durably.
        left: On the queue, and left alone: acquired, or (for `dead-letter`) entitled to stay, or
            (for `release`) held by a live consumer or by nobody.
        gone: Not on the queue any more.
        full: On the queue, and left alone, since their target has no room (`redrive`).
    """

    done: int = 0
    left: int = 0
    gone: int = 0
    full: int = 0

    def counts(self) -> dict[str, int]:
        """Return the counts by name; `full` only where it counts something."""
        return {name: count for name, count in self._asdict().items() if count or name != "full"}

    def named(self, operation: str | None) -> str | None:
        """Return the name of an operation, if history has it: None where nothing was done."""
        return operation if self.done else None

    def plus(self, other: Answer) -> Answer:
        """Return the sum of two answers."""
        return Answer(*(ours + theirs for ours, theirs in zip(self, other, strict=True)))


class MessageDraft(NamedTuple):
    """A message to be put on a queue under a new id: header and whole body."""

    header: MessageHeader
    body: bytes


class Enqueue(NamedTuple):
    """Enqueue a message that the store holds.

    Attributes:
        queue: Name of the queue that the message is put on.
        header: What an entry needs of it (`MessageHeader.known`), with the expiry it gets there.
        is_logged: The log has its content; else it is in the store's memory only.
        annotations: What its entry there adds to those of the message; None: nothing.
        delivery_count: Failed deliveries that its entry there begins with.
    """

    queue: str
    header: MessageHeader
    is_logged: bool
    annotations: Annotations | None
    delivery_count: int = 0


class Dequeue(NamedTuple):
    """Dequeue a message that is available, or is its holder's, with its outcome for history."""

    queue: str
    outcome: Mapping[str, str]
    holder: str | None = None


class Release(NamedTuple):
    """Release a message that `holder` has; a failed delivery, since it may have been seen."""

    queue: str
    holder: str


BulkStep = Enqueue | Dequeue | Release


class Room:
    """The room that a queue has for messages that come back to it, as they are counted.

    Once a message does not fit, nothing does: a smaller one would overtake it.
    """

    def __init__(self, arguments: QueueArguments, depth: int, byte_count: int) -> None:
        """Begin with what is on the queue now: messages, and bytes of headers and bodies."""
        self._arguments, self._depth, self._bytes = arguments, depth, byte_count
        self._is_full = False

    def takes(self, message_bytes: int) -> bool:
        """Count one more message, if there is room for it."""
        depth, byte_count = self._depth + 1, self._bytes + message_bytes
        self._is_full = self._is_full or self._arguments.why_full(depth, byte_count) is not None
        if not self._is_full:
            self._depth, self._bytes = depth, byte_count
        return not self._is_full


class MessageFacts(NamedTuple):
    """Facts about a message, by which a request's action is decided.

    Attributes:
        entry: On the queue of the request.
        is_on_target: The target has it already.
        arguments: Arguments of the queue of the request.
        now_us: The time that expiry is decided by, UTC µs.
    """

    entry: Entry
    is_on_target: bool
    arguments: QueueArguments
    now_us: int


def check(request: Request, terms: Callable[[str], QueueTerms | None]) -> str | None:
    """Return the queue that a request's messages go to; None if they go to none.

    Args:
        request: What somebody asks for, not yet looked at.
        terms: The terms of a queue by name; None if there is no such queue.

    Raises:
        InvalidRequest: No such queue; too many messages; no target, itself as its target, or one
            that keeps no messages.
    """
    check_words(request)
    source = terms(request.queue)
    if source is None:
        message = f"unknown queue {request.queue!r}: see sparkstore queues"
        raise InvalidRequest(message)
    if request.action is Action.DEAD_LETTER:
        return source.arguments.dead_letter_queue_of(request.queue)
    if request.action in {Action.MOVE, Action.REDRIVE}:
        check_target(request.queue, request.to, terms)
        return request.to
    return request.queue if request.action is Action.REQUEUE else None


def check_words(request: Request) -> None:
    """Refuse a request that is wrong whatever queues there are.

    Raises:
        InvalidRequest: It has too many messages, or no target, or its queue as its target.
    """
    if len(request.message_ids) > MAX_IDS:
        message = f"{len(request.message_ids)} messages in one request: at most {MAX_IDS}"
        raise InvalidRequest(message)
    if request.action in {Action.MOVE, Action.REDRIVE}:
        _check_another(request.queue, request.to)


def _check_another(queue: str, to: str | None) -> None:
    if to is None or to == queue:
        message = f"messages of {queue!r} cannot move to {to!r}: name another queue"
        raise InvalidRequest(message)


def check_target(queue: str, to: str | None, terms: Callable[[str], QueueTerms | None]) -> None:
    """Refuse a target that messages cannot, or should not, be moved to.

    Raises:
        InvalidRequest: There is no such target, it is the queue itself, or it keeps no messages.
    """
    _check_another(queue, to)
    target = terms(to or "")
    if target is None:
        message = f"unknown queue {to!r}: create it first"
        raise InvalidRequest(message)
    if not target.keeps_messages:
        message = f"queue {to!r} is transient: what is moved there would not survive a restart"
        raise InvalidRequest(message)


def decide(request: Request, target: str | None, facts: MessageFacts) -> list[BulkStep]:
    """Decide the steps for one message on the queue; no steps mean that it is left alone."""
    return _DECISIONS[request.action](request, target, facts)


def _moved(request: Request, target: str | None, facts: MessageFacts) -> list[BulkStep]:
    if facts.entry.acquired_by is not None:
        return []
    assert target is not None
    reason = {"reason": "redriven"} if request.action is Action.REDRIVE else {}
    take = Dequeue(request.queue, _of(request, {"outcome": "moved", **reason, "to": target}))
    return [take] if facts.is_on_target else [_put(target, facts.entry), take]


def _purged(request: Request, _target: str | None, facts: MessageFacts) -> list[BulkStep]:
    is_held = facts.entry.acquired_by is not None
    return [] if is_held else [Dequeue(request.queue, purged_outcome(request))]


def purged_outcome(request: Request) -> Mapping[str, str]:
    """Say for history what a purge does to its messages."""
    return _of(request, {"outcome": "purged"})


def _requeued(request: Request, _target: str | None, facts: MessageFacts) -> list[BulkStep]:
    if facts.entry.acquired_by is not None:
        return []
    take = Dequeue(request.queue, _of(request, {"outcome": "requeued"}))
    return [take, _put(request.queue, facts.entry)]


def _of(request: Request, outcome: Mapping[str, str]) -> Mapping[str, str]:
    """Name the operation in an outcome, so that history knows what belongs together."""
    return outcome if request.operation is None else {**outcome, "operation": request.operation}


def _released(request: Request, _target: str | None, facts: MessageFacts) -> list[BulkStep]:
    holder = facts.entry.acquired_by
    if holder is None or is_branch_holder(holder):  # a decision about the branch frees that
        return []
    return [Release(request.queue, holder)]


def _dead_lettered(request: Request, target: str | None, facts: MessageFacts) -> list[BulkStep]:
    entry = facts.entry
    reason = facts.arguments.reason_to_end(entry, facts.now_us)
    if entry.acquired_by is not None or reason is None:
        return []
    death = Death(request.queue, reason, entry.delivery_count, facts.now_us)
    return [*buried(death, target, entry, is_on_target=facts.is_on_target)]


def buried(
    death: Death,
    target: str | None,
    entry: Entry,
    *,
    is_on_target: bool,
    holder: str | None = None,
) -> list[Enqueue | Dequeue]:
    """Decide the steps for a message that may not stay on its queue.

    An expired one is wanted among the dead letters: there its own expiry says nothing. But not if
    it has expired there already, with no consumer since: it would go round for ever (`is_cycle`).

    Args:
        death: Why; it goes with the message, for whoever reads the dead letters.
        target: Their queue; None if the message leaves the store.
        entry: The message's entry, where it is.
        is_on_target: The target has it already: there it stays as it is.
        holder: The holder of the message; None if it is available.
    """
    cause = {name: text for name in ("condition", "description") if (text := getattr(death, name))}
    if target is None:
        return [Dequeue(death.queue, {"outcome": death.reason, **cause}, holder)]
    if is_cycle(entry.detail, death, target):
        ended = {"outcome": death.reason, "reason": CYCLE, "back_to": target}
        return [Dequeue(death.queue, ended, holder)]
    outcome = {"outcome": "dead-lettered", "reason": death.reason, "to": target, **cause}
    take = Dequeue(death.queue, outcome, holder)
    put = _put(target, entry)
    header, annotations = put.header._replace(expires_at=None), with_death(entry.detail, death)
    put = put._replace(header=header, annotations=annotations)
    return [take] if is_on_target else [put, take]


def rerouted(
    death: Death,
    exchange: str,
    targets: Mapping[str, bool],
    entry: Entry,
    holder: str | None = None,
) -> list[Enqueue | Dequeue]:
    """Decide the steps for a message that leaves its queue for an alternate exchange.

    Args:
        death: Why; it goes with the message.
        exchange: That routes it.
        targets: The queues that it goes to; true if one has it already, and it stays as it is.
        entry: The message's entry, where it is.
        holder: The holder of the message; None if it is available.
    """
    cause = {name: text for name in ("condition", "description") if (text := getattr(death, name))}
    if not targets:
        return [Dequeue(death.queue, {"outcome": death.reason, **cause}, holder)]
    outcome = {"outcome": "rerouted", "reason": death.reason, "to": exchange, **cause}
    annotations = with_death(entry.detail, death)
    puts = [
        _put(queue, entry)._replace(annotations=annotations)
        for queue, has_it in targets.items()
        if not has_it
    ]
    return [*puts, Dequeue(death.queue, outcome, holder)]


_DECISIONS: Mapping[Action, Callable[[Request, str | None, MessageFacts], list[BulkStep]]] = {
    Action.MOVE: _moved,
    Action.PURGE: _purged,
    Action.REQUEUE: _requeued,
    Action.RELEASE: _released,
    Action.DEAD_LETTER: _dead_lettered,
    Action.REDRIVE: _moved,
}


def _put(queue: str, entry: Entry) -> Enqueue:
    """Put an entry on a queue, its sizes as one sum in those of its header: it keeps no more."""
    header = MessageHeader(
        None,
        priority=entry.priority,
        expires_at=entry.expires_at,
        header_bytes=entry.message_bytes,
    )
    annotations = None if entry.detail is None else annotations_of(entry.detail)
    return Enqueue(queue, header, entry.position > 0, annotations)
