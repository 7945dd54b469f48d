"""What the service does when a member says what it holds, and when a link goes to another one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import pytest

from broker_shim.errors import StoreError
from broker_shim.links.kept_link import KeptLink
from broker_shim.service.decisions.decisions import Decisions
from broker_shim.service.dispatcher import CLAIM
from broker_shim.store import protocol as wire
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.granted_run import GrantedRun, runs_of
from broker_shim.store.interface import Exchange, MessageHeader, Queue, StoredMessage
from broker_shim.store.remote.remote_store import RemoteMessageStore
from sparkstore.control.client import connect
from sparkstore.core.link_records import LinkKey, Role, link_text
from sparkstore.core.records import Kind, Record
from sparkstore.tables.root import open_root
from tests.support.roots.logs import until
from tests.support.stores.controls import ServicedRoot
from tests.support.stores.raw_member import RawMember, create
from tests.support.stores.stores import DELTA_CONFIG, done

LONG = " OR ".join(["TRUE"] * 500)
"""A selector that is not compiled within one turn of the loop."""
LINK = link_text(LinkKey("container", "from q", Role.SENDER))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Queue `q`: member m has acquired two messages, member n one."""
    store = DeltaMessageStore(tmp_path / "root", DELTA_CONFIG)
    done(store.create, Queue("q"))
    for holder in ("m/one", "m/one", "n/one"):
        message = store.message(MessageHeader(), b"x")
        done(store.enqueue, message, "q")
        done(store.acquire, message.message_id, "q", holder)
    for member in "mn":
        done(store.configure, "sparkstore.member", member, {"incarnations": ["before"]})
    store.close()
    return tmp_path / "root"


@pytest.fixture
def service(root: Path) -> Iterator[ServicedRoot]:
    there = ServicedRoot(root)
    yield there
    there.stop()


def watching(service: ServicedRoot, member: str, *held: int) -> RawMember:
    """A member, still the process that it was, that says what it holds of `q`."""
    there = RawMember(service.path, member, "before")
    there.hello()
    there.say(wire.WATCH, "", 0, (("q", held),))
    assert changes(there)
    return there


def changes(member: RawMember) -> list[Any]:
    frame = member.hears()
    assert frame is not None
    assert frame[0] == wire.CHANGES, frame
    member.say(wire.SEEN)
    return [*frame[1][4]]


@pytest.mark.parametrize("known", [(), (1,), (2,), (1, 2)])
def test_what_was_on_its_way_to_a_member_that_does_not_know_of_it_waits_again(
    service: ServicedRoot, root: Path, known: tuple[int, ...]
) -> None:
    control = connect(open_root(root))
    assert control is not None
    with closing(control), watching(service, "m", *known):
        found = control.holders(None).shown
        assert sorted(row["message"] for row in found) == [*known, 3]


@pytest.mark.parametrize(
    ("kind", "body"), [(wire.WATCH, ("", 0, ())), (wire.SUBSCRIBE, (1, "q", "one", None, 2, ()))]
)
def test_a_member_of_version_4_is_no_broker(
    service: ServicedRoot, kind: int, body: tuple[Any, ...]
) -> None:
    """It would be told GRANTED, which it does not know."""
    with RawMember(service.path, "m", "before") as member:
        assert member.hello(version=4).version == 4
        member.say(kind, *body)
        frame = member.hears()
    assert frame is not None
    assert frame[0] == wire.GOODBYE
    assert "not 4: update it" in str(frame[1])


def test_a_member_is_granted_runs_and_what_it_accepts_is_counted(service: ServicedRoot) -> None:
    with RawMember(service.path, "m", "before") as member:
        member.hello()
        member.say(wire.WATCH, "", 0, ())
        member.say(wire.SUBSCRIBE, 1, "q", "one", None, 2, ())
        runs: list[GrantedRun] = []
        while not runs:
            frame = member.hears()
            assert frame is not None
            runs += runs_of(frame[1]) if frame[0] == wire.GRANTED else ()
        assert [(run.subscription, [*run.message_ids], [*run.contents]) for run in runs] == [
            (1, [1, 2], [b"x", b"x"])
        ]
        assert [row[2][3:6] for row in runs[0].rows()] == [(None, 1, 0)] * 2
        record = Record(Kind.DEQUEUED, 0, "q", holder="one")
        member.say(wire.RUN, 1, record, 1, 2, None, None)
        queue = service.dispatcher.start().queues["q"]
        until(lambda: queue.departures == 2)
        assert queue.departed == {"accepted": 2}


