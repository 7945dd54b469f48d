"""All termini of a virtual host (steps 4 and 5): who is attached, who takes over, what expires.

Any thread may call it. The argument that attaching and stealing are atomic: everything a method
decides, it decides and does under one lock, the calls of the stores too, so the stores are told in
the order in which it was decided. At any time a terminus has one endpoint at most, and an endpoint
that is not its terminus' changes nothing any more (`is_attached`, read under the lock): however a
steal, a detach of the first endpoint and the end of its session fall together, the thief keeps the
link and each end is told to exactly one caller. What a caller does for it (detach the first one
with `amqp:link:stolen`, destroy a queue) happens after the lock is released, on a thread of its
choice.

A store that keeps nothing completes within the call, and a store is only called for what it can
keep: so no completion runs under the lock.

The clock is an argument: `now_ms` of any clock that only rises.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.links.endpoint import LinkEndpoint, Place
from broker_shim.links.expiry import Ended
from broker_shim.links.key import LinkKey, Role
from broker_shim.links.store import LinkStore, granted_durability
from broker_shim.links.terminus import DeliveryState, Terminus
from broker_shim.links.unsettled import UnsettledStore
from broker_shim.links.values import LinkTerms

_log = logging.getLogger(__name__)


class Attached(NamedTuple):
    """What an attach came to.

    Attributes:
        endpoint: The new one; `endpoint.terminus` is new if it has no `terms`.
        stolen: From whom the link was taken: detach it with `amqp:link:stolen`.
    """

    endpoint: LinkEndpoint
    stolen: LinkEndpoint | None


class LinkRegistry:
    """The termini of one virtual host, attached or not."""

    def __init__(self, link_store: LinkStore, unsettled_store: UnsettledStore) -> None:
        self._link_store = link_store
        self._unsettled_store = unsettled_store
        self._lock = threading.Lock()
        self._termini: dict[LinkKey, Terminus] = {}
        self._by_connection: dict[Hashable, set[LinkKey]] = {}
        self._due: list[tuple[int, LinkKey]] = []

    def __len__(self) -> int:
        """Termini."""
        return len(self._termini)

    def recover(self, now_ms: int, on_complete: OnComplete) -> list[Terminus]:
        """Take over what survived; nobody is attached, and the time of each runs that should.

        What is over at once is dropped by the next `expire`, as later.

        Args:
            now_ms: Timeouts start anew: how long the broker was away is nobody's fault.
            on_complete: Called for each terminus, once the store knows that it is not attached.

        Raises:
            CorruptData: The store cannot be read.
        """
        unsettled = self._unsettled_store.recover()
        with self._lock:
            for key, terms in self._link_store.recover().items():
                terminus = self._termini[key] = Terminus(key, terms)
                terminus.unsettled.update(unsettled.get(key, {}))
                terminus.ended(Ended.CONNECTION, now_ms)
                if terminus.expires_at_ms is not None:
                    heapq.heappush(self._due, (terminus.expires_at_ms, key))
                self._link_store.detach(key, on_complete, closed=False)
            return list(self._termini.values())

    def granted(self, asked: TerminusDurability) -> TerminusDurability:
        """What of a durability that was asked for can be kept."""
        return granted_durability(asked, self._link_store.highest, self._unsettled_store.highest)

    def find(self, key: LinkKey) -> Terminus | None:
        """The terminus of a link, attached or not; None if there is none, or none was granted."""
        with self._lock:
            terminus = self._termini.get(key)
            return None if terminus is None or terminus.terms is None else terminus

    def attach(self, key: LinkKey, place: Place) -> Attached:
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
            endpoint: Attached.
            terms: Their durability as `granted` says.
            on_complete: Called when they are kept; at once if they are not to be.

        Returns:
            False if the endpoint is not attached any more: nothing was done, nothing is called.

        Raises:
            InvalidRequest: More durability than can be granted.
        """
        if self.granted(terms.durability) != terms.durability:
            message = f"durability {terms.durability} was not granted"
            raise InvalidRequest(message)
        with self._lock:
            terminus = endpoint.terminus
            if not endpoint.is_attached:
                return False
            was_kept = terminus.durability > TerminusDurability.NONE
            if terms.durability < TerminusDurability.UNSETTLED_STATE:
                self._forget_deliveries(terminus, list(terminus.unsettled))
                terminus.unsettled.clear()
            terminus.terms = terms
            is_kept = terms.durability > TerminusDurability.NONE
            if is_kept:
                self._link_store.attach(terminus.key, terms, on_complete)
            elif was_kept:
                self._link_store.detach(terminus.key, on_complete, closed=True)
        if not is_kept and not was_kept:
            on_complete(None)
        return True

    def detach(
        self,
        endpoint: LinkEndpoint,
        now_ms: int,
        on_complete: OnComplete | None = None,
        *,
        closed: bool,
    ) -> Terminus | None:
        """End an attachment: for good if `closed`, else its terminus may live on.

        One that was never granted is dropped; one that was not granted *this* time lives on.

        Args:
            endpoint: Any.
            now_ms: The time.
            on_complete: Called when the store knows; at once if it need not.
            closed: As the peer's detach says; an error of ours closes, too.

        Returns:
            The terminus, if it was dropped: end what was the link's own.
        """
        is_told, dropped = False, None
        with self._lock:
            if endpoint.is_attached:
                terminus = endpoint.terminus
                is_over = self._is_over(terminus, Ended.LINK, now_ms) or closed
                is_told = self._leave(terminus, on_complete, is_over=is_over)
                dropped = terminus if is_over else None
        if on_complete is not None and not is_told:
            on_complete(None)
        return dropped

    def end_session(self, place: Place, now_ms: int) -> list[Terminus]:
        """A session ended, its links with it; the termini that were dropped by that."""
        with self._lock:
            keys = self._by_connection.get(place.connection, ())
            here = [self._termini[key] for key in keys]
            here = [terminus for terminus in here if terminus.place == place]
            return self._end_all(here, Ended.SESSION, now_ms)

    def end_connection(self, connection: Hashable, now_ms: int) -> list[Terminus]:
        """A connection is gone, its links with it; the termini that were dropped by that."""
        with self._lock:
            keys = self._by_connection.get(connection, ())
            here = [self._termini[key] for key in keys]
            dropped = self._end_all(here, Ended.CONNECTION, now_ms)
            self._by_connection.pop(connection, None)
            return dropped

    def expire(self, now_ms: int) -> list[Terminus]:
        """Drop the termini whose time is over."""
        dropped = []
        with self._lock:
            while self._due and self._due[0][0] <= now_ms:
                at_ms, key = heapq.heappop(self._due)
                terminus = self._termini.get(key)
                if terminus is not None and terminus.expires_at_ms == at_ms:
                    self._leave(terminus, None, is_over=True)
                    dropped.append(terminus)
        return dropped

    def next_expiry_ms(self) -> int | None:
        """When to call `expire` next; None: not before something else happened."""
        with self._lock:
            while self._due:
                at_ms, key = self._due[0]
                terminus = self._termini.get(key)
                if terminus is not None and terminus.expires_at_ms == at_ms:
                    return at_ms
                heapq.heappop(self._due)  # attached again meanwhile, or gone
            return None

    def remember(
        self,
        endpoint: LinkEndpoint,
        tag: bytes,
        state: DeliveryState | None,
        on_complete: OnComplete,
        transaction: Any = None,
    ) -> bool:
        """Keep the state of a delivery that is not settled; see `UnsettledStore.unsettled`.

        Of a link of a lower tier nothing is kept: its deliveries end with their attachment.

        Returns:
            False if the endpoint is not attached any more: nothing was done, nothing is called.
        """
        with self._lock:
            terminus = endpoint.terminus
            if not endpoint.is_attached:
                return False
            is_kept = terminus.durability is TerminusDurability.UNSETTLED_STATE
            if is_kept:
                terminus.unsettled[tag] = state
                store = self._unsettled_store
                store.unsettled(terminus.key, tag, state, on_complete, transaction)
        if not is_kept:
            on_complete(None)
        return True

    def settle(self, endpoint: LinkEndpoint, tags: Sequence[bytes]) -> None:
        """Forget deliveries; nothing if the endpoint is not attached any more."""
        with self._lock:
            if endpoint.is_attached and tags:
                for tag in tags:
                    endpoint.terminus.unsettled.pop(tag, None)
                self._forget_deliveries(endpoint.terminus, tags)

    def _end_all(self, termini: Iterable[Terminus], ended: Ended, now_ms: int) -> list[Terminus]:
        dropped = []
        for terminus in termini:
            is_over = self._is_over(terminus, ended, now_ms)
            if is_over or terminus.endpoint is not None:
                self._leave(terminus, None, is_over=is_over)
            if is_over:
                dropped.append(terminus)
        return dropped

    def _is_over(self, terminus: Terminus, ended: Ended, now_ms: int) -> bool:
        """Let its time run if this starts it; True if it is over already."""
        terminus.ended(ended, now_ms)
        at_ms = terminus.expires_at_ms
        if at_ms is not None and at_ms > now_ms:
            heapq.heappush(self._due, (at_ms, terminus.key))
        return at_ms is not None and at_ms <= now_ms

    def _leave(self, terminus: Terminus, on_complete: OnComplete | None, *, is_over: bool) -> bool:
        """Nobody is attached any more, or the terminus is over; True if the store was told."""
        terminus.dissociate()
        if is_over:
            self._left(terminus)
            del self._termini[terminus.key]
            self._forget_deliveries(terminus, list(terminus.unsettled))
        if terminus.durability is TerminusDurability.NONE:
            return False
        self._link_store.detach(terminus.key, on_complete or _log_failure, closed=is_over)
        return True

    def _forget_deliveries(self, terminus: Terminus, tags: Sequence[bytes]) -> None:
        """Of a link on which we send they are what it acquired: for the caller to release."""
        is_kept = terminus.durability is TerminusDurability.UNSETTLED_STATE
        if is_kept and tags and terminus.key.role == Role.RECEIVER:
            self._unsettled_store.settle(terminus.key, tags, _log_failure)

    def _left(self, terminus: Terminus) -> None:
        if terminus.place is not None:
            keys = self._by_connection.get(terminus.place.connection)
            if keys is not None:
                keys.discard(terminus.key)
                if not keys:
                    del self._by_connection[terminus.place.connection]


def _log_failure(error: StoreError | None) -> None:
    """What was to be forgotten is found again at the next start, and forgotten then."""
    if error is not None:
        _log.warning("a link was not forgotten by the store: %s", error)
