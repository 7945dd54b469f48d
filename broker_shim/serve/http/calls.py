"""One request with what it needs: its user, its words, and the broker that it is about."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from broker_shim.broker.virtual_host import Broker
from broker_shim.broker.wiring.address import AmbiguousNode, Node, PatternNode, QueueNode
from broker_shim.errors import InvalidRequest
from broker_shim.security.rules.http_roles import HttpRole
from broker_shim.security.rules.permissions import AccessTarget
from broker_shim.security.rules.rights import RIGHTS, Act
from broker_shim.serve.administration.broker_orders import BrokerCall, BrokerOrders
from broker_shim.serve.administration.order_turns import Decider, OneBroker
from broker_shim.serve.http.authenticator import Caller
from broker_shim.serve.http.figures.recent_figures import RecentFigures
from broker_shim.serve.http.figures.series_answers import SeriesKept
from broker_shim.serve.http.loop_calls import LoopCalls
from broker_shim.serve.http.refusals import HttpRefusal
from broker_shim.serve.probes import Probes
from broker_shim.sockets.authorization import denied
from broker_shim.sockets.client_orders import needed_acts, queue_meant
from broker_shim.store.interface import BrokerStore
from sparkstore.control.audit import AuditEvent
from sparkstore.core.entries import stretches
from sparkstore.core.queue_names import canonical, shown
from sparkstore.operations.administration import Order, decide

T = TypeVar("T")
K = TypeVar("K")
LINES = "application/x-ndjson"
TURN_LOOKS = 1000
"""Messages that are looked at in one turn of the loop: 1 ms."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ServedBroker(NamedTuple):
    """The broker of this process, while it serves one.

    Attributes:
        decider: Knows the broker; on the loop's thread.
        store: Read on any thread.
        calls: Asks the loop.
        root_id: The identity of its root; None: it has none.
        recent: The figures of the last minutes, read on the loop's thread only.
        series: Answers about the time before, read on the port's thread only.
    """

    decider: Decider
    store: BrokerStore
    calls: LoopCalls
    root_id: str | None
    recent: RecentFigures
    series: SeriesKept

    @property
    def is_fixed(self) -> bool:
        """True if the process has one broker for its life, which any thread may name."""
        return isinstance(self.decider, OneBroker)

    def broker(self, *, needs_one: bool) -> Broker:
        """Return the broker. On the loop's thread, unless it is fixed.

        Args:
            needs_one: Have one decide from now on, if none does; else what is there may be None.

        Raises:
            InvalidRequest: None can, since another process has the queues in its memory.
        """
        return self.decider.decide() if needs_one else cast("Broker", self.decider.broker)


