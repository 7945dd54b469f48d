"""A broker killed while Qpid JMS moves messages in transactions: each is moved whole, or not."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from broker_shim.store.delta import DeltaMessageStore
from tests.support.system.client_cases import Told, text
from tests.support.system.client_programs import Program, build
from tests.support.system.processes import StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]

MESSAGES, BATCH = 600, 3
SOURCE, TARGETS = "in", ("out 1", "out 2")
Places = dict[str, Counter[str]]


def message(name: str) -> Told:
    return {"header": {"durable": True}, "body": {"value": text(name)}}


def found(root: Path) -> Places:
    """What is on each queue, as the next start recovers it; nobody may hold any of it for good."""
    store = DeltaMessageStore(root)
    try:
        entries = store.recover().entries
        return {
            queue: Counter(store.load(each).body.decode() for each in entries.get(queue, {}))
            for queue in (SOURCE, *TARGETS)
        }
    finally:
        store.close()


def check(places: Places, committed: set[str]) -> None:
    """Each is where it was, or on all targets; and what its client was told is true."""
    for number in range(MESSAGES):
        name = str(number)
        where = tuple(places[queue][name] for queue in (SOURCE, *TARGETS))
        assert where in {(1, 0, 0), (0, 1, 1)}, f"message {name}: {where}"
        assert name not in committed or where == (0, 1, 1), f"message {name} was told: {where}"


@pytest.mark.parametrize(
    ("seed", "kills"), [(1, 2), pytest.param(2, 8, marks=pytest.mark.thorough)]
)
def test_a_killed_broker_has_moved_all_of_a_transaction_or_nothing(
    tmp_path: Path, start_broker: StartBroker, seed: int, kills: int
) -> None:
    build("jms")
    dice, root = random.Random(seed), tmp_path / "root"
    program, committed = Program("jms"), set[str]()
    doubted = 0
    try:
        broker = start_broker(str(root))
        program.connect(broker, transacted=True)
        program.send(SOURCE, *(message(str(number)) for number in range(MESSAGES)))
        assert program.commit() == "committed"
        for _ in range(kills):
            timer = threading.Timer(dice.uniform(0.05, 0.4), broker.kill)
            timer.start()
            told = program.move(SOURCE, *TARGETS, batch=BATCH, wait_ms=20_000)
            timer.join()
            committed |= {*told["committed"]}
            places = found(root)
            check(places, committed)
            doubted += MESSAGES - places[SOURCE].total() - len(committed)
            committed = {*places[TARGETS[0]]}
            program.disconnect()
            broker = start_broker(str(root))
            program.connect(broker, transacted=True)
        told = program.move(SOURCE, *TARGETS, batch=BATCH, wait_ms=1_000)
        assert told["ended"] == "no more"
        assert broker.terminate() == 0
    finally:
        program.end()
    places = found(root)
    check(places, {str(number) for number in range(MESSAGES)})
    print(f"{kills} kills; of what was in doubt {doubted} messages had been moved")
