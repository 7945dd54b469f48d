"""Bulk operations and dead letters of a running broker, decided by `sparkstore.operations.bulk`.

What is waiting is taken out of dispatch first, so no consumer gets it meanwhile; what a consumer
has is left alone. Then one transaction of the store; when it has completed, messages arrive at the
target. A purge is one batch of the store instead, of runs wherever neighbours are alike.

Why nothing is lost: until the completion a message is held here, under nobody's name. If the store
refuses, it is available again in its old place. If the broker is killed, a transaction or batch is
in the log whole or not at all, and a start puts in dispatch what the log says.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from broker_shim.broker.flow.dead_letters import DeadLetters
from broker_shim.broker.flow.publications import Publish
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.storage.loop import wall_us
from broker_shim.broker.storage.store_puts import STAGED_BYTES
from broker_shim.errors import InvalidRequest, NotAcquired, StoreError
from broker_shim.store.interface import StoredMessage
from sparkstore.core.queue_arguments import QueueTerms
from sparkstore.core.state_machine.call_values import DequeueCall
from sparkstore.operations import bulk
from sparkstore.operations.bulk import (
    Action,
    Answer,
    Dequeue,
    Enqueue,
    MessageDraft,
    MessageFacts,
    Request,
    Room,
)

_log = logging.getLogger(__name__)

OnAnswer = Callable[[StoreError | None, Answer], None]


class _Decided(NamedTuple):
    """The steps and the answer that a request comes to.

    Attributes:
        steps: In the order of the request.
        moving: (message id, priority) of those that leave their place.
        answer: If the store takes the steps.
    """

    steps: list[tuple[int, Enqueue | Dequeue]]
    moving: list[tuple[int, int]]
    answer: Answer


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
        """Carry out a request; `on_answer` when that is durable, or why it was not done.

        A dead-letter queue that is not there is created first: a message that may not stay has to
        have somewhere to go.
        """
        try:
            target = bulk.check(request, self._terms)
        except InvalidRequest as refusal:
            on_answer(refusal, Answer())
            return
        if request.action is Action.PURGE:
            ids = [*dict.fromkeys(request.message_ids)]
            self.purge(request._replace(message_ids=ids), on_answer, len(ids))
            return
        decided = self._decide(request, target, self.served.queues[request.queue])
        if not decided.steps:
            on_answer(None, decided.answer)
            return

        def done(error: StoreError | None) -> None:
            self._ended(request, target, decided, error)
            on_answer(error, Answer() if error else decided.answer)

        def created(error: StoreError | None) -> None:
            if error is None:
                self.served.calls.together(decided.steps, done)
            else:
                done(error)

        self._dead_letters.make_queue(target, created)

    def purge(self, request: Request, on_answer: OnAnswer, most: int) -> int:
        """Dequeue what waits of a request's messages from a queue that is there.

        Args:
            request: Its messages, in the order of the queue.
            on_answer: As of `run`.
            most: Leave the rest alone once so many are in no run; a run counts as some.

        Returns:
            How many messages, of the first ones, the answer is about.
        """
        served, queue = self.served, self.served.queues[request.queue]
        runs, withdrawn = queue.take_out(request.message_ids, most)
        held = sorted(chain(*(run.message_ids for run in runs), withdrawn.held))

        def done(outcomes: Sequence[StoreError | None]) -> None:
            singles = [*zip(held, outcomes, strict=True)] if any(outcomes) else []
            for run in runs:
                if singles:
                    queue.came_back(run)
                else:
                    queue.left(run, "purged")
            failure: StoreError | None = None
            fates = Counter(done=len(held) - len(singles), left=withdrawn.left, gone=withdrawn.gone)
            for message_id, error in singles or [(i, None) for i in withdrawn.held]:
                if error is None or isinstance(error, InvalidRequest):
                    queue.removed((message_id,), "other" if error else "purged")
                    fates["gone" if error else "done"] += bool(singles)
                else:
                    queue.released(message_id, delivery_failed=False)
                    failure = failure or (None if isinstance(error, NotAcquired) else error)
                    fates["left"] += 1
            served.metrics.moved += fates["done"]
            served.wanted(queue.name)
            on_answer(failure, Answer(**fates))

        if held:
            outcome = bulk.purged_outcome(request)
            served.calls.make_each(DequeueCall(held, queue.name, None, outcome), done)
        else:
            done(())
        return len(held) + withdrawn.left + withdrawn.gone

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
                    header = message.header
                    arrived = self.served.arrived
                    arrived(queue, message.message_ids, header.priority, durable=header.durable)
            on_answer(error, Answer(done=len(made)))

        self.served.calls.puts.put_all(messages, queue, done)

    def end_if_due(self, queue: QueueDispatch, message_id: int) -> None:
        """Take a message that waits off its queue if it may not stay there: to the dead letters.

        Called when a message was given back. That is when it may have failed once too often, and
        what is found expired while it is handed out is given back for this.
        """
        entry = self.served.calls.entry(queue.name, message_id)
        if entry is None or queue.arguments.reason_to_end(entry, wall_us()) is None:
            return
        request = Request(Action.DEAD_LETTER, queue.name, (message_id,))
        self.run(request, partial(_note, request))

    def end_failed(self, queue: QueueDispatch) -> None:
        """Send what failed too often in a crash to the dead letters, after a start."""
        failed = queue.failed_too_often()
        for first in range(0, len(failed), bulk.MAX_IDS):
            message_ids = tuple(failed[first : first + bulk.MAX_IDS])
            request = Request(Action.DEAD_LETTER, queue.name, message_ids)
            self.run(request, partial(_note, request))

    def _terms(self, name: str) -> QueueTerms | None:
        queue = self.served.queues.get(name)
        return None if queue is None else QueueTerms(queue.is_kept, queue.arguments)

    def _decide(self, request: Request, target: str | None, queue: QueueDispatch) -> _Decided:
        """Take what waits out of dispatch, and give back what is not to be changed."""
        # Out of dispatch first: no consumer gets one between its decision and the commit.
        withdrawn = queue.withdraw(dict.fromkeys(request.message_ids))
        answer = Answer(left=withdrawn.left, gone=withdrawn.gone)
        calls, now_us = self.served.calls, wall_us()  # one: then their annotations are alike
        decided = _Decided([], [], answer)
        room = self._room(target) if request.action is Action.REDRIVE else None
        for message_id in withdrawn.held:
            entry = calls.entry(queue.name, message_id)
            if entry is None:
                queue.removed((message_id,))
                answer = answer.plus(Answer(gone=1))
                continue
            # Asked of the store: dispatch hears of an arrival only when that has completed.
            is_there = target is not None and calls.entry(target, message_id) is not None
            facts = MessageFacts(entry, is_there, queue.arguments, now_us)
            steps = bulk.decide(request, target, facts)
            takes = [s for s in steps if isinstance(s, Enqueue | Dequeue)]
            if takes and room is not None and not room.takes(entry.message_bytes):
                queue.released(message_id, delivery_failed=False)
                answer = answer.plus(Answer(full=1))
            elif takes:
                decided.steps.extend((message_id, step) for step in takes)
                decided.moving.append((message_id, entry.priority))
                answer = answer.plus(Answer(done=1))
            else:
                queue.released(message_id, delivery_failed=False)
                answer = answer.plus(Answer(left=1))
        self.served.wanted(queue.name)
        return decided._replace(answer=answer)

    def _room(self, target: str | None) -> Room:
        """Count what is on a queue, also what has not arrived yet."""
        assert target is not None
        calls = self.served.calls
        depth, byte_count = len(calls.message_ids(target)), calls.bytes_and_oldest(target)[0]
        return Room(self.served.queues[target].arguments, depth, byte_count)

    def _ended(
        self, request: Request, target: str | None, decided: _Decided, error: StoreError | None
    ) -> None:
        """Finish a request: what moved leaves its place for the target, or goes back."""
        queue = self.served.queues.get(request.queue)
        put = {message_id for message_id, step in decided.steps if isinstance(step, Enqueue)}
        takes = ((message_id, it) for message_id, it in decided.steps if isinstance(it, Dequeue))
        kinds = {message_id: it.outcome["outcome"] for message_id, it in takes}
        if error is None:
            self._count(request, decided)
        for message_id, priority in decided.moving:
            durable = queue is None or queue.keeps(message_id)
            if queue is not None and error is not None:
                queue.released(message_id, delivery_failed=False)
            elif queue is not None:
                queue.removed((message_id,), kinds.get(message_id, "other"))
            if error is None and target is not None and message_id in put:
                self.served.arrived(target, (message_id,), priority, durable=durable)
        self.served.wanted(request.queue)

    def _count(self, request: Request, decided: _Decided) -> None:
        if request.action is not Action.DEAD_LETTER:
            self.served.metrics.moved += len(decided.moving)
            return
        for message_id, step in decided.steps:
            if isinstance(step, Dequeue):
                self._dead_letters.note(message_id, step)


def _note(request: Request, error: StoreError | None, _answer: Answer) -> None:
    if error is not None:
        count = len(request.message_ids)
        _log.warning("%d messages of %r stay where they are: %s", count, request.queue, error)
