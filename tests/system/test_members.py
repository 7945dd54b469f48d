"""Several brokers on one set of queues: real processes, real clients, kill -9."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from proton import Data, Delivery, Link, Message, Terminus, symbol
from proton.reactor import (
    AtMostOnce,
    Container,
    Copy,
    DurableSubscription,
    LinkOption,
    Selector,
)
from proton.utils import BlockingConnection, LinkDetached

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.controls import SessionDetach
from broker_shim.amqp_0_10.definitions import DtxXaStatus, ExecutionErrorCode
from broker_shim.amqp_0_10.structs import DtxXid
from broker_shim.amqp_1_0.definitions import ReceiverSettleMode
from broker_shim.durability import TerminusDurability
from broker_shim.store.interface import Exchange, ExchangeBindingKey, MessageHeader, Queue
from broker_shim.store.remote.remote_store import RemoteMessageStore
from sparkstore.cli.command_line import main
from sparkstore.exit_codes import ExitCode
from sparkstore.replication.promote import promote
from sparkstore.tables.root import open_root
from tests.support.amqp.amqp_0_10 import content
from tests.support.amqp.amqp_messages import number_in, numbered
from tests.support.amqp.resuming import Client
from tests.support.roots.logs import until
from tests.support.roots.replicas import replica_of
from tests.support.stores.services import ServiceProcess, short_folder
from tests.support.stores.stores import done
from tests.support.system.clients import (
    TIMEOUT_S,
    Drain,
    Holder,
    connected,
    is_empty,
    send,
    settle,
    take,
)
from tests.support.system.forwarder import Forwarder
from tests.support.system.link_sockets import talk
from tests.support.system.old_client import OldClient
from tests.support.system.processes import BrokerProcess

pytestmark = [pytest.mark.system, pytest.mark.slow]

LISTEN = "--listen=127.0.0.1:0"
OLDER = "--amqp-0-10=same"


def durable(number: int, **fields: Any) -> Message:
    return Message(id=number, durable=True, body=b"x", **fields)


def ids(messages: list[Message]) -> list[Any]:
    return [message.id for message in messages]


class Pair(NamedTuple):
    """A broker with a root, which serves its store, and a broker that is its member."""

    first: BrokerProcess
    second: BrokerProcess
    socket: Path


def member(socket: Path, name: str, *more: str) -> BrokerProcess:
    return BrokerProcess(f"--store=unix:{socket}", f"--member={name}", LISTEN, *more)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    root = tmp_path_factory.mktemp("members") / "root"
    with short_folder() as folder:
        socket = folder / "s"
        first = BrokerProcess(str(root), f"--store-socket={socket}", LISTEN, OLDER)
        second = member(socket, "second", "--queue=of-second", OLDER)
        yield Pair(first, second, socket)
        assert second.terminate() == 0
        assert first.terminate() == 0
    for broker in (first, second):
        assert "Traceback" not in broker.log, broker.log


def test_a_consumer_on_any_member_drains_any_queue(pair: Pair) -> None:
    for at, to in ((pair.first, pair.second), (pair.second, pair.first)):
        send(at.url, "any", *map(durable, range(20)))
        assert ids(take(to.url, "any", 10)) == [*range(10)]
        assert ids(take(at.url, "any", 10)) == [*range(10, 20)]
        assert is_empty(to.url, "any")
        assert is_empty(at.url, "any")


def test_consumers_of_two_members_get_each_message_once(pair: Pair) -> None:
    holders = [Holder(url, "shared", 50, decide=settle(Delivery.ACCEPTED)) for url in urls(pair)]
    threads = [threading.Thread(target=each.run) for each in holders]
    for thread in threads:
        thread.start()
    send(pair.first.url, "shared", *map(durable, range(100)))
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    got = [ids(each.received) for each in holders]
    assert sorted(got[0] + got[1]) == [*range(100)]
    assert [len(each) for each in got] == [50, 50]
    assert is_empty(pair.first.url, "shared")


def urls(pair: Pair) -> tuple[str, str]:
    return pair.first.url, pair.second.url


def test_what_is_sent_over_0_10_at_one_is_had_over_both_protocols_at_the_other(pair: Pair) -> None:
    for at, to in (urls(pair), urls(pair)[::-1]):
        with OldClient(at) as sender, OldClient(to) as receiver:
            sender.do(c.QueueDeclare("old", durable=True))
            for number in range(4):
                sender.publish("old", b"%d" % number)
            assert [message.body for message in take(to, "old", 2)] == [b"0", b"1"]
            receiver.subscribe("old")
            came = [receiver.receive() for _ in range(2)]
            assert [each.body for each in came] == [b"2", b"3"]
            receiver.do(c.MessageAccept(((came[0].number, came[1].number),)))
        assert is_empty(at, "old")


def test_messages_shown_at_a_member_are_acquired_released_and_rejected_there(pair: Pair) -> None:
    with OldClient(pair.first.url) as sender, OldClient(pair.second.url) as browser:
        sender.do(c.QueueDeclare("shown", durable=True))
        for number in range(3):
            sender.publish("shown", b"%d" % number)
        browser.do(c.QueueDeclare("shown", durable=True))  # known there from now on
        browser.subscribe("shown", acquire_mode=1)
        shown = [browser.receive() for _ in range(3)]
        assert [each.body for each in shown] == [b"0", b"1", b"2"]
        taken = browser.do(c.MessageAcquire(((shown[0].number, shown[1].number),)))
        assert taken.transfers == ((shown[0].number, shown[1].number),)
        assert [message.body for message in take(pair.first.url, "shown", 1)] == [b"2"]
        gone = browser.do(c.MessageAcquire(((shown[2].number, shown[2].number),)))
        assert not gone.transfers
        browser.do(c.MessageRelease(((shown[0].number, shown[0].number),), set_redelivered=True))
        browser.do(c.MessageReject(((shown[1].number, shown[1].number),), 0))
        sender.subscribe("shown")
        again = sender.receive()
        assert (again.body, again.header.delivery.redelivered) == (b"0", True)
        sender.do(c.MessageAccept(((again.number, again.number),)))
    assert is_empty(pair.first.url, "shown")


def test_credit_in_bytes_and_settled_deliveries_at_a_member(pair: Pair) -> None:
    with OldClient(pair.second.url) as it:
        it.do(c.QueueDeclare("small", durable=True))
        for number in range(2):
            it.publish("small", b"%d" % number * 1_000)
        it.do(c.MessageSubscribe("small", "d", 1, 0))
        it.do(c.MessageFlow("d", 0, 9))
        it.do(c.MessageFlow("d", 1, 1_500))
        assert len(it.receive().body) == 1_000
        it.do(c.MessageFlow("d", 1, 1_500))
        assert len(it.receive().body) == 1_000
    assert is_empty(pair.first.url, "small")


def refusal(url: str, command: Any) -> int:
    """The code of the exception that a command ends its session with."""
    with OldClient(url, b"refused") as it, pytest.raises(AssertionError):
        it.do(command)
    assert it.exception is not None
    return int(it.exception.error_code)


def test_a_purge_at_a_member_leaves_what_others_hold(pair: Pair) -> None:
    with OldClient(pair.first.url) as holder, OldClient(pair.second.url) as it:
        it.do(c.QueueDeclare("purged", durable=True))
        for number in range(5):
            it.publish("purged", b"%d" % number)
        holder.subscribe("purged", count=1)
        held = holder.receive()
        it.subscribe("purged", count=1)
        assert it.receive().body == b"1"
        # What comes after a purge in the same session is not purged.
        it.say(c.QueuePurge("purged"))
        it.publish("purged", b"later")
        assert [message.body for message in take(pair.first.url, "purged", 1)] == [b"later"]
        holder.do(c.MessageRelease(((held.number, held.number),)))
        assert [message.body for message in take(pair.second.url, "purged", 1)] == [b"0"]
    assert refusal(pair.second.url, c.QueuePurge("nowhere")) == ExecutionErrorCode.NOT_FOUND


def test_a_delete_at_a_member_knows_what_is_on_the_queue_and_who_uses_it(pair: Pair) -> None:
    used, refused = pair.second.url, ExecutionErrorCode.PRECONDITION_FAILED
    with OldClient(pair.first.url) as other, OldClient(used) as it:
        it.do(c.QueueDeclare("ended", "amq.fanout", durable=True))
        it.do(c.QueueDeclare("rest", durable=True))
        it.do(c.ExchangeBind("rest", "amq.fanout", ""))
        for number in range(3):
            other.publish("ended", b"%d" % number)
        assert refusal(used, c.QueueDelete("ended", if_empty=True)) == refused
        other.subscribe("ended", count=1)
        assert other.receive().body == b"0"
        for client in (it, other):
            told = client.do(c.QueueQuery("ended"))
            assert (told.queue, told.message_count, told.subscriber_count) == ("ended", 2, 1)
        assert refusal(used, c.QueueDelete("ended", if_unused=True)) == refused
        it.do(c.QueueDelete("ended"))
        assert refusal(used, c.QueueDelete("ended")) == ExecutionErrorCode.NOT_FOUND
        rest = [message.body for message in take(used, "rest", 3)]
        assert sorted(rest) == [b"0", b"1", b"2"]
        it.do(c.QueueDelete("rest", if_unused=True, if_empty=True))
        assert it.do(c.QueueQuery("rest")).queue is None
    assert refusal(pair.first.url, c.QueuePurge("rest")) == ExecutionErrorCode.NOT_FOUND


def test_a_delete_at_a_member_ends_the_consumers_and_browsers_of_all(pair: Pair) -> None:
    for at, others in (urls(pair), urls(pair)[::-1]):
        with connected(others) as there, OldClient(at) as it:
            it.do(c.QueueDeclare("theirs", durable=True))
            it.publish("theirs", b"x")
            receiver = there.create_receiver("theirs", credit=1)
            receiver.receive(timeout=TIMEOUT_S)
            browser = there.create_receiver("theirs", name="browser", credit=5, options=Copy())
            it.do(c.QueueDelete("theirs"))
            for each in (receiver, browser):
                with pytest.raises(LinkDetached):
                    each.receive(timeout=TIMEOUT_S)


XID, OTHER = DtxXid(1, b"g", b"b"), DtxXid(1, b"g", b"other")
OK = DtxXaStatus.XA_OK


def work(it: OldClient, queue: str, xid: DtxXid = XID) -> None:
    """A branch that takes `taken` and puts `put`; ended."""
    it.work_in_branch(queue, xid)


@pytest.mark.parametrize(("at", "decider"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("commits", [True, False])
def test_a_branch_that_one_prepares_any_decides(
    pair: Pair, at: int, decider: int, commits: bool
) -> None:
    urls_of, decision = urls(pair), (c.DtxCommit if commits else c.DtxRollback)(XID)
    with OldClient(urls_of[at]) as it, OldClient(urls_of[decider], b"decides") as other:
        work(it, "branch")
        assert not other.do(c.DtxRecover()).in_doubt
        assert it.do(c.DtxPrepare(XID)).status == OK
        assert [*other.do(c.DtxRecover()).in_doubt] == [XID]
        for url in urls_of:
            assert is_empty(url, "branch")
            # Nobody else begins a branch of that name, or deletes what it uses.
            assert refusal(url, c.QueueDelete("branch")) == ExecutionErrorCode.PRECONDITION_FAILED
        assert other.do(decision).status == OK
        assert not it.do(c.DtxRecover()).in_doubt
        left = b"put" if commits else b"taken"
        assert [message.body for message in take(urls_of[at], "branch", 1)] == [left]
    assert is_empty(pair.first.url, "branch")


def test_branches_at_a_member_that_are_not_prepared(pair: Pair) -> None:
    url = pair.second.url
    with OldClient(url) as it:
        work(it, "unprepared")
        it.do(c.DtxSetTimeout(XID, 600))
        assert it.do(c.DtxGetTimeout(XID)).timeout == 600
        assert it.do(c.DtxCommit(XID, one_phase=True)).status == OK
        assert [message.body for message in take(pair.first.url, "unprepared", 1)] == [b"put"]
        assert it.do(c.DtxStart(XID)).status == OK
        assert it.do(c.DtxEnd(XID)).status == OK
        assert it.do(c.DtxPrepare(XID)).status == DtxXaStatus.XA_RDONLY
        # In the order in which they are said, though the service is asked about each.
        said = [it.say(each) for each in (c.DtxStart(XID), c.DtxEnd(XID, suspend=True))]
        said.append(it.say(c.DtxStart(XID, resume=True)))
        it.publish("unprepared", b"failed")
        assert it.do(c.DtxEnd(XID, fail=True)).status == DtxXaStatus.XA_RBROLLBACK
        assert it.do(c.DtxRollback(XID)).status == OK
        assert [it.results[number].status for number in said] == [OK] * 3
    assert is_empty(pair.first.url, "unprepared")
    with OldClient(url) as it:
        work(it, "unprepared")
    assert [message.body for message in take(pair.first.url, "unprepared", 1)] == [b"taken"]


def begun(url: str, xid: DtxXid = XID) -> int:
    """What comes of a branch that is begun: the code of the refusal, or a status."""
    with OldClient(url, b"begins") as it:
        it.do(c.DtxSelect())
        try:
            return int(it.do(c.DtxStart(xid)).status)
        except AssertionError:
            assert it.exception is not None
            return int(it.exception.error_code)


def test_a_branch_has_its_name_alone_at_whichever_broker_it_has_begun(pair: Pair) -> None:
    for turn, (at, other) in enumerate((urls(pair), urls(pair)[::-1])):
        first, second = (DtxXid(1, b"alone", name + b"%d" % turn) for name in (b"1", b"2"))
        with OldClient(at) as it:
            work(it, "once", first)
            assert [begun(url, first) for url in urls(pair)] == [ExecutionErrorCode.NOT_ALLOWED] * 2
            assert it.do(c.DtxCommit(first, one_phase=True)).status == OK
            assert it.do(c.DtxStart(second)).status == OK
            assert begun(other, second) == ExecutionErrorCode.NOT_ALLOWED
        for xid in (first, second):
            until(lambda: begun(other, xid) == OK)  # noqa: B023
        assert [message.body for message in take(other, "once", 1)] == [b"put"]


def test_what_cannot_be_done_with_a_branch_at_a_member_is_refused_by_its_code(pair: Pair) -> None:
    url, state = pair.second.url, ExecutionErrorCode.ILLEGAL_STATE
    with OldClient(pair.first.url) as it, OldClient(url, b"same") as same:
        work(same, "same", OTHER)
        work(it, "prepared")
        assert it.do(c.DtxPrepare(XID)).status == OK
        assert same.do(c.DtxRollback(OTHER)).status == OK
        for command, code in (
            (c.DtxPrepare(XID), state),
            (c.DtxCommit(XID, one_phase=True), state),
            (c.DtxForget(XID), state),
            (c.DtxStart(OTHER), state),
            (c.DtxCommit(OTHER), ExecutionErrorCode.NOT_FOUND),
            (c.DtxRollback(OTHER), ExecutionErrorCode.NOT_FOUND),
            (c.DtxRollback(DtxXid(1, bytes(65), b"")), ExecutionErrorCode.ILLEGAL_ARGUMENT),
        ):
            assert refusal(url, command) == code
        with OldClient(url, b"third") as third:
            third.do(c.DtxSelect())
            third.say(c.DtxStart(XID), sync=True)
            with pytest.raises(AssertionError):
                third.publish("prepared", b"in no branch")
            assert third.exception is not None
            assert third.exception.error_code == ExecutionErrorCode.NOT_ALLOWED
        assert it.do(c.DtxRollback(XID)).status == OK
    assert [message.body for message in take(url, "prepared", 1)] == [b"taken"]
    assert [message.body for message in take(url, "same", 1)] == [b"taken"]
    assert is_empty(url, "prepared")


def test_a_queue_that_deletes_itself_at_a_member_goes_with_the_last_user_of_all(pair: Pair) -> None:
    with OldClient(pair.second.url, b"owner") as it, OldClient(pair.first.url) as other:
        it.do(c.QueueDeclare("left", durable=True))
        it.do(c.ExchangeBind("left", "amq.fanout", ""))
        asked = c.QueueDeclare("auto", "amq.fanout", durable=True, exclusive=True, auto_delete=True)
        it.do(asked)
        for body in (b"a", b"b"):
            it.publish("auto", body)
        other.subscribe("auto", count=1)
        assert other.receive().body == b"a"
        it.do(c.MessageSubscribe("auto", "d", 0, 0))
        it.say(SessionDetach(b"owner"))
        until(lambda: "queue 'auto' stays: " in pair.second.log)
        other.do(c.MessageFlow("d", 0, 1))
        assert other.receive().body == b"b"
    assert sorted(message.body for message in take(pair.second.url, "left", 2)) == [b"a", b"b"]
    with OldClient(pair.second.url, b"owner") as it:
        it.do(asked)
        it.publish("auto", b"c")
    assert [message.body for message in take(pair.first.url, "left", 1)] == [b"c"]


COLOURS = ("blue", "red", "green")


def knows(url: str, queue: str) -> bool:
    """Whether a broker has heard of a queue that another one made."""
    with OldClient(url, b"knows") as it:
        try:
            it.do(c.QueueDeclare(queue, passive=True))
        except AssertionError:
            return False
        return True


def test_wiring_that_one_makes_all_know(pair: Pair) -> None:
    with connected(pair.second.url) as there, connected(pair.first.url) as here:
        subscriber = there.create_receiver("amq.topic/news.#", credit=10)
        sender = here.create_sender("amq.topic/news.today")
        sender.send(durable(1))
        assert subscriber.receive(timeout=TIMEOUT_S).id == 1
        subscriber.accept()
    send(pair.first.url, "of-second", durable(2))
    assert ids(take(pair.second.url, "of-second", 1)) == [2]


def test_a_subscription_gets_what_it_selects_whoever_publishes(pair: Pair) -> None:
    options = [Selector("colour = 'red'"), DurableSubscription()]
    for place, at in enumerate(urls(pair)):
        with connected(at, container=container()) as connection:
            receivers = [
                connection.create_receiver(
                    "amq.topic/colours",
                    name=f"r{place}{number}",
                    credit=10,
                    options=options[: number + 1],
                )
                for number in range(2)
            ]
            for other in urls(pair):
                until(partial(knows, other, f"subscription.mover.r{place}1"))
                colours = [durable(n, properties={"colour": c}) for n, c in enumerate(COLOURS)]
                send(other, "amq.topic/colours", *colours)
                for receiver in receivers:
                    assert receiver.receive(timeout=TIMEOUT_S).id == COLOURS.index("red")
                    receiver.accept()
            for receiver in receivers:
                receiver.close()


def test_a_subscription_of_an_earlier_version_gets_what_it_selects_at_a_member(pair: Pair) -> None:
    """Its queue does not name the selector: other brokers route everything there."""
    store = RemoteMessageStore(pair.socket)
    name = "subscription.mover.before"
    done(store.create, Queue(name))
    done(store.bind, ExchangeBindingKey("amq.topic", name, "before"), {})
    store.close()
    until(partial(knows, pair.second.url, name))
    with connected(pair.second.url, container=container()) as connection:
        receiver = connection.create_receiver(
            "amq.topic/before",
            name="before",
            credit=10,
            options=[Selector("colour = 'red'"), DurableSubscription()],
        )
        colours = [durable(n, properties={"colour": c}) for n, c in enumerate(COLOURS)]
        send(pair.first.url, "amq.topic/before", *colours)
        assert receiver.receive(timeout=TIMEOUT_S).id == COLOURS.index("red")
        receiver.close()


def test_what_a_plain_member_puts_is_delivered_at_once(pair: Pair) -> None:
    send(pair.first.url, "plain")
    for url in urls(pair):
        with connected(url) as connection:
            receiver = connection.create_receiver("plain", credit=1)
            store = RemoteMessageStore(pair.socket)
            header = MessageHeader(subject=url)
            done(store.enqueue, store.message(header), "plain")
            store.close()
            receiver.receive(timeout=TIMEOUT_S)
            receiver.accept()
    assert is_empty(pair.first.url, "plain")


def test_the_service_decides_selectors_priorities_and_exclusive_queues(pair: Pair) -> None:
    colours = [durable(n, properties={"colour": "red" if n % 3 else "blue"}) for n in range(9)]
    send(pair.first.url, "chosen", *colours)
    with connected(pair.second.url) as connection:
        receiver = connection.create_receiver(
            "chosen", credit=10, options=Selector("colour = 'blue'")
        )
        found = []
        for _ in range(3):
            found.append(receiver.receive(timeout=TIMEOUT_S).id)
            receiver.accept()
        assert found == [0, 3, 6]
    assert ids(take(pair.first.url, "chosen", 6)) == [1, 2, 4, 5, 7, 8]
    send(pair.second.url, "ranked", *(durable(n, priority=n) for n in range(5)))
    assert ids(take(pair.second.url, "ranked", 5)) == [4, 3, 2, 1, 0]


def test_the_service_decides_last_values_failed_deliveries_and_expiry_for_all(pair: Pair) -> None:
    store = RemoteMessageStore(pair.socket)
    ends = {"dead_letter_queue": "dead"}
    for name, arguments in {
        "dead": {},
        "newest": {"last_value_key": "k"},
        "failing": {"max_delivery_count": 1, **ends},
        "brief": {"message_ttl_ms": 1, **ends},
    }.items():
        done(store.create, Queue(name, arguments=arguments))
    store.close()
    for at, other in (urls(pair), urls(pair)[::-1]):
        until(lambda: knows(other, "brief"))  # noqa: B023
        for number, url in enumerate((at, other, at, other)):
            send(url, "newest", durable(number, properties={"k": "ab"[number // 2]}))
        assert ids(take(other, "newest", 2)) == [1, 3]
        assert is_empty(at, "newest")
        send(at, "failing", durable(7))
        for url in (at, other):
            Holder(url, "failing", 1, decide=settle(Delivery.MODIFIED, failed=True)).run()
        assert ids(take(other, "dead", 1)) == [7]
        send(at, "brief", durable(8))
        assert is_empty(other, "brief")  # which looks at it
        assert ids(take(at, "dead", 1)) == [8]


def test_a_drain_finds_what_is_there_and_ends_where_nothing_is(pair: Pair) -> None:
    send(pair.first.url, "drained", *map(durable, range(5)))
    for url in urls(pair):
        probe = Drain(url, "drained")
        Container(probe).run()
        assert ids(probe.received) == [*range(5)]


def test_a_browser_at_any_member_sees_what_waits_in_order_and_takes_nothing(pair: Pair) -> None:
    send(pair.first.url, "seen", *(durable(n, priority=n % 2) for n in range(1_200)))
    order = [*range(1, 1_200, 2), *range(0, 1_200, 2)]
    with connected(pair.second.url) as connection:
        browser = connection.create_receiver("seen", credit=2_000, options=Copy())
        assert [browser.receive(timeout=TIMEOUT_S).id for _ in order] == order
        send(pair.first.url, "seen", durable(9_999, properties={"colour": "red"}))
        assert browser.receive(timeout=TIMEOUT_S).id == 9_999
        options = [Copy(), Selector("colour = 'red'")]
        choosy = connection.create_receiver("seen", name="choosy", credit=5, options=options)
        assert choosy.receive(timeout=TIMEOUT_S).id == 9_999
    assert len(take(pair.first.url, "seen", 1_201)) == 1_201
    assert is_empty(pair.second.url, "seen")


def test_a_browser_at_a_member_that_drains_is_told_of_the_end(pair: Pair) -> None:
    send(pair.first.url, "looked", *map(durable, range(5)))
    for _ in range(2):
        probe = Drain(pair.second.url, "looked", Copy())
        Container(probe).run()
        assert ids(probe.received) == [*range(5)]
    assert ids(take(pair.second.url, "looked", 5)) == [*range(5)]


def test_a_message_that_is_released_or_modified_at_a_member_comes_again(pair: Pair) -> None:
    send(pair.first.url, "back", durable(1), durable(2))
    decide = settle(Delivery.MODIFIED, failed=True)
    Holder(pair.second.url, "back", 1, decide=decide).run()
    first, second = take(pair.first.url, "back", 2)
    assert (first.id, first.delivery_count, second.id, second.delivery_count) == (1, 1, 2, 0)


def test_what_a_settled_receiver_at_a_member_cannot_take_is_given_back(pair: Pair) -> None:
    """It was acquired when it was granted, unlike at a broker alone."""

    class Small(AtMostOnce):
        def apply(self, link: Link) -> None:
            super().apply(link)
            link.max_message_size = 100

    send(pair.first.url, "small", Message(id=1, durable=True, body=b"x" * 1000), durable(2))
    with connected(pair.second.url) as connection:
        receiver = connection.create_receiver("small", credit=10, options=Small())
        assert receiver.receive(TIMEOUT_S).id == 2
        assert ids(take(pair.first.url, "small", 1)) == [1]


def test_a_member_that_is_started_first_waits_for_its_service(tmp_path: Path) -> None:
    with short_folder() as folder, ThreadPoolExecutor(1) as starting:
        socket = folder / "s"
        early = starting.submit(member, socket, "early")
        service = BrokerProcess(str(tmp_path / "root"), f"--store-socket={socket}", LISTEN)
        broker = early.result()
        send(broker.url, "q", durable(1))
        assert ids(take(service.url, "q", 1)) == [1]
        assert broker.terminate() == 0
        assert service.terminate() == 0


def test_who_holds_a_message_is_told_with_since_when_the_member_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(tmp_path / "root")

    def ask(*options: str) -> str:
        assert main(["queues", "--holders", *options, root]) == 0
        return capsys.readouterr().out

    with short_folder() as folder:
        before = datetime.now(UTC)
        first = BrokerProcess(root, f"--store-socket={folder / 's'}", LISTEN)
        second = member(folder / "s", "second")
        after = datetime.now(UTC)
        send(first.url, "q", *map(durable, range(2)))
        told: list[str] = []

        def look_and_kill() -> None:
            told.extend([ask("--json"), ask()])
            second.kill()

        Holder(first.url, "q", 1, lambda: told.append(ask("--json"))).run()
        Holder(second.url, "q", 1, look_and_kill).run()
        assert first.terminate() == 0
    of_service, of_member = json.loads(told[0]), json.loads(told[1])
    assert of_service["since"] is None
    since = datetime.fromisoformat(of_member["since"])
    assert before <= since <= after
    assert f"{since:%Y-%m-%d %H:%M:%S.%f}" in told[2]
    assert json.loads(ask("--json")) == of_member


def test_what_a_killed_member_held_comes_again_after_its_grace(tmp_path: Path) -> None:
    settings = tmp_path / "sparkstore.toml"
    settings.write_text("[store]\nmember_grace_s = 0.5\n")
    with short_folder() as folder:
        socket = folder / "s"
        first = BrokerProcess(
            str(tmp_path / "root"), f"--store-socket={socket}", f"--config={settings}", LISTEN
        )
        second = member(socket, "second")
        send(first.url, "q", *map(durable, range(4)))
        holder = Holder(second.url, "q", 2, second.kill)
        assert holder.run() == [0, 1]
        found = take(first.url, "q", 4)
        told = [(message.id, message.delivery_count) for message in found]
        assert sorted(told) == [(0, 1), (1, 1), (2, 0), (3, 0)]
        assert is_empty(first.url, "q")
        assert "member 'second' is gone: 2 messages that it held wait again" in first.log
        again = member(socket, "second")
        send(again.url, "q", durable(9))
        assert ids(take(again.url, "q", 1)) == [9]
        assert again.terminate() == 0
        assert first.terminate() == 0


def test_a_branch_of_a_killed_member_is_decided_at_another_through_a_kill_of_the_service(
    tmp_path: Path,
) -> None:
    settings = tmp_path / "sparkstore.toml"
    settings.write_text("[store]\nmember_grace_s = 0.5\n")
    with short_folder() as folder:
        socket = folder / "s"
        arguments = str(tmp_path / "root"), f"--store-socket={socket}", f"--config={settings}"
        service = BrokerProcess(*arguments, LISTEN)
        one, two = (member(socket, name, OLDER) for name in ("one", "two"))
        with OldClient(one.url) as it:
            work(it, "q")
            assert it.do(c.DtxPrepare(XID)).status == OK
        it = OldClient(one.url, b"unprepared")
        work(it, "open", OTHER)
        one.kill()
        found = take(service.url, "open", 1)
        assert [(each.body, each.delivery_count) for each in found] == [(b"taken", 1)]
        assert begun(two.url, OTHER) == OK  # who had begun it is given up
        service.kill()
        with OldClient(two.url) as other, ThreadPoolExecutor(1) as asking:
            recovered = asking.submit(other.do, c.DtxRecover())
            service = BrokerProcess(*arguments, LISTEN)
            assert [*recovered.result(TIMEOUT_S).in_doubt] == [XID]
            assert other.do(c.DtxCommit(XID)).status == OK
        assert [message.body for message in take(service.url, "q", 1)] == [b"put"]
        assert is_empty(service.url, "q")
        for broker in (two, service):
            assert broker.terminate() == 0
            assert "Traceback" not in broker.log, broker.log


def test_clients_of_members_notice_a_killed_service_by_nothing_but_time(tmp_path: Path) -> None:
    with short_folder() as folder:
        socket = folder / "s"
        service = ServiceProcess(tmp_path / "root", socket)
        service.start()
        brokers = [member(socket, name) for name in ("one", "two")]
        with connected(brokers[0].url) as sending, connected(brokers[1].url) as receiving:
            sender = sending.create_sender("q")
            receiver = receiving.create_receiver("q", credit=10)
            found = []
            for number in range(60):
                if number % 20 == 10:
                    service.kill()
                    service.start()
                sender.send(durable(number))
                found.append(receiver.receive(timeout=TIMEOUT_S).id)
                receiver.accept()
        assert found == [*range(60)]
        assert is_empty(brokers[0].url, "q")
        for broker in brokers:
            assert broker.terminate() == 0
            assert "Traceback" not in broker.log, broker.log
        assert service.stop() == 0
        assert "Traceback" not in service.log()
        service.close()


def test_members_go_on_at_a_replica_that_is_promoted_though_it_lacks_the_newest(
    tmp_path: Path,
) -> None:
    """What the replica lacks is lost, as was accepted; nothing else, and nothing is mixed up."""

    def of(name: str) -> list[Message]:
        return [Message(id=n, durable=True, body=name) for n in range(20)]

    primary, replica = tmp_path / "root", tmp_path / "replica"
    with short_folder() as folder:
        service = ServiceProcess(primary, folder / "s")
        service.start()
        one, two = (member(service.path, name, "--queue=q") for name in ("one", "two"))
        send(one.url, "q", *of("kept"))
        service.stop()
        replica_of(open_root(primary), replica)
        service.start()
        for broker in (one, two):
            send(broker.url, "q", *of("lost"))
        with connected(two.url) as connection:
            receiver = connection.create_receiver("q", credit=5)
            assert [receiver.receive(timeout=TIMEOUT_S).body for _ in range(5)] == ["kept"] * 5
            service.kill()
            service.close()
            promote(replica, accept_loss=True)
            service = ServiceProcess(replica, folder / "s")
            service.start()
            for _ in range(5):
                receiver.accept()
            send(two.url, "q", *of("two"))
            send(one.url, "q", *of("one"))
        until(lambda: not held_on(service.path))
        found = [message.body for message in take(one.url, "q", 55)]
        assert sorted(found) == ["kept"] * 15 + ["one"] * 20 + ["two"] * 20
        assert is_empty(two.url, "q")
        for broker in (one, two):
            assert broker.terminate() == 0
            assert "Traceback" not in broker.log, broker.log
        assert service.stop() == 0
        service.close()


def held_on(socket: Path) -> set[str]:
    """Who holds anything on `q`."""
    store = RemoteMessageStore(socket)
    entries = store.recover().entries["q"].values()
    store.close()
    return {entry.acquired_by for entry in entries if entry.acquired_by is not None}


def test_a_message_group_stays_with_its_consumer_through_a_kill_of_the_service(
    tmp_path: Path,
) -> None:
    with short_folder() as folder:
        socket = folder / "s"
        service = ServiceProcess(tmp_path / "root", socket)
        service.start()
        make(socket, Queue("groups", arguments={"message_groups": True}))
        brokers = [member(socket, name, OLDER) for name in ("one", "two")]
        with connected(brokers[0].url) as here, connected(brokers[1].url) as there:
            until(lambda: all(knows(broker.url, "groups") for broker in brokers))
            sender = here.create_sender("groups")
            sender.send(durable(1, group_id="g"))
            first = here.create_receiver("groups", credit=1)
            assert first.receive(timeout=TIMEOUT_S).id == 1
            other = there.create_receiver("groups", credit=10)
            service.kill()
            service.start()
            sender.send(durable(2, group_id="g"))
            sender.send(durable(3))
            assert other.receive(timeout=TIMEOUT_S).id == 3  # and not 2, which is before it
            first.accept()
            first.flow(1)
            assert first.receive(timeout=TIMEOUT_S).id == 2
        service.stop()
        service.close()


class SharedVolatile(LinkOption):
    """Of a subscription that ends with the last of its links, of whatever client."""

    def apply(self, link: Link) -> None:
        capabilities = link.source.capabilities
        capabilities.put_array(False, Data.SYMBOL)
        capabilities.enter()
        for each in ("shared", "global"):
            capabilities.put_symbol(symbol(each))
        capabilities.exit()


def test_a_shared_subscription_goes_with_the_last_of_its_links_at_all_members(pair: Pair) -> None:
    topic, name = "amq.topic/together", "together|global-volatile"
    for first, second in (urls(pair), urls(pair)[::-1]):
        with connected(first) as here, connected(second) as there:
            mine, theirs = (
                connection.create_receiver(
                    topic, name=f"{name}{number}", credit=10, options=SharedVolatile()
                )
                for number, connection in enumerate((here, there), 1)
            )
            send(first, topic, durable(1), durable(2))
            assert sorted(each.receive(timeout=TIMEOUT_S).id for each in (mine, theirs)) == [1, 2]
            for each in (mine, theirs):
                each.accept()
            mine.close()
            send(first, topic, durable(3))
            assert theirs.receive(timeout=TIMEOUT_S).id == 3
            theirs.accept()
            theirs.close()
        until(lambda: not any("together" in name for name in queue_names(pair.socket)))


def is_locked(url: str, queue: str) -> bool:
    """Whether a client of the older protocol that consumes from a queue is sent away for that."""
    with OldClient(url, b"second") as it:
        with pytest.raises(AssertionError):
            taken_by(it, queue)
        assert it.exception is not None
        return bool(it.exception.error_code == ExecutionErrorCode.RESOURCE_LOCKED)


def taken_by(it: OldClient, queue: str) -> None:
    it.subscribe(queue, count=1)
    it.receive()


def test_a_queue_with_one_consumer_is_locked_at_all_members_over_both_protocols(pair: Pair) -> None:
    make(pair.socket, Queue("alone", arguments={"exclusive": True}))
    until(partial(knows, pair.second.url, "alone"))
    for first, second in (urls(pair), urls(pair)[::-1]):
        with connected(first) as here, connected(second) as there:
            receiver = here.create_receiver("alone", credit=1)
            for url in urls(pair):
                assert is_locked(url, "alone")
            with pytest.raises(LinkDetached, match="amqp:resource-locked"):
                there.create_receiver("alone", name="second", credit=1).receive(timeout=TIMEOUT_S)
            send(second, "alone", durable(1))
            assert receiver.receive(timeout=TIMEOUT_S).id == 1
            receiver.accept()


def test_a_queue_for_answers_is_its_connections_at_all_members_and_protocols(pair: Pair) -> None:
    for first, second in (urls(pair), urls(pair)[::-1]):
        with connected(first) as here, connected(second) as there:
            answers = here.create_receiver(None, dynamic=True, credit=1)
            name = answers.link.remote_source.address
            for url in urls(pair):
                until(partial(knows, url, name))
                assert is_locked(url, name)
            with pytest.raises(LinkDetached, match="amqp:resource-locked"):
                there.create_receiver(name)
            there.create_sender(name).send(durable(1))
            assert answers.receive(timeout=TIMEOUT_S).id == 1


class EndsWithItsConnection(LinkOption):
    """A subscription that is kept with its unsettled deliveries, but not without a connection."""

    def apply(self, link: Link) -> None:
        link.source.durability = Terminus.DELIVERIES
        link.source.expiry_policy = Terminus.EXPIRE_WITH_CONNECTION


def test_a_link_of_a_member_outlives_a_kill_of_the_service_that_serves_amqp_too(
    tmp_path: Path,
) -> None:
    with short_folder() as folder:
        socket = folder / "s"
        arguments = str(tmp_path / "root"), f"--store-socket={socket}", LISTEN
        service = BrokerProcess(*arguments)
        other = member(socket, "other")
        with connected(other.url) as connection:
            receiver = connection.create_receiver(
                "amq.topic/lives", name="lives", credit=1, options=EndsWithItsConnection()
            )
            send(other.url, "amq.topic/lives", durable(1), durable(2))
            assert receiver.receive(timeout=TIMEOUT_S).id == 1
            service.kill()
            service = BrokerProcess(*arguments)
            send(service.url, "amq.topic/lives", durable(3))
            receiver.accept()
            for number in (2, 3):
                assert receiver.receive(timeout=TIMEOUT_S).id == number
                receiver.accept()
        for broker in (other, service):
            assert broker.terminate() == 0
            assert "Traceback" not in broker.log, broker.log


def make(socket: Path, wiring: Queue | Exchange) -> None:
    """Have a plain member create something."""
    store = RemoteMessageStore(socket)
    done(store.create, wiring)
    store.close()


def queue_names(socket: Path) -> list[str]:
    store = RemoteMessageStore(socket)
    try:
        return [queue.name for queue in store.recover().queues]
    finally:
        store.close()


def test_wiring_of_no_durability_outlives_the_service_with_its_members_and_ends_with_those(
    tmp_path: Path,
) -> None:
    settings = tmp_path / "sparkstore.toml"
    settings.write_text("[store]\nmember_grace_s = 0.5\n")
    with short_folder() as folder:
        socket = folder / "s"
        arguments = str(tmp_path / "root"), f"--store-socket={socket}", f"--config={settings}"
        service = BrokerProcess(*arguments, LISTEN)
        other = member(socket, "other", OLDER)
        connection = BlockingConnection(other.url, TIMEOUT_S)
        subscriber = connection.create_receiver("amq.topic/news", credit=10)
        answers = connection.create_receiver(None, name="answers", dynamic=True, credit=10)
        address = answers.link.remote_source.address
        older = OldClient(other.url)
        make(socket, Exchange("volatile", "fanout", TerminusDurability.NONE))
        until(lambda: not older.do(c.ExchangeQuery("volatile")).not_found)
        older.do(c.QueueDeclare("kept", durable=True))
        older.do(c.ExchangeBind("kept", "volatile", ""))
        older.subscribe("kept")
        for number in range(3):
            if number:
                service.kill()
                service = BrokerProcess(*arguments, LISTEN)
                until(lambda: len(queue_names(socket)) == 3)
            send(other.url, "amq.topic/news", durable(number))
            assert subscriber.receive(timeout=TIMEOUT_S).id == number
            subscriber.accept()
            send(service.url, address, durable(number))
            assert answers.receive(timeout=TIMEOUT_S).id == number
            answers.accept()
            older.do(c.MessageTransfer("volatile", 1, 0), **content("", str(number).encode()))
            assert older.receive().body == str(number).encode()
        other.kill()
        until(lambda: queue_names(socket) == ["kept"])
        assert service.terminate() == 0
        assert "Traceback" not in service.log, service.log


KILLS = int(os.environ.get("SPARKSTORE_MEMBER_KILLS", "2"))
BATCH = 20
SIZES = (*[8] * 16, 700, 20_000, 1_200_000)


class Cut(NamedTuple):
    """A service that listens for members by TCP, and what cuts them off from it."""

    arguments: list[str]
    between: Forwarder

    def start(self) -> BrokerProcess:
        """The service, again; members that wait get to it."""
        service = BrokerProcess(*self.arguments)
        self.between.lead_to(store_port(service))
        return service

    def member(self, name: str) -> BrokerProcess:
        """A member that speaks AMQP 0-10."""
        token = next(each for each in self.arguments if each.startswith("--token-file="))
        url = f"--store=tcp:127.0.0.1:{self.between.port}"
        return BrokerProcess(url, token, f"--member={name}", LISTEN, OLDER)

    def cut(self, member: BrokerProcess) -> None:
        """Nobody is connected, and who wants to be waits for `start`, or for `between`."""
        count = member.log.count(LOST)
        self.between.hold()
        self.between.cut()
        until(lambda: member.log.count(LOST) > count)


LOST, AGAIN = "lost the store service", "connected to the store service"


@pytest.fixture(params=["with AMQP", "without"])
def cut(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cut]:
    settings, token = tmp_path / "sparkstore.toml", tmp_path / "token"
    settings.write_text("[store]\nmember_grace_s = 5\n")
    token.write_text(uuid4().hex)  # nobody of another run gets in, who looks for its own service
    token.chmod(0o600)
    arguments = [str(tmp_path / "root"), f"--config={settings}", f"--token-file={token}"]
    arguments += ["--store-listen=127.0.0.1:0"]
    arguments += [LISTEN] if request.param == "with AMQP" else ["--no-amqp"]
    between = Forwarder(0)
    between.hold()
    yield Cut(arguments, between)
    between.close()


def use_own(user: OldClient, queue: str, **said: Any) -> None:
    """Consume from a queue that goes with its last consumer, and take nothing yet."""
    user.do(c.QueueDeclare(queue, durable=True, auto_delete=True))
    user.publish(queue, queue.encode(), application_headers={"n": 1})
    user.do(c.MessageSubscribe(queue, queue, 0, 0, **said))


def test_queues_that_delete_themselves_outlive_a_cut_connection_and_a_kill_of_the_service(
    cut: Cut,
) -> None:
    """They go with their last consumer, which may leave while nobody sees it; or be killed."""
    first = cut.start()
    second, third = map(cut.member, ("second", "third"))
    with OldClient(second.url, b"stays") as stays, OldClient(third.url, b"killed") as killed:
        use_own(stays, "kept")
        use_own(stays, "chosen", arguments={"x-filter-jms-selector": "n = 1"})
        use_own(killed, "of-third")
        with OldClient(second.url, b"goes") as goes:
            use_own(goes, "left")
            goes.do(c.QueueDeclare("unheard", durable=True, auto_delete=True))
            cut.cut(second)
            goes.do(c.MessageSubscribe("unheard", "unheard", 0, 0))
        cut.between.lead_to(store_port(first))
        until(lambda: second.log.count(AGAIN) == 1)
        until(lambda: not knows(second.url, "left") and not knows(second.url, "unheard"))
        assert knows(second.url, "kept")
        cut.between.hold()
        first.kill()
        third.kill()
        first = cut.start()
        until(lambda: second.log.count(AGAIN) == 2)
        until(lambda: not knows(second.url, "of-third"))
        for name in ("kept", "chosen"):
            stays.do(c.MessageFlow(name, 1, 0xFFFFFFFF))
            stays.do(c.MessageFlow(name, 0, 1))
            assert stays.receive().body == name.encode()
    until(lambda: not knows(second.url, "kept") and not knows(second.url, "chosen"))
    for broker in (second, first):
        assert broker.terminate() == 0
        assert "Traceback" not in broker.log, broker.log


def test_a_branch_has_its_name_alone_through_a_cut_connection_and_a_kill_of_the_service(
    cut: Cut,
) -> None:
    first = cut.start()
    second, third = map(cut.member, ("second", "third"))
    with OldClient(second.url) as it:
        work(it, "q")
        cut.cut(second)
        cut.between.lead_to(store_port(first))
        for again in range(2):
            it.do(c.QueueDeclare(f"after {again}"))  # the member is connected,
            it.do(c.DtxRecover())  # and has said its names
            assert begun(third.url) == ExecutionErrorCode.NOT_ALLOWED
            if not again:
                cut.between.hold()
                first.kill()
                first = cut.start()
        assert it.do(c.DtxCommit(XID, one_phase=True)).status == OK
        until(lambda: begun(third.url) == OK)
    assert [message.body for message in take(third.url, "q", 1)] == [b"put"]
    for broker in (second, third, first):
        assert broker.terminate() == 0
        assert "Traceback" not in broker.log, broker.log


def store_port(service: BrokerProcess) -> int:
    """Where a service listens for members by TCP."""
    url = next(part for part in service.ready_line.split() if "tcp:" in part)
    return int(url.rpartition(":")[2])


def test_durable_links_go_on_at_another_member_through_kills_and_nothing_is_lost_or_twice(
    tmp_path: Path,
) -> None:
    """Each kill ends the member that both links are at; they resume at the other one."""
    dice, count = random.Random(3), 0
    second = ReceiverSettleMode.SECOND
    sender = Client(is_receiver=False, messages=[], mode=second, frame_bytes=16_384)
    taker = Client(is_receiver=True, messages=[], mode=second, credit=20, frame_bytes=16_384)

    def is_taken() -> bool:
        return len(taker.taken) == count and taker.is_done

    with short_folder() as folder:
        socket = folder / "s"
        service = BrokerProcess(str(tmp_path / "root"), f"--store-socket={socket}", LISTEN)
        for number in range(KILLS):
            broker = member(socket, f"member{number % 2}")
            sender.add([numbered(count + n, dice.choice(SIZES)) for n in range(BATCH)])
            count += BATCH
            killer = threading.Timer(dice.uniform(0.001, 0.5), broker.kill)
            with ThreadPoolExecutor(2) as both:
                clients = (sender, taker)
                runs = [both.submit(talk, each, broker.port, lambda: False) for each in clients]
                killer.start()
                assert [run.result() for run in runs] == [False, False]
            killer.join()
        assert talk(sender, service.port, lambda: sender.is_done)
        assert talk(taker, service.port, is_taken)
        assert sorted(map(number_in, taker.taken)) == [*range(count)]
        assert len(sender.outcomes) == count
        assert set(sender.outcomes.values()) == {1}
        assert is_empty(service.url, "q")
        assert service.terminate() == 0
        assert "Traceback" not in service.log, service.log


def test_a_link_that_is_attached_at_another_member_is_stolen_from_the_first(pair: Pair) -> None:
    connections = [BlockingConnection(url, TIMEOUT_S, container=container()) for url in urls(pair)]
    here, there = connections
    first = here.create_receiver("amq.topic/moves", name="mine", options=DurableSubscription())
    send(pair.first.url, "amq.topic/moves", durable(1))
    assert first.receive(timeout=TIMEOUT_S).id == 1
    second = there.create_receiver("amq.topic/moves", name="mine", options=DurableSubscription())
    with pytest.raises(LinkDetached, match="amqp:link:stolen"):
        first.receive(timeout=TIMEOUT_S)
    send(pair.first.url, "amq.topic/moves", durable(2))
    assert sorted(second.receive(timeout=TIMEOUT_S).id for _ in range(2)) == [1, 2]
    for connection in connections:
        connection.close()


def container() -> Container:
    """Of one client, on whatever member."""
    found = Container()
    found.container_id = "mover"
    return found


@pytest.mark.parametrize("is_hung", [False, True])
@pytest.mark.parametrize("count", [10, 3_000])
def test_a_member_whose_service_is_gone_ends_in_its_time_when_it_is_asked_to(
    tmp_path: Path, count: int, *, is_hung: bool
) -> None:
    """It waits for answers of the service, and with more messages than it has ids, for those."""
    settings = tmp_path / "settings.toml"
    settings.write_text("[broker]\nstop_timeout_s = 1.0\ncredit = 5000\n")
    with (
        short_folder() as folder,
        closing(ServiceProcess(tmp_path / "root", folder / "s")) as service,
    ):
        service.start()
        ended = member(folder / "s", "ended", f"--config={settings}")
        connection = BlockingConnection(ended.url, timeout=TIMEOUT_S)
        sender = connection.create_sender("q")
        sender.send(durable(0))
        assert service.process is not None
        if is_hung:
            service.process.send_signal(signal.SIGSTOP)
        else:
            service.kill()
        for number in range(count):
            sender.link.send(durable(number))
        connection.wait(lambda: connection.conn.transport.pending() <= 0)
        assert ended.terminate() == ExitCode.TRY_LATER
    assert "did not answer in time" in ended.log
    assert "Traceback" not in ended.log


def test_a_member_that_waits_for_nothing_ends_cleanly_though_its_service_is_gone(
    tmp_path: Path,
) -> None:
    with short_folder() as folder:
        service = ServiceProcess(tmp_path / "root", folder / "s")
        service.start()
        ended = member(folder / "s", "ended")
        send(ended.url, "q", durable(0))
        service.close()
        assert ended.terminate() == 0
