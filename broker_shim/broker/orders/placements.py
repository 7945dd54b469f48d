"""Changes of place in a running broker, as `sparkstore.operations.placement` decides them.

The content of new messages is given to the store first, large ones in pieces; a cut leaves it on no
queue. Then, in one turn of the loop, what is to be taken is taken out of dispatch and decided, and
the store gets one transaction. Why nothing is lost: until that has completed, a message that was
taken is held here, under nobody's name. If the store refuses, it is available again in its old
place. If the broker is killed, the transaction is in the log whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.storage.store_puts import STAGED_BYTES
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.store.interface import StoredMessage
from sparkstore.core.queue_arguments import QueueTerms
from sparkstore.core.state_machine.call_values import EnqueueCall, StoreCall
from sparkstore.operations.bulk import Answer
from sparkstore.operations.placement import (
    Placement,
    PlacementRequest,
    check_placements,
    decide_placement,
    taken_from,
)

OnAnswer = Callable[[StoreError | None, Answer], None]
_Held = set[tuple[str, int]]


class Placements:
    """Carries placements out. On the loop's thread only."""

    def __init__(self, served: ServedQueues) -> None:
        """Begin with no request under way."""
        self._served = served

    def run(self, request: PlacementRequest, on_answer: OnAnswer) -> None:
        """Carry a request out; `on_answer` when that is durable, or why nothing was done."""
        try:
            check_placements(request, self._terms)
        except InvalidRequest as refusal:
            on_answer(refusal, Answer())
            return
        self._prepare(request, [], on_answer)

    def _terms(self, name: str) -> QueueTerms | None:
        queue = self._served.queues.get(name)
        return None if queue is None else QueueTerms(queue.is_kept, queue.arguments)

    def _prepare(
        self, request: PlacementRequest, made: list[StoredMessage | None], on_answer: OnAnswer
    ) -> None:
        """Make the new messages, one after the other, and go on when the last is ready."""
        for placement in request.placements[len(made) :]:
            if placement.draft is None:
                made.append(None)
                continue
            header, body = placement.draft

            def ready(error: StoreError | None, message: StoredMessage | None) -> None:
                if message is None:
                    on_answer(error, Answer())
                else:
                    self._prepare(request, [*made, message], on_answer)

            may_stage = len(body) > STAGED_BYTES
            durable = header._replace(durable=True)
            self._served.calls.puts.prepare(durable, body, ready, may_stage=may_stage)
            return
        self._place(request, made, on_answer)

    def _place(
        self, request: PlacementRequest, made: list[StoredMessage | None], on_answer: OnAnswer
    ) -> None:
        answer, held = self._take(request)
        chosen = [
            (placement, message)
            for placement, message in zip(request.placements, made, strict=True)
            if placement.source is None or (placement.source, placement.message_id) in held
        ]
        calls = (call for placing in chosen for call in self._calls(request, *placing))

        def done(error: StoreError | None) -> None:
            self._ended(chosen, error)
            on_answer(error, Answer() if error else answer.plus(Answer(done=len(chosen))))

        if chosen:
            self._served.calls.transact(calls, done)
        else:
            on_answer(None, answer)

    def _take(self, request: PlacementRequest) -> tuple[Answer, _Held]:
        """Take what waits out of dispatch: what is not there, or somebody has, is left out."""
        answer, held, calls = Answer(), _Held(), self._served.calls
        for name, message_ids in taken_from(request.placements).items():
            queue = self._served.queues[name]
            withdrawn = queue.withdraw(dict.fromkeys(message_ids))
            answer = answer.plus(Answer(left=withdrawn.left, gone=withdrawn.gone))
            for message_id in withdrawn.held:
                entry = calls.entry(name, message_id)
                if entry is None:
                    queue.removed((message_id,))
                    answer = answer.plus(Answer(gone=1))
                elif entry.acquired_by is not None:  # by a member, who has yet to say so
                    queue.released(message_id, delivery_failed=False)
                    answer = answer.plus(Answer(left=1))
                else:
                    held.add((name, message_id))
        return answer, held

    def _calls(
        self, request: PlacementRequest, placement: Placement, message: StoredMessage | None
    ) -> Iterator[StoreCall]:
        calls, new_id = self._served.calls, 0 if message is None else message.message_id
        if placement.source is not None:
            entry = calls.entry(placement.source, placement.message_id)
            for step in decide_placement(placement, request, entry, new_id):
                yield calls.call_of(placement.message_id, step)
        if message is not None:
            assert placement.target is not None
            placed = placement.target, placement.annotations, placement.delivery_count
            yield EnqueueCall(message, *placed)

    def _ended(
        self, chosen: list[tuple[Placement, StoredMessage | None]], error: StoreError | None
    ) -> None:
        """Finish a request: what moved leaves its place for the target, or goes back."""
        served = self._served
        durable: dict[int, tuple[bool, int]] = {}
        for placement, _message in chosen:
            queue = served.queues.get(placement.source or "")
            if queue is None:
                continue
            message_id = placement.message_id
            if error is not None:
                queue.released(message_id, delivery_failed=False)
                served.wanted(queue.name)
            else:
                durable[message_id] = queue.keeps(message_id), self._priority(placement)
                queue.removed((message_id,))
                served.wanted(queue.name)
        if error is None:
            served.metrics.moved += len(durable)
            for placement, message in chosen:
                self._arrived(placement, message, durable)

    def _priority(self, placement: Placement) -> int:
        entry = self._served.calls.entry(placement.target or "", placement.message_id)
        return 4 if entry is None else entry.priority

    def _arrived(
        self,
        placement: Placement,
        message: StoredMessage | None,
        durable: dict[int, tuple[bool, int]],
    ) -> None:
        target = self._served.queues.get(placement.target or "")
        if target is None:
            return
        if message is not None:
            message_id, is_durable, priority = message.message_id, True, message.header.priority
            self._served.metrics.enqueued += 1
        else:
            message_id = placement.message_id
            is_durable, priority = durable[message_id]
        target.count_failures(message_id, placement.delivery_count)
        self._served.arrived(target.name, (message_id,), priority, durable=is_durable)
