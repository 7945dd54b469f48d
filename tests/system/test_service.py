"""A live service: who may come in, what is replayed, and peers that behave badly."""

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker_shim.errors import Ended, InvalidRequest
from broker_shim.service import outbox
from broker_shim.service import socket as listening
from broker_shim.service.service import Service
from broker_shim.service.socket import ServiceSocket, listen_on_path, read_token
from broker_shim.store import protocol as wire
from broker_shim.store.delta import DeltaMessageStore
from sparkstore.core.link_records import LinkKey, Role, link_text
from sparkstore.core.records import Kind, MessageHeader, Record
from tests.support.roots.logs import until
from tests.support.stores.raw_member import RawMember, create, enqueue
from tests.support.stores.services import Served, served, short_folder
from tests.support.stores.stores import DELTA_CONFIG

pytestmark = pytest.mark.system

TOKEN = "a token of 24 letters"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "root") as there:
        yield there


@pytest.fixture
def member(service: Served) -> Iterator[RawMember]:
    """Connected, with queue `q` and ids from 1; its next request is 2."""
    with RawMember(service.path) as there:
        there.hello()
        assert there.ask(1, create()) == []
        assert there.ids(1000) == 1
        yield there


HOLDER = "c/l"
EXCHANGE = '{"durability": 2, "arguments": {}, "type": "topic"}'
KEPT_LINK = '["c","l","receiver"]'
LINK_DETAIL = '{"durability": 2, "source": null, "target": null, "version": 1}'
ASKED = {
    "create": create("other"),
    "destroy": Record(Kind.DESTROYED, 0, "q"),
    "bind": Record(Kind.BOUND, 0, "q", exchange="amq.topic", binding_key="#", detail="{}"),
    "enqueue": enqueue(3),
    "acquire": Record(Kind.ACQUIRED, 0, "q", 1, HOLDER),
    "release": Record(Kind.RELEASED, 0, "q", 2, HOLDER),
    "dequeue": Record(Kind.DEQUEUED, 0, "q", 2, HOLDER),
    "configure": Record(Kind.CONFIGURED, 0, exchange="a", binding_key="b", detail="{}"),
    "attach": Record(Kind.ATTACHED, 0, holder=KEPT_LINK, detail=LINK_DETAIL),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_nothing_is_told_before_it_is_on_disk(
    member: RawMember, asked: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read is decided after the request, and its answer goes the same way: it comes first."""
    assert member.ask(2, Record(Kind.CREATED, 0, exchange="amq.topic", detail=EXCHANGE)) == []
    assert member.ask(3, enqueue(1), enqueue(2)) == []
    assert member.ask(5, Record(Kind.ACQUIRED, 0, "q", 2, HOLDER)) == []
    pwritev, goes_on = os.pwritev, threading.Event()

    def slow(*args: Any) -> int:
        assert goes_on.wait(30)
        return pwritev(*args)

    monkeypatch.setattr(os, "pwritev", slow)
    member.say(wire.DO, 6, (asked,))
    member.read(wire.HEADERS, [1])
    goes_on.set()
    assert member.until_done(6) == []


def goodbye_of(member: RawMember) -> tuple[str, str]:
    """The service's last words, after whatever it said before."""
    while (frame := member.hears()) is not None:
        if frame[0] == wire.GOODBYE:
            assert member.hears() is None
            error, message = frame[1]
            return error, message
    raise AssertionError("the service hung up without a word")


def is_alive(service: Served) -> bool:
    """Another member is served as if nothing had been."""
    with RawMember(service.path, "witness") as witness:
        return witness.hello().instance == service.service.instance


def ids_on(service: Served, queue: str = "q") -> list[int]:
    return [*service.store.recover().entries[queue]]


# ------------------------------------------------------------------------------- who may come


def test_the_socket_is_for_our_user_alone(service: Served) -> None:
    assert stat.S_IMODE(service.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("version", [1, 2, 7])
def test_an_older_or_newer_version_is_told_with_both_versions(
    service: Served, version: int
) -> None:
    with RawMember(service.path) as member:
        member.say(wire.HELLO, version, "m", "i", None, False, None)
        error, message = goodbye_of(member)
    assert error == "InvalidRequest"
    assert f"version {version}" in message
    assert f"version {wire.VERSION}" in message


def test_a_first_frame_that_is_no_hello_is_sent_away(service: Served) -> None:
    with RawMember(service.path) as member:
        member.say(wire.DO, 1, (create(),))
        assert "HELLO" in goodbye_of(member)[1]
    assert service.store.recover().queues == []


def test_who_says_nothing_is_sent_away(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "HELLO_TIMEOUT_S", 0.2)
    with RawMember(service.path) as silent, RawMember(service.path) as half:
        half.peer.sendall(b"\x00\x00")
        assert "no HELLO" in goodbye_of(silent)[1]
        assert "no HELLO" in goodbye_of(half)[1]


def test_a_wrong_token_is_refused_and_the_right_one_is_not(tmp_path: Path) -> None:
    with served(tmp_path / "root", token="a token of 24 letters") as there:
        for token in (None, "", "a token of 24 letterS"):
            with RawMember(there.path) as stranger:
                stranger.say(wire.HELLO, wire.VERSION, "m", "i", None, False, token)
                assert "wrong token" in goodbye_of(stranger)[1]
        with RawMember(there.path) as friend:
            friend.hello(token="a token of 24 letters")


def test_a_root_stays_with_its_virtual_host_also_after_a_restart(tmp_path: Path) -> None:
    with served(tmp_path / "root") as there, RawMember(there.path) as member:
        member.hello("host one")
    with served(tmp_path / "root") as there:
        with RawMember(there.path) as other:
            other.say(wire.HELLO, wire.VERSION, "raw", "i", "host two", False, None)
            error, message = goodbye_of(other)
        assert error == "InvalidRequest"
        assert "host one" in message
        assert "host two" in message
        with RawMember(there.path) as same, RawMember(there.path, "of no host") as none:
            same.hello("host one")
            none.hello()


def test_message_number_zero_is_read_back_from_disk(tmp_path: Path) -> None:
    with served(tmp_path / "root") as there, RawMember(there.path) as member:
        member.hello()
        assert member.ask(1, create()) == []
        assert member.ask(2, enqueue(0, body=b"zero")) == []
    with served(tmp_path / "root") as there, RawMember(there.path) as member:
        member.hello()
        ((_header, body),) = member.read(wire.LOAD, 0)
        assert body == b"zero"


def test_a_host_takes_over_the_root_of_one_that_it_names_and_that_is_not_connected(
    service: Served,
) -> None:
    def says(host: str, incarnation: str, former: object) -> RawMember:
        member = RawMember(service.path, "raw", incarnation)
        member.say(wire.HELLO, wire.VERSION, "raw", incarnation, host, True, None, former)
        return member

    with RawMember(service.path, "raw", "one") as first:
        first.hello("former", exclusive=True)
        with says("heir", "two", "former") as early:
            assert "connected already" in goodbye_of(early)[1]
    for host, former, hint in (
        ("heir", "nobody", "formerName = 'former'"),
        ("heir", None, "formerName = 'former'"),
        ("heir", 5, "HELLO is"),
    ):
        with says(host, "two", former) as other:
            assert hint in goodbye_of(other)[1]
    with says("heir", "two", "former") as heir:
        frame = heir.hears()
        assert frame is not None
        assert frame[0] == wire.WELCOME
    with RawMember(service.path, "raw", "two") as again:
        again.hello("heir")
    with says("former", "one", None) as late:
        assert "formerName = 'heir'" in goodbye_of(late)[1]


def test_an_exclusive_member_is_alone_and_a_second_process_of_one_member_is_refused(
    service: Served,
) -> None:
    with RawMember(service.path, "brokerj", "one") as first:
        first.hello(exclusive=True)
        for name, incarnation, exclusive in (
            ("brokerj", "two", True),
            ("other", "i", False),
            ("other", "i", True),
        ):
            with RawMember(service.path) as second:
                second.say(wire.HELLO, wire.VERSION, name, incarnation, None, exclusive, None)
                error, message = goodbye_of(second)
            assert error == "InvalidRequest"
            assert "connected" in message
    with RawMember(service.path, "other") as other:
        until(lambda: service.service.members.by_name["brokerj"].peer is None)
        other.hello()
        with RawMember(service.path, "brokerj", "one") as again:
            again.say(wire.HELLO, wire.VERSION, "brokerj", "one", None, True, None)
            assert "must be alone" in goodbye_of(again)[1]


def test_an_incarnation_that_was_replaced_may_not_come_back(tmp_path: Path) -> None:
    with served(tmp_path / "root") as there:
        for incarnation in ("one", "two"):
            with RawMember(there.path, "m", incarnation) as member:
                member.hello()
    with served(tmp_path / "root") as there, RawMember(there.path, "m", "one") as late:
        late.say(wire.HELLO, wire.VERSION, "m", "one", None, False, None)
        assert goodbye_of(late)[0] == "Fenced"


def test_a_new_incarnation_releases_what_the_old_one_held_and_a_restart_does_not(
    tmp_path: Path,
) -> None:
    def acquired(there: Served) -> list[tuple[str | None, int]]:
        entries = there.store.recover().entries["q"].values()
        return [(entry.acquired_by, entry.delivery_count) for entry in entries]

    with served(tmp_path / "root") as there, RawMember(there.path, "m", "one") as old:
        old.hello()
        old.ask(1, create())
        first = old.ids(10)
        old.ask(2, enqueue(first), enqueue(first + 1))
        old.ask(3, Record(Kind.ACQUIRED, 0, "q", first, "c1"))
        assert acquired(there) == [("m/c1", 0), (None, 0)]
    with served(tmp_path / "root") as there:
        with RawMember(there.path, "m", "one") as same:
            same.hello()
            assert acquired(there) == [("m/c1", 0), (None, 0)]
        with RawMember(there.path, "m", "two") as new:
            assert new.hello().last_request == 3
            assert acquired(there) == [(None, 1), (None, 0)]


LINK = link_text(LinkKey("container", "from q", Role.SENDER))
TERMS = '{"durability": 2, "source": {"address": "q"}, "target": null, "version": 1}'


def attached(there: Served) -> bool:
    """Whether the link is attached, by the store's state: what the view `links` tells, too."""
    with there.store.look() as machine:
        return machine.state.links[LINK].detached_at is None


def test_a_link_of_a_member_that_is_lost_is_detached_and_its_own_again_if_that_comes_back(
    tmp_path: Path,
) -> None:
    with served(tmp_path / "root") as there:
        with RawMember(there.path, "m", "one") as old, RawMember(there.path, "n") as other:
            old.hello()
            other.hello()
            assert old.ask(1, Record(Kind.ATTACHED, 0, holder=LINK, detail=TERMS)) == []
            assert other.read(wire.LINK, LINK)[0][0] == TERMS
            lose(there, "n")
            assert attached(there)
        lose(there, "m")
        assert not attached(there)
        with RawMember(there.path, "m", "one") as same:
            same.hello()
            assert attached(there)
        lose(there, "m")
        with RawMember(there.path, "n") as other:
            other.hello()
            other.ask(9, Record(Kind.ATTACHED, 0, holder=LINK, detail=TERMS))
            with RawMember(there.path, "m", "one") as same:
                same.hello()
            lose(there, "m")
            assert attached(there)
    with served(tmp_path / "root") as there:
        assert attached(there), "how long the service was away is nobody's fault"
        with RawMember(there.path, "n", "two") as new:
            new.hello()
            assert not attached(there)


def lose(there: Served, member: str) -> None:
    """The member's grace is over, unless it is connected."""
    with there.store.batch() as batch:
        there.service.members.lose(batch, member)


def test_what_an_open_transaction_claims_is_free_for_the_next_incarnation(
    service: Served, member: RawMember
) -> None:
    member.ask(2, enqueue(1))
    member.say(wire.OPEN, 3, 1)
    member.say(wire.ADD, 4, 1, (Record(Kind.DEQUEUED, 0, "q", 1, "c"),))
    assert member.until_done(4) == []
    member.close()
    with RawMember(service.path) as new:
        new.hello()
        assert new.ask(5, Record(Kind.DEQUEUED, 0, "q", 1, "c")) == []
        new.say(wire.END, 6, 1, True)
        assert "not open" in new.until_done(6)[0][2]


def dequeued(message_id: int) -> Record:
    return Record(Kind.DEQUEUED, 0, "q", message_id, "c")


XID = b"\0\0\0\1\1gb"


def test_what_is_open_too_long_is_rolled_back_and_what_is_prepared_never(service: Served) -> None:
    now_s = 100.0
    service.service.members.clock = lambda: now_s
    with RawMember(service.path) as member:
        member.hello()
        member.ask(1, create())
        member.ids(10)
        member.ask(2, enqueue(1), enqueue(2), enqueue(3))
        for number in (1, 2):
            member.say(wire.OPEN, 2 * number + 1, number)
            member.say(wire.ADD, 2 * number + 2, number, (dequeued(number),))
        member.say(wire.PREPARE, 7, 2, XID)
        assert member.until_done(7) == []
        now_s += 50
        member.say(wire.OPEN, 8, 3)
        member.say(wire.ADD, 9, 3, (dequeued(3),))
        assert member.until_done(9) == []
        with service.store.batch():
            assert service.service.members.roll_back_late("raw", 50.0) == (1, 50.0)
            assert service.service.members.roll_back_late("stranger", 50.0) == (0, None)
        member.say(wire.END, 10, 1, True)
        assert "open for too long" in member.until_done(10)[0][2]
        member.say(wire.END, 11, 3, True)
        assert member.until_done(11) == []
        assert sorted(ids_on(service)) == [1, 2]
        assert member.ask(12, dequeued(1)) == []
        member.say(wire.DECIDE, 13, XID, True)
        assert member.until_done(13) == []
        assert ids_on(service) == []


def test_a_service_rolls_back_by_itself_what_a_member_leaves_open(tmp_path: Path) -> None:
    with short_folder() as folder:
        store = DeltaMessageStore(tmp_path / "root", DELTA_CONFIG)
        address = ServiceSocket(listen_on_path(folder / "s"), None)
        there = Service(store, [address], 1 << 20, transaction_timeout_s=0.01)
        with RawMember(folder / "s") as member:
            member.hello()
            for number in (1, 2):
                member.say(wire.OPEN, number, number)
            until(lambda: there.members.metrics.late == 2)
            member.say(wire.END, 3, 2, True)
            assert "open for too long" in member.until_done(3)[0][2]
        there.close()
        store.close()


def test_what_a_lost_member_had_open_is_free_for_the_others(
    service: Served, member: RawMember
) -> None:
    member.ask(2, enqueue(1))
    member.say(wire.OPEN, 3, 1)
    member.say(wire.ADD, 4, 1, (dequeued(1),))
    assert member.until_done(4) == []
    member.close()
    lose(service, member.member)
    with RawMember(service.path, "other") as other:
        other.hello()
        assert other.ask(1, dequeued(1)) == []


# ------------------------------------------------------------------------------- requests


def test_what_is_no_xid_or_no_branch_is_refused_and_a_branch_is_decided_once(
    service: Served, member: RawMember
) -> None:
    def refused(kind: int, request: int, *body: object) -> str:
        member.say(kind, request, *body)
        return " ".join(message for _, _, message in member.until_done(request))

    good, number = b"\0\0\0\1\1gb", 2
    wrong = [
        (b"", "shorter than it says"),
        (b"\0\0\0\1\7gb", "shorter than it says"),
        (b"\0\0\0\1\xc8" + b"g" * 200, "global id of an xid has 200 bytes"),
        (b"\0\0\0\1\1g" + b"b" * 200, "branch id of an xid has 200 bytes"),
        (b"\xff\0\0\1\1gb", "format id"),
    ]
    for transaction, (xid, message) in enumerate(wrong, 1):
        assert refused(wire.OPEN, number, transaction) == ""
        assert refused(wire.ADD, number + 1, transaction, (enqueue(1),)) == ""
        assert message in refused(wire.PREPARE, number + 2, transaction, xid)
        assert "not open" in refused(wire.PREPARE, number + 3, transaction, good)
        assert message in refused(wire.DECIDE, number + 4, xid, True)
        number += 5
    assert "no branch 1:67:62" in refused(wire.DECIDE, number, good, True)
    assert refused(wire.OPEN, number + 1, 9) == ""
    assert "is empty" in refused(wire.PREPARE, number + 2, 9, good)
    assert refused(wire.OPEN, number + 3, 10) == ""
    assert refused(wire.ADD, number + 4, 10, (enqueue(1),)) == ""
    for _ in range(2):  # sent again
        assert refused(wire.PREPARE, number + 5, 10, good) == ""
    assert ids_on(service) == []
    assert "belongs to the prepared branch" in refused(wire.DO, number + 6, (enqueue(1),))
    assert [each.xid.branch_id for each in service.store.prepared()] == [b"b"]
    for _ in range(2):
        assert refused(wire.DECIDE, number + 7, good, True) == ""
    assert "no branch" in refused(wire.DECIDE, number + 8, good, False)
    assert ids_on(service) == [1]


def test_a_request_that_is_sent_again_is_decided_once(service: Served, member: RawMember) -> None:
    assert member.ask(2, enqueue(1)) == []
    (refusal,) = member.ask(3, enqueue(1))
    for _ in range(2):
        assert member.ask(2, enqueue(1)) == []
        assert member.ask(3, enqueue(1)) == [refusal]
    assert ids_on(service) == [1]
    with RawMember(service.path, member.member, member.incarnation) as again:
        welcome = again.hello()
        assert (welcome.last_request, welcome.refusals) == (3, (refusal,))
        assert again.ask(2, enqueue(1)) == []
        assert again.ask(4, enqueue(2)) == []
    assert goodbye_of(member) == ("Unavailable", "the member has connected again")
    assert ids_on(service) == [1, 2]


def test_what_a_lost_batch_leaves_undecided_may_come_in_other_frames(
    service: Served, member: RawMember
) -> None:
    enqueued = Record(Kind.ENQUEUED, 0, "q")

    def contents(count: int) -> list[tuple[MessageHeader, bytes]]:
        return [(MessageHeader(body_bytes=4), b"body")] * count

    member.say(wire.BATCH, 2, enqueued, [1, 2, 1], contents(3))
    (refusal,) = member.until_done(4)
    assert refusal[:2] == (4, "InvalidRequest")
    with RawMember(service.path, member.member, member.incarnation) as again:
        assert again.hello().last_request == 4
        again.say(wire.BATCH, 3, enqueued, [2, 1, 3], contents(3))
        again.say(wire.DO, 6, ())
        again.say(wire.BATCH, 7, enqueued, [4, 5], contents(2))
        assert again.until_done(8) == [refusal]
    assert ids_on(service) == [1, 2, 3, 4, 5]


def test_one_that_lies_about_its_last_request_is_heard_no_more_and_no_other_is_harmed(
    service: Served, member: RawMember
) -> None:
    assert member.ask((1 << 63) - 1, enqueue(1)) == []
    assert member.ask(3, enqueue(2)) == []  # as if it had been decided before
    assert ids_on(service) == [1]
    with RawMember(service.path, "other") as other:
        assert other.hello().last_request == 0
        assert other.ask(1, enqueue(3)) == []
    assert ids_on(service) == [1, 3]
    member.say(wire.DO, 1 << 63, (enqueue(4),))
    assert goodbye_of(member)[0] == "InvalidRequest"


def test_what_a_member_holds_no_other_can_release_or_settle(
    service: Served, member: RawMember
) -> None:
    assert member.ask(2, enqueue(1)) == []
    assert member.ask(3, Record(Kind.ACQUIRED, 0, "q", 1, HOLDER)) == []
    with RawMember(service.path, "other") as other:
        other.hello()
        number = 0
        for holder in (HOLDER, f"raw/{HOLDER}", "raw", ""):
            for kind in (Kind.RELEASED, Kind.DEQUEUED, Kind.ACQUIRED):
                number += 1
                (refusal,) = other.ask(number, Record(kind, 0, "q", 1, holder))
                assert refusal[1] in {"InvalidRequest", "NotAcquired"}, (holder, kind)
    entry = service.store.recover().entries["q"][1]
    assert entry.acquired_by == f"raw/{HOLDER}"


def test_each_enqueue_brings_the_content_until_one_of_them_was_not_refused(
    service: Served, member: RawMember
) -> None:
    named = enqueue(1, body=None)._replace(message=MessageHeader(None))
    member.say(wire.DO, 2, (enqueue(1, "nowhere"),))
    member.say(wire.DO, 3, (named,))
    member.say(wire.DO, 4, (enqueue(1),))
    member.say(wire.DO, 5, (create("twin"),))
    member.say(wire.DO, 6, (enqueue(1, "twin"),))
    refusals = member.until_done(6)
    assert [request for request, *_ in refusals] == [2, 3]
    assert "make a new message" in refusals[1][2]
    assert (ids_on(service), ids_on(service, "twin")) == ([1], [1])
    assert service.store.load(1).body == b"body"


def test_a_restarted_service_knows_what_was_decided(tmp_path: Path) -> None:
    with served(tmp_path / "root") as there, RawMember(there.path, "m", "i") as member:
        member.hello()
        member.ask(1, create())
        first = member.ids(10)
        member.ask(2, enqueue(first))
        (refusal,) = member.ask(3, enqueue(first, "nowhere"))
        instance = there.service.instance
    with served(tmp_path / "root") as there, RawMember(there.path, "m", "i") as member:
        welcome = member.hello()
        assert (welcome.last_request, welcome.refusals) == (3, (refusal,))
        assert welcome.instance != instance
        assert member.ask(3, enqueue(first)) == [refusal]
        assert ids_on(there) == [first]


def test_several_records_are_decided_all_or_none(service: Served, member: RawMember) -> None:
    assert member.ask(2, enqueue(1), enqueue(2, "nowhere"))[0][1] == "InvalidRequest"
    assert ids_on(service) == []
    assert member.ask(3, enqueue(1), enqueue(2)) == []
    move = (Record(Kind.DEQUEUED, 0, "q", 1), enqueue(3))
    assert member.ask(4, *move) == []
    assert ids_on(service) == [2, 3]


def test_configuration_goes_with_one_wiring_record_and_is_told_back(
    service: Served, member: RawMember
) -> None:
    kept = Record(
        Kind.CONFIGURED, 0, exchange="brokerj.configuration", binding_key="k", detail="{}"
    )
    gone = Record(Kind.UNCONFIGURED, 0, exchange="link", binding_key="absent")
    assert member.ask(2, kept, create("two"), gone) == []
    sections = dict(answer[:2] for answer in member.read(wire.RECOVER))
    assert sections["configured"] == (("brokerj.configuration", "k", "{}"),)
    assert [row[1] for row in sections["wiring"]] == ["q", "two"]
    assert "only configuration" in member.ask(3, create("a"), create("b"))[0][2]
    own = kept._replace(exchange="sparkstore.member")
    assert "service's own" in member.ask(4, own)[0][2]


@pytest.mark.parametrize(
    "record",
    [
        (),
        (8,),
        create()[:-1],
        (99, *create()[1:]),
        Record(Kind.OPENED, 0),
        Record(Kind.ENQUEUED, 0, "q", 1),
        Record(Kind.ENQUEUED, 0, "q", 1, message=MessageHeader(priority=10), body=b""),
        Record(Kind.ENQUEUED, 0, "q", 1, message=MessageHeader(body_bytes=9), body=b""),
        Record(Kind.ENQUEUED, 0, "q", 1, message=MessageHeader(expires_at=1 << 63), body=b""),
        Record(Kind.ENQUEUED, 0, "q", 1, message=MessageHeader(body_bytes=9)),
        Record(Kind.ENQUEUED, 0, "q", 1 << 40, message=MessageHeader(), body=b""),
        Record(Kind.ENQUEUED, 0, "q", 1, message=MessageHeader(None), body=b""),
        (8, 0, "q", 1, None, None, None, ("raw",), b"", *[None] * 7),
        (8, 0, "q", "1", None, None, None, tuple(MessageHeader()), b"", *[None] * 7),
        Record(Kind.CREATED, 0, detail="{}"),
        Record(Kind.CREATED, 0, "w", detail="no JSON"),
        Record(Kind.CREATED, 0, "w", detail='{"durability": 7}'),
        Record(Kind.ACQUIRED, 0, "q", 1),
        Record(Kind.ACQUIRED, 0, "q", 0, "c"),
        enqueue(1)._replace(member="another"),
        enqueue(1)._replace(request=7),
    ],
    ids=lambda record: str(record)[:50],
)
def test_a_record_that_cannot_be_is_refused_and_nothing_else_happens(
    service: Served, member: RawMember, record: Any
) -> None:
    (refusal,) = member.ask(2, record)
    assert refusal[:2] == (2, "InvalidRequest")
    assert member.ask(3, enqueue(2)) == []
    assert ids_on(service) == [2]


def test_content_in_pieces_is_whole_or_refused(service: Served, member: RawMember) -> None:
    def piece(message_id: int, start: int, content: bytes) -> Record:
        return Record(Kind.CONTENT, 0, None, message_id, body=content, body_offset=start)

    member.say(wire.PIECE, 2, piece(1, 0, b"one "))
    member.say(wire.PIECE, 3, piece(1, 9, b"gap"))
    assert member.until_done(3)[0][0] == 3
    whole = enqueue(1, body=None)._replace(message=MessageHeader(body_bytes=7))
    assert "4 bytes in pieces" in member.ask(4, whole)[0][2]
    member.say(wire.PIECE, 5, piece(1, 4, b"two"))
    member.say(wire.PIECE, 6, piece(1, 0, b"one "))
    assert member.until_done(6) == []
    assert member.ask(7, whole) == []
    assert service.store.load(1).body == b"one two"


def test_what_is_staged_with_its_header_outlives_the_service_until_it_is_enqueued_or_let_go(
    tmp_path: Path,
) -> None:
    def staged(message_id: int, content: bytes) -> Record:
        header = MessageHeader(header=b"h", header_bytes=1, body_bytes=len(content))
        piece = Record(Kind.CONTENT, 0, None, message_id, message=header)
        return piece._replace(body=content, body_offset=0)

    def told(member: RawMember) -> list[int]:
        found = [answer for answer in member.read(wire.RECOVER) if answer[0] == "messages"]
        return [int.from_bytes(found[0][1][at : at + 8]) for at in range(0, len(found[0][1]), 8)]

    with served(tmp_path / "root") as there, RawMember(there.path, "m", "i") as member:
        member.hello()
        member.ask(1, create())
        first = member.ids(10)
        assert member.ask(2, staged(first, b"kept"), staged(first + 1, b"")) == []
        assert member.ask(3, staged(first + 2, b"gone")) == []
        assert told(member) == [first, first + 1, first + 2]
    with served(tmp_path / "root") as there, RawMember(there.path, "m", "i") as member:
        member.hello()
        assert told(member) == [first, first + 1, first + 2]
        assert member.read(wire.LOAD, first, True)[0][1] == b"kept"
        let_go = Record(Kind.STAGING_ABORTED, 0, None, first + 2)
        assert member.ask(4, let_go) == []
        assert member.ask(5, let_go)[0][1] == "InvalidRequest"
        whole = [staged(first, b"kept")._replace(kind=Kind.ENQUEUED, queue="q", body=None)]
        whole.append(staged(first + 1, b"")._replace(kind=Kind.ENQUEUED, queue="q", body=None))
        assert member.ask(6, *(each._replace(body_offset=None) for each in whole)) == []
        assert told(member) == [first, first + 1]
        assert [there.store.load(first + n).body for n in (0, 1)] == [b"kept", b""]


def test_a_transaction_in_parts_changes_configured_objects_as_it_ends(tmp_path: Path) -> None:
    """Broker-J's XA: a branch larger than a frame and the note of it are true together."""

    def told(member: RawMember) -> tuple[list[str], int]:
        answers = member.read(wire.RECOVER)
        keys = [row[1] for answer in answers if answer[0] == "configured" for row in answer[1]]
        return [key for key in keys if key.startswith("x")], sum(
            len(answer[2]) // 8 for answer in answers if answer[0] == "entries"
        )

    with served(tmp_path / "root") as there, RawMember(there.path, "m", "i") as member:
        member.hello()
        note = Record(Kind.CONFIGURED, 0, exchange="xid", binding_key="x1", detail="{}")
        assert member.ask(1, create(), note) == []
        first = member.ids(10)
        gone = note._replace(kind=Kind.UNCONFIGURED, detail=None)
        objects = (gone, note._replace(binding_key="x2"))
        for number, wrong in enumerate(((enqueue(first + 9),), ("no record",), objects)):
            request = 2 + 3 * number
            member.say(wire.OPEN, request, number + 1)
            member.say(wire.ADD, request + 1, number + 1, (enqueue(first + number),))
            member.say(wire.END, request + 2, number + 1, True, wrong)
            refused = [refusal[0] for refusal in member.until_done(request + 2)]
            assert refused == ([] if wrong is objects else [request + 2])
            assert told(member) == ((["x2"], 1) if wrong is objects else (["x1"], 0))
    with served(tmp_path / "root") as there, RawMember(there.path, "m", "i") as member:
        member.hello()
        assert told(member) == (["x2"], 1)


def test_a_branch_that_is_prepared_changes_configured_objects_and_recovery_tells_what_it_does(
    tmp_path: Path,
) -> None:
    """Broker-J's XA: a branch that was an object becomes one of the store, in one step."""

    def told(member: RawMember) -> tuple[list[str], tuple[Any, ...]]:
        answers = member.read(wire.RECOVER)
        keys = [row[1] for answer in answers if answer[0] == "configured" for row in answer[1]]
        found = [row for answer in answers if answer[0] == "branches" for row in answer[1]]
        return [key for key in keys if key.startswith("x")], tuple(found)

    with served(tmp_path / "root") as there, RawMember(there.path, "m", "i") as member:
        member.hello()
        note = Record(Kind.CONFIGURED, 0, exchange="xid", binding_key="x1", detail="{}")
        assert member.ask(1, create(), note) == []
        first = member.ids(10)
        assert member.ask(2, enqueue(first + 5)) == []
        gone = note._replace(kind=Kind.UNCONFIGURED, detail=None)
        for number, wrong in enumerate(((enqueue(first + 9),), ("no record",), (gone,))):
            request, branch = 3 + 3 * number, (enqueue(first + number), dequeued(first + 5))
            member.say(wire.OPEN, request, number + 1)
            member.say(wire.ADD, request + 1, number + 1, branch)
            member.say(wire.PREPARE, request + 2, number + 1, XID, wrong)
            refused = [refusal[0] for refusal in member.until_done(request + 2)]
            assert refused == ([] if gone in wrong else [request + 2])
            does = ((XID, (("q", first + 2),), (("q", first + 5),)),)
            assert told(member) == (([], does) if gone in wrong else (["x1"], ()))
    with served(tmp_path / "root") as there, RawMember(there.path, "m", "i") as member:
        member.hello()
        assert told(member) == ([], does)
        member.say(wire.DECIDE, 12, XID, True)
        assert member.until_done(12) == []
        assert told(member) == ([], ())
        assert ids_on(there) == [first + 2]


# ------------------------------------------------------------------------------- bad peers


@pytest.mark.parametrize(
    "content",
    [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 9, b"\x00\x00\x00\x00\x02", b"\x00\x00\x00\x02\x02\xc1"],
    ids=repr,
)
def test_garbage_ends_the_connection_and_no_other(
    service: Served, member: RawMember, content: bytes
) -> None:
    assert member.ask(2, enqueue(1)) == []
    member.peer.sendall(content)
    assert goodbye_of(member)[0] == "InvalidRequest"
    assert is_alive(service)
    assert ids_on(service) == [1]


def test_requests_before_the_garbage_are_decided(service: Served, member: RawMember) -> None:
    pack = wire.frame_packer()
    good = pack(wire.DO, (2, (enqueue(1),)))
    member.peer.sendall(good + pack(wire.DO, ("no number", ())))
    assert goodbye_of(member)[0] == "InvalidRequest"
    assert ids_on(service) == [1]
    with RawMember(service.path, member.member, member.incarnation) as again:
        assert again.hello().last_request == 2


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.binary(max_size=200), max_size=5), st.booleans())
def test_whatever_comes_the_service_stays(
    service: Served, chunks: list[bytes], greets: bool
) -> None:
    with RawMember(service.path, "fuzz") as member:
        if greets:
            member.hello()
        for chunk in chunks:
            try:
                member.peer.sendall(chunk)
            except OSError:
                break
    assert is_alive(service)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.integers(0, 14),
    st.lists(
        st.none()
        | st.booleans()
        | st.integers(-1, 1 << 63)
        | st.text(max_size=3)
        | st.binary(max_size=3)
        | st.just(())
        | st.just((tuple(create("z")),))
        | st.just((tuple(enqueue(1)), tuple(enqueue(1)))),
        max_size=5,
    ),
)
def test_a_frame_of_any_type_with_any_body_never_stops_the_service(
    service: Served, kind: int, body: list[Any]
) -> None:
    with RawMember(service.path, "fuzz") as member:
        member.hello()
        try:
            member.say(kind, *body)
        except UnicodeEncodeError:
            return
        member.peer.shutdown(socket.SHUT_WR)
        while member.hears() is not None:
            pass
    assert is_alive(service)