@pytest.mark.parametrize("selector", [None, LONG])
@pytest.mark.parametrize("holder", ["one", LINK])
def test_what_was_on_its_way_comes_before_what_was_enqueued_later(
    service: ServicedRoot, holder: str, selector: str | None
) -> None:
    """Whether it is given back by WATCH, or by SUBSCRIBE, as what a link holds is."""
    store = service.store
    for message_id in (1, 2) if holder == LINK else ():
        done(store.release, message_id, "q", "m/one", delivery_failed=False)
        done(store.acquire, message_id, "q", LINK)
    later = store.message(MessageHeader(), b"later")
    done(store.enqueue, later, "q")
    with RawMember(service.path, "m", "before") as member:
        member.hello()
        member.say(wire.WATCH, "", 0, ())
        member.say(wire.SUBSCRIBE, 1, "q", holder, selector, 3, ())
        came: list[int] = []
        while len(came) < 3:
            came += [message_id for message_id, _body in granted(member, wire.GRANTED)]
    assert came == [1, 2, later.message_id]


def test_a_member_is_told_that_nothing_waits_only_of_what_it_has_looked_at(
    service: ServicedRoot,
) -> None:
    """What it says while its selector is compiled is answered when it has its place."""
    done(service.store.enqueue, service.store.message(MessageHeader(), b"x"), "q")
    with watching(service, "m", 1, 2) as member:
        for number, selector in enumerate((None, LONG)):
            member.say(wire.SUBSCRIBE, number, "q", "one", selector, 0, (1, 2))
            member.say(wire.CREDIT, number, 2)
            if number == 0:
                assert len(granted(member, wire.CAUGHT_UP)) == 1
                member.say(wire.CANCEL, number)
                granted(member, wire.ENDED)  # what it was granted it does not hold
        assert len(granted(member, wire.CAUGHT_UP)) == 1


class ReadByHand(NamedTuple):
    """A queue `fresh` and two messages for it; content of the first is not in memory.

    Attributes:
        putting: Whoever puts them there.
        first: The one whose content is to be read.
        second: The other one.
        not_at_hand: Messages whose content is not in memory.
        reading: Reads that were asked for, each to be made by the test.
    """

    putting: RemoteMessageStore
    first: StoredMessage
    second: StoredMessage
    not_at_hand: set[int]
    reading: SimpleQueue[Callable[[], None]]


@pytest.fixture
def by_hand(service: ServicedRoot, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReadByHand]:
    putting, store = RemoteMessageStore(service.path), service.store
    first, second = (putting.message(MessageHeader(), body) for body in (b"first", b"second"))
    done(putting.create, Queue("fresh"))
    there = ReadByHand(putting, first, second, {first.message_id}, SimpleQueue())
    at_hand, prefetch = store.at_hand, store.prefetch
    monkeypatch.setattr(
        store,
        "at_hand",
        lambda ids: at_hand([each for each in ids if each not in there.not_at_hand]),
    )
    monkeypatch.setattr(
        store, "prefetch", lambda ids, told: there.reading.put(partial(prefetch, ids, told))
    )
    with closing(putting):
        yield there


def test_what_is_read_for_a_consumer_that_is_gone_comes_first_when_it_is_back(
    service: ServicedRoot, by_hand: ReadByHand
) -> None:
    """It is not acquired yet, so nothing is given back; and it is not acquired for nobody later."""
    done(by_hand.putting.enqueue, by_hand.first, "fresh")
    fresh = service.dispatcher.start().queues["fresh"]
    with RawMember(service.path, "m", "before") as old:
        subscribe(old, "fresh", "one", 10)
        read = by_hand.reading.get(timeout=30)
    until(lambda: fresh.consumer_count == 0)
    until(lambda: not service.dispatcher._to_tell)
    done(by_hand.putting.enqueue, by_hand.second, "fresh")
    by_hand.not_at_hand.clear()
    with RawMember(service.path, "m", "before") as member:
        subscribe(member, "fresh", "one", 10)
        until(lambda: fresh.consumer_count == 1)
        read()
        came: list[bytes] = []
        while len(came) < 2:
            came += [body for _, body in granted(member, wire.GRANTED)]
    assert came == [b"first", b"second"]


