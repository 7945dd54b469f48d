"""The rules of the store machine that are about links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker_shim.store.interface import LinkKey
from tests.support.histories.model import Model, with_spoiling

LINKS = st.sampled_from([LinkKey("c", "l", "sender"), LinkKey('c","l', "späť", "receiver")])
TAGS = st.sampled_from([b"", b"\x00\xff", b"3"])
STATES = st.sampled_from([None, {"outcome": "accepted", "message_id": 3}])
TIERS = st.sampled_from([2, 2, 2, 2, 1, 0])
NUMBERS = st.integers(0, 20)


class LinkRules(RuleBasedStateMachine):
    """A store machine inherits these."""

    model: Model
    store: Any
    both: Callable[..., None]
    transaction: Callable[[int], tuple[Any, Any]]

    @rule(key=LINKS, durability=TIERS, n=st.integers(0, 1))
    def attach(self, key: LinkKey, durability: int, n: int) -> None:
        detail = {"version": 1, "durability": durability, "source": None, "target": None, "n": n}
        self.both(lambda: self.model.links.attach(key, detail), self.store.attach, key, detail)

    @rule(key=LINKS, closed=st.sampled_from([False, False, True]))
    def detach(self, key: LinkKey, closed: bool) -> None:
        model = self.model.links
        self.both(lambda: model.detach(key, closed=closed), self.store.detach, key, closed=closed)

    @rule(key=LINKS, tag=TAGS, state=STATES, number=NUMBERS)
    def unsettle(self, key: LinkKey, tag: bytes, state: dict[str, Any] | None, number: int) -> None:
        decide = lambda: self.model.links.unsettled(key, tag, state)  # noqa: E731
        self.deliver(decide, number, self.store.unsettled, key, tag, state)

    @rule(key=LINKS, tags=st.lists(TAGS, max_size=3), number=NUMBERS)
    def forget(self, key: LinkKey, tags: list[bytes], number: int) -> None:
        decide = lambda: self.model.links.settle(key, tags)  # noqa: E731
        self.deliver(decide, number, self.store.settle, key, tags)

    def deliver(
        self,
        decide: Callable[[], Callable[[], None]],
        number: int,
        call: Callable[..., Any],
        *args: Any,
    ) -> None:
        """A call about deliveries, in a transaction or not."""
        ours, theirs = self.transaction(number)

        def model() -> None:
            if theirs is None:
                decide()()
            else:
                with_spoiling(theirs, lambda: theirs.deliveries.append(decide()))

        self.both(model, call, *args, transaction=ours)

    @invariant()
    def links_of_store_and_model_agree(self) -> None:
        found, links = self.store.recover(), self.model.links.links
        assert found.links == {key: link.detail for key, link in links.items()}
        assert found.unsettled == {
            key: link.unsettled for key, link in links.items() if link.unsettled
        }
