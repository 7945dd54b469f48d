"""The links of this broker: what attaches, what leaves, and what ends with a terminus.

The registry decides (`broker_shim.links`); here is what follows for queues and messages. On the
loop's thread only.

The link's own things end with its terminus, in this order: what it holds is given back; its queue
is destroyed, if need be in several turns; then the stores forget it. A crash between leaves a link
without a queue, which the next start makes anew, empty; never a queue nobody knows to end.

Two things outlive an attachment as long as the terminus lives (AMQP 2.6.13), which by default is
its session's life. For a link of tier 2 (`UNSETTLED_STATE`) they outlive a crash, too. What it
holds of its queue stays acquired (`held`), so nobody else gets it; when the terminus ends it is
given back, and counts as a failed delivery. And what was under way to the store for an earlier
attachment is waited for before the next one is answered (`quiet`). So the maps of unsettled
deliveries tell what is durable and nothing else. That begins with the last frame of a delivery: a
large one may be enqueued long after its connection was lost, and is remembered all the same.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from broker_shim.amqp_1_0.definitions import AmqpError, LinkError
from broker_shim.broker.flow.settlement import OnRemoved
from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import CorruptData, StoreError
from broker_shim.links import (
    EndpointPlace,
    LinkEndpoint,
    LinkKey,
    LinkRegistry,
    LinkTerms,
    Role,
    Terminus,
    link_text,
)
from broker_shim.links.kept_link import KeptLink, LinkSource
from broker_shim.listener_1_0.conditions import Refusal
from broker_shim.protocol_1_0.links.link import Link
from sparkstore.core.link_records import link_key
from sparkstore.core.queue_names import shown
from sparkstore.operations.administration import OwnLink

if TYPE_CHECKING:
    from broker_shim.listener_1_0.connections.connection import Connection

_log = logging.getLogger(__name__)

_STOLEN = Refusal(LinkError.STOLEN, "the link was attached again")


class Held(NamedTuple):
    """A message that a link without an attachment holds.

    Attributes:
        message_id: The message that is held.
        queue: The queue that it is on.
        failed: Its delivery counts as a failed one, should it be given back.
    """

    message_id: int
    queue: str
    failed: bool = True


def now_ms() -> int:
    """Read a clock that only rises, in milliseconds."""
    return time.monotonic_ns() // 1_000_000


class Links:
    """The `QueueOwner` of this protocol.

    Attributes:
        registry: All termini of the broker, attached or not.
        held: What the termini hold that are not attached, by tag.
        elsewhere: Where links are that other brokers on the same store had; None: there are none.
    """

    def __init__(self, broker: Broker, registry: LinkRegistry) -> None:
        self.registry = registry
        self.held: dict[LinkKey, dict[bytes, Held]] = {}
        self.elsewhere: LinkSource | None = None
        self._broker, self._calls = broker, broker.calls
        self._endpoints: dict[Link, LinkEndpoint] = {}
        self._looking: dict[Link, LinkKey] = {}
        self._left_elsewhere: set[LinkKey] = set()
        self._put_off: dict[LinkKey, tuple[Connection, Link]] = {}
        self._waits_for: dict[Link, LinkKey] = {}
        self._ending_with: dict[Link, LinkKey] = {}
        self._under_way: dict[LinkKey, int] = {}
        self._waiting: dict[LinkKey, list[OnComplete]] = {}
        self._expires_at_ms: int | None = None

    def attach(self, connection: Connection, link: Link) -> LinkEndpoint:
        """Attach a link: whoever had it loses it (`amqp:link:stolen`)."""
        place, key = EndpointPlace(connection.number, link.port.channel), key_of(connection, link)
        self._overtake(key)
        self._left_elsewhere.discard(key)
        endpoint, stolen = self.registry.attach(key, place)
        endpoint.served_by = (connection, link)
        self._endpoints[link] = endpoint
        if stolen is not None:
            other, theirs = stolen.served_by
            self._endpoints.pop(theirs, None)
            other.lose(theirs, _STOLEN)
        return endpoint

    def fetch(self, key: LinkKey, on_done: OnComplete) -> None:
        """Take over what is kept of a link that is not known here."""
        if self.elsewhere is None or self.registry.find(key) is not None:
            on_done(None)
            return

        def adopt(error: StoreError | None, link: KeptLink | None) -> None:
            if link is not None:
                self._adopt(key, link)
            on_done(error)

        self.elsewhere.fetch(link_text(key), adopt)

    def _adopt(self, key: LinkKey, link: KeptLink) -> None:
        if link.detail is None:
            return
        try:
            terms = LinkTerms.from_json(key.role, link.detail)
        except CorruptData as reason:
            _log.warning("link %s is left to whoever made it: %s", link_text(key), reason)
            return
        self.registry.adopt(key, terms, link.unsettled, now_ms())
        held = self.held.setdefault(key, {})
        for queue, message_id in link.held:
            held[message_id.to_bytes(8, "big")] = Held(message_id, queue)
        self._schedule()

    def left_elsewhere(self, text: str, link: KeptLink) -> None:
        """Let the time of a link run here that was attached at another broker, which is gone.

        As after a restart, its connection has ended; whoever asks for it gets it.
        """
        key = link_key(text)
        if self.registry.find(key) is not None:
            return
        self._adopt(key, link)
        self._left_elsewhere.add(key)
        terminus = self.registry.find(key)
        at_ms = None if terminus is None else terminus.expires_at_ms
        if at_ms is not None and at_ms <= now_ms():
            over = self.registry.drop(key)
            if over is not None:
                self.finish(over)

    def attached_elsewhere(self, text: str) -> None:
        """Forget a link that was left, as it is another broker's again, or is over."""
        if link_key(text) in self._left_elsewhere:
            self.moved(text)

    def moved(self, text: str) -> None:
        """End a link here that another broker on the same store has now."""
        key = link_key(text)
        self._left_elsewhere.discard(key)
        endpoint = self.registry.moved(key)
        self._leave_to_other(self.held.pop(key, {}).values())
        if endpoint is not None:
            connection, link = endpoint.served_by
            self._endpoints.pop(link, None)
            connection.lose(link, _STOLEN)

    def waits(self, connection: Connection, link: Link) -> None:
        """Note an attach that takes effect later: one after it takes the link from it at once.

        Else the earlier one would take effect last, and steal the link from the later one.
        """
        key = key_of(connection, link)
        self._overtake(key)
        self._put_off[key], self._waits_for[link] = (connection, link), key

    def waits_no_more(self, link: Link) -> None:
        """Forget an attach that was put off: it takes effect now, or never will."""
        key = self._waits_for.pop(link, None)
        if key is not None:
            del self._put_off[key]

    def _overtake(self, key: LinkKey) -> None:
        waiting = self._put_off.get(key)
        if waiting is not None:
            other, theirs = waiting
            self.waits_no_more(theirs)
            other.lose(theirs, _STOLEN)

    def grant(self, endpoint: LinkEndpoint, terms: LinkTerms, on_done: OnComplete) -> None:
        """Agree on the terms of an attached link; `on_done` when they are kept, if they are to be.

        Nothing is called if the link is not attached any more.
        """
        if max(terms.durability, endpoint.terminus.durability) is TerminusDurability.NONE:
            self.registry.grant(endpoint, terms, on_done)
        elif endpoint.is_attached:
            self._calls.call(on_done, self.registry.grant, endpoint, terms)

    def settle(self, endpoint: LinkEndpoint, tags: Sequence[bytes], on_done: OnComplete) -> None:
        """Forget deliveries of a link on which we receive; `on_done` as `grant`."""
        if not tags:
            on_done(None)
        elif endpoint.is_attached:
            self._calls.call(on_done, self.registry.settle, endpoint, tags)

    def keep(self, key: LinkKey, terms: LinkTerms, on_done: OnComplete) -> None:
        """Have a terminus that several links stand for."""
        self._left_elsewhere.discard(key)
        self._calls.call(on_done, self.registry.keep, key, terms)

    def quiet(self, endpoint: LinkEndpoint, on_done: OnComplete) -> None:
        """Wait for what is under way of earlier attachments."""
        key = endpoint.terminus.key
        if key in self._under_way:
            self._waiting.setdefault(key, []).append(on_done)
        else:
            on_done(None)

    def ends_with(self, link: Link, key: LinkKey) -> None:
        """Let the terminus of this key end with the last of its links here; this link is one."""
        self._ending_with[link] = key

    def looks_up(self, link: Link, key: LinkKey) -> None:
        """Note a link without a source that asks for a terminus; closing the link ends that."""
        self._looking[link] = key

    def left(self, link: Link, *, closed: bool) -> Terminus | Refusal | None:
        """Detach a link, whoever wished it; `closed`: the peer did, for good.

        Returns:
            The terminus, if it is over: `finish` it; or why nothing was done.
        """
        looked_up = self._looking.pop(link, None)
        if looked_up is not None:
            return self._unsubscribed(looked_up) if closed else None
        endpoint = self._endpoints.pop(link, None)
        if endpoint is None:
            return None
        # Counted while this endpoint still consumes from the queue: it is one of them.
        is_last = self._consumer_count(endpoint.terminus) <= 1
        over = self.registry.detach(endpoint, now_ms(), closed=closed and is_last)
        self._schedule()
        return over

    def session_ended(
        self, connection: Connection, channel: int, links: Iterable[Link]
    ) -> list[Terminus]:
        """Detach the links of a session that ended, and return the termini to `finish`."""
        self._forget_all(links)
        over = self.registry.end_session(EndpointPlace(connection.number, channel), now_ms())
        self._schedule()
        return over

    def connection_lost(self, connection: Connection, links: Iterable[Link]) -> list[Terminus]:
        """Detach the links of a connection that ended, and return the termini to `finish`."""
        self._forget_all(links)
        over = self.registry.end_connection(connection.number, now_ms())
        self._schedule()
        return over

    def _forget_all(self, links: Iterable[Link]) -> None:
        for link in links:
            self._endpoints.pop(link, None)
            self._looking.pop(link, None)

    def ended(self, link: Link) -> None:
        """Drop a shared terminus when the last of its links here is gone from its queue."""
        self.waits_no_more(link)
        key = self._ending_with.pop(link, None)
        if key is None or key in self._ending_with.values():
            return
        over = self.registry.drop(key)
        if over is not None and (self._broker.is_member or self._consumer_count(over)):
            self.registry.forget(over)  # its queue deletes itself after the last of all members
        elif over is not None:
            self.finish(over)

    def finish(self, over: Terminus, then: OnComplete | None = None) -> None:
        """End what was the link's own, then have it forgotten; `then` when that is durable."""
        self._left_elsewhere.discard(over.key)
        # A new link of that name waits: its own would be forgotten.
        self.end_own(over, self.tracked(over, partial(self._forget, over, then)))

    def _forget(self, over: Terminus, then: OnComplete | None, error: StoreError | None) -> None:
        forget = self.registry.forget
        if error is None:
            forget(over) if then is None else self._calls.call(then, forget, over)
        elif then is not None:  # the store has ended, and the link is there after the next start
            then(error)

    def end_own(self, terminus: Terminus, on_done: OnComplete) -> None:
        """Give back what a terminus holds, and destroy its queue; `on_done` when that is gone."""
        queue = None if terminus.terms is None else terminus.terms.queue
        held = self.held.pop(terminus.key, {}).values()
        self.give_back(terminus.key, [kept for kept in held if kept.queue != queue])
        if queue is None:
            on_done(None)
        else:
            self._broker.destroy_queue(queue, on_done)

    def own_link(self, queue: str) -> OwnLink | None:
        """Find the link whose own queue this is. See `QueueOwner.own_link`."""
        terminus = self._terminus_of(queue)
        if terminus is None:
            return None
        key = terminus.key
        name = f"link {shown(key.name)} of {shown(key.remote_container_id)}"
        return OwnLink(name, is_attached=terminus.endpoint is not None)

    def end_own_link(self, queue: str, on_done: OnComplete) -> bool:
        """Drop the terminus whose own queue this is, and end what it had.

        See `QueueOwner.end_own_link`.
        """
        terminus = self._terminus_of(queue)
        over = None if terminus is None else self.registry.drop(terminus.key)
        if over is not None:
            self.finish(over, on_done)
        return over is not None

    def _terminus_of(self, queue: str) -> Terminus | None:
        termini = self.registry.counted.values()
        own = (row for row in termini if row.terms is not None and row.terms.queue == queue)
        return next(own, None)

    def queue_gone(self, queue: str) -> None:
        """Forget what links held of a queue that is destroyed. See `QueueOwner.queue_gone`."""
        self.held = {
            key: left
            for key, held in self.held.items()
            if (left := {tag: kept for tag, kept in held.items() if kept.queue != queue})
        }

    def give_back(self, key: LinkKey, held: Iterable[Held], done: OnRemoved | None = None) -> None:
        """Make messages that a link held available again: neighbours together."""
        for (queue, failed), alike in groupby(held, lambda kept: (kept.queue, kept.failed)):
            ids = [delivery.message_id for delivery in alike]
            give_back = self._broker.settlement.give_back
            give_back(ids, queue, link_text(key), failed=failed, on_done=done)

    def end_holding(
        self, terminus: Terminus, held: Mapping[bytes, Held], *, is_closed: bool = False
    ) -> None:
        """Give back, or keep for its terminus, what a link's endpoint held that is gone.

        One that we closed for an error is not resumed, unless it is meant to survive even a crash.
        """
        is_durable = terminus.durability is TerminusDurability.UNSETTLED_STATE
        if terminus.has_moved and is_durable:
            self._leave_to_other(held.values())
            return
        if not terminus.is_over and (is_durable or not is_closed):
            self.held.setdefault(terminus.key, {}).update(held)
            return
        ends_too = terminus.terms.queue if terminus.is_over and terminus.terms else None
        self.give_back(terminus.key, [kept for kept in held.values() if kept.queue != ends_too])

    def _leave_to_other(self, held: Iterable[Held]) -> None:
        for delivery in held:
            queue = self._broker.queues.get(delivery.queue)
            if queue is not None and delivery.message_id in queue:
                queue.held_elsewhere((delivery.message_id,))

    def tracked(self, terminus: Terminus, on_done: OnComplete) -> OnComplete:
        """Wrap a completion of a call that the next attach of the link has to wait for."""
        key = terminus.key
        self._under_way[key] = self._under_way.get(key, 0) + 1

        def done(error: StoreError | None) -> None:
            try:
                on_done(error)
            finally:
                self._end(key)

        return done

    def _end(self, key: LinkKey) -> None:
        """Note that a call for a link has its outcome; after the last, go on with who waited."""
        left = self._under_way.pop(key) - 1
        if left:
            self._under_way[key] = left
        else:
            for then in self._waiting.pop(key, ()):
                then(None)

    def expire(self) -> None:
        """End the termini whose time is over."""
        for over in self.registry.expire(now_ms()):
            _log.info("link %r of %r has expired", over.key.name, over.key.remote_container_id)
            self.finish(over)
        self._expires_at_ms = None
        self._schedule()

    def _schedule(self) -> None:
        at_ms = self.registry.next_expiry_ms()
        if at_ms is not None and (self._expires_at_ms is None or at_ms < self._expires_at_ms):
            self._expires_at_ms = at_ms
            self._broker.later(max(0.0, (at_ms - now_ms()) / 1000), self.expire)

    def _unsubscribed(self, key: LinkKey) -> Terminus | Refusal | None:
        terminus = self.registry.find(key)
        if terminus is None:
            return None
        over = None if self._consumer_count(terminus) else self.registry.drop(key)
        return over or Refusal(AmqpError.RESOURCE_LOCKED, "the subscription has a consumer")

    def _consumer_count(self, terminus: Terminus) -> int:
        """Count the consumers of a terminus' own queue."""
        name = None if terminus.terms is None else terminus.terms.queue
        queue = None if name is None else self._broker.queues.get(name)
        return 0 if queue is None else queue.consumer_count


def key_of(connection: Connection, link: Link) -> LinkKey:
    """Make the key of a link: its container, its name, its role."""
    role = Role.RECEIVER if link.is_receiver else Role.SENDER
    return LinkKey(connection.container, link.name, role)
