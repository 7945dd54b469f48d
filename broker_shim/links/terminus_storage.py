"""Tell the stores of termini and of unsettled deliveries, according to their durability.

    durability            its terminus             its unsettled deliveries
    NONE                  -                        - (known as long as the terminus lives)
    CONFIGURATION         kept by the link store   - (likewise)
    UNSETTLED_STATE       kept by the link store   kept by the store of unsettled deliveries

A store is only called for what it can keep. Called by the registry alone, under its lock, which is
taken again where a store completes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.links.link_store import LinkStore, granted_durability
from broker_shim.links.termini.terminus import DeliveryState, Terminus
from broker_shim.links.termini.terminus_values import LinkTerms
from broker_shim.links.unsettled_stores import UnsettledStore
from sparkstore.core.link_records import Role

_log = logging.getLogger(__name__)


class Keeping:
    """The link store and the store of unsettled deliveries, called as termini need them.

    A method that returns a bool returns False if no store was told; nothing is completed then.
    """

    def __init__(
        self, link_store: LinkStore, unsettled_store: UnsettledStore, lock: threading.RLock
    ) -> None:
        self._link_store = link_store
        self._unsettled_store = unsettled_store
        self._lock = lock

    def granted(self, asked: TerminusDurability) -> TerminusDurability:
        """Return the durability that both stores can keep of the one that was asked for."""
        return granted_durability(asked, self._link_store.highest, self._unsettled_store.highest)

    def recover(self) -> Iterator[Terminus]:
        """Termini that survived, with their deliveries.

        Raises:
            CorruptData: A store cannot be read.
        """
        unsettled = self._unsettled_store.recover()
        for key, terms in self._link_store.recover().items():
            terminus = Terminus(key, terms)
            terminus.unsettled.update(unsettled.get(key, {}))
            yield terminus

    def agreed(self, terminus: Terminus, terms: LinkTerms, on_complete: OnComplete) -> bool:
        """Give a terminus these terms from now on, and have the stores keep them.

        Raises:
            InvalidRequest: More durability than can be granted; nothing was done.
        """
        if self.granted(terms.durability) != terms.durability:
            message = f"durability {terms.durability} was not granted"
            raise InvalidRequest(message)
        was_kept = terminus.durability > TerminusDurability.NONE
        self._move(terminus, terms.durability)
        terminus.terms = terms
        if terms.durability > TerminusDurability.NONE:
            self._link_store.attach(terminus.key, terms, on_complete)
            return True
        if was_kept:
            self._link_store.detach(terminus.key, on_complete, closed=True)
        return was_kept

    def _move(self, terminus: Terminus, durability: TerminusDurability) -> None:
        """Move unsettled deliveries into or out of a store as the terminus's durability changes."""
        highest, key = TerminusDurability.UNSETTLED_STATE, terminus.key
        if key.role != Role.RECEIVER or (terminus.durability is highest) is (durability is highest):
            return
        if durability is highest:
            for tag, state in terminus.unsettled.items():
                if state is not None:
                    self._unsettled_store.unsettled(key, tag, state, _log_failure)
        elif terminus.unsettled:
            self._unsettled_store.settle(key, list(terminus.unsettled), _log_failure)

    def left(self, terminus: Terminus, on_complete: OnComplete | None = None) -> None:
        """Tell the store that no endpoint is attached to the terminus any more."""
        if terminus.durability > TerminusDurability.NONE:
            self._link_store.detach(terminus.key, on_complete or _log_failure, closed=False)

    def forgotten(
        self, terminus: Terminus, later: Terminus | None, on_complete: OnComplete | None
    ) -> bool:
        """Remove a terminus that is over from the stores; `later` is a live one of the same key."""
        tags = terminus.unsettled.keys() - (later.unsettled.keys() if later else ())
        self.settled(terminus, list(tags))
        is_kept = terminus.durability > TerminusDurability.NONE
        if is_kept and (later is None or later.durability is TerminusDurability.NONE):
            self._link_store.detach(terminus.key, on_complete or _log_failure, closed=True)
            return True
        return False

    def delivery(
        self,
        terminus: Terminus,
        tag: bytes,
        state: DeliveryState | None,
        on_complete: OnComplete,
        transaction: Any,
    ) -> bool:
        """Have the store keep an unsettled delivery and its state.

        Without a transaction the terminus knows it when it is durable. With one it does not: the
        store completes what it has taken *into* a transaction, which says nothing of its commit.
        """
        if terminus.durability < TerminusDurability.UNSETTLED_STATE:
            return False

        def kept(error: StoreError | None) -> None:
            if error is None:
                with self._lock:
                    terminus.unsettled[tag] = state
            on_complete(error)

        done = kept if transaction is None else on_complete
        self._unsettled_store.unsettled(terminus.key, tag, state, done, transaction)
        return True

    def settled(
        self, terminus: Terminus, tags: Iterable[bytes], on_complete: OnComplete | None = None
    ) -> bool:
        """Settle deliveries, as far as they are known; after an error they are known again.

        Those of a link on which we send are what it acquired: not the stores' business here.
        """
        known = {tag: terminus.unsettled.pop(tag) for tag in tags if tag in terminus.unsettled}
        is_kept = terminus.durability is TerminusDurability.UNSETTLED_STATE
        if not (is_kept and known and terminus.key.role == Role.RECEIVER):
            return False

        def done(error: StoreError | None) -> None:
            if error is not None:
                with self._lock:
                    terminus.unsettled = known | terminus.unsettled
            (on_complete or _log_failure)(error)

        self._unsettled_store.settle(terminus.key, list(known), done)
        return True


def _log_failure(error: StoreError | None) -> None:
    """Log that the store could not forget a link: the next start finds it, and forgets it then."""
    if error is not None:
        _log.warning("a link was not forgotten by the store: %s", error)
