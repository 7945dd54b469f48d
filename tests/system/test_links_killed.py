"""Durable links of a client written by others, resumed after each kill -9: once each, none lost."""

from __future__ import annotations

import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker_shim.amqp_1_0.definitions import ReceiverSettleMode
from tests.support.amqp.amqp_messages import number_in, numbered
from tests.support.amqp.resuming import Client
from tests.support.system.clients import is_empty
from tests.support.system.link_kill_loop import LinkKillLoop
from tests.support.system.link_sockets import talk
from tests.support.system.processes import StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]

KILLS = int(os.environ.get("SPARKSTORE_LINK_KILLS", "2"))


@pytest.mark.parametrize(
    ("sends_second", "takes_second"),
    [
        pytest.param(False, True, id="first-second"),
        pytest.param(True, False, id="second-first"),
        pytest.param(True, True, id="second-second", marks=pytest.mark.thorough),
    ],
)
def test_what_is_sent_and_taken_through_kills_is_there_exactly_once(
    tmp_path: Path, *, sends_second: bool, takes_second: bool
) -> None:
    """But for a taker that settles first: what it settled just before a kill can come again."""
    loop = LinkKillLoop(tmp_path, seed=1)
    try:
        told = loop.run(KILLS, sends_second=sends_second, takes_second=takes_second)
    finally:
        loop.end()
    assert told.kills == KILLS
    assert told.sent > KILLS
    numbers = list(range(told.sent))
    assert told.other == {}
    assert sorted(told.accepted) == numbers
    assert sorted(told.taken) == numbers
    if takes_second:
        assert told.twice == []


BATCH = 60
SIZES = (*[8] * 16, 700, 700, 200_000, 1_200_000)
"""Of messages: some take many frames, a few are stored in pieces."""


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(ReceiverSettleMode.FIRST, id="first"),
        pytest.param(ReceiverSettleMode.SECOND, id="second", marks=pytest.mark.thorough),
    ],
)
def test_a_kill_may_fall_into_the_resumption_itself(
    start_broker: StartBroker, tmp_path: Path, mode: ReceiverSettleMode
) -> None:
    """With a client of our own: fe2o3-amqp cannot go on with a link lost while it attaches."""
    dice, root = random.Random(1), str(tmp_path / "root")
    second = ReceiverSettleMode.SECOND
    sender = Client(is_receiver=False, messages=[], mode=mode, frame_bytes=16_384)
    taker = Client(is_receiver=True, messages=[], mode=second, credit=20, frame_bytes=16_384)

    def is_taken() -> bool:
        return len(taker.taken) == count and taker.is_done

    count = 0
    for _ in range(2 * KILLS):
        broker = start_broker(root)
        sender.add([numbered(count + n, dice.choice(SIZES)) for n in range(BATCH)])
        count += BATCH
        killer = threading.Timer(dice.uniform(0.001, 0.5), broker.kill)
        with ThreadPoolExecutor(2) as both:
            runs = [both.submit(talk, each, broker.port, lambda: False) for each in (sender, taker)]
            killer.start()
            assert [run.result() for run in runs] == [False, False]
        killer.join()
    broker = start_broker(root)
    assert talk(sender, broker.port, lambda: sender.is_done)
    assert talk(taker, broker.port, is_taken)
    assert sorted(map(number_in, taker.taken)) == list(range(count))
    assert len(sender.outcomes) == count
    assert set(sender.outcomes.values()) == {1}
    assert is_empty(broker.url, "q")
