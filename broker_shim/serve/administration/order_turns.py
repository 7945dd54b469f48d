"""Orders of administrators, one at a time: those of the control socket, and those of the HTTP port.

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
from broker_shim.errors import Full, InvalidRequest, StoreError, Unavailable
from broker_shim.serve.administration.connection_orders import ConnectionOrders
from broker_shim.serve.administration.control_orders import Asker, ControlOrders
from sparkstore.control.audit import Audit, AuditEvent, write_audit
from sparkstore.core.holders import since_by_holder, since_of
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.operations import wire
from sparkstore.operations.bulk import Answer

_log = logging.getLogger(__name__)

_LOOK_S = 1.0
"""So often is looked whether the store pushes back while an order is under way."""
_GONE = "the broker went away: the last request was done whole or not at all; run it again"


class Decider(Protocol):
    """The place of the broker that carries out orders. On the loop's thread only."""

    @property
    def max_message_bytes(self) -> int:
        """How long the content of one message may be, in bytes, inclusive."""

    @property
    def there(self) -> Broker | None:
        """The broker; None if none decides now."""

    def decide(self) -> Broker:
        """The broker, which decides from now on.

        Raises:
            InvalidRequest: None can, since another process has the queues in its memory.
        """

    def held(self) -> Iterator[wire.HeldMessage]:
        """List what members and branches in doubt hold, as the store has it."""


class OneBroker(NamedTuple):
    """A `Decider` of a process that has one broker for its life."""

    there: Broker
    look: Callable[[], AbstractContextManager[StoreStateMachine]] | None = None
    """Into the store, which knows since when members are there: only that of a root does."""

    @property
    def max_message_bytes(self) -> int:
        """Tell the limit from the broker's settings. See `Decider.max_message_bytes`."""
        return self.there.settings.max_message_bytes

    def decide(self) -> Broker:
        """Return the broker of this process. See `Decider.decide`."""
        return self.there

    def held(self) -> Iterator[wire.HeldMessage]:
        """List the messages that are held elsewhere than at this broker. See `Decider.held`."""
        since: dict[str, int] = {}
        if self.look is not None:
            with self.look() as machine:
                since = since_by_holder(machine.state)
        for name, queue in self.there.queues.items():
            for message_id in queue.elsewhere:
                entry = self.there.calls.entry(name, message_id)
                if entry is not None and (holder := entry.acquired_by) is not None:
                    yield wire.HeldMessage(name, message_id, [holder], since_of(holder, since))


class OrderClient(Protocol):
    """A client that asks, and waits for its answers.

    Attributes:
        waiting: How many of its orders are not answered.
    """

    waiting: int

    @property
    def name(self) -> str:
        """Its process or its address, for the audit log."""

    @property
    def user(self) -> str | None:
        """The user who logged in; None: the process itself is who asks."""

    @property
    def is_there(self) -> bool:
        """False once it went away."""

    def say(self, line: bytes) -> None:
        """Send it a line; nothing is sent to one that went away."""


class _Asked(NamedTuple):
    """The call that a line asks for.

    If `is_order`, its answer waits until the store has made it durable.
    """

    call: Callable[[Asker], None]
    is_order: bool = True