def test_half_a_frame_holds_nobody_up(service: Served, member: RawMember) -> None:
    member.peer.sendall(wire.frame_packer()(wire.DO, (2, (enqueue(1),)))[:-1])
    assert is_alive(service)
    member.close()
    until(lambda: service.service.members.by_name["raw"].peer is None)
    assert ids_on(service) == []


def test_too_many_requests_without_an_answer_end_the_connection(
    service: Served, member: RawMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_WAITING_REQUESTS", 4)
    pack = wire.frame_packer()
    member.peer.sendall(b"".join(pack(wire.DO, (2 + n, (enqueue(1 + n),))) for n in range(5)))
    assert "requests wait" in goodbye_of(member)[1]


def test_a_peer_that_never_reads_is_cut_off_and_nobody_else_notices(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAX_BUFFERED_BYTES", 20_000)
    deaf = RawMember(service.path, "deaf")
    deaf.peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    deaf.hello()
    with RawMember(service.path, "witness") as witness:
        witness.hello()
        witness.ask(1, create())
        pack = wire.frame_packer()
        refusable = Record(Kind.DEQUEUED, 0, "q", 1)
        was_cut, request = False, 1
        while not was_cut and request < 200_000:
            frames = [pack(wire.DO, (request + n, (refusable,))) for n in range(100)]
            request += 100
            try:
                deaf.peer.sendall(b"".join(frames))
            except OSError:
                was_cut = True
            assert witness.ask(request, create()) == []
        assert was_cut
    deaf.close()


def test_a_peer_that_reads_nothing_for_too_long_is_cut_off() -> None:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    box = outbox.Outbox(ours, write_timeout_s=0.1)
    assert box.say_slowly(wire.ANSWER, (1, False, bytes(1 << 20)))
    assert ours.recv(1) == b""  # the reader is woken by the end
    assert not box.say_slowly(wire.ANSWER, (1, True, b""))
    box.drain(1)
    ours.close()
    theirs.close()


def test_done_that_waits_swallows_the_next_one() -> None:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    box = outbox.Outbox(ours)
    box.say(wire.ANSWER, (1, True, bytes(1 << 20)))
    for request in range(1, 1001):
        refusals = [(request, "InvalidRequest", "no")] if request % 500 == 0 else []
        box.done(request, refusals, 2 * request)
    box.say(wire.ANSWER, (2, True))
    decoder, frames = wire.Decoder(), []
    while len(frames) < 3:
        frames += decoder.feed(theirs.recv(1 << 16))
    assert frames[1][1][0] == 1000
    assert [request for request, *_ in frames[1][1][1]] == [500, 1000]
    assert frames[1][1][2] == 2000
    assert frames[2][1] == (2, True)
    box.drain(1)
    ours.close()
    theirs.close()


def test_a_member_is_told_to_come_again_when_the_store_has_ended(
    service: Served, member: RawMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither done nor refused: the next service knows which of its requests are in the log."""

    def fail(*_arguments: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(service.store._log._wal, "_write", fail)
    member.say(wire.DO, 2, (create("other"),))
    error, message = goodbye_of(member)
    assert error == "Unavailable"
    assert "connect to the next one" in message
    assert isinstance(service.store.failure, Ended)


# ------------------------------------------------------------------------------- reads, stop


def test_size_grows_with_what_is_stored(service: Served, member: RawMember) -> None:
    before = member.read(wire.SIZE)[0][0]
    large = bytes(range(256)) * 4000
    message = enqueue(1, body=os.urandom(3 << 20))
    assert member.ask(2, message) == []
    member.read(wire.FLUSH)
    assert member.read(wire.SIZE)[0][0] > before + len(large)


def test_headers_and_parts_are_told_and_frames_that_ask_for_less_than_one_are_refused(
    service: Served, member: RawMember
) -> None:
    assert member.ask(2, enqueue(1, body=b"0123456789")) == []
    ((told,),) = member.read(wire.HEADERS, [1])[1:]
    assert MessageHeader(*told[0]).body_bytes == 10
    assert [len(told) for (told,) in member.read(wire.HEADERS, [1] * 2_500)] == [0, 1000, 1000, 500]
    assert member.read(wire.HEADERS, [7])[1:] == [((None,),)]
    assert member.read(wire.HEADERS, []) == [((),)]
    assert member.read(wire.PART, 1, 3, 4) == [(b"3456",)]
    assert member.read(wire.PART, 1, 8, 1 << 62) == [(b"89",)]
    for kind, body in (
        (wire.HEADERS, ()),
        (wire.HEADERS, (1,)),
        (wire.HEADERS, (["1"],)),
        (wire.PART, (1, 0)),
        (wire.PART, (1, 0, None)),
        (wire.PART, (1, -1, 1)),
        (wire.PART, (2, 0, 1)),
        (wire.BRANCHES, ("xid",)),
        (wire.PUBLISHED, (1,)),
        (wire.BRANCHES, (b"short",)),
        (wire.BRANCHES, (None, None)),
    ):
        member.say(kind, 1, *body)
        answer = member.hears()
        assert answer is not None
        assert (answer[0], answer[1][1]) == (wire.FAILED, "InvalidRequest")
    assert is_alive(service)


def test_recovery_tells_headers_of_kept_and_transient_messages_in_the_order_of_their_ids(
    service: Served, member: RawMember
) -> None:
    def told(message_id: int, protocol: str, header: bytes | None, *, durable: bool) -> Record:
        record = enqueue(message_id, body=b"12345")
        made = MessageHeader(
            protocol, header, durable, header_bytes=len(header or b""), body_bytes=5
        )
        return record._replace(message=made)

    known = enqueue(3, "q", None)._replace(message=MessageHeader(None))
    assert member.ask(2, told(3, "amqp-1.0", b"three", durable=True)) == []
    assert member.ask(3, create("twin")) == []
    assert member.ask(4, known._replace(queue="twin")) == []
    assert member.ask(5, told(2, "amqp-0-10", b"", durable=False)) == []
    assert member.ask(6, told(1, "raw", None, durable=True)) == []
    sections = {answer[0]: answer[1:] for answer in member.read(wire.RECOVER)}
    ids, lengths, headers, body_bytes, protocols = sections["messages"]
    assert ids == b"".join(number.to_bytes(8) for number in (1, 2, 3))
    assert lengths == b"\xff\xff\xff\xff" + (0).to_bytes(4) + (5).to_bytes(4)
    assert (headers, protocols) == (b"three", ("raw", "amqp-0-10", "amqp-1.0"))
    assert body_bytes == (5).to_bytes(8) * 3


def test_recovery_tells_entries_by_message_number_whatever_order_they_came_in(
    tmp_path: Path,
) -> None:
    """Broker-J makes it the order of its queue after a restart."""

    def told(member: RawMember) -> bytes:
        sections = {answer[0]: answer[1:] for answer in member.read(wire.RECOVER)}
        return bytes(sections["entries"][1])

    risen = b"".join(number.to_bytes(8) for number in (1, 2, 3))
    with served(tmp_path / "root") as there, RawMember(there.path, "m", "i") as member:
        member.hello()
        assert (member.ask(1, create()), member.ids(10)) == ([], 1)
        for request, message_id in ((2, 3), (3, 1), (4, 2)):
            assert member.ask(request, enqueue(message_id)) == []
        assert told(member) == risen
    with served(tmp_path / "root") as there, RawMember(there.path, "m", "i") as member:
        member.hello()
        assert told(member) == risen


def test_a_stop_answers_what_is_decided_and_says_goodbye_to_all(service: Served) -> None:
    with RawMember(service.path, "a") as one, RawMember(service.path, "b") as two:
        one.hello()
        two.hello()
        one.say(wire.DO, 1, (create(),))
        until(lambda: service.service.members.metrics.requests == 1)
        closing = threading.Thread(target=service.service.close)
        closing.start()
        assert one.until_done(1) == []
        assert goodbye_of(one)[0] == goodbye_of(two)[0] == "Unavailable"
        closing.join()


@pytest.mark.parametrize(
    ("prepare", "told"),
    [
        (lambda path: path.chmod(0o644), "chmod 600"),
        (lambda path: path.write_text("short"), "at least 16"),
        (lambda path: path.unlink(), "No such file"),
    ],
)
def test_a_token_file_that_cannot_be_used_is_told(
    tmp_path: Path, prepare: Callable[[Path], object], told: str
) -> None:
    path = tmp_path / "token"
    path.write_text("a token of 24 letters\n")
    path.chmod(0o600)
    assert read_token(path) == "a token of 24 letters"
    prepare(path)
    with pytest.raises(InvalidRequest, match=told):
        read_token(path)


def test_a_socket_is_not_made_where_others_may_write_or_another_file_is(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="at most 107 bytes"):
        listen_on_path(tmp_path / ("x" * 120))
    folder = tmp_path / "f"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(InvalidRequest, match="chmod 700"):
        listen_on_path(folder / "s")
    folder.chmod(0o700)
    (folder / "s").write_text("precious")
    with pytest.raises(InvalidRequest, match="no socket"):
        listen_on_path(folder / "s")
    assert (folder / "s").read_text() == "precious"


# --------------------------------------------------------------------------- before it is welcome


LONG = "x" * 100_000
STRANGERS = {
    "a long frame": lambda: wire.frame_packer()(wire.HELLO, [LONG]),
    "a long version": lambda: wire.frame_packer()(wire.HELLO, ["y" * 4000, *"abcde"]),
    "a long member": lambda: hello("z" * 3000),
    "a member with a slash": lambda: hello("a/b"),
    "text that is none": lambda: b"\0\0\0\x08\x01\x91\xa5\xff\xfe\xfd\xfc\xfb",
    "a wrong token": lambda: hello("member", "not the token, as long"),
}


def hello(member: str, token: str = TOKEN) -> bytes:
    body = [wire.VERSION, member, "incarnation", None, False, token]
    return wire.frame_packer()(wire.HELLO, body)


@pytest.mark.parametrize("said", STRANGERS.values(), ids=STRANGERS)
def test_nothing_of_a_stranger_is_read_at_length_or_repeated(
    tmp_path: Path, said: Callable[[], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    with served(tmp_path / "root", TOKEN) as there, RawMember(there.path) as stranger:
        with suppress(OSError):  # it hangs up before it has read all
            stranger.peer.sendall(said())
        frame = stranger.hears()
        assert frame is None or frame[0] == wire.GOODBYE
        until(lambda: bool(there.heard))
    ((event, details),) = there.heard
    assert event == "member-refused"
    assert details["peer"] == f"local uid={os.getuid()} pid={os.getpid()}"
    for told in (str(frame), caplog.text, str(there.heard)):
        assert len(told) < 2000
        assert not any(text in told for text in ("xxxx", "yyyy", "zzzz", "not the token", "a/b"))


def test_a_stranger_is_not_read_beyond_the_first_frame(tmp_path: Path) -> None:
    """What follows a length that is too large is left in the socket, and not gathered."""
    decoder = wire.Decoder()
    decoder.max_frame_bytes = wire.MAX_HELLO_BYTES
    with pytest.raises(InvalidRequest, match="from 2 to 4096"):
        decoder.feed(b"\0\0\x10\x01\x01")
    decoder.max_frame_bytes = wire.MAX_FRAME_BYTES
    with served(tmp_path / "root") as there, RawMember(there.path) as member:
        with RawMember(there.path) as stranger:
            head = (wire.MAX_HELLO_BYTES + 1).to_bytes(4, "big") + bytes([wire.HELLO])
            stranger.peer.sendall(head)  # and no more
            answer = stranger.hears()
            assert answer is not None
            assert answer[0] == wire.GOODBYE
        member.hello()
        assert member.ask(1, create()) == []
        assert member.ids(10) == 1
        assert member.ask(2, enqueue(1, body=b"x" * 10_000)) == []


def test_members_coming_and_going_are_told_with_their_peer(service: Served) -> None:
    with RawMember(service.path, "shop") as member:
        member.hello()
        member.ask(1, create())
    until(lambda: len(service.heard) == 2)
    peer = f"local uid={os.getuid()} pid={os.getpid()}"
    assert service.heard == [
        ("member-connected", {"peer": peer, "member": "shop"}),
        ("member-gone", {"peer": peer, "member": "shop", "requests": 1}),
    ]


def test_another_users_process_is_not_served(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mode of the socket's file keeps it out; were that changed, this does."""
    monkeypatch.setattr(listening, "_credentials", lambda _peer: (4711, 12345))
    with RawMember(service.path) as member:
        assert member.hears() is None
    assert service.heard == [
        ("member-refused", {"peer": "local uid=12345 pid=4711", "reason": "another user's process"})
    ]


def test_who_is_at_the_other_end_is_what_the_system_says() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert listening.process_of(ours) == f"local uid={os.getuid()} pid={os.getpid()}"
        assert listening.is_our_user(ours)
