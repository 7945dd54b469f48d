"""The service's side of consumers on members: see `broker_shim.members`.

The broker that decides is there from the first member that watches or the first order of an
administrator (or, where AMQP is served beside, from the start). A Broker-J host, which has its
queues in memory, has it end first, and none is made while that host is there: nothing acts behind
its back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from broker_shim.broker.storage.inbox import Inbox
from broker_shim.broker.storage.loop import Loop
from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import Completion, OnComplete
from broker_shim.errors import InvalidRequest, NotNow, StoreError, Unavailable
from broker_shim.links.kept_link import KeptLink, OnLink
from broker_shim.members.absences import Absences
from broker_shim.members.consumers import MemberConsumer
from broker_shim.members.grants import Grants, hold_what_is_acquired, holders_of
from broker_shim.members.inquiries import Inquiries
from broker_shim.members.kept_links import take_over
from broker_shim.members.observer import MemberObserver
from broker_shim.members.orders import MemberOrders
from broker_shim.members.remote_browse import looked_at
from broker_shim.members.stream import WiringStream
from broker_shim.members.wiring_rows import attached_row, rows_of
from broker_shim.selectors import InvalidSelector, Selector
from broker_shim.service.members import decide_in_place_of_host
from broker_shim.store import protocol as wire
from broker_shim.store.delta import DeltaMessageStore
from sparkstore.core.fold import State
from sparkstore.core.queue_names import shown
from sparkstore.core.records import Kind, Record
from sparkstore.core.state_machine.call_values import RecordStep

if TYPE_CHECKING:
    from broker_shim.service.member_connection import MemberConnection

_log = logging.getLogger(__name__)

_RETIRE_S = 10.0
_ATTACHMENTS = {Kind.ATTACHED, Kind.DETACHED}
_ALONE = (
    "a Broker-J host is attached, and would not see what is changed beside it: ask that host, or"
    " stop it first; queues, browse, sql, verify, compact and replicate work beside it"
)
_BESIDE = (
    "a broker serves this root: a Broker-J host must be alone on its root, give it another one (or"
    " serve this one with --no-amqp)"
)
_MEMBERS = (
    "brokers are members of this store: a Broker-J host must be alone on its root, give it another"
    " one (or stop those brokers first)"
)
_HELD = (
    "members or transactions in doubt hold messages: a Broker-J host must be alone on its root, try"
    " again when the grace of members that are gone (member_grace_s) is over"
)

Retire = Callable[[Broker, Callable[[], None]], None]
"""Have a broker decide nothing more, and call back when nothing of it is under way."""


class LinksHere(Protocol):
    """The links of a broker beside which members are served. On the loop's thread."""

    def left_elsewhere(self, text: str, link: KeptLink) -> None:
        """Let the time of a link run here that was attached at a member which is gone."""

    def attached_elsewhere(self, text: str) -> None:
        """Forget a link that was left, as it is a member's again, or is over."""


