"""Clients of a pair, and what they know: the only oracle of a drill.

Senders put numbered messages on `orders`. A mover takes them from there to `done`, each in a
transaction. Two durable links, which outlive their connections, send and take numbers on `q`.
Branches are prepared and decided (`pair_branches`). All of them connect to whichever machine
serves, and write down what they were answered, by whom and when. Nothing is compared by what a
broker says of itself.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import cycle, pairwise
from typing import Any, NamedTuple

from proton import Message, Timeout
from proton.handlers import TransactionHandler
from proton.utils import BlockingConnection

from broker_shim.amqp_1_0.definitions import ReceiverSettleMode
from tests.support.amqp.amqp_messages import number_in, numbered
from tests.support.amqp.resuming import Client
from tests.support.system.link_sockets import talk
from tests.support.system.pair_branches import Branches

_SENDERS = 2
_PATIENCE_S = 4.0
_LONG_S = 120.0
_PAUSE_S, _AGAIN_S = 0.015, 0.05
_SOON_S, _SOME_S = 0.5, 20.0
_BATCH = 10


class Answer(NamedTuple):
    """A confirmation: of what, by which machine, and when the client had it."""

    name: str
    machine: int
    at_s: float


class Verdict(NamedTuple):
    """Offences; all empty if a pair kept its promises.

    Attributes:
        lost: Accepted, and nowhere.
        undone: Moved by a transaction that was answered, and on its old queue again.
        halves: Of transactions that are in part there; and what nobody sent, or sent once and is
            there twice.
        late: Confirmed by a machine after the other one confirmed, between two take-overs.
        links: What two durable links miss, or had twice.
        branches: What is wrong with branches that were prepared, and with what they moved.
    """

    lost: list[str]
    undone: list[str]
    halves: list[str]
    late: list[Answer]
    links: list[int]
    branches: list[str]


class Load:
    """Clients that run until `stop`; then `verdict` reads what is left, and judges.

    Attributes:
        accepted: Confirmations of sends.
        moved: Confirmations of transactions.
        branched: Confirmations of sends for branches, and of what was prepared and decided.
        branches: What is known of branches.
    """

    def __init__(self, ports: list[int]) -> None:
        self._ports, self._stopping = ports, threading.Event()
        self.accepted: list[Answer] = []
        self.moved: list[Answer] = []
        self.branched: list[Answer] = []
        self.branches = Branches()
        self._committed, self._tried = set[str](), set[str]()
        self._undone: list[str] = []
        second = ReceiverSettleMode.SECOND
        self._giver = Client(is_receiver=False, messages=[], mode=second)
        self._taker = Client(is_receiver=True, messages=[], mode=second, credit=20)
        self._given = 0
        calls: list[Callable[[], None]] = [partial(self._send, n) for n in range(_SENDERS)]
        calls += [self._move, self._give, self._take, self._branch]
        self._threads = [threading.Thread(target=call, daemon=True) for call in calls]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all clients."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(_LONG_S)
            assert not thread.is_alive(), "a client does not end"

    def verdict(self, port: int, take_overs: int) -> Verdict:
        """Read all that is left at the machine that serves, and judge.

        Args:
            port: Of that machine.
            take_overs: How often the other machine has begun to serve.
        """
        moved = {*_names(self.moved)}
        done = Counter(_drained(port, "done", {*moved}))
        orders = Counter(_drained(port, "orders", {*_names(self.accepted)} - {*done}))
        left = orders + done
        there = {*left}
        halves = [*(there - self._tried), *(name for name in there if left[name] > 1)]
        lost = [name for name in (*_names(self.accepted), *moved) if name not in there]
        undone = [*self._undone, *({*orders} & moved)]
        late, links = self._late(take_overs), self._link_faults(port)
        return Verdict(lost, undone, halves, late, links, self.branches.faults(port, _LONG_S))

    def _late(self, take_overs: int) -> list[Answer]:
        answers = [*self.accepted, *self.moved, *self.branched]
        answers.sort(key=lambda answer: answer.at_s)
        turns = [now for before, now in pairwise(answers) if before.machine != now.machine]
        return turns if len(turns) > take_overs else []

    def _link_faults(self, port: int) -> list[int]:
        """Bring both links to their end, and compare: each number is accepted and taken once."""
        giver, taker, all_given = self._giver, self._taker, range(self._given)
        assert talk(giver, port, lambda: giver.is_done)
        assert talk(taker, port, lambda: len(taker.taken) >= self._given and taker.is_done)
        taken = Counter(map(number_in, taker.taken))
        outcomes = {number_in(message): count for message, count in giver.outcomes.items()}
        return [n for n in all_given if taken[n] != 1 or outcomes.get(n) != 1]

    # ------------------------------------------------------------------ clients, each a thread

    def _machines(self) -> Iterator[int]:
        """Give machines whose port is open, in turn, until the end: cheap to ask, if it is not."""
        for machine in cycle((0, 1)):
            if self._stopping.is_set():
                return
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self._ports[machine]), _PATIENCE_S).close()
                yield machine
            self._stopping.wait(_AGAIN_S / 2)

    def _connections(self) -> Iterator[tuple[int, BlockingConnection]]:
        for machine in self._machines():
            with suppress(Exception):
                url = f"amqp://127.0.0.1:{self._ports[machine]}"
                yield machine, BlockingConnection(url, timeout=_PATIENCE_S)

    def _send(self, number: int) -> None:
        count = 0
        for machine, connection in self._connections():
            with suppress(Exception):  # whatever happened to it: the next one has another name
                sender = connection.create_sender("orders")
                while not self._stopping.wait(_PAUSE_S):
                    count += 1
                    name = f"{number}-{count}"
                    self._tried.add(name)
                    padding = "." * (20_000 if count % 10 == 0 else 0)
                    message = Message(id=name, body=name, durable=True, subject=padding)
                    sender.send(message, timeout=_PATIENCE_S)
                    self.accepted.append(Answer(name, machine, time.monotonic()))
                connection.close()
            # Else not closed: proton would wait for a peer that is frozen.

    def _move(self) -> None:
        for machine, connection in self._connections():
            with suppress(Exception):
                receiver = connection.create_receiver("orders", credit=20)
                sender = connection.create_sender("done")
                while not self._stopping.is_set():
                    with suppress(Timeout):  # nothing waits, or the peer is frozen: look again
                        self._move_one(connection, receiver, sender, machine)
                connection.close()

    def _move_one(
        self, connection: BlockingConnection, receiver: Any, sender: Any, machine: int
    ) -> None:
        name = str(receiver.receive(timeout=1).body)
        if name in self._committed:
            self._undone.append(name)
        assert connection.conn is not None
        delivery, outcome = receiver.fetcher.unsettled.popleft(), _Outcome()
        transaction = connection.container.declare_transaction(connection.conn, outcome)
        connection.wait(lambda: bool(outcome.word), timeout=_PATIENCE_S)
        transaction.accept(delivery)
        transaction.send(sender.link, Message(id=name, body=name, durable=True))
        outcome.word = ""
        transaction.commit()
        connection.wait(lambda: bool(outcome.word), timeout=_PATIENCE_S)
        if outcome.word == "committed":
            self._committed.add(name)
            self.moved.append(Answer(name, machine, time.monotonic()))
        delivery.settle()

    def _give(self) -> None:
        def is_through() -> bool:
            if self._giver.is_done and not self._stopping.wait(_PAUSE_S):
                more = range(self._given, self._given + _BATCH)
                self._given += _BATCH
                self._giver.add([numbered(number, 8) for number in more])
            return self._stopping.is_set()

        self._talk(self._giver, is_through)

    def _take(self) -> None:
        self._talk(self._taker, self._stopping.is_set)

    def _branch(self) -> None:
        for machine in self._machines():

            def confirm(name: str, machine: int = machine) -> None:
                self.branched.append(Answer(name, machine, time.monotonic()))

            port, stopping = self._ports[machine], self._stopping
            self.branches.work(port, _PATIENCE_S, stopping, confirm)

    def _talk(self, client: Client, is_done: Callable[[], bool]) -> None:
        for machine in self._machines():
            with suppress(AssertionError):  # a broker that stops says so, and links end by it
                talk(client, self._ports[machine], is_done, timeout_s=_PATIENCE_S)


class _Outcome(TransactionHandler):
    """The last word of a transaction."""

    word = ""

    def on_transaction_declared(self, _event: object) -> None:
        self.word = "declared"

    def on_transaction_committed(self, _event: object) -> None:
        self.word = "committed"

    def on_transaction_commit_failed(self, _event: object) -> None:
        self.word = "failed"


def _names(answers: list[Answer]) -> list[str]:
    return [answer.name for answer in answers]


def _drained(port: int, queue: str, least: set[str]) -> list[str]:
    """Take all that is on a queue; what must be there is waited for longer."""
    connection = BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=_LONG_S)
    receiver, names = connection.create_receiver(queue, credit=100), list[str]()
    with suppress(Timeout):
        while True:
            timeout_s = _SOON_S if not least else _SOME_S
            name = str(receiver.receive(timeout=timeout_s).body)
            receiver.accept()
            names.append(name)
            least.discard(name)
    connection.close()
    return names
