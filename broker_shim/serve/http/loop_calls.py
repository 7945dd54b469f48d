"""Ask the broker's loop from the thread of the HTTP port, and wait without blocking either.

What is read of the broker is read on its own thread, in one call. What changes something is one of
the control socket's orders, and takes its turn among them (`administration.order_turns`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from broker_shim.broker.storage.loop import Loop
from broker_shim.serve.administration.order_turns import OrderTurns
from broker_shim.serve.http.refusals import HttpRefusal
from sparkstore.operations import wire

READ_S, ORDER_S = 5.0, 120.0
PAGES_AT_ONCE = 2
T = TypeVar("T")
Tell = Callable[[Any], None]
"""Gives the answer, or an exception instead; on any thread, and only the first one counts."""


class HttpOrder:
    """An order of one request, as `order_turns.OrderClient`: its last line is the answer."""

    is_there = True

    def __init__(self, name: str, user: str | None, tell: Tell) -> None:
        self.name, self.user = name, user
        self.waiting = 0
        self._tell = tell

    def say(self, line: bytes) -> None:
        """Take a line of the answer: how far it is does not interest, only what came of it."""
        content = wire.content_of(line)
        if "so_far" not in content:
            self._tell(wire.error_of(content) if "error" in content else content)


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
        found: T = await self.wait(lambda tell: tell(call()), READ_S)
        return found

    async def order(self, name: str, user: str | None, content: dict[str, Any]) -> dict[str, Any]:
        """Have an order of the control socket carried out; its answer, when it is durable.

        Args:
            name: The client, for the audit log.
            user: The user who gives it; None: nobody logs in here.
            content: The order as `sparkstore.operations.wire` has it.

        Raises:
            StoreError: It was refused, or nobody knows what came of it.
            HttpRefusal: No answer came in time.
        """

        def begin(tell: Tell) -> None:
            self._turns.take(HttpOrder(name, user, tell), content)

        said: dict[str, Any] = await self.wait(begin, ORDER_S)
        return said

    async def wait(self, begin: Callable[[Tell], None], patience_s: float) -> Any:
        """Have something begun on the loop's thread; return what it tells."""
        ours, outcomes, is_told = asyncio.get_running_loop(), list[Any](), asyncio.Event()

        def tell(outcome: Any) -> None:
            with suppress(RuntimeError):  # the port was closed meanwhile
                ours.call_soon_threadsafe(partial(_settle, outcomes, is_told, outcome))

        self._loop.post(partial(_begun, begin, tell))
        try:
            await asyncio.wait_for(is_told.wait(), patience_s)
        except TimeoutError as reason:
            text = f"the broker has not answered for {patience_s:g} s: look into its log; what was"
            text += " asked is done whole or not at all, perhaps later"
            raise HttpRefusal(503, text) from reason
        if isinstance(outcomes[0], Exception):
            raise outcomes.pop()  # no frame that the error knows may know it: a cycle
        return outcomes[0]


def _begun(begin: Callable[[Tell], None], tell: Tell) -> None:
    try:
        begin(tell)
    except Exception as reason:  # noqa: BLE001  # told to whoever asked
        tell(reason)


def _settle(outcomes: list[Any], is_told: asyncio.Event, outcome: Any) -> None:
    if not is_told.is_set():
        outcomes.append(outcome)
        is_told.set()
