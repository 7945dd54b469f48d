"""Kill a broker again and again under two durable links of fe2o3-amqp; both are resumed each time.

One link sends numbers into a queue, the other takes them out, both while the broker is killed. The
oracle is what the two clients know: each number that was sent has the outcome accepted, and is
taken once.
"""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.system.client_programs import Program, build
from tests.support.system.clients import is_empty
from tests.support.system.processes import BrokerProcess

QUEUE = "numbers"
LIFE_S = (0.005, 0.3)
"""From when both links go on to the kill."""

FOREVER = 1_000_000_000
STEP = 500
"""Messages that are taken between two answers."""


@dataclass(slots=True)
class Told:
    """What the clients know at the end.

    Attributes:
        sent: How many numbers.
        accepted: Those with this outcome; `other` those with another.
        other: Number → outcome.
        taken: In order; a delivery counts once.
        twice: Taken, and sent again as the same delivery.
        kills: How often the broker was killed while both links were at work.
    """

    sent: int = 0
    accepted: list[int] = field(default_factory=list)
    other: dict[str, str] = field(default_factory=dict)
    taken: list[int] = field(default_factory=list)
    twice: list[int] = field(default_factory=list)
    kills: int = 0


class LinkKillLoop:
    """One growing root, one broker at a time, two clients that outlive it."""

    def __init__(self, folder: Path, seed: int) -> None:
        build("fe2o3-amqp")
        self._root = str(folder / "root")
        self._dice = random.Random(seed)
        self._broker = self._start()
        self._sender = Program("fe2o3-amqp")
        self._taker = Program("fe2o3-amqp")
        self.told = Told()

    def run(self, kills: int, *, sends_second: bool, takes_second: bool) -> Told:
        """Attach, be killed so often, finish, close; what the clients know then.

        Args:
            kills: How often.
            sends_second: Whether the sending link has rcv-settle-mode second.
            takes_second: Whether the taking one has.
        """
        self._attach(self._sender, "sender", second=sends_second)
        self._attach(self._taker, "receiver", second=takes_second)
        for _ in range(kills):
            self._killed_while_running()
            self._broker = self._start()
            for program in (self._sender, self._taker):
                program.tell("resume", host="127.0.0.1", port=self._broker.port)
        self._finish()
        assert is_empty(self._broker.url, QUEUE)
        return self.told

    def end(self) -> None:
        """Stop what still runs."""
        self._sender.end()
        self._taker.end()
        if self._broker.is_running:
            self._broker.kill()

    def _start(self) -> BrokerProcess:
        return BrokerProcess(self._root, "--listen", "127.0.0.1:0")

    def _attach(self, program: Program, role: str, *, second: bool) -> None:
        program.connect(self._broker)
        granted = program.tell("attach", role=role, name=role, address=QUEUE, second=second)
        assert granted == {"durability": 2}

    def _killed_while_running(self) -> None:
        killer = threading.Timer(self._dice.uniform(*LIFE_S), self._broker.kill)
        with ThreadPoolExecutor(2) as both:
            runs = [
                both.submit(program.tell, "run", count=FOREVER)
                for program in (self._sender, self._taker)
            ]
            killer.start()
            answers = [run.result() for run in runs]
        killer.join()
        assert [answer["lost"] for answer in answers] == [True, True]
        self.told.kills += 1
        self._learn(*answers)

    def _finish(self) -> None:
        """Everything that was sent gets its outcome, and is taken."""
        sent = self._sender.tell("run", count=self.told.sent)
        assert not sent["lost"]
        while True:  # an answer may not take for ever, and much can be left to take
            some = min(len(self.told.taken) + STEP, self.told.sent)
            taken = self._taker.tell("run", count=some)
            assert not taken["lost"]
            self._learn(sent, taken)
            if some == self.told.sent:
                break
        self._sender.tell("close")
        self._taker.tell("close")

    def _learn(self, sender: dict[str, Any], taker: dict[str, Any]) -> None:
        self.told.sent = sender["sent"]
        self.told.accepted, self.told.other = sender["accepted"], sender["other"]
        self.told.taken, self.told.twice = taker["taken"], taker["twice"]
