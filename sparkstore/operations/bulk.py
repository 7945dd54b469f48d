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

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import takewhile
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
from sparkstore.core.entries import NEVER, Entry
from sparkstore.core.queue_arguments import QueueArguments, QueueTerms
from sparkstore.core.records import MessageHeader, each_header
from sparkstore.core.state_machine.call_values import (
    DequeueCall,
    EnqueueCall,
    ReleaseCall,
    StoredRun,
)
from sparkstore.core.xids import is_branch_holder
from sparkstore.errors import InvalidRequest
from sparkstore.operations.entry_runs import EntryRun, runs_of

MAX_IDS = 10_000
"""Message ids in one request."""

RUN_IDS = 2_048
"""Messages in runs that become true together: some ms of the broker's loop."""

TURN_IDS = 250
"""Messages in no run that become true together: the broker's loop does nothing else meanwhile. A
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
    """A request about messages; the log has each part of it whole or not at all.

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


BulkStep = EnqueueCall | DequeueCall | ReleaseCall
"""A call of the store about a run of messages, most often within one transaction of many."""


class Room:
    """The room that a queue has for messages that come back to it, as they are counted.

    Once a message does not fit, nothing does: a smaller one would overtake it.
    """

    def __init__(self, arguments: QueueArguments, depth: int, byte_count: int) -> None:
        """Begin with what is on the queue now: messages, and bytes of headers and bodies."""
        self._arguments, self._depth, self._bytes = arguments, depth, byte_count
        self._is_full = False

    def fitting(self, sizes: Iterable[int]) -> int:
        """Count the first of some messages, by their bytes, for which there is room."""
        if self._arguments.max_depth is None and self._arguments.max_bytes is None:
            return len([*sizes])
        return len([*takewhile(self.takes, sizes)])

    def takes(self, message_bytes: int) -> bool:
        """Count one more message, if there is room for it."""
        depth, byte_count = self._depth + 1, self._bytes + message_bytes
        self._is_full = self._is_full or self._arguments.why_full(depth, byte_count) is not None
        if not self._is_full:
            self._depth, self._bytes = depth, byte_count
        return not self._is_full


class BulkFacts(NamedTuple):
    """Facts about the queues of a request, by which it is decided.

    Attributes:
        entries: On the queue of the request.
        on_target: Messages that its target has.
        arguments: Arguments of the queue of the request.
        now_us: The time that expiry is decided by, UTC µs.
        room: What the target has room for; None: for all that comes.
    """

    entries: Mapping[int, Entry]
    on_target: Container[int]
    arguments: QueueArguments
    now_us: int
    room: Room | None = None


class Plan(NamedTuple):
    """The steps that a request comes to, and its answer.

    Attributes:
        steps: The calls of the store, in order; all of it becomes true together.
        takes: The runs of messages that steps are about.
        answer: What is told of it once that is done.
    """

    steps: list[BulkStep]
    takes: list[Sequence[int]]
    answer: Answer


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


def plan(
    request: Request, target: str | None, message_ids: Iterable[Sequence[int]], facts: BulkFacts
) -> Plan:
    """Decide what is done to messages, run by run.

    Args:
        request: What is asked for; its own ids are not looked at.
        target: Where its messages go, as of `check`.
        message_ids: Runs of the messages, none of them twice.
        facts: What is known of the queues now.
    """
    decide, room, full = _DECISIONS[request.action], facts.room, 0

    def decided(run: EntryRun) -> Iterator[tuple[list[BulkStep], EntryRun]]:
        nonlocal full
        for part in _decided_alike(request, run, facts):
            steps, some = decide(request, target, part, facts), part
            if steps and room is not None:
                fits = room.fitting(part.message_bytes)
                full += len(part.message_ids) - fits
                some = part.part(0, fits)
                steps = decide(request, target, some, facts) if fits else []
            yield steps, some

    planned = plan_of(message_ids, facts.entries, decided)
    answer = planned.answer._replace(left=planned.answer.left - full, full=full)
    return planned._replace(answer=answer)


