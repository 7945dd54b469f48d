"""Selectors and message groups over what waits: headers are read in batches, a slice at a time.

A turn of the loop looks for `SLICE_S` at most, over all queues together: then sockets, timers and
completions have their turn, and the rest is looked at after them. How many messages are one batch
follows from how long the last took, because that differs by a thousand: headers in memory, headers
in Parquet files, a selector of 60,000 characters.

Why no message is missed: a batch is looked at and judged in one call on the loop's thread, so
nothing arrives, leaves or is given back in between; a batch whose headers cannot be read now is put
back to be looked at again; and whoever has credit and has not seen the end keeps the queue wanted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker_shim.embedded.common_header import CommonHeader, common_header
from broker_shim.embedded.conditions import ENDED
from broker_shim.embedded.queue import QueueDispatch
from broker_shim.errors import StoreError, Unavailable

if TYPE_CHECKING:
    from broker_shim.embedded.broker import Broker

_log = logging.getLogger(__name__)

SLICE_S = 0.01
"""How long a turn of the loop may look, in seconds; one batch may go beyond it."""
MOST, FIRST = 4096, 64
"""Messages in a batch: at most, and in the first."""
RETRY_S = 0.25
"""After so long a store that did not answer is asked again."""

Headers = Mapping[int, CommonHeader | None]


class Scanning:
    """Looks at queues for consumers that do not take whatever comes next."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._count = FIRST
        self._spent_s = 0.0
        self._postponed: list[Callable[[], None]] = []
        self._is_armed = False

    @property
    def has_time(self) -> bool:
        """True while this turn of the loop may go on looking."""
        return self._spent_s < SLICE_S

    def turn(self, queue: QueueDispatch) -> None:
        """Hand out what is wanted, as far as this turn of the loop gets."""
        while queue.unfinished():
            if not self.has_time:
                self.postpone(lambda: self._broker.wanted(queue.name))
                break
            if not self._look(queue):
                break
            for message_id, consumer in queue.take_found():
                consumer.assign(message_id)
        for consumer in queue.caught_up():
            consumer.caught_up()

    def postpone(self, call: Callable[[], None]) -> None:
        """Have a call made when the loop has been round, and there is time again."""
        self._postponed.append(call)
        self._arm()

    def judged(
        self,
        queue: str,
        message_ids: Sequence[int],
        judge: Callable[[Headers], None],
    ) -> bool:
        """Have some messages judged by their headers; False if they cannot be read now.

        Then the caller may try again after `RETRY_S`.
        """
        began_s = time.monotonic()
        try:
            judge(self._headers(message_ids))
        except ENDED:
            return False
        except Unavailable as error:
            _log.warning("%r is not looked at now: %s", queue, error)
            return False
        took_s = time.monotonic() - began_s
        self._spent_s += took_s
        self._arm()
        self._adapt(took_s, len(message_ids))
        return True

    @property
    def batch_count(self) -> int:
        """How many messages to look at together."""
        return self._count

    def _look(self, queue: QueueDispatch) -> bool:
        """Look at one batch; False if that is not to be repeated at once."""
        batches = queue.to_look_at(self._count)
        message_ids = sorted({each for _looker, batch in batches for _place, each in batch})
        if self.judged(queue.name, message_ids, lambda headers: queue.judge(batches, headers)):
            return True
        for looker, batch in batches:
            looker.put_off(batch)
        self._broker.later(RETRY_S, lambda: self._again([partial(self._broker.wanted, queue.name)]))
        return False

    def _headers(self, message_ids: Sequence[int]) -> Headers:
        try:
            found = self._broker.calls.headers(message_ids)
        except (Unavailable, *ENDED):
            raise
        except StoreError as error:
            # One message that cannot be read must not hide the others: nobody is offered it.
            if len(message_ids) == 1:
                _log.error("message %d cannot be looked at: %s", message_ids[0], error)
                return {}
            return {each: self._headers([each]).get(each) for each in message_ids}
        return {
            message_id: None if header is None else common_header(header)
            for message_id, header in zip(message_ids, found, strict=True)
        }

    def _adapt(self, took_s: float, count: int) -> None:
        if took_s > SLICE_S / 2:
            self._count = max(1, count // 2)
        elif count >= self._count:
            self._count = min(MOST, 2 * self._count)

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            self._broker.later(0.0, self._next_turn)

    def _next_turn(self) -> None:
        self._is_armed = False
        self._spent_s = 0.0
        postponed, self._postponed = self._postponed, []
        self._again(postponed)

    def _again(self, calls: list[Callable[[], None]]) -> None:
        for call in calls:
            call()
        self._broker.dispatch()
