"""Changes of place in a running broker, as `sparkstore.operations.placement` decides them.

The content of new messages is given to the store first, large ones in pieces; a cut leaves it on no
queue. Then, in one turn of the loop, what is to be taken is taken out of dispatch and decided, and
the store gets one transaction (`message_moves`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.orders.message_moves import Decide, MessageMoves
from broker_shim.broker.storage.store_puts import STAGED_BYTES
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.store.interface import StoredMessage
from sparkstore.core.queue_arguments import QueueTerms
from sparkstore.core.state_machine.call_values import EnqueueCall
from sparkstore.operations.bulk import Answer
from sparkstore.operations.placement import (
    Placement,
    PlacementRequest,
    check_placements,
    plan_placement,
)

OnAnswer = Callable[[StoreError | None, Answer], None]


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
        served, moves, new = self._served, MessageMoves(self._served), 0
        for placement, message in zip(request.placements, made, strict=True):
            new_id, is_taken = 0 if message is None else message.message_id, True
            if placement.source is not None:
                plan = partial(plan_placement, placement, request, new_id=new_id)
                is_taken = self._take(moves, placement, plan)
            if message is not None and is_taken:
                assert placement.target is not None
                placed = placement.target, placement.annotations, placement.delivery_count
                moves.steps.append(EnqueueCall(message, *placed))
                new += 1
        moved = moves.answer.done
        alone = sum(placement.source is None for placement in request.placements)

        def done(error: StoreError | None) -> None:
            if error is None:
                served.metrics.moved += moved
                served.metrics.enqueued += new
            on_answer(error, Answer() if error else moves.answer.plus(Answer(done=alone)))

        moves.store(done)

    def _take(self, moves: MessageMoves, placement: Placement, decide: Decide) -> bool:
        """Take messages out of dispatch; True if any are taken."""
        ids, queue = placement.message_ids, self._served.queues.get(placement.source or "")
        if queue is None:  # it went while content of new messages was given
            moves.answer = moves.answer.plus(Answer(gone=len(ids)))
            return False
        before = moves.answer.done
        moves.take(queue, ids, len(ids), decide)
        return moves.answer.done > before
