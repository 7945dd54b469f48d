"""The calls of a `MessageStore` about links: termini and unsettled deliveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from broker_shim.completion import OnComplete
from sparkstore.core.link_records import RecordedLinkKey

if TYPE_CHECKING:
    from broker_shim.store.interface import TransactionContext


class LinkCalls(Protocol):
    """What a broker tells its store about links; completions as of every call of `MessageStore`.

    What survives a restart is the lower of the link's durability and what the store can keep: from
    CONFIGURATION on its termini and that it is attached, from UNSETTLED_STATE on its deliveries.
    The rest is in this process's memory only, and `recover` tells it while the store is open.

    A delivery that a link sends needs no record here: an entry that the link's text has acquired
    (`sparkstore.core.link_records.link_text`) is that delivery.
    """

    def attach(
        self, key: RecordedLinkKey, detail: Mapping[str, Any], on_complete: OnComplete
    ) -> None:
        """Keep a link's termini, or replace them, and that it is attached.

        A link that is there keeps its deliveries, unless its tier changes: then they are forgotten.

        Args:
            key: The link: the peer's container id, the link's name, and our role.
            detail: JSON: `version` 1, `source` and `target` (each an object, with an `address` for
                SQL, or None), `durability` 0 to 2 as granted, `expiry_policy`, `timeout_s`.
            on_complete: Called when it is durable.

        Completes with:
            InvalidRequest: JSON cannot hold the detail; its version, durability, source or target
                is missing or none; a name is not valid Unicode, or too long.
        """

    def detach(self, key: RecordedLinkKey, on_complete: OnComplete, *, closed: bool) -> None:
        """A link is detached: for good, with all it remembers, if `closed`; else it is kept.

        Completes with:
            InvalidRequest: There is no such link.
        """

    def unsettled(
        self,
        key: RecordedLinkKey,
        tag: bytes,
        state: Mapping[str, Any] | None,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """Remember a delivery, or its new state; one that is there already is replaced.

        Args:
            key: The link that the delivery was made on; `attach` has told of it.
            tag: Delivery tag, at most 32 bytes.
            state: A JSON object (the view `deliveries` shows its `queue` and `message_id`), or None
                while it has no state.
            on_complete: Called when it is durable.
            transaction: At commit, together with what else is in it. If the link is closed before,
                the rest of the transaction is done without it.

        Completes with:
            InvalidRequest: There is no such link; the tag is too long; JSON cannot hold the state.
        """

    def settle(
        self,
        key: RecordedLinkKey,
        tags: Sequence[bytes],
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """Forget deliveries; those that are not remembered are passed over.

        Completes with:
            InvalidRequest: There is no such link.
        """
