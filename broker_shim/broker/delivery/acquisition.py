"""A message that somebody has browsed becomes its own, if nobody else has it.

Among the clients of this broker the first is chosen here, by what is waiting. Among all that use
the store it is chosen by the store, whose acquire completes for one holder. Why a message is never
lost: it is out of dispatch before the store is asked, and back in it, or gone from the queue, as
the store says.
"""

from __future__ import annotations

from broker_shim.broker.delivery.undelivered_messages import Undelivered
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.flow.settlement import Settlement
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, NotAcquired, NotNow, StoreError
from broker_shim.store.interface import Entry
from sparkstore.core.state_machine.call_values import AcquireCall


class Acquisition:
    """Acquires messages by their ids. On the loop's thread only."""

    def __init__(
        self, served: ServedQueues, settlement: Settlement, undelivered: Undelivered
    ) -> None:
        self._served, self._settlement, self._undelivered = served, settlement, undelivered

    def acquire(
        self,
        queue: str,
        message_id: int,
        holder: str,
        on_done: OnComplete,
        entry: Entry | None = None,
    ) -> None:
        """Have a waiting message held by `holder`; `on_done(None)` when that is durable.

        Then the caller ends it by `Settlement.remove`, `Settlement.give_back` or a `Rejection`,
        under the same holder; it gives back what it held when its client is lost.

        Args:
            queue: Name of the queue that the message is on.
            message_id: What a browser was shown.
            holder: What the store shall know its holder by.
            on_done: Told `NotAcquired` if somebody else has it, `InvalidRequest` if it is not on
                the queue (any more), `Unavailable` if the store does not answer now: then it is
                given back, and may be asked for again.
            entry: What `entry_of_browsed` told of it.
        """
        dispatch = self._served.queues.get(queue)
        if dispatch is None:
            on_done(InvalidRequest(f"unknown queue {queue!r}"))
            return
        # Out of dispatch before the store is asked: no consumer gets it meanwhile.
        withdrawn = dispatch.take_browsed(message_id, entry, holder)
        if withdrawn.left:
            on_done(NotAcquired(f"message {message_id} on queue {queue!r} is held by another"))
        elif withdrawn.gone:
            on_done(InvalidRequest(f"message {message_id} is not on queue {queue!r}"))
        else:
            self._ask_store(dispatch, message_id, holder, on_done)

    def _ask_store(
        self, dispatch: QueueDispatch, message_id: int, holder: str, on_done: OnComplete
    ) -> None:
        served, name, give_back = self._served, dispatch.name, self._settlement.give_back

        def acquired(error: StoreError | None) -> None:
            if isinstance(error, NotNow):  # it may have been taken: the release finds out
                delay_s = served.settings.probe_interval_s
                give_back((message_id,), name, holder, failed=False, delay_s=delay_s)
            elif error is not None:
                self._undelivered.lost(dispatch, message_id)
            on_done(error)

        served.calls.make(AcquireCall((message_id,), name, holder), acquired)