@dataclass(frozen=True, slots=True)
class Call:
    """One request of an endpoint.

    Attributes:
        probes: Metrics and health of the process.
        served: What serves it; none for endpoints without a login, nor a caller.
        caller: The user who asks.
        names: The names in the path.
        query: What stands after the question mark, as the endpoint's model.
        body: The body, as the endpoint's model.
        headers: Those of the request.
        gone: Waits until whoever asks hangs up.
        acts: What the endpoint takes the right to, at the queue in its path.
    """

    probes: Probes
    served: ServedBroker = None  # type: ignore[assignment]
    caller: Caller = None  # type: ignore[assignment]
    names: Mapping[str, str] = field(default_factory=dict)
    query: Any = None
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    gone: Callable[[], Awaitable[None]] = None  # type: ignore[assignment]
    acts: tuple[Act, ...] = ()

    @property
    def broker(self) -> Broker:
        """Return the broker that the request is about. Read on the loop's thread only."""
        return self.caller.broker

    @property
    def takes_lines(self) -> bool:
        """True if whoever asks is to be told how far it is, a line of JSON each."""
        return LINES in self.headers.get("accept", "")

    async def is_gone(self) -> bool:
        """Tell whether whoever asked has hung up."""
        gone = asyncio.ensure_future(self.gone())
        await asyncio.sleep(0)  # its first step, which is its last if so
        return not gone.cancel()

    async def read(self, call: Callable[[], T]) -> T:
        """Return what a call of the broker returns, which is made on the loop's thread."""
        return await self.served.calls.read(call)

    async def message_ids(self, queue: str, count: int | None = None) -> list[int]:
        """Return the ids on a queue, in its order, or the first of them.

        Read in turns of the loop, which a million would stop for a tenth of a second otherwise.
        """
        parts = await self.read(lambda: stretches(self.broker.calls.entries(queue)))
        message_ids = list[int]()
        while count is None or len(message_ids) < count:
            part = await self.read(lambda: next(parts, None))
            if part is None:
                break
            message_ids += part.message_ids
        return message_ids[:count]

    async def in_turns(self, things: Sequence[K], look: Callable[[Sequence[K]], T]) -> list[T]:
        """Return what is found about messages or queues, `TURN_LOOKS` in each turn of the loop."""
        starts = range(0, len(things), TURN_LOOKS)
        parts = (things[at : at + TURN_LOOKS] for at in starts)
        return [await self.read(partial(look, part)) for part in parts]

    @property
    def orders(self) -> BrokerOrders:
        """Return what makes orders that `answers` and `send` have carried out."""
        return self.served.calls.turns.orders

    def answers(self, order: BrokerCall) -> AsyncIterator[Any]:
        """Have an order carried out; tells how far it is, and last its answer."""
        return self.served.calls.answers(self.caller.peer, self.caller.user, order)

    async def send(self, order: BrokerCall) -> Any:
        """Have an order carried out, and return its answer.

        Raises:
            StoreError: The broker did not do it.
        """
        return [answer async for answer in self.answers(order)][-1]

    async def order(self, order: Order, *, dry_run: bool = False) -> dict[str, Any]:
        """Have an order carried out to which the user has all rights; what it came to.

        A dry run decides it by what the broker has now, and changes nothing.

        Raises:
            HttpRefusal: The user has not all rights.
            StoreError: The broker did not do it.
        """
        allowed = await self.check_order(order)
        if dry_run:
            facts = self.broker.administration.facts
            return await self.read(lambda: {"dry_run": True, **decide(allowed, facts).answer})
        answer: dict[str, Any] = await self.send(self.orders.order(allowed))
        return answer

    async def check_order(self, order: Order) -> Order:
        """Return an order with the store's names, if the user has all rights to it.

        Raises:
            HttpRefusal: The user has not all rights.
        """
        return await self.read(lambda: self._allowed(order))

    async def named_queue(self) -> str:
        """Return the queue in the path, on which the user may do what the endpoint says.

        Raises:
            HttpRefusal: As of `queue`.
        """
        return await self.queue(self.names["queue"], *self.acts)

    async def queue(self, name: str, *acts: Act, advice: str = "see sparkstore queues") -> str:
        """Return the whole name of an existing queue, on which the user may do these acts.

        Raises:
            HttpRefusal: There is none, the name is that of several, or the user may not.
        """

        def find() -> str:
            node = self.meant(name)
            for act in acts:
                self.check(act, node, name)
            if isinstance(node, QueueNode) and node.queue in self.broker.queues:
                return node.queue
            raise invalid(404, f"unknown queue {shown(name)}: {advice}")

        return await self.read(find)

    def meant(self, name: str) -> Node:
        """Find the node that the user means by a queue's name. On the loop's thread."""
        try:
            canonical(name)
            return queue_meant(self.broker, name)
        except InvalidRequest as reason:
            raise invalid(400, str(reason)) from reason

    def check(self, act: Act, node: Node | PatternNode, name: str) -> None:
        """Check that the user may do this there, and write it down if not. On the loop's thread.

        Raises:
            HttpRefusal: The user may not, or the name is that of several queues.
        """
        denial = denied(self.caller, RIGHTS[act], node)
        access, principal = self.caller.access, self.caller.principal
        if denial is not None:
            access.guard.refused(access.remote, principal, *denial)
            text = f"{shown(principal.name)} has no permission to {denial.right} {shown(name)}:"
            raise HttpRefusal(403, f"{text} give it one in [security] permissions")
        if isinstance(node, AmbiguousNode):
            names = " or ".join(sorted(node.ambiguous.candidates))
            raise invalid(409, f"{shown(name)} is on several addresses: say {names}")

    async def check_recorded(self, act: Act, queues: Iterable[str]) -> None:
        """Check that the user may do this on queues as records name them, deleted or not.

        Raises:
            HttpRefusal: The user may not on one of them.
        """

        def check() -> None:
            for queue in queues:
                self.check(act, QueueNode(queue), queue)

        await self.read(check)

    async def check_role(self, needed: HttpRole, what: str) -> None:
        """Check that the user has a role that not all need who ask, and write it down if not.

        Raises:
            HttpRefusal: The user has not; `what` needs it begins the text.
        """
        if not self.caller.role.includes(needed):
            access, principal = self.caller.access, self.caller.principal
            refuse = partial(access.guard.role_refused, access.remote, principal, what, needed)
            await self.read(refuse)
            raise HttpRefusal(403, f"{what} needs the role {needed}")

    def audit_read(self, act: str, queue: str | None, **more: object) -> None:
        """Write down that content of messages is shown, or what became of them."""
        caller = self.caller
        details = {"peer": caller.peer, "user": caller.user, "act": act, "queue": queue, **more}
        caller.access.guard.audit(AuditEvent.CONTENT_READ, **details)

    async def check_everywhere(self, act: Act, why: str) -> None:
        """Check that the user may do this on every address, and write it down if not.

        Raises:
            HttpRefusal: The user may not; `why` it is asked begins the text.
        """
        access, principal = self.caller.access, self.caller.principal
        right = RIGHTS[act]

        def check() -> None:
            if not access.guard.allows_all_of(principal, right):
                access.guard.refused(access.remote, principal, right, AccessTarget("#"))
                text = f"{why}, and {shown(principal.name)} has no permission to {right} '#'"
                raise HttpRefusal(403, f"{text}: give it one in [security] permissions")

        await self.read(check)

    def _allowed(self, order: Order) -> Order:
        node = self.meant(order.queue) if order.queue else None
        for needed in needed_acts(order, self.broker.policies, node):
            self.check(*needed)
        return order._replace(queue=node.queue) if isinstance(node, QueueNode) else order


def invalid(status: int, text: str) -> HttpRefusal:
    """Make the refusal of a request that is wrong, in the words that every road has for it."""
    return HttpRefusal(status, text, kind=InvalidRequest.__name__)


def now_us() -> int:
    """Return the time now, UTC µs."""
    return time.time_ns() // 1_000


def iso_time(at_us: int, timespec: str = "milliseconds") -> str:
    """Write UTC µs as text; a year that no calendar here has as the number itself."""
    try:
        return (_EPOCH + timedelta(microseconds=at_us)).isoformat(timespec=timespec)
    except OverflowError:
        return str(at_us)
