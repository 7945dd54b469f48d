"""Messages on their way off queues, and onto others, in one transaction of the store.

What is waiting is taken out of dispatch first, so no consumer gets it between its decision and the
commit. Why nothing is lost: until that has completed, a message that was taken is held here, under
nobody's name. If the store refuses, it is available again in its old place. If the broker is
killed, the transaction is in the log whole or not at all, and a start puts in dispatch what the log
says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from sparkstore.core.fold import Entry
from sparkstore.core.packed_integers import neighbours_in
from sparkstore.core.state_machine.call_values import DequeueCall, EnqueueCall
from sparkstore.operations.bulk import Answer, BulkStep, Plan

Decide = Callable[[list[Sequence[int]], Mapping[int, Entry]], Plan]
"""Gets runs of messages, and the entries of their queue."""


class MessageMoves:
    """The steps of one transaction. On the loop's thread only.

    Attributes:
        steps: What the store is asked for, in order.
        answer: What has become of the messages, if it does that.
    """

    def __init__(self, served: ServedQueues) -> None:
        """Begin with no step."""
        self._served, self.steps, self.answer = served, list[BulkStep](), Answer()
        self._takes: list[tuple[QueueDispatch, Sequence[int]]] = []

    def take(
        self,
        queue: QueueDispatch,
        message_ids: Sequence[int],
        most: int,
        decide: Decide,
    ) -> int:
        """Take messages out of dispatch, and add what is decided about them.

        Args:
            queue: The queue that they are on, if they are.
            message_ids: In its order, none of them twice.
            most: Leave the rest alone once so many are in no run; a run counts as some.
            decide: Gets those that are out, as runs; the others are given back.

        Returns:
            How many messages, of the first ones, the answer is about.
        """
        held, left, gone = queue.take_out(message_ids, most)
        entries, count = self._served.calls.entries(queue.name), sum(map(len, held))
        planned = decide(held, entries)
        if planned.answer.done != count:
            takes = {*chain.from_iterable(planned.takes)}
            for ids in held:
                rest = [i for i in ids if i not in takes]
                for part in neighbours_in([i for i in rest if i in entries]):
                    queue.waits_again(part)
                for part in neighbours_in([i for i in rest if i not in entries]):
                    queue.removed(part)
            self._served.wanted(queue.name)
        self.steps += planned.steps
        self._takes += [(queue, ids) for ids in planned.takes]
        self.answer = self.answer.plus(planned.answer).plus(Answer(left=left, gone=gone))
        return count + left + gone

    def store(self, on_done: OnComplete, refusal: StoreError | None = None) -> None:
        """Have the store do it; `on_done` when messages have left, or are back in their places.

        Never at once; `refusal` says why the store is not to be asked.
        """
        calls = self._served.calls

        def done(error: StoreError | None) -> None:
            self._ended(error)
            on_done(error)

        if self.steps and refusal is None:
            calls.transact(self.steps, done)
        else:
            calls.answer((done, refusal))

    def _ended(self, error: StoreError | None) -> None:
        served, takes = self._served, dict[str, QueueDispatch]()
        for queue, ids in self._takes:
            takes[queue.name] = queue
            if error is not None and served.serves(queue):
                queue.waits_again(ids)
        for step in self.steps if error is None else ():
            if isinstance(step, EnqueueCall):
                served.brought(step)
            elif isinstance(step, DequeueCall) and served.serves(takes[step.queue]):
                takes[step.queue].removed(step.message_ids, (step.outcome or {})["outcome"])
        for name in takes:
            served.wanted(name)
