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
from broker_shim.serve.administration.broker_orders import Asker, BrokerCall
from broker_shim.serve.administration.order_turns import OrderTurns
from broker_shim.serve.http.refusals import HttpRefusal
from sparkstore.operations.bulk import Answer

READ_S, ORDER_S = 5.0, 120.0
PAGES_AT_ONCE = 2
T = TypeVar("T")
Tell = Callable[[Any], None]
"""Tells what came of a call, or an exception instead; on any thread."""


class SoFar(Answer):
    """How far an order is."""


class _Outcomes:
    """What a call on the loop's thread comes to, told to the thread that made this."""

    def __init__(self) -> None:
        self._ours, self._results = asyncio.get_running_loop(), asyncio.Queue[Any]()

    def tell(self, outcome: Any) -> None:
        """Tell an outcome, or an exception instead; on any thread."""
        with suppress(RuntimeError):  # the port was closed meanwhile
            self._ours.call_soon_threadsafe(self._results.put_nowait, outcome)

    def tell_failure(self, call: Callable[[], None]) -> None:
        """Make a call that tells its outcomes itself, unless it fails."""
        try:
            call()
        except Exception as reason:  # noqa: BLE001  # told to whoever asked
            self.tell(reason)

    async def next(self, patience_s: float) -> Any:
        """Return the next outcome, or raise it.

        Raises:
            HttpRefusal: None came in time.
        """
        try:
            outcome = await asyncio.wait_for(self._results.get(), patience_s)
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


class LoopCalls:
    """Asks one broker's loop; called on the thread of the HTTP port.

    Attributes:
        turns: Where orders take their turns; used on the loop's thread.
        pages: Lets in those that make a page of messages, `PAGES_AT_ONCE` at a time.
    """

    def __init__(self, loop: Loop, turns: OrderTurns) -> None:
        self._loop, self.turns = loop, turns
        self.pages = asyncio.Semaphore(PAGES_AT_ONCE)

    async def read(self, call: Callable[[], T]) -> T:
        """Return what a call returns, or raise what it raises; it is made on the loop's thread."""
        result: T = await self.wait(lambda tell: tell(call()))
        return result

    async def wait(self, begin: Callable[[Tell], None]) -> Any:
        """Return what a call tells, perhaps later; it is made on the loop's thread."""
        outcomes = _Outcomes()
        self._loop.post(partial(outcomes.tell_failure, partial(begin, outcomes.tell)))
        return await outcomes.next(READ_S)

    async def answers(self, name: str, user: str | None, call: BrokerCall) -> AsyncIterator[Any]:
        """Have an order carried out; tells `SoFar` it is, and last its answer, which is durable.

        Args:
            name: The client, for the audit log.
            user: The user who gives it; None: nobody logs in here.
            call: Gives the order (`OrderTurns.orders`).

        Raises:
            StoreError: It was refused, or nobody knows what came of it.
            HttpRefusal: No answer came in time.
        """
        outcomes, is_there = _Outcomes(), [True]

        def show(so_far: Answer) -> None:
            outcomes.tell(SoFar(*so_far))

        asker = Asker(name, user, show, outcomes.tell, lambda: is_there[0])
        take = partial(self.turns.take, call, asker)
        self._loop.post(partial(outcomes.tell_failure, take))
        is_over = False
        try:
            while not is_over:
                answer = await outcomes.next(ORDER_S)
                is_over = not isinstance(answer, SoFar)
                yield answer
        finally:
            is_there[0] = False  # what goes in steps ends with this one
