"""Branches of distributed transactions at a pair: prepared before a kill, decided after it.

A client of AMQP 0-10 moves numbered messages from `parts` to `parts done`, each in a branch that
it prepares. Some are decided at once, the others stay in doubt: so a machine that dies always
leaves some, and the one that serves next lists them. Then they are decided, by another connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from threading import Event

from broker_shim.amqp_0_10.commands import (
    DtxCommit,
    DtxEnd,
    DtxPrepare,
    DtxRecover,
    DtxRollback,
    DtxSelect,
    DtxStart,
    MessageAccept,
    MessageFlow,
    QueueDeclare,
)
from broker_shim.amqp_0_10.definitions import DtxXaStatus
from broker_shim.amqp_0_10.structs import DtxXid
from tests.support.system.old_client import OldClient

FROM, TO = "parts", "parts done"
_BATCH, _IN_DOUBT, _PAUSE_S = 8, 4, 0.02
_FORMAT = 1
Confirm = Callable[[str], None]


class Branches:
    """A client that works at whichever machine serves, and what it knows.

    Attributes:
        sent: Names that were accepted on `parts`.
        prepared: The name that a branch moves, by the number of each that was prepared.
    """

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.prepared: dict[int, str] = {}
        self._tried, self._moves = set[str](), dict[int, str]()
        self._asked, self._decided = set[int](), set[int]()
        self._wrong: list[str] = []
        self._session = 0

    def work(self, port: int, timeout_s: float, stopping: Event, confirm: Confirm) -> None:
        """Decide what is in doubt, and then move a few more; whatever fails ends it early.

        Args:
            port: Of the machine that serves.
            timeout_s: The patience with each of its answers.
            stopping: Set when no more is to begin.
            confirm: Called with a word for each confirmation.
        """
        with suppress(OSError, AssertionError), self._connected(port, timeout_s) as client:
            self._decide_all(client, confirm)
            for number in range(_BATCH):
                name = f"{self._session}-{number}"
                self._tried.add(name)
                client.publish(FROM, name.encode())
                self.sent.append(name)
                confirm(name)
            client.do(DtxSelect())
            client.subscribe(FROM, count=0)
            for number in range(_BATCH):
                if stopping.wait(_PAUSE_S):
                    break
                branch = self._prepare(client, confirm)
                if number < _BATCH - _IN_DOUBT:
                    self._decide(client, branch, confirm)

    def faults(self, port: int, timeout_s: float) -> list[str]:
        """Decide what is in doubt when the load has ended, and return what is wrong then.

        Each name is there once, on the queue that the decision of its branch says. A branch that
        was rolled back leaves its name to a later one.
        """
        with self._connected(port, timeout_s) as client:
            self._decide_all(client, lambda _: None)
            left, done = (_names(client, queue) for queue in (FROM, TO))
        counts = Counter(left + done)
        wrong = [f"{name}: lost" for name in self.sent if name not in counts]
        for name, count in counts.items():
            if count > 1 or name not in self._tried:
                wrong.append(f"{name}: there {count} times")
        moved = {name for branch, name in self.prepared.items() if _commits(branch)}
        return [*self._wrong, *wrong, *(f"{name}: half" for name in moved ^ {*done})]

    def _connected(self, port: int, timeout_s: float) -> OldClient:
        self._session += 1
        client = OldClient(f":{port}", b"branches %d" % self._session, timeout_s)
        for queue in (FROM, TO):
            client.do(QueueDeclare(queue, durable=True))
        return client

    def _decide_all(self, client: OldClient, confirm: Confirm) -> None:
        """Compare what is in doubt with what was confirmed, and decide it."""
        listed = {int(xid.global_id) for xid in client.do(DtxRecover()).in_doubt}
        # One whose decision had no answer may be decided, or not yet.
        lost = {*self.prepared} - self._asked - listed
        self._wrong += [f"branch {branch}: not in doubt at {client.port}" for branch in lost]
        self._wrong += [f"branch {branch}: undecided again" for branch in listed & self._decided]
        for branch in sorted(listed):
            self.prepared.setdefault(branch, self._moves[branch])
            self._decide(client, branch, confirm)

    def _prepare(self, client: OldClient, confirm: Confirm) -> int:
        client.say(MessageFlow("d", 0, 1))
        message = client.receive()
        branch = len(self._moves) + 1
        self._moves[branch] = message.body.decode()
        assert client.do(DtxStart(_xid(branch))).status == DtxXaStatus.XA_OK
        client.publish(TO, message.body)
        client.do(MessageAccept(((message.number, message.number),)))
        assert client.do(DtxEnd(_xid(branch))).status == DtxXaStatus.XA_OK
        assert client.do(DtxPrepare(_xid(branch))).status == DtxXaStatus.XA_OK
        self.prepared[branch] = self._moves[branch]
        confirm(f"prepared {branch}")
        return branch

    def _decide(self, client: OldClient, branch: int, confirm: Confirm) -> None:
        self._asked.add(branch)
        decision = DtxCommit if _commits(branch) else DtxRollback
        assert client.do(decision(_xid(branch))).status == DtxXaStatus.XA_OK
        self._decided.add(branch)
        confirm(f"decided {branch}")


def _names(client: OldClient, queue: str) -> list[str]:
    client.subscribe(queue, queue)
    return [message.body.decode() for message in client.flushed(queue)]


def _commits(branch: int) -> bool:
    return branch % 4 != 0


def _xid(branch: int) -> DtxXid:
    return DtxXid(_FORMAT, b"%d" % branch, b"moves")
