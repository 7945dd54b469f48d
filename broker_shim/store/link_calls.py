"""The calls of a `MessageStore` about links: termini and unsettled deliveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from broker_shim.completion import OnComplete
from sparkstore.core.link_records import LinkKey
from sparkstore.core.state_machine.values import TransactionContext


class LinkCalls(Protocol):
    """What a broker tells its store about links; completions as of every call of `MessageStore`.

    What survives a restart is the lower of the link's durability and what the store can keep: from
    CONFIGURATION on its termini and that it is attached, from UNSETTLED_STATE on its deliveries.
    The rest is in this process's memory only, and `recover` tells it while the store is open.

    A delivery that a link sends needs no record here: an entry that the link's text has acquired
    (`sparkstore.core.link_records.link_text`) is that delivery.
    """

    def attach(self, key: LinkKey, detail: Mapping[str, Any], on_complete: OnComplete) -> None:
        """Keep that a link is attached, and its termini, which replace those kept before.

        A link that is there keeps its deliveries, unless its tier changes: then they are forgotten.

        Args:
            key: The link: the peer's container id, the link's name, and our role.
            detail: JSON: `version` 1, `source` and `target` (each an object, with an `address` for
                SQL, or None), `durability` 0 to 2 as granted, `expiry_policy`, `timeout_s`.
            on_complete: Called when that is durable.

        Completes with:
            InvalidRequest: JSON cannot hold the detail; its version, durability, source or target
                is missing or none; a name is not valid Unicode, or too long.
        """

    def detach(self, key: LinkKey, on_complete: OnComplete, *, closed: bool) -> None:
        """Keep that a link is detached; if it is `closed`, forget it with all it remembers.

        Completes with:
            InvalidRequest: There is no such link.
        """

    def unsettled(
        self,
        key: LinkKey,
        tag: bytes,
        state: Mapping[str, Any] | None,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """Remember a delivery, or its new state; one that is there already is replaced.

        Args:
            key: The link that the delivery was made on; `attach` has told of it.
            tag: The delivery's tag on the link, at most 32 bytes.
            state: A JSON object (the view `deliveries` shows its `queue` and `message_id`), or None
                while it has no state.
            on_complete: Called when that is durable.
            transaction: If given, it is remembered from the commit on, together with what else is
                in it. If the link is closed before, the rest is done without it.

        Completes with:
            InvalidRequest: There is no such link; the tag is too long; JSON cannot hold the state.
        """

    def settle(
        self,
        key: LinkKey,
        tags: Sequence[bytes],
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """Forget deliveries of a link by their tags; a tag that is not remembered changes nothing.

        Completes with:
            InvalidRequest: There is no such link.
        """