class MemberDispatcher:
    """A `Dispatcher` that has each frame done on the loop's thread.

    Attributes:
        broker: The one that decides; None: none does now.
        links: Where the time of links runs that a member left for good; None: nowhere.
        absences: Whom the queues of their consumers wait for.
        inquiries: What an administrator asks of members that watch.
    """

    def __init__(
        self,
        store: DeltaMessageStore,
        loop: Loop,
        inbox: Inbox,
        make_broker: Callable[[State], Broker],
        link_moved: Callable[[str], None] = lambda _text: None,
        retire: Retire | None = None,
    ) -> None:
        """Begin without a broker, so that nothing is handed out.

        Args:
            store: What is served.
            loop: Where the broker runs.
            inbox: Brings calls onto it.
            make_broker: Makes the broker that decides of what is there, or gives the one that
                knows it already; on the loop's thread, under the store's lock.
            link_moved: Told of each link that a member has now, by its text.
            retire: Ends that broker, for a member that is to be alone; None: it does not end.
        """
        self._store, self._loop, self._inbox = store, loop, inbox
        self._make_broker, self._link_moved = make_broker, link_moved
        self._retire = retire
        self._alone: set[MemberConnection] = set()
        self._is_retiring = False
        self.broker: Broker | None = None
        self.links: LinksHere | None = None
        self._grants: Grants | None = None
        self._observer: MemberObserver | None = None
        self._stream = WiringStream(str(uuid4()), lambda: rows_of(store.recover()))
        self._consumers: dict[MemberConnection, dict[int, MemberConsumer]] = {}
        self.absences = Absences()
        self._to_tell: set[MemberConsumer] = set()
        self._orders = MemberOrders(self.start, self._stream)
        self.inquiries = Inquiries(self._consumers.keys(), self.start)
        loop.at_end_of_turn(self._end_turn)

    def start(self) -> Broker:
        """Begin to decide, if it has not begun; on the loop's thread.

        What is held for members is held at the queues, too. The broker is made under the store's
        lock. So what was decided before is in the state that it is made of, and the observer is
        told of all that is decided later.

        Raises:
            InvalidRequest: A Broker-J host is attached.
            Unavailable: One may be about to connect again.
        """
        if self._alone:
            raise InvalidRequest(_ALONE)
        if self.broker is not None:
            return self.broker
        decide_in_place_of_host(self._store)
        with self._store.observe(partial(self._inbox.post, self._took)) as machine:
            broker = self._make_broker(machine.state)
            hold_what_is_acquired(broker, machine.state)
            self._orders.start_position = machine.state.position
        self._observer = MemberObserver(broker, self._stream)
        self._grants = Grants(broker, self._store, self._inbox)
        self.broker = broker
        for served in [*broker.queues.values()]:
            broker.look_over(served)
        return broker

    def _took(self, steps: Sequence[RecordStep]) -> None:
        if self._observer is not None:
            self._observer.took(steps)
        if self.links is not None:
            for step in steps:
                if step.record.kind in _ATTACHMENTS:
                    self._link_changed(self.links, step.record)

    def _link_changed(self, links: LinksHere, record: Record) -> None:
        """Note a change of a link that the service made, as its member is gone.

        The records come in the order of the store: what is attached again after that is forgotten
        after that.
        """
        text = record.holder or ""
        if record.kind is Kind.ATTACHED or record.detail is not None:
            links.attached_elsewhere(text)
        elif record.member is None:
            links.left_elsewhere(text, take_over(self._store, self.start(), text))

    def fetch(self, text: str, on_found: OnLink) -> None:
        """Take a link over for the broker of this process, where AMQP is served beside.

        See `LinkSource.fetch`.
        """
        broker = self.start()
        self._stream.add(attached_row(text), None)
        kept = take_over(self._store, broker, text)
        broker.later(0.0, lambda: on_found(None, kept))

    def check_exclusive(self, peer: MemberConnection) -> None:
        """Have the broker stop deciding, and wait until it has, so that a member is alone.

        See `Dispatcher.check_exclusive`.
        """
        if self._retire is None:
            raise InvalidRequest(_BESIDE)
        answer = Completion()
        self._loop.post(partial(self._leave_alone, peer, answer.finish))
        try:
            answer.complete(_RETIRE_S)
        except TimeoutError:
            message = f"what was under way did not end within {_RETIRE_S:.0f} s: connect again"
            raise Unavailable(message) from None

    def _leave_alone(self, peer: MemberConnection, on_done: OnComplete) -> None:
        """Decide nothing here while this member is connected, once `on_done` was called."""
        broker = self.broker
        if self._consumers:
            on_done(InvalidRequest(_MEMBERS))
        elif broker is None:
            self._alone.add(peer)
            on_done(None)
        elif self._is_retiring:
            on_done(Unavailable("another host asks for the same: connect again"))
        elif any(queue.elsewhere for queue in broker.queues.values()):
            on_done(InvalidRequest(_HELD))
        else:
            assert self._retire is not None
            self._alone.add(peer)
            self._is_retiring = True
            self._retire(broker, partial(self._retired, on_done))

    def _retired(self, on_done: OnComplete) -> None:
        self.broker = self._grants = self._observer = None
        self._is_retiring = False
        try:
            with self._store.observe(None):
                pass
        except StoreError as error:
            on_done(error)
        else:
            on_done(None)

    def take(self, peer: MemberConnection, kind: int, body: wire.Body) -> None:
        """Handle a frame about consumers on the loop's thread. See `Dispatcher.take`."""
        self._loop.post(partial(self._take, peer, kind, body))

    def link_moves(self, peer: MemberConnection, text: str) -> None:
        """Note on the loop's thread that a link is this member's now.

        See `Dispatcher.link_moves`.
        """
        self._loop.post(partial(self._moved, peer.member, text))

    def _moved(self, member: str, text: str) -> None:
        self._link_moved(text)
        self._stream.add(attached_row(text), member)

    def link_is_nobodys(self, text: str) -> None:
        """Tell members that a link is ended by an administrator; on the loop's thread."""
        self._stream.add(attached_row(text), None)

    def left(self, peer: MemberConnection) -> None:
        """End the consumers of a connection that ended, on the loop's thread.

        See `Dispatcher.left`.
        """
        self._loop.post(partial(self._left, peer))

    def lost(self, member: str) -> None:
        """Give a member up that was gone too long, on the loop's thread. See `Dispatcher.lost`."""
        self._loop.post(partial(self._lost, member))

    def _lost(self, member: str) -> None:
        broker = self.broker
        auto_deletion = None if broker is None else broker.claims.auto_deletion
        if self.absences.lost(member, auto_deletion):
            self._orders.lost(member, broker)

    def _take(self, peer: MemberConnection, kind: int, body: wire.Body) -> None:
        if peer.is_over:
            return
        if peer in self._alone:
            peer.end(InvalidRequest("a member that is alone on its root is handed nothing out"))
            return
        if self._alone or self._is_retiring:
            peer.end(Unavailable("a Broker-J host asks to be alone on this root"))
            return
        try:
            self._TAKES[kind](self, peer, body)
        except NotNow as error:  # what it says that it holds is true now, and not later
            peer.end(error)
        except StoreError as error:
            self.start().calls.on_fatal(error)

    def _watch(self, peer: MemberConnection, body: wire.Body) -> None:
        run, position, held = body
        self.start().xid_claims.says_again(peer.member)
        for old in [one for one in self._consumers if one.member == peer.member]:
            if old is not peer:
                self._left(old)  # it is over; its consumers must not take what this one's are to
        self._consumers.setdefault(peer, {})
        self.absences.came(peer)
        assert self._grants is not None
        kept = {queue: frozenset(ids) for queue, ids in held}
        self._grants.give_back_all_but(peer.member, kept)
        self._stream.watch(peer, run, position)

    def _seen(self, peer: MemberConnection, _body: wire.Body) -> None:
        if self._stream.seen(peer):
            self.start().xid_claims.has_said_all(peer.member)
            self.absences.said_all(peer, self.start().claims.auto_deletion)

    def _subscribe(self, peer: MemberConnection, body: wire.Body) -> None:
        number, name, holder, selector, limit, held = body
        broker = self.start()
        mine = self._consumers.get(peer)
        if mine is None or number in mine:
            return  # it is gone; or this is said again
        queue = broker.queues.get(name)
        if queue is None:
            refusal = f"queue {shown(name)} was destroyed"
            peer.say(wire.ENDED, (number, InvalidRequest.__name__, refusal))
            return
        assert self._grants is not None
        consumer = MemberConsumer(number, peer, queue, holder, limit, self._grants)
        goes_on = partial(self._goes_on, consumer)
        self._grants.give_back_unknown(peer, name, holder, frozenset(held), goes_on)
        mine[number] = consumer
        if selector is None:
            self._add(consumer, None)
        else:
            broker.claims.auto_deletion.away(consumer, [name])
            broker.selector_compiler.compile(
                selector,
                partial(self._add, consumer),
                lambda: not consumer.is_gone,
                lambda _work: None,
            )

    def _add(self, consumer: MemberConsumer, selector: Selector | InvalidSelector | None) -> None:
        self.start().claims.auto_deletion.back(consumer)  # it looks when this turn is over
        if isinstance(selector, InvalidSelector):
            consumer.end(InvalidRequest(str(selector)))
            return
        if self.start().claims.is_taken(consumer.queue):
            text = f"queue {shown(consumer.queue.name)} is exclusive, and has a consumer"
            consumer.turned_away(f"{text}: try again later")
            return
        if consumer.queue.groups is not None:
            for holder in holders_of(consumer.peer.member, consumer.holder):
                consumer.queue.groups.came(holder, consumer)
        consumer.queue.add(consumer, selector)
        self._goes_on(consumer)

    def _goes_on(self, consumer: MemberConsumer) -> None:
        """Count a step that is done; after the last the consumer gets what is next."""
        consumer.steps_left -= 1
        if not consumer.steps_left and not consumer.is_gone:
            self._to_tell.add(consumer)
            self.start().wanted(consumer.queue.name)

    def _credit(self, peer: MemberConnection, body: wire.Body) -> None:
        consumer = self._consumers.get(peer, {}).get(body[0])
        if consumer is not None:
            consumer.take_credit(body[1])
            self._to_tell.add(consumer)
            self.start().wanted(consumer.queue.name)

    def _refuse(self, peer: MemberConnection, body: wire.Body) -> None:
        consumer = self._consumers.get(peer, {}).get(body[0])
        if consumer is not None and body[1] in consumer.queue:
            consumer.queue.refuse(body[1], consumer)

    def _cancel(self, peer: MemberConnection, body: wire.Body) -> None:
        consumer = self._consumers.get(peer, {}).pop(body[0], None)
        if consumer is not None:
            self._end(consumer)

    def _end(self, consumer: MemberConsumer) -> None:
        consumer.end(None)
        self.start().claims.auto_deletion.back(consumer)  # its selector may be under way

    def _look(self, peer: MemberConnection, body: wire.Body) -> None:
        number, *asked = body
        peer.say(wire.LOOKED, (number, *looked_at(self.start(), *asked)))

    def _left(self, peer: MemberConnection) -> None:
        self._alone.discard(peer)
        self._orders.left(peer)
        self.inquiries.left(peer)
        self._stream.left(peer)
        consumers = self._consumers.pop(peer, None)
        if consumers is None:
            return
        queues = {consumer.queue.name for consumer in consumers.values()}
        self.absences.left(peer, queues, self.start().claims.auto_deletion)
        for consumer in consumers.values():
            self._end(consumer)

    def _end_turn(self) -> None:
        if self._grants is not None:
            self._grants.flush()
        for consumer in [*self._to_tell]:
            if consumer.queue.has_caught_up(consumer):
                consumer.caught_up()
            if not consumer.waits_to_be_told:
                self._to_tell.discard(consumer)

    _TAKES: Mapping[int, Callable[[MemberDispatcher, MemberConnection, wire.Body], None]] = {
        wire.WATCH: _watch,
        wire.SEEN: _seen,
        wire.SUBSCRIBE: _subscribe,
        wire.CREDIT: _credit,
        wire.REFUSE: _refuse,
        wire.CANCEL: _cancel,
        wire.LOOK: _look,
        wire.ORDER: lambda self, peer, body: self._orders.take(peer, body),
        wire.TOLD: lambda self, peer, body: self.inquiries.answered(peer, *body),
    }