def plan_of(
    message_ids: Iterable[Sequence[int]],
    entries: Mapping[int, Entry],
    decide: Callable[[EntryRun], Iterable[tuple[list[BulkStep], EntryRun]]],
) -> Plan:
    """Make a plan of what is decided of each run: steps, or none, about parts of it."""
    planned, count, on_queue, done = Plan([], [], Answer()), 0, 0, 0
    for neighbours in message_ids:
        count += len(neighbours)
        for run in runs_of(entries, neighbours):
            on_queue += len(run.message_ids)
            for steps, part in decide(run):
                if steps:
                    planned.steps.extend(steps)
                    planned.takes.append(part.message_ids)
                    done += len(part.message_ids)
    return planned._replace(answer=Answer(done, on_queue - done, count - on_queue))


def _decided_alike(request: Request, run: EntryRun, facts: BulkFacts) -> Iterator[EntryRun]:
    """Cut a run where messages are decided differently: by where else they are, and by expiry."""
    for _is_there, part in run.parts([i in facts.on_target for i in run.message_ids]):
        if request.action is Action.DEAD_LETTER:
            are_over = [NEVER < end <= facts.now_us for end in part.expires_at]
            yield from (some for _is_over, some in part.parts(are_over))
        else:
            yield part


def _moved(request: Request, target: str | None, run: EntryRun, facts: BulkFacts) -> list[BulkStep]:
    if run.acquired_by is not None:
        return []
    assert target is not None
    reason = {"reason": "redriven"} if request.action is Action.REDRIVE else {}
    outcome = _of(request, {"outcome": "moved", **reason, "to": target})
    take = _take(run, request.queue, None, outcome)
    return [take] if run.message_ids[0] in facts.on_target else [*_moved_to(target, run), take]


def _purged(
    request: Request, _target: str | None, run: EntryRun, _facts: BulkFacts
) -> list[BulkStep]:
    is_held = run.acquired_by is not None
    return [] if is_held else [_take(run, request.queue, None, purged_outcome(request))]


def purged_outcome(request: Request) -> Mapping[str, str]:
    """Say for history what a purge does to its messages."""
    return _of(request, {"outcome": "purged"})


def _requeued(
    request: Request, _target: str | None, run: EntryRun, _facts: BulkFacts
) -> list[BulkStep]:
    if run.acquired_by is not None:
        return []
    take = _take(run, request.queue, None, _of(request, {"outcome": "requeued"}))
    return [take, *_moved_to(request.queue, run)]


def _of(request: Request, outcome: Mapping[str, str]) -> Mapping[str, str]:
    """Name the operation in an outcome, so that history knows what belongs together."""
    return outcome if request.operation is None else {**outcome, "operation": request.operation}


def _released(
    request: Request, _target: str | None, run: EntryRun, _facts: BulkFacts
) -> list[BulkStep]:
    holder = run.acquired_by
    if holder is None or is_branch_holder(holder):  # a decision about the branch frees that
        return []
    # As a failed delivery: it may have been seen.
    return [ReleaseCall(run.message_ids, request.queue, holder, delivery_failed=True)]


def _dead_lettered(
    request: Request, target: str | None, run: EntryRun, facts: BulkFacts
) -> list[BulkStep]:
    now_us = facts.now_us
    reason = facts.arguments.reason_to_end(run.first_expiry, run.delivery_count, now_us)
    if run.acquired_by is not None or reason is None:
        return []
    death = Death(request.queue, reason, run.delivery_count, now_us)
    return buried(death, target, run, is_on_target=run.message_ids[0] in facts.on_target)


