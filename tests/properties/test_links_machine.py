"""The registry against a model of dictionaries, through steals, ends, expiry and crashes; threads.

Every call of a store has completed before the next step: a crash loses what was never granted, and
nothing else of what the store can keep. Over memory that outlives the crash, and over the JSON file
and the Delta root that a killed process leaves.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker_shim.links import (
    EndpointPlace,
    ExpiryPolicy,
    Filter,
    LinkEndpoint,
    LinkKey,
    LinkRegistry,
    LinkStore,
    LinkTerms,
    MemoryUnsettledStore,
    Role,
    Source,
    Target,
    Terminus,
    UnsettledStore,
)
from broker_shim.links.termini.proof import Answers
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.json.json_link_store import JsonLinkStore
from broker_shim.store.link_stores import link_stores_of
from tests.support.roots.logs import image_of
from tests.support.stores.links import (
    KeptDeliveries,
    KeptLinks,
    PromptDeliveries,
    PromptLinks,
    receiver,
    sender,
    terms,
)
from tests.support.stores.stores import DELTA_CONFIG

KEYS = st.sampled_from([sender("a"), sender("b"), receiver("a"), sender("a", "d")])
PLACES = st.sampled_from(
    [EndpointPlace(connection, session) for connection in "xy" for session in (1, 2)]
)
POLICIES = st.sampled_from(ExpiryPolicy)
TAGS = st.sampled_from([b"1", b"2", b"3"])
_RANK = {"link-detach": 0, "session-end": 1, "connection-close": 2, "never": 9}


@dataclass
class Known:
    """What the model knows of a terminus.

    Attributes:
        terms: None until granted.
        place: Of its last attachment; None after a crash.
        is_attached: Now.
        due_ms: When it ends.
        tags: Unsettled; a link that is granted less durability knows them on.
        kept: Those of them that the store keeps, for a link of the highest durability only.
    """

    terms: LinkTerms | None = None
    place: EndpointPlace | None = None
    is_attached: bool = False
    due_ms: int | None = None
    tags: set[bytes] = field(default_factory=set)
    kept: set[bytes] = field(default_factory=set)


class LinksMachine(RuleBasedStateMachine):
    """The model: key → what is known; each rule says by itself what has to become of it."""

    highest = 2

    def __init__(self) -> None:
        super().__init__()
        self.links_kept: dict[LinkKey, LinkTerms] = {}
        self.deliveries_kept: dict[LinkKey, Any] = {}
        self.now_ms = 0
        self.model: dict[LinkKey, Known] = {}
        self.endpoints: dict[LinkKey, LinkEndpoint] = {}
        self.stale: list[LinkEndpoint] = []
        self.links, self.unsettled = self.open()
        self.registry = LinkRegistry(self.links, self.unsettled)

    def open(self) -> tuple[LinkStore, UnsettledStore]:
        """The stores; a second time, as a killed process left them."""
        return KeptLinks(self.links_kept), KeptDeliveries(self.deliveries_kept)

    def ended(self, key: LinkKey, rank: int) -> bool:
        """Let the model's time run; True if that terminus is over."""
        known = self.model[key]
        known.is_attached = False
        if known.due_ms is None:
            policy, timeout_s = "link-detach", 0
            if known.terms is not None:
                policy, timeout_s = known.terms.own.expiry_policy, known.terms.own.timeout_s
            if rank >= _RANK[policy]:
                known.due_ms = self.now_ms + timeout_s * 1000
        if known.due_ms is not None and known.due_ms <= self.now_ms:
            del self.model[key]
            return True
        return False

    def forget(self, over: list[Terminus]) -> set[LinkKey]:
        """Have the stores forget what is over; its keys."""
        told: list[object] = []
        for terminus in over:
            self.registry.forget(terminus, told.append)
        assert told == [None] * len(over)
        return {terminus.key for terminus in over}

    @rule(key=KEYS, place=PLACES)
    def attach(self, key: LinkKey, place: EndpointPlace) -> None:
        known = self.model.setdefault(key, Known())
        endpoint, stolen = self.registry.attach(key, place)
        assert (stolen is not None) == known.is_attached
        if stolen is not None:
            assert stolen is self.endpoints[key]
            self.stale.append(stolen)
        assert endpoint.terminus.terms == known.terms
        assert set(endpoint.terminus.unsettled) == known.tags
        known.is_attached, known.place, known.due_ms = True, place, None
        self.endpoints[key] = endpoint

    @rule(
        key=KEYS,
        durability=st.integers(0, 2),
        policy=POLICIES,
        timeout_s=st.sampled_from([0, 1, 5]),
    )
    def grant(self, key: LinkKey, durability: int, policy: ExpiryPolicy, timeout_s: int) -> None:
        known = self.model.get(key)
        if known is None or not known.is_attached:
            return
        durability = min(durability, self.highest)
        known.terms = terms(key.role, durability, policy, timeout_s)
        if durability < 2:
            known.kept.clear()
        told: list[object] = []
        assert self.registry.grant(self.endpoints[key], known.terms, told.append)
        assert told == [None]

    @rule(key=KEYS, closed=st.booleans())
    def detach(self, key: LinkKey, *, closed: bool) -> None:
        known = self.model.get(key)
        if known is None or not known.is_attached:
            return
        is_over = self.ended(key, 0) or closed
        self.model.pop(key, None) if is_over else None
        over = self.registry.detach(self.endpoints[key], self.now_ms, closed=closed)
        assert over is (self.endpoints[key].terminus if is_over else None)
        self.forget([] if over is None else [over])

    @rule(closed=st.booleans())
    def touch_what_was_stolen(self, *, closed: bool) -> None:
        """Whoever lost a link changes nothing any more, but for what it had taken."""
        for endpoint in self.stale:
            told: list[object] = []
            assert not self.registry.grant(endpoint, terms(), told.append)
            self.registry.settle(endpoint, [b"1", b"2", b"3"])
            assert self.registry.detach(endpoint, self.now_ms, closed=closed) is None
            assert told == []

    @rule(tag=TAGS)
    def remember_after_the_link_was_stolen(self, tag: bytes) -> None:
        stale = (each for each in self.stale if each.terminus.key.role == Role.RECEIVER)
        for endpoint in stale:
            told: list[object] = []
            key = endpoint.terminus.key
            is_there = key in self.model and self.endpoints[key].terminus is endpoint.terminus
            assert self.registry.remember(endpoint, tag, None, told.append) == is_there
            assert told == [None] * is_there
            if is_there and endpoint.terminus.durability == 2:
                self.model[key].tags.add(tag)
                self.model[key].kept.add(tag)

    @rule(place=PLACES)
    def end_session(self, place: EndpointPlace) -> None:
        here = [key for key, known in self.model.items() if known.place == place]
        over = {key for key in here if self.ended(key, 1)}
        assert self.forget(self.registry.end_session(place, self.now_ms)) == over

    @rule(connection=st.sampled_from("xy"))
    def end_connection(self, connection: str) -> None:
        places = {key: known.place for key, known in self.model.items() if known.place}
        here = [key for key, place in places.items() if place.connection == connection]
        over = {key for key in here if self.ended(key, 2)}
        assert self.forget(self.registry.end_connection(connection, self.now_ms)) == over
        for key in here:
            if key in self.model:
                self.model[key].place = None  # its connection's name may be used again

    @rule(passed_ms=st.sampled_from([0, 500, 1_000, 4_000]))
    def expire(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        due = {key: known.due_ms for key, known in self.model.items() if known.due_ms is not None}
        next_ms = self.registry.next_expiry_ms()
        assert next_ms == min(due.values(), default=None)
        over = {key for key, due_ms in due.items() if due_ms <= self.now_ms}
        assert self.forget(self.registry.expire(self.now_ms)) == over
        for key in over:
            del self.model[key]

    @rule(tag=TAGS, name=st.sampled_from("ab"))
    def remember(self, tag: bytes, name: str) -> None:
        known = self.model.get(receiver(name))
        if known is not None and known.is_attached and known.terms is not None:
            told: list[object] = []
            assert self.registry.remember(self.endpoints[receiver(name)], tag, None, told.append)
            assert told == [None]
            if known.terms.durability == 2:
                known.tags.add(tag)
                known.kept.add(tag)

    @rule(tags=st.lists(TAGS), name=st.sampled_from("ab"))
    def settle(self, tags: list[bytes], name: str) -> None:
        known = self.model.get(receiver(name))
        if known is not None and known.is_attached:
            self.registry.settle(self.endpoints[receiver(name)], tags)
            known.tags -= set(tags)
            known.kept -= set(tags)

    @rule()
    def crash(self) -> None:
        """Nothing is closed; a new registry knows what the stores keep."""
        self.links, self.unsettled = self.open()
        self.registry = LinkRegistry(self.links, self.unsettled)
        kept = {
            key: known
            for key, known in self.model.items()
            if known.terms is not None and known.terms.durability > 0
        }
        self.model = {
            key: Known(known.terms, tags=known.kept, kept={*known.kept})
            for key, known in kept.items()
        }
        self.endpoints, self.stale = {}, []
        told: list[object] = []
        recovered = self.registry.recover(self.now_ms, told.append)
        assert {each.key for each in recovered} == set(kept)
        assert told == [None] * len(kept)
        over = {key for key in kept if self.ended(key, 2)}
        assert self.forget(self.registry.expire(self.now_ms)) == over

    @invariant()
    def the_registry_is_as_the_model_says(self) -> None:
        assert len(self.registry) == len(self.model)
        for key, known in self.model.items():
            terminus = self.registry.find(key)
            assert (terminus is not None) == (known.terms is not None)
            if terminus is not None:
                assert terminus.terms == known.terms
                assert (terminus.endpoint is not None) == known.is_attached
                assert set(terminus.unsettled) == known.tags
        for key, endpoint in self.endpoints.items():
            known_here = self.model.get(key)
            if endpoint.is_attached:
                assert known_here is not None
                assert known_here.is_attached

    @invariant()
    def the_stores_keep_what_was_granted_to_survive(self) -> None:
        durable = {
            key: known.terms
            for key, known in self.model.items()
            if known.terms is not None and known.terms.durability > 0
        }
        assert self.links.recover() == durable
        kept = {key: known.kept for key, known in self.model.items() if known.kept}
        unsettled = self.unsettled.recover()
        assert {key: set(states) for key, states in unsettled.items()} == kept


class OnDiskMachine(LinksMachine):
    """The same over files: a crash is an image of them, taken while they are open."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.crashes = 0
        self.opened: JsonLinkStore | DeltaMessageStore | None = None
        super().__init__()

    def image(self) -> Path:
        """The folder to open: a copy of what is on disk now."""
        before, self.crashes = self.folder / str(self.crashes), self.crashes + 1
        image = self.folder / str(self.crashes)
        if self.opened is None:
            image.mkdir()
        else:
            image_of(before, image)
            self.opened.close()
        return image

    def teardown(self) -> None:
        """Let go of the files."""
        assert self.opened is not None
        self.opened.close()
        shutil.rmtree(self.folder)


class JsonLinksMachine(OnDiskMachine):
    """Over the JSON file, which keeps termini and no delivery."""

    highest = 1

    def open(self) -> tuple[LinkStore, UnsettledStore]:
        """See `LinksMachine`."""
        self.opened = JsonLinkStore(self.image() / "links.json")
        return PromptLinks(self.opened), MemoryUnsettledStore()


class DeltaLinksMachine(OnDiskMachine):
    """Over the log of a Delta message store."""

    def open(self) -> tuple[LinkStore, UnsettledStore]:
        """See `LinksMachine`; no Delta commit is under way while the image is taken."""
        config = replace(DELTA_CONFIG, commit_interval_ms=3_600_000)
        self.opened = DeltaMessageStore(self.image() / "root", config)
        links, unsettled = link_stores_of(self.opened)
        return PromptLinks(links), PromptDeliveries(unsettled)


TestLinks = LinksMachine.TestCase
TestJsonLinks = JsonLinksMachine.TestCase
TestDeltaLinks = DeltaLinksMachine.TestCase
TestDeltaLinks.settings = settings(
    max_examples=settings().max_examples // 15, stateful_step_count=30
)


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)
_COMMON = {
    "address": st.none() | _TEXT,
    "expiry_policy": POLICIES,
    "timeout_s": st.integers(0, 2**32 - 1),
    "dynamic": st.booleans(),
    "capabilities": st.lists(_TEXT, max_size=3).map(tuple),
}
_SOURCES = st.builds(
    Source,
    **_COMMON,
    distribution_mode=st.none() | _TEXT,
    outcomes=st.lists(_TEXT, max_size=3).map(tuple),
    default_outcome=st.none() | st.dictionaries(_TEXT, _JSON, max_size=3),
    filters=st.lists(
        st.builds(Filter, _TEXT, st.none() | _TEXT | st.integers(0, 2**64 - 1), _JSON), max_size=3
    ).map(tuple),
)
_TARGETS = st.builds(Target, **_COMMON)


_TERMS = st.builds(
    LinkTerms,
    st.sampled_from(Role),
    st.none() | _SOURCES,
    st.none() | _TARGETS,
    st.none() | _TEXT,
)


@given(_TERMS)
def test_terms_are_what_they_were_when_they_come_back_from_json(granted: LinkTerms) -> None:
    shown = json.loads(json.dumps(granted.as_json()))
    assert LinkTerms.from_json(granted.role, shown) == granted


@given(st.lists(st.sampled_from(["start", "answer", "answer", "flow"])), st.integers(1, 5))
def test_an_answer_is_proved_only_if_a_flow_after_it_was_used(steps: list[str], size: int) -> None:
    """The model sends every flow and answer down one ordered stream, and counts what was read."""
    answers, allowed, started = Answers(), size, 0
    answers.granted(size)
    written: list[tuple[str, int | bytes]] = [("flow", size)]
    waiting: list[bytes] = []
    for step in steps:
        if step == "start" and started < allowed:
            tag = b"%d" % started
            waiting.append(tag)
            started += 1
            answers.started()
        elif step == "answer" and waiting:
            tag = waiting.pop(0)
            answers.answered(tag)
            written.append(("answer", tag))
        elif step == "flow":
            allowed = started + size - len(waiting)
            answers.granted(allowed - started)
            written.append(("flow", allowed))
        # The sender has surely read the stream up to the first flow that allows what it started.
        read_to = next(i for i, (kind, n) in enumerate(written) if kind == "flow" and n >= started)
        surely_read = {tag for kind, tag in written[:read_to] if kind == "answer"}
        assert set(answers.proved()) <= surely_read
        assert len(answers) <= 2 * size


@pytest.mark.parametrize("closes", [True, False])
def test_of_many_threads_that_attach_one_link_each_end_is_told_to_one_and_the_last_keeps_it(
    closes: bool,
) -> None:
    """Every endpoint ends once: stolen, detached by its owner, or attached still at the end."""
    registry = LinkRegistry(KeptLinks({}), KeptDeliveries({}))
    key, threads, turns = sender("s"), 4, 300
    begin = threading.Barrier(threads)
    ended: list[LinkEndpoint] = []

    def run(number: int) -> list[LinkEndpoint]:
        made = []
        begin.wait(10)
        for turn in range(turns):
            endpoint, stolen = registry.attach(key, EndpointPlace(number, turn))
            made.append(endpoint)
            if stolen is not None:
                ended.append(stolen)
            registry.grant(endpoint, terms(durability=2), lambda _error: None)
            if turn % 3 == 0 and registry.detach(endpoint, 0, closed=True) is not None:
                ended.append(endpoint)
            elif turn % 3 == 1 and closes:
                registry.end_session(EndpointPlace(number, turn), 0)
        return made

    with ThreadPoolExecutor(threads) as pool:
        made = [each for some in pool.map(run, range(threads)) for each in some]
    assert len(made) == threads * turns
    assert len(set(map(id, ended))) == len(ended)
    attached = [each for each in made if each.is_attached]
    assert len(attached) <= 1
    if not closes:
        assert len(ended) + len(attached) == len(made)


def test_a_link_that_is_granted_less_knows_its_deliveries_on_and_the_store_forgets_them() -> None:
    """The steps that the machine seldom takes in one go; its invariants are asserted in between."""
    machine, key, place = LinksMachine(), receiver("a"), EndpointPlace("x", 1)
    machine.attach(key, place)
    for durability, known, kept in ((2, {b"1"}, {b"1"}), (0, {b"1"}, set()), (2, {b"1"}, set())):
        machine.grant(key, durability, ExpiryPolicy.NEVER, 0)
        if known and not machine.model[key].tags:
            machine.remember(b"1", "a")
        machine.the_registry_is_as_the_model_says()
        machine.the_stores_keep_what_was_granted_to_survive()
        assert (machine.model[key].tags, machine.model[key].kept) == (known, kept)
