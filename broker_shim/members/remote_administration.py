"""Orders about queues at a member: the service decides and does them, for all members."""

from __future__ import annotations

import json
from typing import Any

from broker_shim.broker.administration import OnPurged, OnTold, OnUsage
from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.service.dispatcher import DESTROY, PURGE, USAGE
from broker_shim.store.remote.requests import Answer as ReadAnswer
from broker_shim.store.remote.store import RemoteMessageStore
from sparkstore.operations.administration import Order
from sparkstore.operations.bulk import Answer
from sparkstore.operations.queue_alteration import QueueUsage


class RemoteAdministration:
    """See `QueueDecider`. On the loop's thread only.

    While the service is away an order waits for it, as a request does, and is said again.
    """

    def __init__(self, store: RemoteMessageStore, broker: Broker) -> None:
        self._store, self._broker = store, broker

    def delete(self, order: Order, on_told: OnTold) -> None:
        """See `QueueDecider.delete`."""

        def done(error: StoreError | None, told: dict[str, Any]) -> None:
            if error is None:
                self._broker.queue_destroyed(order.queue)
            on_told(error, told)

        limits = order.force, order.if_unused, order.if_empty
        self._ask(order.act.value, order.queue, limits, done)

    def destroy(self, queue: str, on_done: OnComplete) -> None:
        """See `QueueDecider.destroy`."""
        self._ask(DESTROY, queue, (True, False, False), lambda error, _told: on_done(error))

    def purge(self, queue: str, on_purged: OnPurged) -> None:
        """See `QueueDecider.purge`."""

        def done(error: StoreError | None, told: dict[str, Any]) -> None:
            on_purged(error, Answer(**told))

        self._ask(PURGE, queue, (True, False, False), done)

    def usage(self, queue: str, on_usage: OnUsage) -> None:
        """See `QueueDecider.usage`."""

        def done(error: StoreError | None, told: dict[str, Any]) -> None:
            on_usage(error, QueueUsage(**told) if told else None)

        self._ask(USAGE, queue, (False, False, False), done)

    def _ask(self, act: str, queue: str, limits: tuple[bool, bool, bool], on_told: OnTold) -> None:
        told: dict[str, Any] = {}

        def ask(on_complete: OnComplete) -> None:
            def answered(answer: ReadAnswer) -> None:
                _is_last, body, error = answer
                if error is None:
                    told.update(json.loads(body[0]))
                on_complete(error)

            self._store.ask_for_order(act, queue, limits, answered)

        self._broker.calls.call(lambda error: on_told(error, told), ask)
