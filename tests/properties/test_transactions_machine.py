"""Transactions of a client in any order, with crashes among them, against a model in plain dicts.

proton's engine is the client, a real store is below: what is on the queues is what was committed,
whole transactions only, after a power cut as well as before it.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run
from proton import Delivery, Message, symbol

from broker_shim.broker.storage import store_puts
from broker_shim.listener_1_0.receiving import incoming_message
from sparkstore.core.annotations import annotations_of
from tests.support.amqp.transaction_clients import Client
from tests.support.stores.stores import Home

QUEUES = ("q", "r")
NUMBERS = st.integers(0, 20)
FLAGS = st.booleans()
STAGED_BYTES = 1000
OUTCOMES = st.sampled_from(
    [
        None,
        None,
        None,
        (Delivery.ACCEPTED, ()),
        (Delivery.ACCEPTED, ()),
        (Delivery.REJECTED, ()),
        (Delivery.RELEASED, ()),
        (Delivery.MODIFIED, (True, False)),
        (Delivery.MODIFIED, (True, False, {symbol("x-opt-a"): "one"})),
        (Delivery.MODIFIED, (False, False, {symbol("x-opt-a"): "two", symbol("x-opt-b"): "b"})),
    ]
)
Outcome = tuple[Any, tuple[Any, ...]]
Step = tuple[int, Outcome | None, bool]
"""A number to choose by; send, or this outcome; large, or settled."""
PLANS = st.lists(st.tuples(NUMBERS, OUTCOMES, FLAGS), min_size=1, max_size=4)


@dataclass(eq=False)
class Open:
    """A transaction that is not discharged.

    Attributes:
        txn_id: The broker's.
        posted: (queue, name) in order.
        retired: By name: the queue, the outcome, and whether the client has settled.
    """

    txn_id: bytes
    posted: list[tuple[str, str]] = field(default_factory=list)
    retired: dict[str, tuple[str, Outcome, bool]] = field(default_factory=dict)


class TransactionMachine(RuleBasedStateMachine):
    """All that is on a queue is with the client at once: it is available or in a transaction."""

    name = "recorded"

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for module in (incoming_message, store_puts):
            self.patch.setattr(module, "STAGED_BYTES", STAGED_BYTES)
        self.folder = Path(tempfile.mkdtemp(prefix="sparkstore-transactions-"))
        self.home = Home(self.name, self.folder / "0")
        self.on: dict[str, dict[str, int]] = {queue: {} for queue in QUEUES}
        self.annotated: dict[str, dict[str, tuple[str, str]]] = {}
        self.open: list[Open] = []
        self.names = 0
        self.begin()

    def begin(self) -> None:
        """A broker starts on the store, and a client connects."""
        self.client = Client(self.home.store)
        for queue in QUEUES:
            self.client.broker.ensure_queue(queue, lambda _error: None)
        self.client.run()
        self.senders = {"q": self.client.sender, "r": self.client.sending("r")}
        self.receivers: dict[str, Any] = {}
        self.deliveries: dict[str, Delivery] = {}
        for queue in QUEUES:
            self.attach(queue)

    def teardown(self) -> None:
        self.client.ours.lost()
        self.client.run()
        self.home.store.close()
        shutil.rmtree(self.folder)
        self.patch.undo()

    def attach(self, queue: str) -> None:
        self.names += 1
        link = self.client.session.receiver(f"from {queue} {self.names}")
        link.source.address = queue
        link.open()
        link.flow(1000)
        self.receivers[queue] = link
        self.collect()

    def collect(self) -> None:
        """Take in what has come; by name, as proton's own deliveries end with their links."""
        self.client.exchange()
        for link in self.receivers.values():
            while (delivery := link.current) is not None and not delivery.partial:
                message = Message()
                message.decode(link.recv(delivery.pending))
                link.advance()
                self.deliveries[message.body.rstrip(".")] = delivery

    def entries(self, queue: str) -> Any:
        return self.home.store.recover().entries[queue]

    def name_of(self, message_id: int) -> str:
        return self.home.store.load(message_id).body.rstrip(b".").decode()

    def new_name(self, *, is_large: bool) -> str:
        self.names += 1
        return f"{self.names}/{'large' if is_large else 'small'}"

    def body(self, name: str) -> str:
        return name.ljust(2 * STAGED_BYTES, ".") if name.endswith("large") else name

    # -- what a client does ------------------------------------------------------------------

    @initialize()
    def some_messages(self) -> None:
        for queue in (*QUEUES, *QUEUES):
            self.publish(queue, is_large=False)

    @rule(queue=st.sampled_from(QUEUES), is_large=FLAGS)
    def publish(self, queue: str, is_large: bool) -> None:
        name = self.new_name(is_large=is_large)
        self.client.publish_one(self.body(name), link=self.senders[queue])
        self.on[queue][name] = 0
        self.collect()

    @precondition(lambda self: len(self.open) < 3)
    @rule(plan=PLANS)
    def declare(self, plan: list[Step]) -> None:
        self.open.append(Open(self.client.declare()))
        self.operate(self.open[-1], plan)

    @precondition(lambda self: self.open)
    @rule(which=NUMBERS, plan=PLANS)
    def go_on(self, which: int, plan: list[Step]) -> None:
        self.operate(self.choose(which), plan)

    def operate(self, transaction: Open, plan: list[Step]) -> None:
        """Send to a queue, or decide about a message that is in no transaction."""
        for number, outcome, flag in plan:
            if outcome is None:
                self.post(transaction, QUEUES[number % 2], is_large=flag)
            elif self.free():
                self.retire(transaction, number, outcome, settled=flag)
        self.collect()

    def post(self, transaction: Open, queue: str, *, is_large: bool) -> None:
        name = self.new_name(is_large=is_large)
        self.client.post(transaction.txn_id, self.body(name), self.senders[queue])
        transaction.posted.append((queue, name))

    def retire(self, transaction: Open, number: int, outcome: Outcome, *, settled: bool) -> None:
        queue, name = self.free()[number % len(self.free())]
        delivery = self.deliveries[name]
        self.client.retire(transaction.txn_id, delivery, *outcome, settled=settled)
        transaction.retired[name] = queue, outcome, settled
        if settled:
            del self.deliveries[name]

    @precondition(lambda self: self.free())
    @rule(number=NUMBERS, accepted=FLAGS)
    def settle(self, number: int, accepted: bool) -> None:
        """In no transaction."""
        queue, name = self.free()[number % len(self.free())]
        delivery = self.deliveries.pop(name)
        delivery.update(Delivery.ACCEPTED if accepted else Delivery.RELEASED)
        delivery.settle()
        if accepted:
            del self.on[queue][name]
        self.collect()

    @precondition(lambda self: self.open)
    @rule(which=NUMBERS, fail=FLAGS)
    def discharge(self, which: int, fail: bool) -> None:
        transaction = self.choose(which)
        self.open.remove(transaction)
        answer = self.client.discharge(transaction.txn_id, fail=fail)
        assert answer.remote_state == Delivery.ACCEPTED
        if fail:
            self.undone(transaction)
        else:
            self.done(transaction)
        self.collect()

    @rule(queue=st.sampled_from(QUEUES))
    def end_a_receiver(self, queue: str) -> None:
        """What it had given no outcome in a transaction comes again, to the next one.

        It leaves in good order, so none of that has failed.
        """
        self.receivers.pop(queue).close()
        for transaction in self.open:
            for name, (of, outcome, _) in transaction.retired.items():
                if of == queue:  # the link is gone: its client cannot decide again
                    transaction.retired[name] = of, outcome, True
        self.deliveries = {
            name: each for name, each in self.deliveries.items() if name not in self.on[queue]
        }
        self.client.exchange()
        self.attach(queue)

    # -- what ends transactions --------------------------------------------------------------

    @precondition(lambda self: self.open)
    @rule()
    def end_the_coordinator(self) -> None:
        self.client.coordinator.close()
        self.client.exchange()
        for transaction in self.open:
            self.undone(transaction)
        self.open.clear()
        self.names += 1
        self.client.coordinator = self.client.coordinate(name=f"coordinator {self.names}")
        self.collect()

    @rule(how=st.sampled_from(["crash", "reopen"]))
    def restart(self, how: str) -> None:
        """The broker is gone, by a loss of power or by a stop: so are the client's links."""
        if how == "crash":
            survivor = self.home.crash()
            self.client.ours.lost()
            self.client.run()
            self.home.store.close()
            self.home = survivor
        else:
            self.client.ours.lost()
            self.client.run()
            self.home.reopen()
        for on_it in self.on.values():
            for name in on_it:
                on_it[name] += 1
        self.open.clear()
        self.begin()

    # -- what must hold ----------------------------------------------------------------------

    @invariant()
    def what_is_there_was_committed(self) -> None:
        for queue, expected in self.on.items():
            entries = self.entries(queue)
            found = {self.name_of(each): entry.delivery_count for each, entry in entries.items()}
            assert list(found.items()) == list(expected.items())
            for each, entry in entries.items():
                annotations = self.annotated.get(self.name_of(each), {})
                assert annotations_of(entry.detail) == annotations

    @invariant()
    def the_client_has_all_that_is_in_no_transaction(self) -> None:
        held = {name for each in self.open for name in each.retired}
        expected = {name for on_it in self.on.values() for name in on_it}
        assert self.deliveries.keys() - held == expected - held

    def choose(self, which: int) -> Open:
        return self.open[which % len(self.open)]

    def free(self) -> list[tuple[str, str]]:
        """(queue, name) of what is in no transaction."""
        held = {name for each in self.open for name in each.retired}
        return [(q, name) for q, on_it in self.on.items() for name in on_it if name not in held]

    def done(self, transaction: Open) -> None:
        for queue, name in transaction.posted:
            self.on[queue][name] = 0
        for name, (queue, (outcome, fields), _) in transaction.retired.items():
            self.deliveries.pop(name, None)
            if outcome in {Delivery.ACCEPTED, Delivery.REJECTED}:
                del self.on[queue][name]
            else:
                self.on[queue][name] += any(fields[:1])
                for key, value in dict(*fields[2:]).items():
                    self.annotated.setdefault(name, {})[str(key)] = ("string", value)

    def undone(self, transaction: Open) -> None:
        for name, (queue, _, settled) in transaction.retired.items():
            if settled:
                self.on[queue][name] += 1


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("recorded", 3),
        ("delta", 30),  # opening takes a tenth of a second
        pytest.param("recorded", 1, marks=pytest.mark.thorough),
        pytest.param("delta", 4, marks=pytest.mark.thorough),
        pytest.param("remote", 8, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.slow
def test_a_transaction_is_done_whole_or_not_at_all_whatever_happens(name: str, share: int) -> None:
    machine = type(f"{name.title()}Machine", (TransactionMachine,), {"name": name})
    examples = max(2, settings().max_examples // share)
    run(machine, settings=settings(max_examples=examples, stateful_step_count=30))
