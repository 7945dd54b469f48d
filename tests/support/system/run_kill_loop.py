"""Kill a broker at each step of a run, again and again, and hold what it has then against a ledger.

One growing root. Each round has a queue of its own: a client sends runs to it, takes and accepts
or rejects them, or has them moved, and writes down what it was told, until the broker dies
(`killed_at_step`). The next broker on that root is asked what is on the queue, and on the one that
they are moved to, or are dead letters of.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import proton
from deltalake import DeltaTable

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Begin,
    Detach,
    Disposition,
    Flow,
    Rejected,
    Source,
    Target,
    Transfer,
)
from broker_shim.amqp_1_0.definitions import ReceiverSettleMode
from broker_shim.protocol_1_0.codec.frames import transfer_frame
from sparkstore.control.broker_control import BrokerControl
from sparkstore.control.client import open_control
from sparkstore.errors import Unavailable
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.tables.root import open_root
from tests.support.amqp.amqp_1_0 import attach, flow
from tests.support.roots.logs import unsynced_files, zero
from tests.support.system.killed_at_step import STEPS
from tests.support.system.processes import BrokerProcess
from tests.support.system.raw_peer import RawPeer

COUNT, PIECE = 600, 100
_FAR = (1 << 31) - 1
_SETTINGS = "[store]\ncommit_interval_ms = 20\n[broker]\ncredit = 10000\n"


class KilledBroker(BrokerProcess):
    """A broker that ends itself."""

    module = "tests.support.system.killed_at_step"


@dataclass
class Ledger:
    """What a client was told of the messages of one queue, by their numbers.

    Attributes:
        stored: Their sender was told that they are stored.
        received: Their receiver got them whole.
        decided: It said that it accepts them.
        confirmed: It was told that they are accepted.
        rejected: It was told that they are rejected.
    """

    stored: set[int] = field(default_factory=set)
    received: set[int] = field(default_factory=set)
    decided: set[int] = field(default_factory=set)
    confirmed: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)

    def check(
        self, left: list[tuple[int, bool]], elsewhere: Sequence[tuple[int, bool]] = ()
    ) -> None:
        """See that what is on the queue is what may be there, in its order.

        Args:
            left: Their numbers, and whether each says that it was delivered before.
            elsewhere: The same of those that were moved, or are dead letters.

        Raises:
            AssertionError: A message is lost, doubled or undone, or hides its redelivery.
        """
        numbers = [number for number, _is_again in (*elsewhere, *left)]
        assert numbers == sorted({*numbers}), "doubled, or out of order"
        assert {*numbers} <= {*range(COUNT)}
        lost = self.stored - self.decided - {*numbers}
        assert not lost, f"lost: {sorted(lost)[:9]}"
        undone = self.confirmed & {*numbers} | self.rejected & {number for number, _ in left}
        assert not undone, f"undone: {sorted(undone)[:9]}"
        silent = [number for number, is_again in left if number in self.received and not is_again]
        assert not silent, f"not said to be redelivered: {silent[:9]}"


class RunKillLoop:
    """One root, and a ledger for each of its queues.

    Attributes:
        kills: How many brokers died.
        redelivered: Messages that came again and said so.
        left: Messages that were found on a queue after a kill.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self._settings = folder / "sparkstore.toml"
        self._settings.write_text(_SETTINGS)
        self.kills = self.redelivered = self.left = 0
        self._unchecked: tuple[str, str | None, Ledger] | None = None

    def round(self, step: str, *, nth: int = 1, power_cut: bool = False) -> None:
        """Start a broker that dies at a step, check the queue before, and work until it does."""
        self.kills += 1
        queue, ledger = f"queue-{self.kills}", Ledger()
        words = (str(self.root), "--listen", "127.0.0.1:0", "--config", str(self._settings))
        way = STEPS[step].way
        broker = KilledBroker(step, queue, str(nth if way == "accept" else 1), *words)
        self._check(broker)
        elsewhere = None if way == "accept" else f"{queue}-elsewhere"
        if elsewhere is not None:
            order(self.root, Order(AdminAction.CREATE_QUEUE, elsewhere))
            dead = {"dead_letter_queue": elsewhere} if way == "reject" else {}
            order(self.root, Order(AdminAction.CREATE_QUEUE, queue, arguments=dead))
        send(broker, queue, ledger)
        if way == "move":
            move(self.root, queue, f"{queue}-elsewhere")
        else:
            take(broker, queue, ledger, Accepted() if way == "accept" else Rejected())
        assert broker.wait() < 0, f"{step}: it did not come to that"
        if power_cut:
            for path in unsynced_files(open_root(self.root)):
                zero(path)
        self._unchecked = queue, elsewhere, ledger

    def end(self) -> None:
        """Check the last queue, and that each record is in Delta once."""
        words = (str(self.root), "--listen", "127.0.0.1:0", "--config", str(self._settings))
        broker = BrokerProcess(*words)
        self._check(broker)
        assert broker.terminate() == 0
        table = DeltaTable(open_root(self.root).journal).to_pyarrow_table(columns=["position"])
        positions = sorted(table["position"].to_pylist())
        assert positions == [*range(positions[0], positions[0] + len(positions))]

    def _check(self, broker: BrokerProcess) -> None:
        if self._unchecked is not None:
            queue, elsewhere, ledger = self._unchecked
            left = drained(broker, queue)
            ledger.check(left, () if elsewhere is None else drained(broker, elsewhere))
            self.left += len(left)
            self.redelivered += sum(is_again for _number, is_again in left)