def test_what_another_took_while_it_was_read_is_not_put_back_for_a_consumer_that_is_gone(
    service: ServicedRoot, by_hand: ReadByHand
) -> None:
    """As a browsing client may, which names the message that it takes."""
    putting, message_id = by_hand.putting, by_hand.first.message_id
    done(putting.enqueue, by_hand.first, "fresh")
    fresh = service.dispatcher.start().queues["fresh"]
    with RawMember(service.path, "m", "before") as old:
        subscribe(old, "fresh", "one", 10)
        read = by_hand.reading.get(timeout=30)
        done(putting.acquire, message_id, "fresh", "other")
        done(putting.dequeue, message_id, "fresh", "other")
    until(lambda: fresh.consumer_count == 0)
    until(lambda: len(fresh) == 0)
    read()


def test_a_connection_that_was_replaced_takes_nothing_more_for_its_member(
    service: ServicedRoot,
) -> None:
    """Its end comes later, and so may what it has said; the queue stays for the new one."""
    done(service.store.create, Queue("auto", arguments={"auto_delete": True}))
    dispatcher, (old, new) = service.dispatcher, (SilentPeer("m"), SilentPeer("m"))
    queues = dispatcher.start().queues
    dispatcher.take(old, wire.WATCH, ("", 0, ()))
    dispatcher.take(old, wire.SUBSCRIBE, (1, "auto", "one", None, 10, ()))
    until(lambda: queues["auto"].consumer_count == 1)
    (before,) = queues["auto"].consumers
    old.is_over = True
    dispatcher.take(new, wire.WATCH, ("", 0, ()))
    until(lambda: queues["auto"].consumer_count == 0)
    assert before.credit == 0
    dispatcher.take(old, wire.WATCH, ("", 0, ()))
    dispatcher.take(old, wire.SUBSCRIBE, (2, "auto", "one", None, 10, ()))
    dispatcher.take(new, wire.SUBSCRIBE, (1, "auto", "one", None, 10, ()))
    dispatcher.take(new, wire.SEEN, ())
    dispatcher.left(old)
    until(lambda: queues["auto"].consumer_count == 1)
    assert queues["auto"].consumers != [before]
    dispatcher.take(new, wire.CANCEL, (1,))
    until(lambda: "auto" not in queues)


def test_what_an_old_connection_has_seen_ends_nothing_that_the_new_one_says_again(
    service: ServicedRoot,
) -> None:
    dispatcher, (old, new) = service.dispatcher, (SilentPeer("m"), SilentPeer("m"))
    claim = (1, CLAIM, "1:ab:", False, False, False, "", "once")

    def is_refused(key: str) -> bool:
        other.say(wire.ORDER, *claim[:-1], key)
        while (frame := other.hears()) is not None:
            if frame[0] in {wire.ANSWER, wire.FAILED}:
                return frame[0] == wire.FAILED
        raise AssertionError("no answer came")

    with RawMember(service.path, "n") as other:
        other.hello()
        dispatcher.take(old, wire.WATCH, ("", 0, ()))
        dispatcher.take(old, wire.ORDER, claim)
        dispatcher.take(new, wire.WATCH, ("", 0, ()))
        dispatcher.take(old, wire.SEEN, ())
        assert is_refused("while the new one may say that again")
        dispatcher.take(new, wire.SEEN, ())
        assert not is_refused("as it has not")


def subscribe(member: RawMember, queue: str, holder: str, limit: int) -> None:
    """Greet, and say that it consumes from a queue, and that it holds nothing."""
    member.hello()
    member.say(wire.WATCH, "", 0, ())
    member.say(wire.SUBSCRIBE, 1, queue, holder, None, limit, ())


def using(service: ServicedRoot, *queues: str, incarnation: str = "before") -> RawMember:
    """Member m, which connects and says what it consumes from."""
    there = RawMember(service.path, "m", incarnation)
    there.hello()
    there.say(wire.WATCH, "", 0, ())
    for number, queue in enumerate(queues):
        there.say(wire.SUBSCRIBE, number, queue, "one", None, 0, ())
    assert changes(there)
    if queues:
        until(lambda: service.dispatcher.start().queues["auto"].consumer_count == 1)
    return there


