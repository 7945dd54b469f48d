"""Ask the broker's loop from the thread of the HTTP port, and wait without blocking either.

What is read of the broker is read on its own thread, in one call. What changes something takes its
turn among the orders of all administrators (`administration.order_turns`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from broker_shim.broker.storage.loop import Loop
from broker_shim.serve.administration.order_turns import OrderTurns
from broker_shim.serve.http.refusals import HttpRefusal
from sparkstore.operations import wire

READ_S, ORDER_S = 5.0, 120.0
PAGES_AT_ONCE = 2
_SO_FAR = "so_far"
T = TypeVar("T")


class _Outcomes:
    """What a call on the loop's thread comes to, told to the thread that made this."""

    def __init__(self) -> None:
        self._ours, self._told = asyncio.get_running_loop(), asyncio.Queue[Any]()

    def tell(self, outcome: Any) -> None:
        """Tell an outcome, or an exception instead; on any thread."""
        with suppress(RuntimeError):  # the port was closed meanwhile
            self._ours.call_soon_threadsafe(self._told.put_nowait, outcome)

    async def next(self, patience_s: float) -> Any:
        """Return the next outcome, or raise it.

        Raises:
            HttpRefusal: None came in time.
        """
        try:
            outcome = await asyncio.wait_for(self._told.get(), patience_s)
        except TimeoutError as reason:
            text = f"the broker has not answered for {patience_s:g} s: look into its log; what was"
            text += " asked is done whole or not at all, perhaps later"
            raise HttpRefusal(503, text, kind="Unavailable") from reason
        try:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        finally:
            del outcome  # no frame that an error knows may know it: a cycle


class HttpOrder:
    """An order of one request, as `order_turns.OrderClient`: its last line is the answer."""

    is_there = True

    def __init__(self, name: str, user: str | None) -> None:
        self.name, self.user = name, user
        self.waiting = 0
        self._outcomes = _Outcomes()

    def say(self, line: bytes) -> None:
        """Take a line of the answer; on the loop's thread."""
        content = wire.content_of(line)
        self._outcomes.tell(wire.error_of(content) if "error" in content else content)

    def begin(self, turns: OrderTurns, content: dict[str, Any]) -> None:
        """Give the order; on the loop's thread."""
        _tell(partial(turns.take, self, content), self._outcomes.tell, tells_result=False)

    async def answers(self) -> AsyncIterator[dict[str, Any]]:
        """Iterate over how far it is, if it tells that, and its answer, which is durable."""
        is_over = False
        try:
            while not is_over:
                answer = await self._outcomes.next(ORDER_S)
                is_over = _SO_FAR not in answer
                yield answer
        finally:
            self.is_there = False  # what goes in steps ends with this one


class LoopCalls:
    """Asks one broker's loop; called on the thread of the HTTP port.

    Attributes:
        pages: Lets in those that make a page of messages, `PAGES_AT_ONCE` at a time.
    """

    def __init__(self, loop: Loop, turns: OrderTurns) -> None:
        self._loop, self._turns = loop, turns
        self.pages = asyncio.Semaphore(PAGES_AT_ONCE)

    async def read(self, call: Callable[[], T]) -> T:
        """Return what a call returns, or raise what it raises; it is made on the loop's thread."""
        outcomes = _Outcomes()
        self._loop.post(partial(_tell, call, outcomes.tell))
        result: T = await outcomes.next(READ_S)
        return result

    def answers(
        self, name: str, user: str | None, content: dict[str, Any]
    ) -> AsyncIterator[dict[str, Any]]:
        """Have an order carried out; tells how far it is, and last its answer, which is durable.

        Args:
            name: The client, for the audit log.
            user: The user who gives it; None: nobody logs in here.
            content: The order as `sparkstore.operations.wire` has it.

        Raises:
            StoreError: It was refused, or nobody knows what came of it.
            HttpRefusal: No answer came in time.
        """
        order = HttpOrder(name, user)
        self._loop.post(partial(order.begin, self._turns, content))
        return order.answers()


def _tell(
    call: Callable[[], Any], tell: Callable[[Any], None], *, tells_result: bool = True
) -> None:
    try:
        result = call()
    except Exception as reason:  # noqa: BLE001  # told to whoever asked
        tell(reason)
    else:
        if tells_result:
            tell(result)
