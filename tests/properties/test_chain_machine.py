"""A chain of two stores against the model, and the second store against the first."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from broker_shim.store.branch_store import Xid
from broker_shim.store.chain.mirror import Mirror, take_place
from broker_shim.store.chain.place import Tolerance
from broker_shim.store.chain.store_chain import MessageStoreChain
from broker_shim.store.interface import MessageHeader, Queue
from tests.support.histories.store_machine import StoreMachine, refusal_of
from tests.support.stores.chains import contents
from tests.support.stores.stores import RecordedMessageStore, done


class ChainMachine(StoreMachine):
    """The first store is what the machine is about; another follows it, most of the time."""

    name = "recorded"

    def __init__(self) -> None:
        super().__init__()
        self.mirror_log: list[bytes] = []
        self.join()

    def join(self) -> None:
        """Both are opened, and the second catches up."""
        self.mirror_store = RecordedMessageStore(self.mirror_log)
        mirror = Mirror("mirror", self.mirror_store, self.home.store)
        mirror.catch_up()
        self.chain = MessageStoreChain(self.home.store, [(mirror, Tolerance(may_drop=True))])

    def teardown(self) -> None:
        self.mirror_store.close()
        super().teardown()

    @property
    def store(self) -> MessageStoreChain:
        return self.chain

    def reopened(self) -> None:
        self.mirror_store.close()
        self.join()

    @rule()
    def fall_behind(self) -> None:
        """From now on the second store is told nothing, as if there had been a crash."""
        self.chain._places[0]._drop("it is left behind")

    @precondition(lambda self: not self.is_followed and not self.transactions)
    @rule()
    def catch_up(self) -> None:
        self.mirror_store.close()
        self.join()

    @property
    def is_followed(self) -> bool:
        return self.chain.members[0].failure is None

    @precondition(lambda self: self.is_followed)
    @invariant()
    def both_are_alike(self) -> None:
        assert contents(self.mirror_store) == contents(self.home.store)


@pytest.mark.slow
def test_a_chain_does_what_the_model_does_and_its_second_store_what_its_first_does() -> None:
    run(ChainMachine, settings=settings(stateful_step_count=40))


QUEUES = st.sampled_from(["q", "r"])
NUMBERS = st.integers(0, 9)
CALLS = st.sampled_from(["put", "put in pieces", "acquire", "release", "fail", "dequeue", "move"])
XIDS = st.sampled_from([Xid(1, b"g", b"%d" % number) for number in range(3)])
DECISIONS = st.sampled_from(
    ["commit", "roll back", "commit by hand", "roll back by hand", "forget"]
)


class BranchesMachine(RuleBasedStateMachine):
    """Branches stay in doubt while either store is closed, crashes, or is left behind."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: tuple[list[bytes], list[bytes]] = ([], [])
        self.ends = [0]  # lengths of the second log that a power cut may leave
        self.join()
        for queue in ("q", "r"):
            done(self.chain.create, Queue(queue))
            self.call("put", queue, 0, None)

    def join(self) -> None:
        self.first, self.second = map(RecordedMessageStore, self.logs)
        mirror = Mirror("mirror", self.second, self.first)
        mirror.catch_up()
        self.chain = MessageStoreChain(self.first, [(mirror, Tolerance(may_drop=True))])

    def teardown(self) -> None:
        self.chain.close()

    @property
    def is_followed(self) -> bool:
        return self.chain.members[0].failure is None

    def call(self, what: str, queue: str, number: int, within: Any) -> None:
        """One call of the chain; it may be refused."""
        chain = self.chain
        if what.startswith("put"):
            message = chain.message(MessageHeader(durable=number != 5), b"" if number else b"body")
            if what == "put in pieces" and number not in {0, 5}:
                message = done(chain.stage, message, [b"in", b"pieces"])
            make = partial(done, chain.enqueue, message, queue)
        else:
            there = [*self.first.recover().entries.get(queue, {})]
            message_id = there[number % len(there)] if there else 99
            if what == "move":
                self.move(message_id, queue, within)
                return
            make = partial(
                done, getattr(chain, what.replace("fail", "release")), message_id, queue, "c"
            )
            if what in {"fail", "release"}:
                make = partial(make, delivery_failed=what == "fail")
        refusal_of(partial(make, transaction=within))

    def move(self, message_id: int, queue: str, within: Any) -> None:
        """From this queue to the other one."""
        chain, other = self.chain, "q" if queue == "r" else "r"

        def make() -> None:
            message = chain.load(message_id)
            done(chain.dequeue, message_id, queue, "c", transaction=within)
            done(chain.enqueue, message, other, transaction=within)

        refusal_of(make)

    @rule(what=CALLS, queue=QUEUES, number=NUMBERS)
    def call_alone(self, what: str, queue: str, number: int) -> None:
        self.call(what, queue, number, None)

    @rule(xid=XIDS, plan=st.lists(st.tuples(CALLS, QUEUES, NUMBERS), min_size=1, max_size=4))
    def prepare(self, xid: Xid, plan: list[tuple[str, str, int]]) -> None:
        transaction = self.chain.begin()
        for what, queue, number in plan:
            self.call(what, queue, number, transaction)
        refusal_of(partial(done, self.chain.prepare, transaction, xid))

    @rule(xid=XIDS, decision=DECISIONS)
    def decide(self, xid: Xid, decision: str) -> None:
        refusal_of(partial(decided, self.chain, xid, decision))

    @rule(queue=QUEUES, created=st.booleans(), number=NUMBERS)
    def wire(self, queue: str, created: bool, number: int) -> None:
        definition = Queue(queue, arguments={"max_delivery_count": number} if number > 8 else {})
        refusal_of(partial(done, self.chain.create if created else self.chain.destroy, definition))

    @rule()
    def fall_behind(self) -> None:
        self.chain._places[0]._drop("it is left behind")

    @rule(which=NUMBERS)
    def cut_the_power_of_the_second(self, which: int) -> None:
        """It lost what it was told last, which nobody was told of; the first goes on."""
        end = self.ends[-1 - which % len(self.ends)]
        self.chain.close()
        del self.logs[1][end:]
        self.ends = [each for each in self.ends if each <= end]
        self.join()

    @rule()
    def crash(self) -> None:
        """Both have what they had; nobody closes anything."""
        self.logs = tuple([*log] for log in self.logs)  # type: ignore[assignment]
        self.chain.close()
        self.join()

    @precondition(lambda self: self.is_followed)
    @rule(decision=DECISIONS)
    def take_the_place_of_the_first(self, decision: str) -> None:
        """The coordinators decide at the second what they would have decided at the first."""
        found = []
        for log in self.logs:
            store = RecordedMessageStore([*log])
            take_place(store)
            for each in store.prepared():
                refusal_of(partial(decided, store, each.xid, decision))
            found.append(contents(store))
            store.close()
        assert found[0] == found[1]

    @precondition(lambda self: self.is_followed)
    @invariant()
    def both_are_alike(self) -> None:
        self.ends.append(len(self.logs[1]))
        assert contents(self.second) == contents(self.first)
        assert shown(self.second) == shown(self.first)


def decided(store: Any, xid: Xid, decision: str) -> None:
    """Decide a branch; it may be refused."""
    if decision == "commit":
        done(store.commit_prepared, xid)
    elif decision == "roll back":
        done(store.rollback_prepared, xid)
    elif decision == "forget":
        done(store.forget_branch, xid)
    else:
        commits = decision.startswith("commit")
        done(store.decide_heuristically, xid, "ann", on_steps=list, commits=commits)


def shown(store: RecordedMessageStore) -> list[tuple[Xid, str, str | None, int]]:
    """The branches that a store has."""
    found = sorted(store.prepared(), key=lambda each: each.xid)
    return [(each.xid, each.state, each.holder, each.operations) for each in found]


@pytest.mark.slow
def test_branches_in_doubt_are_the_same_in_both_stores_whatever_happens_between() -> None:
    run(BranchesMachine, settings=settings(stateful_step_count=40))
