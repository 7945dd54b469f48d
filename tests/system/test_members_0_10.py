"""AMQP 0-10 at members of a store service: floods, and what a lost connection repeats."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.commands import ExecutionException
from broker_shim.amqp_0_10.controls import SessionAttach, SessionAttached
from broker_shim.amqp_0_10.definitions import DtxXaStatus, ExecutionErrorCode
from broker_shim.amqp_0_10.structs import DtxXid
from tests.support.roots.logs import until
from tests.support.stores.services import short_folder
from tests.support.system.old_client import OldClient
from tests.support.system.processes import BrokerProcess

pytestmark = [pytest.mark.system, pytest.mark.slow]

LISTEN = "--listen=127.0.0.1:0"
OLDER = "--amqp-0-10=same"


XID = DtxXid(1, b"begun twice", b"")


class Pair(NamedTuple):
    """A broker with a root, which serves its store, and a broker that is its member."""

    first: BrokerProcess
    second: BrokerProcess


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    root = tmp_path_factory.mktemp("members") / "root"
    with short_folder() as folder:
        socket = folder / "s"
        first = BrokerProcess(str(root), f"--store-socket={socket}", LISTEN, OLDER)
        second = BrokerProcess(f"--store=unix:{socket}", "--member=second", LISTEN, OLDER)
        yield Pair(first, second)
        assert second.terminate() == 0
        assert first.terminate() == 0
    for broker in (first, second):
        assert "Traceback" not in broker.log, broker.log


@pytest.mark.parametrize("asked", [c.DtxRecover(), c.QueueQuery("q")])
def test_a_flood_of_questions_at_a_member_is_answered_and_ends_nothing(
    pair: Pair, asked: c.DtxRecover | c.QueueQuery
) -> None:
    with OldClient(pair.second.url) as other:
        other.do(c.QueueDeclare("q", durable=True))
        flooding = [OldClient(pair.second.url, b"flood %d" % each) for each in range(8)]
        for number, client in enumerate(flooding):
            for channel in range(2, 252):
                client.say(SessionAttach(b"%d %d" % (number, channel)), channel)
                client.say(c.DtxSelect(), channel)
        for client in flooding:
            client.wait_for_elsewhere(SessionAttached, 250)
        pair.first.signal(signal.SIGSTOP)  # so none is answered before all are asked
        for client in flooding:
            for channel in range(2, 252):
                client.say(asked, channel)
        for client in (other, *flooding):  # a member knows of exchanges by itself
            assert client.do(c.ExchangeQuery("amq.topic")).type == "topic"
        pair.first.signal(signal.SIGCONT)
        other.publish("q", b"x")
        other.subscribe("q", count=1)
        assert other.receive().body == b"x"
        for client in flooding:
            client.wait_for_elsewhere(c.ExecutionResult, 250)
            client.close()
        assert other.do(c.QueueQuery("q")).queue == "q"
    assert "sent us away" not in pair.second.log


@pytest.mark.parametrize("at_member", [True, False])
def test_an_exchange_goes_with_its_last_binding_at_all_brokers(pair: Pair, at_member: bool) -> None:
    """The one that decides deletes it, whoever takes the binding away."""
    here, there = (
        (pair.second.url, pair.first.url) if at_member else (pair.first.url, pair.second.url)
    )
    with OldClient(here, b"binds") as client, OldClient(there, b"looks") as other:
        client.do(c.QueueDeclare("bound", durable=True))
        client.do(c.ExchangeDeclare("brief", "direct", durable=True, auto_delete=True))
        client.do(c.ExchangeBind("bound", "brief", "k"))
        until(lambda: not other.do(c.ExchangeBound("brief", "bound", "k")).queue_not_matched)
        client.do(c.ExchangeUnbind("bound", "brief", "k"))
        for each in (client, other):
            until(lambda each=each: each.do(c.ExchangeQuery("brief")).not_found)


def begun(url: str) -> ExecutionException | None:
    """Begin the branch with another session; why that is refused, if it is."""
    with OldClient(url, uuid4().bytes) as second:
        second.do(c.DtxSelect())
        number = second.say(c.DtxStart(XID), sync=True)
        with suppress(AssertionError):
            assert second.wait_for(number).status == DtxXaStatus.XA_OK
        return second.exception


def refused(url: str) -> tuple[int, int]:
    """The same, as error and command."""
    exception = begun(url)
    assert exception is not None
    return int(exception.error_code), (exception.class_code or 0) << 8 | (
        exception.command_code or 0
    )


REFUSED = ExecutionErrorCode.NOT_ALLOWED, c.DtxStart.CODE


@pytest.mark.parametrize("at_member", [True, False])
def test_a_branch_that_was_begun_at_one_broker_is_not_begun_at_another(
    pair: Pair, at_member: bool
) -> None:
    here, there = (
        (pair.second.url, pair.first.url) if at_member else (pair.first.url, pair.second.url)
    )
    with OldClient(here, b"first") as first:
        first.work_in_branch("one-phase", XID)
        assert [refused(there), refused(here)] == [REFUSED] * 2
        assert first.do(c.DtxCommit(XID, one_phase=True)).status == DtxXaStatus.XA_OK
    with OldClient(there, b"second") as second:
        second.work_in_branch("two-phases", XID)
        assert second.do(c.DtxPrepare(XID)).status == DtxXaStatus.XA_OK
        assert refused(here) == REFUSED
        assert second.do(c.DtxRollback(XID)).status == DtxXaStatus.XA_OK
    with OldClient(here, b"lost") as lost:
        lost.work_in_branch("lost", XID)
        assert refused(there) == REFUSED
    until(lambda: begun(there) is None)  # it ends with its session
    until(lambda: begun(here) is None)


def test_what_was_begun_at_a_member_is_known_after_a_kill_of_the_service(tmp_path: Path) -> None:
    with short_folder() as folder:
        served = [str(tmp_path / "root"), f"--store-socket={folder / 's'}", LISTEN, OLDER]
        first = BrokerProcess(*served)
        second = BrokerProcess(f"--store=unix:{folder / 's'}", "--member=second", LISTEN, OLDER)
        with OldClient(second.url, b"first") as client:
            client.work_in_branch("q", XID)
            first.kill()
            first = BrokerProcess(*served)
            until(lambda: "connected to the store service" in second.log)
            client.do(c.QueueQuery("q"))  # the member says its claims before it asks
            assert refused(first.url) == REFUSED
            assert client.do(c.DtxCommit(XID, one_phase=True)).status == DtxXaStatus.XA_OK
            until(lambda: begun(first.url) is None)  # the member gives it back after its commit
        for broker in (second, first):
            assert broker.terminate() == 0
            assert "Traceback" not in broker.log, broker.log
