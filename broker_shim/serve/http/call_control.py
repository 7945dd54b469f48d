"""Give orders of a request from a thread that may wait: what `AdminClient` is for a command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from broker_shim.serve.administration.broker_orders import BrokerCall
from broker_shim.serve.http.calls import Call
from sparkstore.operations.administration import Order
from sparkstore.operations.bulk import Answer, MessageDraft
from sparkstore.operations.placement import PlacementRequest

T = TypeVar("T")


class CallControl:
    """Carries out requests by the broker, each of which waits for its answer.

    It is made on the loop of the HTTP port, and used on another thread.
    """

    def __init__(self, call: Call) -> None:
        self._call, self._loop = call, asyncio.get_running_loop()

    def order(self, order: Order) -> dict[str, Any]:
        """Carry out an order to which the user has all rights. See `Call.order`."""
        return self._wait(self._call.order(order))

    def place(self, request: PlacementRequest) -> Answer:
        """Carry out changes of place, all of those that are possible or none."""
        return self._answer(self._call.orders.place(request))

    def put(self, queue: str, messages: Sequence[MessageDraft]) -> Answer:
        """Put new messages on a queue, all or none."""
        return self._answer(self._call.orders.put(queue, messages))

    def _answer(self, order: BrokerCall) -> Answer:
        answer: Answer = self._wait(self._call.send(order))
        return answer

    def _wait(self, asked: Awaitable[T]) -> T:
        return asyncio.run_coroutine_threadsafe(_awaited(asked), self._loop).result()


async def _awaited(asked: Awaitable[T]) -> T:
    return await asked
