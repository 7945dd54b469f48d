"""Orders of administrators, one at a time.

Any number of clients may ask, and one order is carried out at a time, in the order in which they
came. Bulk operations and AMQP take turns on the loop, of `bulk.MAX_IDS` messages at most.

Who only asks is answered at once, whatever orders wait: an order ends when it is durable, and with
a full disk that may be never. So an order is refused while the store pushes back, and one that was
begun before is answered then, too: its outcome is unknown (`_look`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol

from broker_shim.broker.storage.loop import Loop
from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import Full, Unavailable
from broker_shim.serve.administration.broker_orders import Asker, BrokerCall, BrokerOrders
from broker_shim.serve.administration.connection_orders import ConnectionOrders
from sparkstore.control.audit import Audit, write_audit
from sparkstore.core.holders import since_by_holder, since_of
from sparkstore.core.state_machine.state_machine import StoreStateMachine

_log = logging.getLogger(__name__)

_LOOK_S = 1.0
"""So often is looked whether the store pushes back while an order is under way."""
_GONE = "the broker went away: the last request was done whole or not at all; run it again"


class HeldMessage(NamedTuple):
    """A message on a queue, and who holds it."""

    queue: str
    message_id: int
    holders: list[str]
    since_us: int | None = None
    """Since when its only holder is there, UTC µs; None if nobody knows."""


class HeldMessages(NamedTuple):
    """Messages that somebody holds.

    Attributes:
        shown: The held messages, as many as were asked for.
        left_out: How many more are held.
    """

    shown: list[HeldMessage]
    left_out: int


class Decider(Protocol):
    """The place of the broker that carries out orders. On the loop's thread only."""

    @property
    def broker(self) -> Broker | None:
        """The broker; None if none decides now."""

    def decide(self) -> Broker:
        """The broker, which decides from now on.

        Raises:
            InvalidRequest: None can, since another process has the queues in its memory.
        """

    def held(self) -> Iterator[HeldMessage]:
        """List what members and branches in doubt hold, as the store has it."""


class OneBroker(NamedTuple):
    """A `Decider` of a process that has one broker for its life."""

    broker: Broker
    look: Callable[[], AbstractContextManager[StoreStateMachine]] | None = None
    """Into the store, which knows since when members are there: only that of a root does."""

    def decide(self) -> Broker:
        """Return the broker of this process. See `Decider.decide`."""
        return self.broker

    def held(self) -> Iterator[HeldMessage]:
        """List the messages that are held elsewhere than at this broker. See `Decider.held`."""
        since: dict[str, int] = {}
        if self.look is not None:
            with self.look() as machine:
                since = since_by_holder(machine.state)
        for name, queue in self.broker.queues.items():
            for message_id in queue.elsewhere:
                entry = self.broker.calls.entry(name, message_id)
                if entry is not None and (holder := entry.acquired_by) is not None:
                    yield HeldMessage(name, message_id, [holder], since_of(holder, since))


