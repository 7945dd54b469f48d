"""Decide the calls about links and their unsettled deliveries: refuse, or make records. Pure.

A link is kept as its own durability says, as far as the store can: from CONFIGURATION on its
termini, from UNSETTLED_STATE on its deliveries, too. What is not kept is in the fold all the same,
at position 0, and gone after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sparkstore.core import fold, link_records
from sparkstore.core.durability import TerminusDurability
from sparkstore.core.link_records import DETAIL_VERSION, LinkKey, link_text
from sparkstore.core.records import Kind, Record
from sparkstore.core.state_machine import definitions
from sparkstore.core.state_machine.arguments import (
    check_link_key,
    check_switch,
    check_tag,
    check_tags,
)
from sparkstore.core.state_machine.call_values import RecordStep, Transaction, number_of
from sparkstore.core.state_machine.wiring import WiringStateMachine
from sparkstore.errors import InvalidRequest

DELIVERY_KINDS = frozenset({Kind.UNSETTLED, Kind.SETTLED})
MAX_TAG_BYTES = 32
"""Of a delivery tag, as AMQP 1.0 has it (part 2, 2.8.7)."""


class LinkStateMachine(WiringStateMachine):
    """Rules of these calls. Methods that return steps change nothing.

    Attributes:
        link_durability: The highest tier that the store keeps links at.
    """

    def __init__(
        self,
        state: fold.State,
        durability: TerminusDurability,
        now_us: Callable[[], int],
        link_durability: TerminusDurability | None = None,
    ) -> None:
        super().__init__(state, durability, now_us)
        self.link_durability = durability if link_durability is None else link_durability
        self._tiers: dict[str, tuple[str, TerminusDurability]] = {}

    def attach(self, key: LinkKey, detail: Mapping[str, Any]) -> list[RecordStep]:
        """Attach a link; no step if it is attached with the same termini.

        A link whose tier changes is another link: what it was is forgotten first, so that no record
        that is kept is about one that is not.
        """
        link, text = text_of(key), definitions.as_json(detail)
        _check_termini(detail)
        tier = self._tier(detail)
        record = link_records.attached(self.now_us(), link, text)
        made = RecordStep(record, tier >= TerminusDurability.CONFIGURATION)
        known = self.state.links.get(link)
        if known is None:
            return [made]
        if self.link_tier(link) != tier:
            return [*self.detach(key, closed=True), made]
        return [] if (known.detail, known.detached_at) == (text, None) else [made]

    def detach(self, key: LinkKey, *, closed: bool) -> list[RecordStep]:
        """Detach a link; no step if it is detached already, and stays."""
        check_switch("closed", closed)
        link = text_of(key)
        known = self._link(link)
        if known.detached_at is not None and not closed:
            return []
        record = link_records.detached(self.now_us(), link, closed=closed)
        return [RecordStep(record, known.position > 0)]

    def unsettled(
        self,
        key: LinkKey,
        tag: bytes,
        state: Mapping[str, Any] | None,
        transaction: Transaction | None = None,
    ) -> list[RecordStep]:
        """Remember an unsettled delivery: one record, also if its state is what it was."""
        check_tag(tag)
        if len(tag) > MAX_TAG_BYTES:
            message = f"a delivery tag of {len(tag)} bytes: the limit is {MAX_TAG_BYTES}"
            raise InvalidRequest(message)
        link = text_of(key)
        self._link(link)
        text = None if state is None else definitions.as_json(state)
        number = number_of(transaction)
        made = link_records.unsettled(self.now_us(), link, tag, text, number)
        return self._deliveries([made], transaction)

    def settle(
        self, key: LinkKey, tags: Sequence[bytes], transaction: Transaction | None = None
    ) -> list[RecordStep]:
        """Forget deliveries: a record for each tag that is remembered; in a transaction, for all.

        At the commit the link may remember what the same transaction made known.
        """
        check_tags(tags)
        link = text_of(key)
        unsettled, number = self._link(link).unsettled, number_of(transaction)
        made = [
            link_records.settled(self.now_us(), link, tag, number)
            for tag in dict.fromkeys(tags)
            if transaction is not None or tag in unsettled
        ]
        return self._deliveries(made, transaction)

    def delivery_steps(self, record: Record) -> list[RecordStep]:
        """Return the step of a record that waited for its commit; none if its link is gone."""
        return [self._of_delivery(record)] if record.holder in self.state.links else []

    def link_tier(self, link: str) -> TerminusDurability:
        """Find the durability tier of a link that exists."""
        detail = self.state.links[link].detail
        known = self._tiers.get(link)
        if known is None or known[0] is not detail:
            tier = min(definitions.durability_of(detail), self.link_durability)
            known = self._tiers[link] = (detail, tier)
        return known[1]

    def is_resumable(self, holder: str) -> bool:
        """True if what this holder has acquired stays acquired over a restart."""
        is_link = holder in self.state.links
        return is_link and self.link_tier(holder) >= TerminusDurability.UNSETTLED_STATE

    def after_detached(self, step: RecordStep) -> None:
        """Forget the tier of a link that was closed."""
        if step.record.detail is not None:
            self._tiers.pop(step.record.holder or "", None)

    def _deliveries(self, made: list[Record], transaction: Transaction | None) -> list[RecordStep]:
        if transaction is None:
            return [*map(self._of_delivery, made)]
        transaction.check_open()
        transaction.steps += made
        return []

    def _of_delivery(self, record: Record) -> RecordStep:
        assert record.holder is not None
        return RecordStep(
            record, self.link_tier(record.holder) >= TerminusDurability.UNSETTLED_STATE
        )

    def _tier(self, detail: Mapping[str, Any]) -> TerminusDurability:
        asked = detail.get("durability")
        if not isinstance(asked, int) or isinstance(asked, bool) or not 0 <= asked <= 2:
            message = f"durability {asked!r} of a link: 0, 1 or 2"
            raise InvalidRequest(message)
        return min(TerminusDurability(asked), self.link_durability)

    def _link(self, link: str) -> fold.LinkState:
        known = self.state.links.get(link)
        if known is None:
            message = f"unknown link {link}"
            raise InvalidRequest(message)
        return known


def _check_termini(detail: Mapping[str, Any]) -> None:
    """Raises InvalidRequest if a detail lacks what readers of a link look at."""
    if detail.get("version") != DETAIL_VERSION:
        message = f"version {detail.get('version')!r} of a link: {DETAIL_VERSION}"
        raise InvalidRequest(message)
    for end in ("source", "target"):
        if end not in detail or not isinstance(detail[end], Mapping | None):
            message = f"a link needs a {end}: a JSON object, or null"
            raise InvalidRequest(message)


def text_of(key: LinkKey) -> str:
    """The text that names a link, once its parts were checked.

    Raises:
        InvalidRequest: It is no key; a name is not valid Unicode, or too long; the role is none.
    """
    check_link_key(key)
    return link_text(key)