def buried(
    death: Death,
    target: str | None,
    run: EntryRun,
    *,
    is_on_target: bool,
    holder: str | None = None,
) -> list[BulkStep]:
    """Decide the steps for messages that may not stay on their queue.

    An expired one is wanted among the dead letters: there its own expiry says nothing. But not if
    it has expired there already, with no consumer since: it would go round for ever (`is_cycle`).

    Args:
        death: Why; it goes with the messages, for whoever reads the dead letters.
        target: Their queue; None if the messages leave the store.
        run: Their entries, where they are.
        is_on_target: The target has all of them already: there they stay as they are.
        holder: The holder of the messages; None if they are available.
    """
    cause = _cause(death)
    if target is None:
        return [_take(run, death.queue, holder, {"outcome": death.reason, **cause})]
    if is_cycle(run.detail, death, target):
        ended = {"outcome": death.reason, "reason": CYCLE, "back_to": target}
        return [_take(run, death.queue, holder, ended)]
    outcome = {"outcome": "dead-lettered", "reason": death.reason, "to": target, **cause}
    take = _take(run, death.queue, holder, outcome)
    if is_on_target:
        return [take]
    headers = run.headers(run.expiring(None))
    return [*puts(target, run, headers, with_death(run.detail, death)), take]


def rerouted(
    death: Death,
    exchange: str,
    targets: Mapping[str, bool],
    run: EntryRun,
    holder: str | None = None,
) -> list[BulkStep]:
    """Decide the steps for messages that leave their queue for an alternate exchange.

    Args:
        death: Why; it goes with the messages.
        exchange: That routes them.
        targets: The queues that they go to; true if one has them already, and they stay as they
            are.
        run: Their entries, where they are.
        holder: The holder of the messages; None if they are available.
    """
    cause = _cause(death)
    if not targets:
        return [_take(run, death.queue, holder, {"outcome": death.reason, **cause})]
    outcome = {"outcome": "rerouted", "reason": death.reason, "to": exchange, **cause}
    annotations, headers = with_death(run.detail, death), run.headers()
    new = [queue for queue, has_it in targets.items() if not has_it]
    brought = [put for queue in new for put in puts(queue, run, headers, annotations)]
    return [*brought, _take(run, death.queue, holder, outcome)]


def _cause(death: Death) -> dict[str, str]:
    texts = {"condition": death.condition, "description": death.description}
    return {name: text for name, text in texts.items() if text}


_DECISIONS: Mapping[
    Action, Callable[[Request, str | None, EntryRun, BulkFacts], list[BulkStep]]
] = {
    Action.MOVE: _moved,
    Action.PURGE: _purged,
    Action.REQUEUE: _requeued,
    Action.RELEASE: _released,
    Action.DEAD_LETTER: _dead_lettered,
    Action.REDRIVE: _moved,
}


def _take(run: EntryRun, queue: str, holder: str | None, outcome: Mapping[str, str]) -> DequeueCall:
    return DequeueCall(run.message_ids, queue, holder, outcome)


def _moved_to(queue: str, run: EntryRun) -> list[EnqueueCall]:
    """Put messages on a queue as they are on theirs, but for their failed deliveries."""
    detail = run.detail
    return puts(queue, run, run.headers(), None if detail is None else annotations_of(detail))


def puts(
    queue: str,
    run: EntryRun,
    headers: Sequence[MessageHeader],
    annotations: Annotations | None,
    delivery_count: int = 0,
) -> list[EnqueueCall]:
    """Put a run of messages on a queue, too; those that the log does not have one by one.

    Args:
        queue: Name of the queue.
        run: Their entries elsewhere.
        headers: One for each, or one that all of them share.
        annotations: What their entries there add to those of the messages; None: nothing.
        delivery_count: Failed deliveries that their entries there begin with.
    """
    runs = [StoredRun(run.message_ids, headers)]
    if not run.is_kept:
        singles = zip(run.message_ids, each_header(headers, len(run.message_ids)), strict=True)
        runs = [StoredRun((message_id,), (header,)) for message_id, header in singles]
    return [EnqueueCall(some, queue, annotations, delivery_count) for some in runs]
