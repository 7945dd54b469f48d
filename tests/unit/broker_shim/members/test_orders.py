"""What members order about queues: the service decides it for all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from broker_shim.store import protocol as wire
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Exchange, ExchangeBindingKey, MessageHeader, Queue
from sparkstore.core.records import Kind
from tests.support.roots.logs import until
from tests.support.stores.controls import ServicedRoot
from tests.support.stores.raw_member import RawMember
from tests.support.stores.stores import DELTA_CONFIG, done

DELETE, PURGE = "delete-queue", "purge"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServicedRoot]:
    """Queue `q` has four messages, and where they go if it is deleted: `other`."""
    store = DeltaMessageStore(tmp_path / "root", DELTA_CONFIG)
    done(store.create, Exchange("spare", "fanout"))
    done(store.create, Queue("q", arguments={"alternate_exchange": "spare"}))
    done(store.create, Queue("other"))
    done(store.bind, ExchangeBindingKey("spare", "other", ""), {})
    for _ in range(4):
        done(store.enqueue, store.message(MessageHeader(), b"x"), "q")
    store.close()
    there = ServicedRoot(tmp_path / "root")
    yield there
    there.stop()


def greeted(service: ServicedRoot, name: str) -> RawMember:
    member = RawMember(service.path, name)
    member.hello()
    return member


def answered(
    member: RawMember, act: str, queue: str = "q", key: str = "", run: str = "", **limits: bool
) -> Any:
    """What an order comes to; all that was said before that is passed over.

    It is another one than those before, unless it has the `key` of one.
    """
    flags = [limits.get(name, False) for name in ("force", "if_unused", "if_empty")]
    run = run or member.welcome.instance
    member.say(wire.ORDER, 7, act, queue, *flags, run, key or str(uuid4()))
    while (frame := member.hears()) is not None:
        if frame[0] in {wire.ANSWER, wire.FAILED}:
            assert frame[1][0] == 7
            return json.loads(frame[1][2]) if frame[0] == wire.ANSWER else frame[1][1:]
    return None


def holding(service: ServicedRoot, count: int) -> RawMember:
    """A member whose consumer has been granted some messages of `q`."""
    member = greeted(service, "holder")
    member.say(wire.WATCH, "", 0, ())
    member.say(wire.SUBSCRIBE, 1, "q", "c", None, count, ())
    left = count
    while left:
        frame = member.hears()
        assert frame is not None
        if frame[0] == wire.GRANTED:
            left -= sum(len(run[1]) for run in frame[1])
    return member


def ids(service: ServicedRoot, queue: str) -> list[int]:
    return [*service.store.recover().entries.get(queue, {})]


def test_a_purge_takes_what_nobody_has_acquired_and_counts_it(service: ServicedRoot) -> None:
    with holding(service, 2), greeted(service, "m") as member:
        assert answered(member, PURGE) == {"done": 2, "left": 2, "gone": 0, "full": 0}
        assert ids(service, "q") == [1, 2]
        assert answered(member, PURGE) == {"done": 0, "left": 2, "gone": 0, "full": 0}


def test_a_queue_that_another_member_uses_or_that_has_messages_stays_if_so_asked(
    service: ServicedRoot,
) -> None:
    with holding(service, 1), greeted(service, "m") as member:
        name, text = answered(member, DELETE, force=True, if_unused=True)
        assert (name, "has 1 consumers, so it is in use" in text) == ("InvalidRequest", True)
        name, text = answered(member, DELETE, force=True, if_empty=True)
        assert (name, "has 4 messages, so it is not empty" in text) == ("InvalidRequest", True)
        name, text = answered(member, DELETE)
        assert (name, "--force" in text) == ("InvalidRequest", True)
        assert ids(service, "q") == [1, 2, 3, 4]


def test_what_a_queue_has_is_counted_for_all_members(service: ServicedRoot) -> None:
    with holding(service, 2), greeted(service, "m") as member:
        figures = {"depth": 4, "consumers": 1, "acquired": 2}
        assert answered(member, "usage").items() >= figures.items()
        assert answered(member, "usage", "none") == {}


def test_a_delete_ends_the_consumers_of_all_and_what_they_held_goes_the_way_of_the_rest(
    service: ServicedRoot,
) -> None:
    with holding(service, 2) as holder, greeted(service, "m") as member:
        told = answered(member, DELETE, force=True)
        assert (told["messages_rerouted"], told["consumers_ended"]) == (4, 1)
        assert ids(service, "other") == [1, 2, 3, 4]
        moved = service.store.recover().entries["other"].values()
        attempts = [json.loads(each.detail or "")["x-opt-death-attempts"][1] for each in moved]
        assert attempts == ["1", "1", "0", "0"]
        assert "q" not in {queue.name for queue in service.store.recover().queues}
        heard = dict(filter(None, (holder.hears(), holder.hears())))
        assert heard[wire.ENDED][:2] == (1, "InvalidRequest")
        assert [row[:2] for row in heard[wire.CHANGES][4]] == [(Kind.DESTROYED, "q")]


def test_a_queue_that_its_last_user_leaves_is_destroyed_and_its_messages_go_where_they_should(
    service: ServicedRoot,
) -> None:
    with greeted(service, "m") as member:
        assert answered(member, "destroy-queue") == {}
        assert ids(service, "other") == [1, 2, 3, 4]
        assert answered(member, "destroy-queue") == {}


def test_what_was_deleted_before_an_order_came_again_is_deleted(service: ServicedRoot) -> None:
    with greeted(service, "m") as member:
        assert answered(member, DELETE, force=True)["changed"]
        assert answered(member, DELETE, force=True) == {}
        assert answered(member, PURGE)[0] == "InvalidRequest"


@pytest.mark.parametrize(
    "body",
    [
        (1, "alter-queue", "q", True, False, False, "", "k"),
        (1, PURGE, b"q", True, False, False, "", "k"),
        (1, PURGE, "q", 1, False, False, "", "k"),
        (-1, PURGE, "q", True, False, False, "", "k"),
        (1, PURGE, "q"),
        (1, PURGE, "q", True, False, False, "", 1),
        (),
    ],
)
def test_a_frame_that_is_no_order_ends_the_connection_and_changes_nothing(
    service: ServicedRoot, body: tuple[Any, ...]
) -> None:
    with greeted(service, "m") as member:
        member.say(wire.ORDER, *body)
        frame = member.hears()
        assert frame is not None
        assert frame[0] == wire.GOODBYE
    assert ids(service, "q") == [1, 2, 3, 4]


def test_a_member_that_orders_without_end_is_sent_away(
    service: ServicedRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_WAITING_READS", 0)
    with greeted(service, "m") as member:
        member.say(wire.ORDER, 1, PURGE, "q", True, False, False, "", "k")
        frame = member.hears()
        assert frame is not None
        assert frame[0] == wire.GOODBYE
        assert "more than 0 orders" in frame[1][1]
    with greeted(service, "n") as other:
        assert other.ids(1) > 4


def test_an_order_that_comes_again_is_told_what_came_of_it_and_not_done_again(
    service: ServicedRoot,
) -> None:
    with greeted(service, "m") as member:
        purged = answered(member, PURGE, key="the first")
        assert purged == {"done": 4, "left": 0, "gone": 0, "full": 0}
    assert answered(greeted(service, "n"), PURGE, key="the first")["done"] == 0
    put(service)
    with greeted(service, "m") as member:
        assert answered(member, PURGE, key="the first") == purged
        assert len(ids(service, "q")) == 1
        assert answered(member, DELETE, key="the second", force=True)["changed"]
        done(service.store.create, Queue("q"))
    with greeted(service, "m") as member:
        assert answered(member, DELETE, key="the second", force=True)["changed"]
        assert ids(service, "q") == []
        assert "q" in {queue.name for queue in service.store.recover().queues}
        assert answered(member, DELETE, force=True)["changed"]
        assert "q" not in {queue.name for queue in service.store.recover().queues}


def test_a_purge_of_before_a_restart_takes_nothing_of_what_came_since(
    service: ServicedRoot,
) -> None:
    with greeted(service, "m") as member:
        assert answered(member, "usage")["depth"] == 4
        put(service)
        assert answered(member, PURGE, run="an earlier one") == {
            "done": 4,
            "left": 0,
            "gone": 0,
            "full": 0,
        }
        assert len(ids(service, "q")) == 1


def put(service: ServicedRoot) -> None:
    done(service.store.enqueue, service.store.message(MessageHeader(), b"meanwhile"), "q")


def test_a_branch_is_begun_at_one_member_until_that_releases_it_or_says_all_again(
    service: ServicedRoot,
) -> None:
    claim, release, xid = "claim-xid", "release-xid", "1:ab:"
    with greeted(service, "m") as member, greeted(service, "n") as other:
        assert answered(member, claim, xid) == {}
        assert answered(member, claim, xid) == {}
        assert "was begun at another broker" in answered(other, claim, xid)[1]
        assert answered(other, release, xid) == {}
        assert answered(other, claim, xid)[0] == "InvalidRequest"
        assert answered(member, release, xid) == {}
        assert answered(other, claim, xid) == {}
        assert answered(other, claim, "no xid")[0] == "InvalidRequest"
    with greeted(service, "n") as other, greeted(service, "m") as member:
        assert answered(member, claim, xid)[0] == "InvalidRequest", "it may come back"
        kept, over = xid, "1:cd:"
        assert answered(other, claim, over) == {}
        other.say(wire.WATCH, "", 0, ())
        assert answered(other, claim, kept) == {}
        for each in (kept, over):
            assert answered(member, claim, each)[0] == "InvalidRequest", "it may say that again"
        other.say(wire.SEEN)
        assert answered(other, "usage")["depth"] == 4
        assert answered(member, claim, kept)[0] == "InvalidRequest"
        assert answered(member, claim, over) == {}


def test_a_member_that_is_back_when_it_is_given_up_keeps_what_it_began(
    service: ServicedRoot,
) -> None:
    claim, xid = "claim-xid", "1:ab:"
    with greeted(service, "m") as member, greeted(service, "n") as other:
        member.say(wire.WATCH, "", 0, ())
        assert answered(member, claim, xid) == {}
        service.dispatcher.lost("m")
        assert answered(other, claim, xid)[0] == "InvalidRequest"

    def given_up() -> Any:
        service.dispatcher.lost("m")
        return answered(other, claim, xid)

    with greeted(service, "n") as other:
        until(lambda: given_up() == {})  # its connection has ended by then
