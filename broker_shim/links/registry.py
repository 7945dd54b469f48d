"""All termini of a virtual host: who is attached, who takes over, what expires.

Any thread may call it. The argument that attaching and stealing are atomic: everything a method
decides, it decides and does under one lock, the calls of the stores too, so the stores are told in
the order in which it was decided. At any time a terminus has one endpoint at most, and an endpoint
that is not its terminus' changes nothing of it any more (`is_attached`, read under the lock), but
for what is known of a delivery that it had taken (`remember`). However a steal, a detach of the
first endpoint and the end of its session fall together, the thief keeps the link and each end is
told to exactly one caller. What a caller does for it (detach the first one
with `amqp:link:stolen`) happens after the lock is released, on a thread of its choice.

A terminus that is over leaves the registry at once and is told to the caller, who ends what was
the link's own, such as a subscription's queue, and then says `forget`. In this order a crash
between leaves a link without a queue, which the next start ends, and never a queue that nobody
knows to end. A new link of that name may be granted between: it is not forgotten.

Completions of the stores run on their threads, or within the call where nothing is to be waited
for; a thread may take the lock again. The clock is an argument, `now_ms`: any that only rises.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.links.link_store import LinkStore
from broker_shim.links.termini.terminus import (
    DeliveryState,
    EndpointPlace,
    LinkEndpoint,
    Termini,
    Terminus,
)
from broker_shim.links.termini.terminus_expiry import Deadlines, EndedScope
from broker_shim.links.termini.terminus_values import LinkTerms
from broker_shim.links.terminus_storage import Keeping
from broker_shim.links.unsettled_stores import UnsettledStore
from sparkstore.core.link_records import LinkKey


class Attached(NamedTuple):
    """The result of an attach: an endpoint, and the one that it replaced.

    Attributes:
        endpoint: The new one; `endpoint.terminus` is new if it has no `terms`.
        stolen: From whom the link was taken: detach it with `amqp:link:stolen`.
    """

    endpoint: LinkEndpoint
    stolen: LinkEndpoint | None


class LinkRegistry:
    """The termini of one virtual host, attached or not; `counted` counts them by owner."""

    def __init__(self, link_store: LinkStore, unsettled_store: UnsettledStore) -> None:
        self._lock = threading.RLock()
        self._keeping = Keeping(link_store, unsettled_store, self._lock)
        self._termini = self.counted = Termini()
        self._by_connection: dict[Hashable, set[LinkKey]] = {}
        self._deadlines = Deadlines(self._is_due_at)

    def __len__(self) -> int:
        """The number of termini."""
        return len(self._termini)

    def recover(
        self, now_ms: int, on_complete: OnComplete, elsewhere: Container[LinkKey] = ()
    ) -> list[Terminus]:
        """Take over the links that survived, none of them attached, and start their times to run.

        What is over at once is told by the next `expire`, as later.

        Args:
            now_ms: Timeouts start anew: how long the broker was away is nobody's fault.
            on_complete: Called for each terminus, once the store knows that it is not attached.
            elsewhere: Links that another broker on the same store has: they stay that one's.

        Raises:
            CorruptData: The store cannot be read.
        """
        with self._lock:
            for terminus in self._keeping.recover():
                if terminus.key in elsewhere:
                    continue
                self._termini[terminus.key] = terminus
                terminus.ended(EndedScope.CONNECTION, now_ms)
                if terminus.expires_at_ms is not None:
                    self._deadlines.add(terminus.expires_at_ms, terminus.key)
                self._keeping.left(terminus, on_complete)
            return list(self._termini.values())

    def adopt(
        self,
        key: LinkKey,
        terms: LinkTerms,
        unsettled: Mapping[bytes, DeliveryState | None],
        now_ms: int,
    ) -> None:
        """Take over a terminus that another broker on the same store had, unless there is one."""
        with self._lock:
            if key not in self._termini:
                terminus = self._termini[key] = Terminus(key, terms)
                terminus.unsettled.update(unsettled)
                self._is_over(terminus, EndedScope.CONNECTION, now_ms)

    def moved(self, key: LinkKey) -> LinkEndpoint | None:
        """Forget a link that another broker on the same store has now, and tell no store.

        Returns:
            Whoever was attached: detach it with `amqp:link:stolen`.
        """
        with self._lock:
            terminus = self._termini.get(key)
            if terminus is None:
                return None
            endpoint = terminus.dissociate()
            terminus.is_over = terminus.has_moved = True
            self._left(terminus)
            del self._termini[key]
            return endpoint

    def granted(self, asked: TerminusDurability) -> TerminusDurability:
        """Return the durability that the stores can keep of the one that was asked for."""
        return self._keeping.granted(asked)

    def find(self, key: LinkKey) -> Terminus | None:
        """The terminus of a link, attached or not; None if there is none, or none was granted."""
        with self._lock:
            terminus = self._termini.get(key)
            return None if terminus is None or terminus.terms is None else terminus

    def attach(self, key: LinkKey, place: EndpointPlace) -> Attached:
        """Attach a link: make its endpoint, and its terminus if there is none.

        Whoever was attached is so no longer. Go on with `grant`, or with `detach`.
        """
        with self._lock:
            terminus = self._termini.get(key)
            if terminus is None:
                terminus = self._termini[key] = Terminus(key)
            stolen = terminus.dissociate()
            self._left(terminus)
            endpoint = terminus.associate(place)
            self._by_connection.setdefault(place.connection, set()).add(key)
            return Attached(endpoint, stolen)

    def grant(self, endpoint: LinkEndpoint, terms: LinkTerms, on_complete: OnComplete) -> bool:
        """Agree on what the link is; keep it, if its durability says so.

        Args:
            endpoint: The endpoint that `attach` made.
            terms: Their durability as `granted` says.
            on_complete: Called when they are kept; at once if they are not to be.

        Returns:
            False if the endpoint is not attached any more: nothing was done, nothing is called.

        Raises:
            InvalidRequest: More durability than can be granted.
        """
        with self._lock:
            if not endpoint.is_attached:
                return False
            is_told = self._keeping.agreed(endpoint.terminus, terms, on_complete)
        if not is_told:
            on_complete(None)
        return True

    def keep(self, key: LinkKey, terms: LinkTerms, on_complete: OnComplete) -> Terminus:
        """Keep a terminus that need not be attached, with these terms from now on.

        Raises:
            InvalidRequest: More durability than can be granted.
        """
        with self._lock:
            terminus = self._termini.setdefault(key, Terminus(key))
            is_told = self._keeping.agreed(terminus, terms, on_complete)
        if not is_told:
            on_complete(None)
        return terminus

    def detach(self, endpoint: LinkEndpoint, now_ms: int, *, closed: bool) -> Terminus | None:
        """End an attachment: for good if `closed`, else its terminus may live on.

        One that was never granted is over; one that was not granted *this* time lives on. Nothing
        happens if the endpoint is not attached any more.

        Returns:
            The terminus, if it is over: see `forget`.
        """
        with self._lock:
            if not endpoint.is_attached:
                return None
            terminus = endpoint.terminus
            is_over = self._is_over(terminus, EndedScope.LINK, now_ms) or closed
            self._leave(terminus, is_over=is_over)
            return terminus if is_over else None

    def drop(self, key: LinkKey) -> Terminus | None:
        """End a terminus that nobody is attached to, if there is one: see `forget`."""
        with self._lock:
            terminus = self._termini.get(key)
            if terminus is None or terminus.endpoint is not None:
                return None
            self._leave(terminus, is_over=True)
            return terminus

    def end_session(self, place: EndpointPlace, now_ms: int) -> list[Terminus]:
        """End a session with its links; returns the termini that are over by that: see `forget`."""
        with self._lock:
            keys = self._by_connection.get(place.connection, ())
            here = [self._termini[key] for key in keys]
            here = [terminus for terminus in here if terminus.place == place]
            return self._end_all(here, EndedScope.SESSION, now_ms)

    def end_connection(self, connection: Hashable, now_ms: int) -> list[Terminus]:
        """End a connection with its links.

        Returns the termini that are over by that: see `forget`.
        """
        with self._lock:
            keys = self._by_connection.get(connection, ())
            over = self._end_all(
                [self._termini[key] for key in keys], EndedScope.CONNECTION, now_ms
            )
            self._by_connection.pop(connection, None)
            return over

    def expire(self, now_ms: int) -> list[Terminus]:
        """Termini whose time is over: see `forget`."""
        over = []
        with self._lock:
            while (key := self._deadlines.take(now_ms)) is not None:
                over.append(self._termini[key])
                self._leave(over[-1], is_over=True)
        return over

    def next_expiry_ms(self) -> int | None:
        """Return when to call `expire` next; None: not before something else happened."""
        with self._lock:
            return self._deadlines.next_ms()

    def forget(self, terminus: Terminus, on_complete: OnComplete | None = None) -> None:
        """Have the stores forget a terminus that is over, and that has nothing of its own any more.

        Args:
            terminus: Over: another method told so.
            on_complete: Called when it is forgotten for good; at once if it was not kept.
        """
        with self._lock:
            later = self._termini.get(terminus.key)
            is_told = self._keeping.forgotten(terminus, later, on_complete)
        if on_complete is not None and not is_told:
            on_complete(None)

    def remember(
        self,
        endpoint: LinkEndpoint,
        tag: bytes,
        state: DeliveryState | None,
        on_complete: OnComplete,
        transaction: Any = None,
    ) -> bool:
        """Keep the state of a delivery; see `UnsettledStore.unsettled`.

        The terminus has it once it is durable, as what the next attach tells must be true after a
        crash, too; within a transaction by `remembered`. Of a link of a lower tier nothing is kept.
        The endpoint may be lost: a large delivery gets to the store long after its last frame.

        Returns:
            False if the terminus is over: nothing was done, nothing is called.
        """
        with self._lock:
            terminus, keep = endpoint.terminus, self._keeping.delivery
            if terminus.is_over:
                return False
            is_told = keep(terminus, tag, state, on_complete, transaction)
        if not is_told:
            on_complete(None)
        return True

    def remembered(self, endpoint: LinkEndpoint, tag: bytes, state: DeliveryState | None) -> None:
        """Remember a delivery whose transaction is committed, and durable."""
        with self._lock:
            endpoint.terminus.unsettled[tag] = state

    def settle(
        self, endpoint: LinkEndpoint, tags: Iterable[bytes], on_complete: OnComplete | None = None
    ) -> bool:
        """Forget deliveries; those that are not known are passed over.

        Completes at once if none was known; after an error they are known as before. Returns False
        as `grant` does.
        """
        with self._lock:
            if not endpoint.is_attached:
                return False
            is_told = self._keeping.settled(endpoint.terminus, tags, on_complete)
        if on_complete is not None and not is_told:
            on_complete(None)
        return True

    def _end_all(
        self, termini: Iterable[Terminus], ended: EndedScope, now_ms: int
    ) -> list[Terminus]:
        over = []
        for terminus in termini:
            is_over = self._is_over(terminus, ended, now_ms)
            if is_over or terminus.endpoint is not None:
                self._leave(terminus, is_over=is_over)
            if is_over:
                over.append(terminus)
        return over

    def _is_due_at(self, key: LinkKey, at_ms: int) -> bool:
        terminus = self._termini.get(key)
        return terminus is not None and terminus.expires_at_ms == at_ms

    def _is_over(self, terminus: Terminus, ended: EndedScope, now_ms: int) -> bool:
        """Start the terminus's time if this end starts it; True if the time is over already."""
        terminus.ended(ended, now_ms)
        at_ms = terminus.expires_at_ms
        if at_ms is not None and at_ms > now_ms:
            self._deadlines.add(at_ms, terminus.key)
        return at_ms is not None and at_ms <= now_ms

    def _leave(self, terminus: Terminus, *, is_over: bool) -> None:
        """Take the endpoint off a terminus; one that is over is removed."""
        terminus.dissociate()
        if is_over:
            terminus.is_over = True
            self._left(terminus)
            del self._termini[terminus.key]
        else:
            self._keeping.left(terminus)

    def _left(self, terminus: Terminus) -> None:
        if terminus.place is not None:
            keys = self._by_connection.get(terminus.place.connection)
            if keys is not None:
                keys.discard(terminus.key)
                if not keys:
                    del self._by_connection[terminus.place.connection]