def send(broker: BrokerProcess, queue: str, ledger: Ledger) -> None:
    """Send runs, as far as the broker lives."""
    with RawPeer(broker) as sender:
        sender.opened().begun().sending(queue)
        for begin in range(0, COUNT, PIECE):
            run = range(begin, begin + PIECE)
            sender.write(b"".join(map(_frame, run)))
            if not _hear(sender, ledger.stored, {*run}):
                return


def order(root: Path, ordered: Order) -> None:
    """Give a living broker an order."""
    control = open_control(root)
    control.order(ordered)
    control.close()


def move(root: Path, queue: str, target: str) -> None:
    """Have all of a queue moved, which the broker does not live to tell."""
    control = open_control(root)
    assert isinstance(control, BrokerControl)
    with suppress(Unavailable):
        control.broker.ask("POST", f"queues/{queue}/move", {"to": target})
    control.close()


def take(broker: BrokerProcess, queue: str, ledger: Ledger, outcome: Accepted | Rejected) -> None:
    """Take and settle all of a queue by an outcome, as far as the broker lives."""
    if len(ledger.stored) < COUNT:
        return
    with RawPeer(broker) as receiver:
        receiver.opened().begun()
        second = ReceiverSettleMode.SECOND
        source, target = Source(queue), Target("t")
        receiver.say(
            attach(0, is_receiver=True, source=source, target=target, rcv_settle_mode=second),
            flow(0, COUNT, incoming_window=_FAR),
        )
        while len(ledger.received) < COUNT:
            said = receiver.next()
            if said is None:
                return
            if isinstance(said, Transfer):
                ledger.received.add(_number(receiver.payload)[0])
        is_accept = isinstance(outcome, Accepted)
        ledger.decided |= ledger.received if is_accept else set()
        receiver.say(Disposition(True, 0, COUNT - 1, settled=False, state=outcome))
        heard = ledger.confirmed if is_accept else ledger.rejected
        _hear(receiver, heard, {*range(COUNT)}, type(outcome))


def _hear(
    peer: RawPeer, heard: set[int], wanted: set[int], outcome: type[object] = Accepted
) -> bool:
    """Hear which deliveries are settled so, until all of these are; False if the broker ended."""
    while not wanted <= heard:
        said = peer.next()
        if said is None:
            return False
        if isinstance(said, Disposition) and (said.settled or not said.role):
            assert isinstance(said.state, outcome)
            heard |= {*range(said.first, (said.first if said.last is None else said.last) + 1)}
    return True


def drained(broker: BrokerProcess, queue: str) -> list[tuple[int, bool]]:
    """All that a queue has, which is accepted; whether each says that it was delivered before."""
    with RawPeer(broker) as peer:
        peer.opened()
        peer.say(
            Begin(next_outgoing_id=0, incoming_window=_FAR, outgoing_window=0),
            attach(0, is_receiver=True, source=Source(queue), target=Target("t")),
            flow(0, 10 * COUNT, incoming_window=_FAR, drain=True),
        )
        came: list[tuple[int, bool]] = []
        while not isinstance(said := peer.next(), Flow) or said.link_credit != 0:
            assert said is not None, "the broker hung up"
            if isinstance(said, Transfer):
                came.append(_number(peer.payload))
        accepted = Disposition(True, 0, _FAR, settled=True, state=Accepted())
        peer.say(accepted, Detach(0, closed=True))
        peer.until(Detach)
        return came


def _frame(number: int) -> bytes:
    payload = bytes(proton.Message(str(number), durable=True).encode())
    transfer = Transfer(0, number, b"%d" % number, 0, settled=False)
    return transfer_frame(0, transfer, len(payload)) + payload


def _number(payload: bytes) -> tuple[int, bool]:
    message = proton.Message()
    message.decode(payload)
    return int(message.body), message.delivery_count > 0
