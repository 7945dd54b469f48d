"""`LinkStore`: what keeps termini over a restart, and the one that keeps nothing.

Which tier an implementation can keep is `highest`: memory NONE, a file of JSON CONFIGURATION, a
log UNSETTLED_STATE. Persistent, but not configuration: nobody edits it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.links.termini.terminus_values import LinkTerms
from sparkstore.core.link_records import LinkKey


class LinkStore(Protocol):
    """Keeps termini. Any thread may call it; after `close` every call raises `Closed`.

    `on_complete(error | None)` fires once and in the order of the calls, when what was told would
    survive a power cut; on another thread than the caller's, unless nothing is kept.
    """

    @property
    def highest(self) -> TerminusDurability:
        """The highest tier of a terminus that it can keep."""

    def recover(self) -> Mapping[LinkKey, LinkTerms]:
        """Tell which termini are kept now; right after opening, those are what survived.

        Raises:
            CorruptData: What is stored cannot be read.
        """

    def attach(self, key: LinkKey, terms: LinkTerms, on_complete: OnComplete) -> None:
        """Keep that a link is attached, and its terms, which replace those kept before.

        Their durability is at least CONFIGURATION and at most `highest`.
        """

    def detach(self, key: LinkKey, on_complete: OnComplete, *, closed: bool) -> None:
        """Keep that no link is attached any more; if `closed`, forget the terminus.

        A terminus that is not kept changes nothing, and the call succeeds.
        """

    def close(self) -> None:
        """Wait for what is under way, then let go of everything. May be called twice."""


class NoLinkStore:
    """Keeps nothing: all termini end with the broker. Any thread may call it."""

    highest = TerminusDurability.NONE

    def recover(self) -> Mapping[LinkKey, LinkTerms]:
        """Return no links, since nothing survived."""
        return {}

    def attach(self, key: LinkKey, terms: LinkTerms, on_complete: OnComplete) -> None:  # noqa: ARG002
        """Complete at once, as tier NONE promises nothing."""
        on_complete(None)

    def detach(self, key: LinkKey, on_complete: OnComplete, *, closed: bool) -> None:  # noqa: ARG002
        """Complete at once, as nothing is stored."""
        on_complete(None)

    def close(self) -> None:
        """Close nothing, as this store holds nothing."""


def granted_durability(
    asked: TerminusDurability, links: TerminusDurability, unsettled: TerminusDurability
) -> TerminusDurability:
    """Return the durability granted to a peer, by what both stores can keep.

    Unsettled deliveries are granted only if both can: a terminus of that tier has to be there for
    them after a restart.
    """
    highest = min(links, max(unsettled, TerminusDurability.CONFIGURATION))
    return min(asked, highest)