@pytest.mark.parametrize("comes", ["again", "anew", "without", "never"])
def test_a_queue_that_deletes_itself_waits_for_a_member_that_is_away_while_that_may_come_back(
    service: ServicedRoot, comes: str
) -> None:
    done(service.store.create, Queue("auto", arguments={"auto_delete": True}))
    queues = service.dispatcher.start().queues
    with watching(service, "n", 3) as other, using(service, "auto") as old:

        def go(member: RawMember) -> None:
            member.close()
            until(lambda: queues["auto"].consumer_count == 0)
            other.say(wire.LOOK, 1, "auto", (0,) * 10, 1)
            granted(other, wire.LOOKED)  # the loop has seen to what nobody uses before this
            assert "auto" in queues

        go(old)
        if comes == "anew":
            using(service, incarnation="after").close()
        elif comes == "without":
            using(service).close()
        elif comes == "again":
            go(using(service, "auto"))
            service.dispatcher.lost("m")
        else:
            service.dispatcher.lost("m")
        until(lambda: "auto" not in queues)


class SilentPeer:
    """A connection of a member to nobody."""

    def __init__(self, member: str) -> None:
        self.member, self.has_room, self.is_over = member, True, False

    @property
    def decisions(self) -> Decisions:
        raise NotImplementedError

    def say(self, kind: int, body: Sequence[object]) -> None:
        """Nobody hears it."""

    def end(self, error: StoreError) -> None:
        raise AssertionError(error)


@pytest.mark.parametrize("is_late", [True, False])
def test_an_old_connection_that_ends_when_the_new_one_has_said_all_keeps_no_queue(
    service: ServicedRoot, is_late: bool
) -> None:
    done(service.store.create, Queue("auto", arguments={"auto_delete": True}))
    dispatcher, (old, new) = service.dispatcher, (SilentPeer("m"), SilentPeer("m"))
    for peer in (old, new):
        dispatcher.take(peer, wire.WATCH, ("", 0, ()))
        dispatcher.take(peer, wire.SUBSCRIBE, (1, "auto", "one", None, 0, ()))
        if peer is new and not is_late:
            dispatcher.left(old)
        dispatcher.take(peer, wire.SEEN, ())
    if is_late:
        dispatcher.left(old)
    queues = dispatcher.start().queues
    until(lambda: queues["auto"].consumer_count == 1)
    dispatcher.take(new, wire.CANCEL, (1,))
    until(lambda: "auto" not in queues)


def test_a_link_that_a_member_asks_for_is_lost_by_the_others(service: ServicedRoot) -> None:
    with watching(service, "m", 1, 2) as first, watching(service, "n", 3) as second:
        second.say(wire.LINK, 1, LINK)
        [row] = changes(first)
        assert (row[0], row[3]) == (Kind.ATTACHED, LINK)
        answer = second.hears()
        assert answer is not None
        assert answer[0] == wire.ANSWER


@pytest.mark.parametrize("text", ["no JSON", "[1]", '["a"]', "[" * 9999, 5])
def test_a_text_that_names_no_link_is_refused_and_told_to_nobody(
    service: ServicedRoot, text: object
) -> None:
    with watching(service, "m", 1, 2) as first, watching(service, "n", 3) as second:
        for number in range(3):
            second.say(wire.LINK, number, text)
            answer = second.hears()
            assert answer is not None
            assert answer[0] == wire.FAILED
        second.say(wire.LINK, 4, LINK)
        [row] = changes(first)
        assert (row[0], row[3]) == (Kind.ATTACHED, LINK)


BAD = [
    Record(Kind.CREATED, 0, exchange="x", detail='{"type": "odd", "durability": 2}'),
    Record(Kind.BOUND, 0, "q", exchange="h", binding_key="", detail='{"arguments": {"a": [1]}}'),
    Record(
        Kind.BOUND, 0, "q", exchange="h", binding_key="", detail='{"arguments": {"x-match": 1}}'
    ),
]


@pytest.mark.parametrize("bad", BAD)
def test_wiring_that_no_broker_can_have_is_refused_and_told_to_nobody(
    service: ServicedRoot, bad: Record
) -> None:
    with watching(service, "m", 1, 2) as first, RawMember(service.path, "other") as second:
        second.hello()
        second.ask(1, Record(Kind.CREATED, 0, exchange="h", detail='{"type": "headers"}'))
        assert [row[2] for row in changes(first)] == ["h"]
        assert [name for _, name, _ in second.ask(2, bad)] == ["InvalidRequest"]
        second.ask(3, create("new"))
        assert [row[1] for row in changes(first)] == ["new"]


