"""Takes expired messages off queues that nobody consumes from, by a timer.

Whether a message may stay is decided where it is for one that is handed out: by `reason_to_end`,
in the bulk operation `dead-letter`. So nothing goes twice, or goes that a consumer has.

What it costs: each second a look at the soonest expiry of each queue. A turn takes `TURN_IDS`
messages, in one transaction, and leaves the loop to others for as long as it took: expiry has
half of the broker's time at most. While the store takes nothing it waits for `_TROUBLE_S`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from broker_shim.broker.orders.bulk_operations import BulkOperations
from broker_shim.broker.storage.loop import Later, wall_us
from broker_shim.errors import NotNow, StoreError
from broker_shim.store.expiring_store import ExpiringStore
from sparkstore.core.queue_names import shown
from sparkstore.operations.bulk import TURN_IDS, Action, Answer, Request

_log = logging.getLogger(__name__)

_IDLE_S = 1.0
_TROUBLE_S = 5.0
_LEAST_PAUSE_S = 0.01


class Expiry:
    """Has the broker that decides for a store expire its messages. On the loop's thread only."""

    def __init__(
        self,
        store: ExpiringStore,
        decider: Callable[[], BulkOperations | None],
        later: Later,
        now_us: Callable[[], int] = wall_us,
    ) -> None:
        """Do nothing before `start`.

        Args:
            store: Knows what has expired.
            decider: Gives the bulk operations of the broker that decides now, asked when
                something has expired; None: nobody decides, as while a Broker-J host has the
                queues in its memory.
            later: Makes a call on the loop's thread after a while.
            now_us: The time, UTC µs.
        """
        self._store, self._decider, self._later = store, decider, later
        self._now_us = now_us
        self._last = ""

    def start(self) -> None:
        """Look at the queues now, and from time to time."""
        self._later(0.0, self._turn)

    def _turn(self) -> None:
        began_us = self._now_us()
        try:
            due = self._store.expired(began_us, TURN_IDS, self._last)
        except StoreError:  # it is closed, or has ended: so does the broker
            return
        if due is None:
            self._later(_IDLE_S, self._turn)
            return
        self._last = due.queue
        bulk = self._decider()
        if bulk is None or bulk.served.is_stopping or due.queue not in bulk.served.queues:
            self._later(_IDLE_S, self._turn)
            return
        request = Request(Action.DEAD_LETTER, due.queue, tuple(due.message_ids))
        bulk.run(request, partial(self._ended, bulk, request, began_us))

    def _ended(
        self,
        bulk: BulkOperations,
        request: Request,
        began_us: int,
        error: StoreError | None,
        answer: Answer,
    ) -> None:
        took_s = (self._now_us() - began_us) / 1e6
        if error is not None:
            pause_s = _TROUBLE_S
            _log.warning("expired messages of %s stay for now: %s", shown(request.queue), error)
            if not isinstance(error, NotNow):
                bulk.end_singly(request)
        elif answer.done or not request.message_ids:
            pause_s = max(_LEAST_PAUSE_S, took_s)
        else:  # all of them are on their way to somebody, or not dispatched yet
            pause_s = _IDLE_S
        self._later(pause_s, self._turn)