class OrderTurns:
    """Carries out what clients ask. On the loop's thread only.

    Attributes:
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
        self._loop, self._decider = loop, decider
        self._audit, self._trouble = audit, trouble
        self._requests: deque[tuple[OrderClient, _Asked]] = deque()
        self._under_way: int | None = None
        self._client: OrderClient | None = None
        self._turn = 0
        self._orders = ControlOrders(audit)
        self.connections = connections or ConnectionOrders(tuple, audit)

    @property
    def max_message_bytes(self) -> int:
        """How long the content of one message may be, in bytes, inclusive."""
        return self._decider.max_message_bytes

    def take(self, client: OrderClient, content: dict[str, Any]) -> None:
        """Have something done or answered; the answer goes to the client by `say`.

        Raises:
            StoreError: It is refused, and nothing will be said.
        """
        asked = self._asked(content)
        if asked.is_order or client.waiting:  # its answers come in the order of its requests
            client.waiting += 1
            self._requests.append((client, asked))
            self._next()
        else:
            is_there = partial(getattr, client, "is_there")
            asked.call(Asker(client.name, client.say, client.say, is_there, client.user))

    def forget(self, client: OrderClient) -> None:
        """Forget what a client asked for; what the store has of it, is done all the same."""
        self._requests = deque(each for each in self._requests if each[0] is not client)

    def give_up(self) -> None:
        """Wait no more for the order that is under way, and begin no other; all are told so."""
        waiting, self._requests = self._requests, deque()
        clients = [client for client, _asked in waiting]
        if self._under_way is not None and self._client is not None:
            clients.insert(0, self._client)
        self._under_way = self._client = None
        for client in clients:
            client.waiting -= 1
            client.say(wire.error_line(Unavailable(_GONE)))

    def _asked(self, content: dict[str, Any]) -> _Asked:
        """Choose the call that a line asks for, to be started in its turn."""
        if wire.NOT_DURABLE in content:
            return _Asked(self._tell_not_durable, is_order=False)
        if "holders" in content:
            call = partial(self._tell_holders, wire.holders_limit(content))
            return _Asked(call, is_order=False)
        about_connections = self.connections.call(content)
        if about_connections is not None:
            return _Asked(about_connections, is_order=False)
        broker = self._decider.decide()
        if broker.is_stopping:
            raise Unavailable("the broker is stopping: run it again")
        order = self._orders.call(content, broker)
        return _Asked(self._bulk_call(content, broker) if order is None else order)

    def _bulk_call(self, content: dict[str, Any], broker: Broker) -> Callable[[Asker], None]:
        if "put" in content:
            queue, messages = wire.put_of(content)
            limit = self._decider.max_message_bytes
            if any(len(message.body) > limit for message in messages):
                refusal = f"a message is longer than {limit} bytes"
                raise InvalidRequest(refusal)
            return lambda asker: broker.bulk.put(
                queue, messages, self._audited(asker, "put", queue, len(messages))
            )
        request = wire.request_of(content)
        asked = request.action, request.queue, len(request.message_ids)
        to, operation = request.to, request.operation

        def run(asker: Asker) -> None:
            broker.bulk.run(request, self._audited(asker, *asked, to=to, operation=operation))

        return run

    def _next(self) -> None:
        while self._requests and self._under_way is None:
            self._begin(*self._requests.popleft())

    def _begin(self, client: OrderClient, asked: _Asked) -> None:
        """Start what was asked for; nothing else begins until it was answered, once.

        The turn is known by its number: an asker that its own functions know would be a cycle.
        """
        self._turn += 1
        self._under_way = turn = self._turn
        self._client = client

        def answer(line: bytes) -> None:
            if self._under_way == turn:  # else it was given up, and its client was told so
                self._under_way = self._client = None
                client.waiting -= 1
                client.say(line)
                self._loop.wake()  # what was ended is told so, and what changed is dispatched
                self._next()

        def is_there() -> bool:
            return client.is_there and self._under_way == turn

        def say(line: bytes) -> None:
            if is_there():
                client.say(line)

        asker = Asker(client.name, say, answer, is_there, client.user)
        why = self._trouble() if asked.is_order else None
        if why is None:
            self._start(asked, asker, turn)
        else:
            answer(wire.error_line(Full(f"{why}; nothing was done")))

    def _start(self, asked: _Asked, asker: Asker, turn: int) -> None:
        try:
            asked.call(asker)
        except Exception:  # noqa: BLE001  # else nobody's request would have its turn again
            _log.exception("a request on the control socket failed")
            refusal = Unavailable("the broker failed on this request: see its log")
            asker.answer(wire.error_line(refusal))
        if self._under_way == turn:
            self._loop.later(_LOOK_S, partial(self._look, asker, turn))

    def _look(self, asker: Asker, turn: int, *, was_in_trouble: bool = False) -> None:
        """Give an order up that the store has taken and cannot make durable now.

        Only if it could not a while ago, either: what lasts for a moment needs no answer of its
        own. The order is carried out all the same, when there is room; its audit line comes then.
        """
        if self._under_way != turn:
            return
        why = self._trouble()
        if why is None or not was_in_trouble:
            look = partial(self._look, asker, turn, was_in_trouble=why is not None)
            self._loop.later(_LOOK_S, look)
            return
        text = f"{why}; the order may be done later, whole or not at all: look before you repeat it"
        asker.answer(wire.error_line(Unavailable(text)))

    def _tell_not_durable(self, asker: Asker) -> None:
        broker = self._decider.there
        queues = [] if broker is None else broker.queues.values()
        counts = {queue.name: queue.not_durable for queue in queues if queue.not_durable}
        asker.answer(wire.line({wire.NOT_DURABLE: counts}))

    def _tell_holders(self, limit: int, asker: Asker) -> None:
        asker.answer(wire.held_line(_held(self._decider, limit)))

    def _audited(
        self, asker: Asker, act: str, queue: str, count: int, **more: str | None
    ) -> Callable[[StoreError | None, Answer], None]:
        """Wrap the answer to a client, so that an order is written down when it succeeded.

        Whoever may connect may do everything.
        """

        def answer(error: StoreError | None, answer: Answer) -> None:
            self._audit(
                AuditEvent.ADMINISTRATION,
                peer=asker.name,
                act=act,
                queue=queue,
                messages=count,
                done=None if error else answer.done,
                error=error,
                user=asker.user,
                **more,
            )
            line = wire.answer_line(answer) if error is None else wire.error_line(error)
            asker.answer(line)

        return answer


def _held(decider: Decider, limit: int) -> wire.HeldMessages:
    """List the messages that somebody holds, with their queues and holders, for debugging."""
    broker = decider.there
    held = {} if broker is None else broker.calls.messages.holders()
    queues = {} if broker is None else broker.queues
    shown = [
        wire.HeldMessage(name, message_id, holders)
        for message_id, holders in islice(held.items(), limit)
        for name, queue in queues.items()
        if message_id in queue
    ]
    elsewhere = [*decider.held()]
    shown += elsewhere[: max(0, limit - len(held))]
    return wire.HeldMessages(shown, max(0, len(held) + len(elsewhere) - limit))