class OrderTurns:
    """Carries out what clients order. On the loop's thread only.

    Attributes:
        decider: Knows the broker that carries orders out.
        orders: Makes the calls that carry orders out.
        connections: Answers about connections, and ends them.
    """

    def __init__(
        self,
        loop: Loop,
        decider: Decider,
        audit: Audit = write_audit,
        connections: ConnectionOrders | None = None,
        trouble: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Carry out nothing yet.

        Args:
            loop: The loop of the broker.
            decider: Knows the broker that carries orders out.
            audit: Takes a line for each change.
            connections: Answers about connections; None: there are none here.
            trouble: Tells why the store takes nothing now, None while it does.
        """
        self._loop, self.decider, self._trouble = loop, decider, trouble
        self._waiting: deque[tuple[Asker, Callable[[Asker], None]]] = deque()
        self._under_way: Asker | None = None
        self._turn = 0
        self.orders = BrokerOrders(audit)
        self.connections = connections or ConnectionOrders(tuple, audit)

    def take(self, call: BrokerCall, asker: Asker) -> None:
        """Have an order carried out in its turn; its asker gets the answer when it is durable.

        Raises:
            StoreError: It is refused, and nothing will be answered.
        """
        broker = self.decider.decide()
        if broker.is_stopping:
            raise Unavailable("the broker is stopping: run it again")
        self._waiting.append((asker, partial(call, broker)))
        self._next()

    def give_up(self) -> None:
        """Wait no more for the order that is under way, and begin no other; all are told so."""
        askers = [asker for asker, _call in self._waiting]
        if self._under_way is not None:
            askers.insert(0, self._under_way)
        self._waiting.clear()
        self._under_way = None
        for asker in askers:
            asker.answer(Unavailable(_GONE))

    def held(self, limit: int) -> HeldMessages:
        """List the messages that somebody holds, with their queues and holders, for debugging."""
        broker = self.decider.broker
        held = {} if broker is None else broker.calls.messages.holders()
        queues = {} if broker is None else broker.queues
        shown = [
            HeldMessage(name, message_id, holders)
            for message_id, holders in islice(held.items(), limit)
            for name, queue in queues.items()
            if message_id in queue
        ]
        elsewhere = [*self.decider.held()]
        shown += elsewhere[: max(0, limit - len(held))]
        return HeldMessages(shown, max(0, len(held) + len(elsewhere) - limit))

    def not_durable(self) -> dict[str, int]:
        """Count the messages of each queue that are in memory only."""
        broker = self.decider.broker
        queues = [] if broker is None else broker.queues.values()
        return {queue.name: queue.not_durable for queue in queues if queue.not_durable}

    def _next(self) -> None:
        while self._waiting and self._under_way is None:
            asker, call = self._waiting.popleft()
            if asker.is_there():
                self._begin(asker, call)

    def _begin(self, asker: Asker, call: Callable[[Asker], None]) -> None:
        """Start an order; nothing else begins until it was answered, once.

        The turn is known by its number: an asker that its own functions know would be a cycle.
        """
        self._turn += 1
        turn, self._under_way = self._turn, asker
        say, is_there = asker.answer, asker.is_there

        def is_on() -> bool:
            return self._under_way is not None and self._turn == turn

        def answer(outcome: Any) -> None:
            if is_on():  # else it was given up, and its client was told so
                self._under_way = None
                say(outcome)
                self._loop.wake()  # what was ended is told so, and what changed is dispatched
                self._next()

        inner = asker._replace(answer=answer, is_there=lambda: is_there() and is_on())
        why = self._trouble()
        if why is None:
            self._start(call, inner, is_on)
        else:
            answer(Full(f"{why}; nothing was done"))

    def _start(
        self, call: Callable[[Asker], None], asker: Asker, is_on: Callable[[], bool]
    ) -> None:
        try:
            call(asker)
        except Exception:  # noqa: BLE001  # else nobody's order would have its turn again
            _log.exception("an administrator's order failed")
            asker.answer(Unavailable("the broker failed on this request: see its log"))
        if is_on():
            self._loop.later(_LOOK_S, partial(self._look, asker, is_on))

    def _look(
        self, asker: Asker, is_on: Callable[[], bool], *, was_in_trouble: bool = False
    ) -> None:
        """Give an order up that the store has taken and cannot make durable now.

        Only if it could not a while ago, either: what lasts for a moment needs no answer of its
        own. The order is carried out all the same, when there is room; its audit line comes then.
        """
        if not is_on():
            return
        why = self._trouble()
        if why is None or not was_in_trouble:
            look = partial(self._look, asker, is_on, was_in_trouble=why is not None)
            self._loop.later(_LOOK_S, look)
            return
        text = f"{why}; the order may be done later, whole or not at all: look before you repeat it"
        asker.answer(Unavailable(text))
