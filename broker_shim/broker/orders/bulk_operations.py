"""Bulk operations and dead letters of a running broker, decided by `sparkstore.operations.bulk`.

What waits is moved by one transaction of the store (`message_moves`); what a consumer has is left
alone. A purge is one batch of the store instead: each message is decided for itself. It is out of
dispatch until then likewise, and available again if the store refuses it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain

from broker_shim.broker.flow.dead_letters import DeadLetters
from broker_shim.broker.flow.publications import Publish
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.orders.message_moves import MessageMoves
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.storage.loop import wall_us
from broker_shim.broker.storage.store_puts import STAGED_BYTES
from broker_shim.errors import InvalidRequest, NotAcquired, NotNow, StoreError
from broker_shim.store.interface import Entry, StoredMessage
from sparkstore.core.queue_arguments import QueueTerms
from sparkstore.core.state_machine.call_values import DequeueCall, EnqueueCall
from sparkstore.operations import bulk
from sparkstore.operations.bulk import (
    Action,
    Answer,
    BulkFacts,
    BulkStep,
    MessageDraft,
    Plan,
    Request,
    Room,
)

_log = logging.getLogger(__name__)

OnAnswer = Callable[[StoreError | None, Answer], None]


class BulkOperations:
    """Carries out requests. On the loop's thread only.

    Attributes:
        served: The queues that messages are moved, purged and put on.
    """

    def __init__(
        self,
        served: ServedQueues,
        dead_letters: DeadLetters,
        publish: Publish,
    ) -> None:
        """Begin with no request under way.

        Args:
            served: The queues of the virtual host.
            dead_letters: Counts the messages that died, and has their queues made.
            publish: Puts one message on queues, all or none.
        """
        self.served, self._dead_letters, self._publish = served, dead_letters, publish

    def run(self, request: Request, on_answer: OnAnswer) -> None:
        """Carry out a request at once; `on_answer` when that is durable, or why it was not done."""
        ids = [*dict.fromkeys(request.message_ids)]
        self.run_part(request._replace(message_ids=ids), on_answer, len(ids))

    def check(self, request: Request) -> str | None:
        """Return the queue that a request's messages go to. Raises InvalidRequest."""
        return bulk.check(request, self._terms)

    def run_part(self, request: Request, on_answer: OnAnswer, most: int) -> int:
        """Carry out as much of a request as one turn of the loop has time for.

        A dead-letter queue that is not there is created first: a message that may not stay has to
        have somewhere to go.

        Args:
            request: Its messages are in the order of the queue, none of them twice.
            on_answer: As of `run`.
            most: Leave the rest alone once so many are in no run; a run counts as some.

        Returns:
            How many messages, of the first ones, the answer is about.
        """
        try:
            target = self.check(request)
        except InvalidRequest as refusal:
            on_answer(refusal, Answer())
            return len(request.message_ids)
        queue = self.served.queues[request.queue]
        if request.action is Action.PURGE:
            return self._purge(request, queue, on_answer, most)
        moves = MessageMoves(self.served)
        plan = partial(self._plan, request, target, queue)
        count = moves.take(queue, request.message_ids, most, plan)

        def done(error: StoreError | None) -> None:
            self._count(request, () if error else moves.steps)
            on_answer(error, Answer() if error else moves.answer)

        def created(error: StoreError | None) -> None:
            moves.store(done, error)

        self._dead_letters.make_queue(target if moves.steps else None, created)
        return count

    def _purge(self, request: Request, queue: QueueDispatch, on_answer: OnAnswer, most: int) -> int:
        """Dequeue what waits of the messages, each for itself. See `run_part`."""
        out = queue.take_out(request.message_ids, most)
        held = [*chain.from_iterable(out.held)]

        def done(outcomes: Sequence[StoreError | None]) -> None:
            failure: StoreError | None = None
            fates = Counter(left=out.left, gone=out.gone)
            singles = [range(i, i + 1) for i in held] if any(outcomes) else []
            for ids, error in zip(singles or out.held, outcomes, strict=False):
                if error is None or isinstance(error, InvalidRequest):
                    queue.removed(ids, "other" if error else "purged")
                    fates["gone" if error else "done"] += len(ids)
                else:
                    queue.waits_again(ids)
                    failure = failure or (None if isinstance(error, NotAcquired) else error)
                    fates["left"] += len(ids)
            self.served.metrics.moved += fates["done"]
            self.served.wanted(queue.name)
            on_answer(failure, Answer(**fates))

        if held:
            outcome = bulk.purged_outcome(request)
            self.served.calls.make_each(DequeueCall(held, queue.name, None, outcome), done)
        else:
            done(())
        return len(held) + out.left + out.gone

    def put(self, queue: str, messages: Sequence[MessageDraft], on_answer: OnAnswer) -> None:
        """Put new messages on a queue, all or none."""
        terms = self._terms(queue)
        if terms is None or not terms.keeps_messages:
            text = f"unknown queue {queue!r}, or one that keeps no messages: create it first"
            on_answer(InvalidRequest(text), Answer())
            return
        if len(messages) == 1 and len(messages[0].body) > STAGED_BYTES:
            header, body = messages[0]
            answer = Answer(done=1)
            self._publish(header, body, (queue,), lambda error: on_answer(error, answer))
            return

        def done(error: StoreError | None, made: list[StoredMessage]) -> None:
            if error is None:
                self.served.metrics.enqueued += len(made)
                for message in made:
                    self.served.brought(EnqueueCall(message, queue))
            on_answer(error, Answer(done=len(made)))

        self.served.calls.puts.put_all(messages, queue, done)

    def end_due(self, queue: QueueDispatch, message_ids: Sequence[int]) -> None:
        """Take what may not stay of messages that wait off their queue: to the dead letters.

        Called when messages were given back. That is when they may have failed once too often, and
        what is found expired while it is handed out is given back for this. All of them are out of
        dispatch before a consumer is looked at, and leave together (`message_moves`).
        """
        entries, now_us = self.served.calls.entries(queue.name), wall_us()
        reason_to_end = queue.arguments.reason_to_end
        pairs = [(message_id, entries.get(message_id)) for message_id in message_ids]
        known = [(i, entry) for i, entry in pairs if entry is not None]
        self._end(
            queue,
            [i for i, e in known if reason_to_end(e.expires_at, e.delivery_count, now_us)],
        )

    def end_failed(self, queue: QueueDispatch) -> None:
        """Send what failed too often in a crash to the dead letters, after a start."""
        self._end(queue, queue.failed_too_often())

    def _end(self, queue: QueueDispatch, message_ids: Sequence[int]) -> None:
        for first in range(0, len(message_ids), bulk.MAX_IDS):
            some = tuple(message_ids[first : first + bulk.MAX_IDS])
            request = Request(Action.DEAD_LETTER, queue.name, some)
            self.run(request, partial(self._ended, request))

    def _ended(self, request: Request, error: StoreError | None, _answer: Answer) -> None:
        count = len(request.message_ids)
        if error is None:
            return
        if count > 1 and not isinstance(error, NotNow):
            self.end_singly(request)
        else:
            _log.warning("%d messages of %r stay where they are: %s", count, request.queue, error)

    def end_singly(self, request: Request) -> None:
        """End messages one by one: one that a transaction has must not keep the others."""
        for message_id in request.message_ids:
            queue = self.served.queues.get(request.queue)
            if queue is not None and queue.waits(message_id):
                self.end_due(queue, (message_id,))

    def _terms(self, name: str) -> QueueTerms | None:
        queue = self.served.queues.get(name)
        return None if queue is None else QueueTerms(queue.is_kept, queue.arguments)

    def _plan(
        self,
        request: Request,
        target: str | None,
        queue: QueueDispatch,
        held: list[Sequence[int]],
        entries: Mapping[int, Entry],
    ) -> Plan:
        calls = self.served.calls
        # Asked of the store: dispatch hears of an arrival only when that has completed.
        on_target = calls.entries(target) if target not in {None, queue.name} else {}
        facts = BulkFacts(entries, on_target, queue.arguments, wall_us())
        if request.action is Action.REDRIVE:
            facts = facts._replace(room=self._room(target))
        planned = bulk.plan(request, target, held, facts)
        if request.action is Action.RELEASE:  # whoever has a message lives
            left = planned.answer.left + planned.answer.done
            return Plan([], [], planned.answer._replace(done=0, left=left))
        return planned

    def _room(self, target: str | None) -> Room:
        """Count what is on a queue, also what has not arrived yet."""
        assert target is not None
        calls = self.served.calls
        depth, byte_count = len(calls.message_ids(target)), calls.bytes_and_oldest(target)[0]
        return Room(self.served.queues[target].arguments, depth, byte_count)

    def _count(self, request: Request, steps: Iterable[BulkStep]) -> None:
        for step in steps:
            if not isinstance(step, DequeueCall):
                continue
            if request.action is Action.DEAD_LETTER:
                self._dead_letters.note(step)
            else:
                self.served.metrics.moved += len(step.message_ids)
