"""AMQP 0-10 at members of a store service: floods, and what a lost connection repeats."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.controls import SessionAttach, SessionAttached
from tests.support.stores.services import short_folder
from tests.support.system.old_client import OldClient
from tests.support.system.processes import BrokerProcess

pytestmark = [pytest.mark.system, pytest.mark.slow]

LISTEN = "--listen=127.0.0.1:0"
OLDER = "--amqp-0-10=same"


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
