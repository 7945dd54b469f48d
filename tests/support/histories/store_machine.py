"""Any calls in any order, with restarts and crashes, on a store and on a model in plain dicts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from broker_shim.durability import TerminusDurability
from broker_shim.errors import StoreError
from broker_shim.store.branch_store import Xid
from broker_shim.store.interface import (
    Exchange,
    ExchangeBindingKey,
    MessageHeader,
    NewMessageRun,
    Queue,
    StoredMessage,
    StoredRun,
)
from sparkstore.core.annotations import Annotations, annotations_of
from tests.support.histories.link_rules import LinkRules
from tests.support.histories.model import Model, ModelMessage, ModelTransaction, Place
from tests.support.stores.stores import Home, done, outcomes

QUEUES = st.sampled_from(["q", "../r", "s 🦊"])
EXCHANGES = st.sampled_from(["fan", "topic"])
DURABILITIES = st.sampled_from([2, 2, 2, 1, 0])
HOLDERS = st.sampled_from(["c1", "c2", '["c","l","sender"]'])
CALLS = st.sampled_from(["acquire", "acquire", "release", "fail", "dequeue"])
CALLS_BEFORE_A_RESTART = 15
HELD = {"acquire": False, "release": True, "fail": True, "dequeue": None}
"""Which entries a call fits: available ones, acquired ones, any."""
BODIES = st.sampled_from([b"", b"body", bytes(range(256)) * 8])
NUMBERS = st.integers(0, 20)
FLAGS = st.booleans()
MOSTLY = st.sampled_from([True, True, True, False])
Transactions = tuple[Any, ModelTransaction | None]
"""The store's and the model's, or no transaction."""


class StoreMachine(LinkRules):
    """Every call goes to the store and to the model, which must agree on its outcome."""

    name = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="sparkstore-machine-"))
        self.home = Home(self.name, self.folder / "0")
        self.model = Model(self.home.tier, TerminusDurability.NONE if self.name == "json" else None)
        self.age = 0
        self.given: dict[int, StoredMessage] = {}
        self.transactions: list[tuple[Any, ModelTransaction]] = []
        self.asked = 2  # the first enqueue says something

    def teardown(self) -> None:
        self.home.store.close()
        shutil.rmtree(self.folder)

    def both(
        self, model: Callable[[], None], call: Callable[..., Any], *args: Any, **named: Any
    ) -> None:
        """Make one call on both sides; both take it, or both refuse it with the same error."""
        self.age += 1
        expected = refusal_of(model)
        found = refusal_of(lambda: done(call, *args, **named))
        assert type(found) is type(expected), found

    def place(self, number: int, queue: str, *, held: bool | None) -> tuple[Place, str | None]:
        """An entry and who holds it; now and then one in the wrong state, or a place with none."""
        there = [
            ((name, message_id), entry.holder)
            for name, entries in self.model.entries.items()
            for message_id, entry in entries.items()
            if held is None or number % 7 == 1 or (entry.holder is not None) == held
        ]
        if not there or number == 0:
            return (queue, number), None
        return there[number % len(there)]

    def transaction(self, number: int) -> Transactions:
        """No transaction, mostly, or one of those that are open."""
        choices: list[Transactions] = [(None, None), (None, None), *self.transactions]
        return choices[number % len(choices)]

    # -- wiring ------------------------------------------------------------------------------

    @initialize(durability=DURABILITIES)
    def begin_with_some_queues(self, durability: int) -> None:
        for name, asked in (("q", 2), ("../r", 2), ("s 🦊", durability)):
            self.create_queue(name, asked)
        self.exchange("fan", durability, created=True)
        for queue in ("q", "../r"):
            self.publish(queue, b"body", True, False, 0)
        place = ("q", next(iter(self.model.entries["q"])))
        for call in ("acquire", "release"):  # its annotations stay: none are given
            self.call(call, place, "c1", (None, None))

    @rule(name=QUEUES, durability=DURABILITIES)
    def create_queue(self, name: str, durability: int) -> None:
        model = self.model
        queue = Queue(name, TerminusDurability(durability))
        self.both(lambda: model.create(model.queues, name, durability), self.store.create, queue)

    @rule(name=QUEUES, durability=DURABILITIES, n=st.integers(0, 2))
    def alter_queue(self, name: str, durability: int, n: int) -> None:
        queue = Queue(name, TerminusDurability(durability), {"max_delivery_count": n} if n else {})
        self.both(lambda: self.model.alter(name, durability, n), self.store.alter, queue)

    @precondition(lambda self: len(self.model.queues) > 2)
    @rule(name=QUEUES)
    def destroy_queue(self, name: str) -> None:
        model = self.model
        self.both(lambda: model.destroy(model.queues, name), self.store.destroy, Queue(name))

    @rule(name=EXCHANGES, durability=DURABILITIES, created=MOSTLY)
    def exchange(self, name: str, durability: int, created: bool) -> None:
        model, exchanges = self.model, self.model.exchanges
        exchange = Exchange(name, "topic", TerminusDurability(durability))
        if created:
            create = self.store.create
            self.both(lambda: model.create(exchanges, name, durability), create, exchange)
        else:
            self.both(lambda: model.destroy(exchanges, name), self.store.destroy, exchange)

    @rule(exchange=EXCHANGES, queue=QUEUES, key=st.sampled_from(["", "#"]), n=NUMBERS, bound=MOSTLY)
    def binding(self, exchange: str, queue: str, key: str, n: int, bound: bool) -> None:
        binding = ExchangeBindingKey(exchange, queue, key)
        if bound:
            arguments = {"n": n % 5 // 4}
            self.both(
                lambda: self.model.bind(binding, n % 5 // 4), self.store.bind, binding, arguments
            )
        else:
            self.both(lambda: self.model.unbind(binding), self.store.unbind, binding)

    # -- messages ----------------------------------------------------------------------------

    @rule(queue=QUEUES, body=BODIES, durable=MOSTLY, staged=FLAGS, number=NUMBERS)
    def publish(self, queue: str, body: bytes, durable: bool, staged: bool, number: int) -> None:
        self.enqueue(queue, self.new_message(body, durable, staged), self.transaction(number))

    @rule(queues=st.permutations(["q", "../r", "s 🦊"]), body=BODIES, durable=MOSTLY, staged=FLAGS)
    def publish_on_two(self, queues: list[str], body: bytes, durable: bool, staged: bool) -> None:
        message = self.new_message(body, durable, staged)
        for queue in queues[:2]:
            self.enqueue(queue, message, (None, None))

    @precondition(lambda self: self.given)
    @rule(queue=QUEUES, which=NUMBERS, number=NUMBERS, loaded=FLAGS)
    def enqueue_again(self, queue: str, which: int, number: int, loaded: bool) -> None:
        """On another queue, or where it is, or though it is gone."""
        message_id = [*self.given][which % len(self.given)]
        if loaded and self.model.is_on_a_queue(message_id):
            self.given[message_id] = self.store.load(message_id)
            self.model.messages[message_id].is_staged = False
        self.enqueue(queue, self.given[message_id], self.transaction(number))

    def new_message(self, body: bytes, durable: bool, staged: bool) -> StoredMessage:
        message: StoredMessage = self.store.message(
            MessageHeader(header=b"h", durable=durable, subject="späť"), b"" if staged else body
        )
        if staged:
            message = done(self.store.stage, message, [body[:1], body[1:]])
        assert message.message_id not in self.given
        self.given[message.message_id] = message
        self.model.messages[message.message_id] = ModelMessage(
            body, durable, staged and len(body) > 0
        )
        return message

    def enqueue(self, queue: str, message: StoredMessage, within: Transactions) -> None:
        ours, theirs = within
        place, told = (queue, message.message_id), self.next_told()
        model = lambda: self.model.enqueue(place, told, theirs)  # noqa: E731
        annotations = annotations_with(told)
        self.both(
            model, self.store.enqueue, message, queue, transaction=ours, annotations=annotations
        )

    def next_told(self) -> int:
        """What the next annotations say, another number each time; 0, mostly: there are none."""
        self.asked += 1
        return self.asked if self.asked % 3 == 0 else 0

    @rule(call=CALLS, which=NUMBERS, queue=QUEUES, holder=HOLDERS, number=NUMBERS)
    def settle_now(self, call: str, which: int, queue: str, holder: str, number: int) -> None:
        """The same call again, so that it is chosen more often."""
        self.settle(call, which, queue, holder, number)

    @rule(call=CALLS, which=NUMBERS, queue=QUEUES, holder=HOLDERS, number=NUMBERS)
    def settle(self, call: str, which: int, queue: str, holder: str, number: int) -> None:
        """Acquire, release or dequeue, mostly as the one who may."""
        place, by = self.place(which, queue, held=HELD[call])
        self.call(call, place, by if by and number else holder, self.transaction(number))

    def call(self, call: str, place: Place, holder: str, within: Transactions) -> None:
        (queue, message_id), (ours, theirs) = place, within
        model, named, told = self.model, {"transaction": ours}, 0
        has_failed = call == "fail"
        if call in {"fail", "release"}:
            call, told = "release", self.next_told()
            named |= {"delivery_failed": has_failed, "annotations": annotations_with(told)}
        decide: dict[str, Callable[[], None]] = {
            "acquire": lambda: model.acquire(place, holder, theirs),
            "release": lambda: model.release(place, holder, has_failed, told, theirs),
            "dequeue": lambda: model.take(place, holder or None, theirs),
        }
        self.both(
            decide[call], getattr(self.store, call), message_id, queue, holder or None, **named
        )

    # -- runs --------------------------------------------------------------------------------

    @rule(
        queue=QUEUES,
        bodies=st.lists(BODIES, min_size=1, max_size=7),
        durable=st.lists(MOSTLY, min_size=1, max_size=7),
    )
    def publish_run(self, queue: str, bodies: list[bytes], durable: list[bool]) -> None:
        """Messages for one queue in one call; they share a header if they are all as durable."""
        headers = [MessageHeader(header=b"h", durable=each, subject="späť") for each in durable]
        headers = headers[:1] if len({*durable}) == 1 else (headers * 7)[: len(bodies)]
        ids, told = outcomes(self.store.enqueue_new, NewMessageRun(headers, bodies, queue))
        self.age += 1
        for at, message_id in enumerate(ids):
            assert message_id not in self.given
            self.model.messages[message_id] = ModelMessage(
                bodies[at], headers[at % len(headers)].durable
            )
            place = (queue, message_id)
            assert told[at] == named(lambda its=place: self.model.enqueue(its, 0, None))
            if told[at]:
                del self.model.messages[message_id]
            else:
                self.given[message_id] = self.store.load(message_id)

    @rule(
        call=st.sampled_from(["acquire", "dequeue"]),
        queue=QUEUES,
        cut=st.tuples(NUMBERS, NUMBERS),
        more=st.lists(NUMBERS, max_size=2),
        holder=HOLDERS,
        number=NUMBERS,
    )
    def settle_run(
        self, call: str, queue: str, cut: tuple[int, int], more: list[int], holder: str, number: int
    ) -> None:
        """What is on a queue from one place to another, as one call; some twice, or not there."""
        ids = [*self.model.entries.get(queue, ())][min(cut) : max(cut) + 1] + more
        if not ids:
            return
        ours, theirs = self.transaction(number)
        settle = partial(getattr(self.store, f"{call}_each"), transaction=ours)
        _, told = outcomes(settle, ids, queue, holder)
        self.age += 1
        decide = self.model.acquire if call == "acquire" else self.model.take
        places = [(queue, message_id) for message_id in ids]
        expected = [
            named(lambda its=place: decide(its, holder, theirs))  # type: ignore[misc]
            for place in places
        ]
        if theirs is not None and any(expected):
            expected = [next(filter(None, expected))] * len(ids)
        assert told == expected

    # -- transactions ------------------------------------------------------------------------

    @precondition(lambda self: len(self.transactions) < 2)
    @rule(plan=st.lists(st.tuples(CALLS, NUMBERS), min_size=1, max_size=4), queue=QUEUES)
    def begin(self, plan: list[tuple[str, int]], queue: str) -> None:
        """Begin a transaction with some operations that may well succeed."""
        model = ModelTransaction()
        self.model.transactions.append(model)
        self.transactions.append((self.store.begin(), model))
        for call, number in plan:
            place, by = self.place(number or 1, queue, held=HELD[call])
            if place not in model.sees and place[0] in self.model.queues:
                self.call(call, place, by or "c1", self.transactions[-1])
            message = self.new_message(b"in a transaction", number % 4 > 0, number % 5 == 4)
            if number % 3 and queue in self.model.queues:
                self.enqueue(queue, message, self.transactions[-1])
        if plan[0][1] % 2:
            self.move_run(queue, ["q", "../r"][plan[0][1] % 4 // 2], self.transactions[-1])

    def move_run(self, queue: str, target: str, within: Transactions) -> None:
        """All that waits on a queue, and nobody claims, goes to the end of another, or its own."""
        model, (ours, theirs) = self.model, within
        claimed = {place for other in model.transactions for place in other.sees}
        ids = [
            message_id
            for message_id, entry in model.entries.get(queue, {}).items()
            if entry.holder is None
            and (queue, message_id) not in claimed
            and (target == queue or message_id not in model.entries.get(target, {}))
        ]
        if not ids or target not in model.queues:
            return
        take = partial(self.store.dequeue_each, transaction=ours)
        assert outcomes(take, ids, queue, None)[1] == [""] * len(ids)
        told, run = self.next_told(), StoredRun(ids, [self.store.load(i).header for i in ids])
        annotations = annotations_with(told)
        put = partial(self.store.enqueue_each, transaction=ours, annotations=annotations)
        assert outcomes(put, run, target)[1] == [""] * len(ids)
        for message_id in ids:
            model.take((queue, message_id), None, theirs)
            model.enqueue((target, message_id), told, theirs)

    @rule(plan=st.lists(st.tuples(CALLS, NUMBERS), min_size=1, max_size=4), queue=QUEUES)
    def transact(self, plan: list[tuple[str, int]], queue: str) -> None:
        """A whole transaction in one go."""
        self.begin(plan, queue)
        self.end(-1, committed=True)

    @precondition(lambda self: self.transactions)
    @rule(which=NUMBERS, committed=MOSTLY)
    def end(self, which: int, committed: bool) -> None:
        ours, theirs = self.transactions.pop(which % len(self.transactions))
        if committed:
            self.both(lambda: self.model.commit(theirs), self.store.commit, ours)
        else:
            self.both(lambda: self.model.abort(theirs), self.store.abort, ours)

    @rule(
        plan=st.lists(st.tuples(CALLS, NUMBERS), min_size=1, max_size=4),
        queue=QUEUES,
        committed=MOSTLY,
        restarted=FLAGS,
    )
    def two_phases(
        self, plan: list[tuple[str, int]], queue: str, committed: bool, restarted: bool
    ) -> None:
        """A branch is prepared and decided, perhaps by the next process."""
        self.begin(plan, queue)
        ours, theirs = self.transactions.pop()
        xid, model = Xid(1, b"g", b"b"), self.model
        if refusal_of(lambda: done(self.store.prepare, ours, xid)) is not None:
            is_empty = not theirs.sees and not theirs.adds
            assert refusal_of(lambda: model.commit(theirs)) is not None or is_empty
            return
        restarted = restarted and model.tier > 1 and self.age > CALLS_BEFORE_A_RESTART
        if restarted:
            survivor = self.home.crash()
            self.home.store.close()
            self.home = survivor
            self.reopened()
        assert [branch.xid for branch in self.store.prepared()] == [xid]
        if committed:
            self.both(lambda: model.commit(theirs), self.store.commit_prepared, xid)
        else:
            self.both(lambda: model.abort(theirs), self.store.rollback_prepared, xid)
            for name, message_id in theirs.sees:
                model.entries[name][message_id].holder = None
            for (_queue, message_id), _told in theirs.adds:
                if not model.is_on_a_queue(message_id):
                    self.given.pop(message_id, None)
        if restarted:
            self.restarted()

    # -- restarts ----------------------------------------------------------------------------

    @rule()
    def flush(self) -> None:
        done(self.store.flush)

    @precondition(lambda self: self.age > CALLS_BEFORE_A_RESTART)
    @rule()
    def reopen(self) -> None:
        self.home.reopen()
        self.reopened()
        self.restarted()

    @precondition(
        lambda self: self.name in {"recorded", "delta"} and self.age > CALLS_BEFORE_A_RESTART
    )
    @rule()
    def crash(self) -> None:
        """Nobody closes anything: what is on disk after the last completion is all there is."""
        survivor = self.home.crash()
        self.home.store.close()
        self.home = survivor
        self.reopened()
        self.restarted()

    def reopened(self) -> None:
        """Another store is open."""

    def restarted(self) -> None:
        self.age = 0
        self.transactions.clear()
        self.model.restart()
        self.given = {i: self.store.load(i) for i in self.model.messages}
        for name in {"q", "../r"} - {*self.model.queues}:
            self.create_queue(name, 2)

    # -- what must hold ----------------------------------------------------------------------

    @property
    def store(self) -> Any:
        """The open store."""
        return self.home.store

    @invariant()
    def store_and_model_agree(self) -> None:
        found, model = self.store.recover(), self.model
        assert {queue.name: queue.durability for queue in found.queues} == model.queues
        altered = {queue.name: queue.arguments for queue in found.queues if queue.arguments}
        assert altered == {name: {"max_delivery_count": n} for name, n in model.altered.items()}
        assert {item.name: item.durability for item in found.exchanges} == model.exchanges
        assert found.bindings == {key: {"n": n} for key, n in model.bindings.items()}
        assert {
            queue: [
                (i, entry.acquired_by, entry.delivery_count, annotations_of(entry.detail))
                for i, entry in entries.items()
            ]
            for queue, entries in found.entries.items()
        } == {
            queue: [
                (i, entry.holder, entry.failed, annotations_with(entry.told) or {})
                for i, entry in entries.items()
            ]
            for queue, entries in model.entries.items()
        }

    @rule()
    def every_message_loads_whole(self) -> None:
        for entries in self.model.entries.values():
            for message_id in entries:
                loaded, known = self.store.load(message_id), self.model.messages[message_id]
                assert loaded.message_id == message_id
                assert loaded.body == known.body
                assert loaded.header.body_bytes == len(known.body)
                assert loaded.header.subject == "späť"


def annotations_with(told: int) -> Annotations | None:
    """That say a number; None: none at all."""
    return {"x-opt-told": ("uint", str(told))} if told else None


def named(call: Callable[[], object]) -> str:
    """The kind of what a call is refused with; empty: it is not."""
    refusal = refusal_of(call)
    return "" if refusal is None else type(refusal).__name__


def refusal_of(call: Callable[[], object]) -> StoreError | None:
    """What a call is refused with, if it is."""
    try:
        call()
    except StoreError as refusal:
        return refusal
    return None
