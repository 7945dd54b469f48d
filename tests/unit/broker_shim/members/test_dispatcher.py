"""What the service does when a member says what it holds, and when a link goes to another one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from broker_shim.service import protocol as wire
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.control.client import connect
from sparkstore.core.link_records import LinkKey, Role, link_text
from sparkstore.core.records import Kind
from sparkstore.tables.root import open_root
from tests.support.stores.controls import ServicedRoot
from tests.support.stores.raw_member import RawMember
from tests.support.stores.stores import DELTA_CONFIG, done

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
    return [*frame[1][4]]


@pytest.mark.parametrize("known", [(), (1,), (2,), (1, 2)])
def test_what_was_on_its_way_to_a_member_that_does_not_know_of_it_waits_again(
    service: ServicedRoot, root: Path, known: tuple[int, ...]
) -> None:
    control = connect(open_root(root))
    assert control is not None
    with closing(control), watching(service, "m", *known):
        found = control.holders(None).shown
        assert sorted(message_id for _queue, message_id, _holders in found) == [*known, 3]


def test_a_link_that_a_member_asks_for_is_lost_by_the_others(service: ServicedRoot) -> None:
    with watching(service, "m", 1, 2) as first, watching(service, "n", 3) as second:
        second.say(wire.LINK, 1, LINK)
        [row] = changes(first)
        assert (row[0], row[3]) == (Kind.ATTACHED, LINK)
        answer = second.hears()
        assert answer is not None
        assert answer[0] == wire.ANSWER


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