def test_what_is_stored_and_cannot_be_costs_itself_alone(service: ServicedRoot) -> None:
    """As an older release may have stored it: this service goes on, and tells the next."""
    with watching(service, "m", 1, 2) as member:
        done(service.store.create, Exchange("x", "odd"))
        done(service.store.create, Queue("new"))
        told = changes(member)
        while not any(row[1] == "new" for row in told):
            told += changes(member)
        until(lambda: "new" in service.dispatcher.start().queues)


def test_what_a_link_holds_is_told_to_the_member_that_asks_for_it(
    service: ServicedRoot,
) -> None:
    detail = {"version": 1, "source": {"address": "q"}, "target": None, "durability": 2}
    store, key = service.store, LinkKey("container", "from q", Role.SENDER)
    done(store.attach, key, {**detail, "expiry_policy": "never", "timeout_s": 0})
    messages = [store.message(MessageHeader(), b"x") for _ in range(2)]
    for message in messages:
        done(store.enqueue, message, "q")
    done(store.acquire, messages[0].message_id, "q", LINK)
    with watching(service, "n", 3) as member:
        ((told, unsettled, held),) = member.read(wire.LINK, LINK)
        assert (json.loads(told)["durability"], unsettled) == (2, ())
        assert [row[:2] for row in held] == [("q", messages[0].message_id)]


def test_what_is_read_for_a_member_comes_along_and_before_what_was_handed_out_later(
    service: ServicedRoot, by_hand: ReadByHand
) -> None:
    putting, first, second, _not_at_hand, reading = by_hand
    with watching(service, "n", 3) as member:
        member.say(wire.SUBSCRIBE, 1, "fresh", "one", None, 10, ())
        done(putting.enqueue, first, "fresh")
        read = reading.get(timeout=30)
        done(putting.enqueue, second, "fresh")
        until(lambda: len(service.dispatcher.start().queues["fresh"]) == 2)
        member.say(wire.LOOK, 1, "fresh", (0,) * 10, 1)  # the loop knows of both before this
        assert granted(member, wire.LOOKED) == []
        read()
        came = granted(member, wire.GRANTED)
        came += [] if len(came) == 2 else granted(member, wire.GRANTED)
    assert came == [(first.message_id, b"first"), (second.message_id, b"second")]


def granted(member: RawMember, last: int) -> list[tuple[int, bytes]]:
    """Messages and contents that a member is granted up to the next frame of a kind."""
    rows: list[tuple[int, bytes]] = []
    kind = None
    while kind != last:
        frame = member.hears()
        assert frame is not None
        kind, body = frame
        if kind == wire.GRANTED:
            rows += [(row[1], row[4]) for run in runs_of(body) for row in run.rows()]
    return rows


class LinksTold:
    """What a broker beside the service is told of links, in order."""

    def __init__(self) -> None:
        self.told: SimpleQueue[tuple[str, str, KeptLink | None]] = SimpleQueue()

    def left_elsewhere(self, text: str, there: KeptLink) -> None:
        self.told.put(("left", text, there))

    def attached_elsewhere(self, text: str) -> None:
        self.told.put(("attached", text, None))


def test_a_broker_beside_is_told_of_links_that_a_lost_member_left_and_not_of_those_it_detached(
    service: ServicedRoot,
) -> None:
    links = service.dispatcher.links = LinksTold()
    detail = '{"durability": 2, "source": null, "target": null, "version": 1}'
    attached = Record(Kind.ATTACHED, 0, holder=LINK, detail=detail)
    with watching(service, "m", 1, 2) as member:
        assert member.ask(1, attached) == []
        assert member.ask(2, Record(Kind.DETACHED, 0, holder=LINK)) == []
        assert member.ask(3, attached) == []
    with service.store.batch() as batch:
        service.service.members.lose(batch, "m")
    told = [links.told.get(timeout=30) for _ in range(3)]
    assert [each[:2] for each in told] == [("attached", LINK), ("attached", LINK), ("left", LINK)]
    with watching(service, "m"):
        assert links.told.get(timeout=30)[0] == "attached", "it came back, and has its link"
