"""A chain tells nobody before all its members are done, and ends with them or goes on."""

from __future__ import annotations

import json
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker_shim.completion import Completion, OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import Ended, InvalidRequest, NotAcquired, StoreError, Unavailable
from broker_shim.store.branch_store import Xid
from broker_shim.store.chain.audit import CallAuditor
from broker_shim.store.chain.difference import CATEGORY
from broker_shim.store.chain.mirror import Mirror, take_place
from broker_shim.store.chain.place import Tolerance
from broker_shim.store.chain.store_chain import MessageStoreChain
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import LinkKey, MessageHeader, Queue
from broker_shim.store.memory import MemoryMessageStore
from sparkstore.core.state_machine.call_values import StoreCall
from tests.support.documents import blocks, text_of
from tests.support.roots.logs import until
from tests.support.stores.chains import contents
from tests.support.stores.stores import (
    DELTA_CONFIG,
    HeldMessageStore,
    RecordedMessageStore,
    done,
)

HEADER = MessageHeader(header=b"h", durable=True)


class Told:
    """A member that a test completes."""

    def __init__(self, name: str = "told") -> None:
        self.name = name
        self.calls: list[list[StoreCall]] = []
        self.owed: list[OnComplete] = []
        self.is_dropped = self.is_closed = False

    def apply(self, calls: Sequence[StoreCall], on_complete: OnComplete) -> None:
        self.calls.append([*calls])
        self.owed.append(on_complete)

    def flush(self, on_complete: OnComplete) -> None:
        self.owed.append(on_complete)

    def drop(self) -> None:
        self.is_dropped = True

    def close(self) -> None:
        self.is_closed = True


class Answers(list[StoreError | None]):
    """What one caller after the other was told, with its name."""

    def of(self, name: str) -> OnComplete:
        return lambda error: self.append((name, error))  # type: ignore[arg-type]


@pytest.fixture
def first() -> HeldMessageStore:
    store = HeldMessageStore([])
    done(store.create, Queue("q"))
    return store


def enqueue(chain: MessageStoreChain, on_complete: OnComplete) -> int:
    message = chain.message(HEADER, b"body")
    chain.enqueue(message, "q", on_complete)
    return message.message_id


def test_a_call_is_told_when_all_members_are_done_and_in_the_order_of_the_calls(
    first: HeldMessageStore,
) -> None:
    one, two, told = Told("one"), Told("two"), Answers()
    chain = MessageStoreChain(first, [(one, Tolerance()), (two, Tolerance())])
    enqueue(chain, told.of("a"))
    enqueue(chain, told.of("b"))
    chain.acquire(99, "q", "c", told.of("refused"))
    first.wait()
    assert len(one.owed) == len(two.owed) == 2  # what was refused, nobody hears of
    assert told == []
    for complete in one.owed:
        complete(None)
    assert told == []
    two.owed[0](None)
    assert [name for name, _ in told] == ["a"]  # type: ignore[misc]
    two.owed[1](None)
    assert [name for name, _ in told] == ["a", "b", "refused"]  # type: ignore[misc]
    assert [type(error) for _, error in told] == [type(None), type(None), InvalidRequest]  # type: ignore[misc]
    first.close()


def test_no_member_hears_of_a_call_before_the_first_store_has_completed_it(
    first: HeldMessageStore,
) -> None:
    member, told = Told(), Answers()
    chain = MessageStoreChain(first, [(member, Tolerance())])
    message = chain.message(HEADER, b"body")
    first.sink.is_holding = True
    chain.enqueue(message, "q", told.of("a"))
    first.wait()
    assert member.calls == []
    first.sink.tell()
    first.wait()
    assert [call.operation for calls in member.calls for call in calls] == ["enqueue"]
    assert told == []
    first.sink.is_holding = False
    first.close()


def test_a_transaction_is_told_at_its_commit_and_one_that_is_aborted_never(
    first: HeldMessageStore,
) -> None:
    member, told = Told(), Answers()
    chain = MessageStoreChain(first, [(member, Tolerance())])
    kept, dropped = chain.begin(), chain.begin()
    for transaction in (kept, dropped):
        for name in ("a", "b"):
            message = chain.message(HEADER, b"")
            chain.enqueue(message, "q", told.of(name), transaction)
    chain.abort(dropped, told.of("abort"))
    chain.commit(kept, told.of("commit"))
    chain.commit(kept, told.of("again"))
    first.wait()
    assert [[call.operation for call in calls] for calls in member.calls] == [["enqueue"] * 2]
    assert [name for name, _ in told] == ["a", "b", "a", "b", "abort"]  # type: ignore[misc]
    member.owed[0](None)
    assert [name for name, _ in told][5:] == ["commit", "again"]  # type: ignore[misc]
    assert isinstance(told[-1][1], InvalidRequest)  # type: ignore[index]
    first.close()


def test_a_transaction_of_another_chain_is_refused(first: HeldMessageStore) -> None:
    chain, other = MessageStoreChain(first, []), MessageStoreChain(MemoryMessageStore(), [])
    with pytest.raises(InvalidRequest):
        done(chain.commit, other.begin())
    other.close()
    first.close()


def test_the_chain_ends_with_a_member_that_may_not_be_dropped(
    first: HeldMessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    member, told = Told(), Answers()
    chain = MessageStoreChain(first, [(member, Tolerance())])
    enqueue(chain, told.of("a"))
    first.wait()
    member.owed[0](Unavailable("its disk is full"))
    enqueue(chain, told.of("b"))
    first.wait()
    assert [type(error) for _, error in told] == [Ended, Ended]  # type: ignore[misc]
    assert "told" in str(chain.failure)
    assert "its disk is full" in str(chain.failure)
    assert "its disk is full" in caplog.text
    assert len(member.calls) == 1  # nothing is done any more that not all have
    assert len(first.recover().entries["q"]) == 1
    first.close()


def test_the_chain_goes_on_without_a_member_that_may_be_dropped(
    first: HeldMessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    weak, strong, told = Told("weak"), Told("strong"), Answers()
    chain = MessageStoreChain(first, [(weak, Tolerance(may_drop=True)), (strong, Tolerance())])
    for name in ("a", "b"):
        enqueue(chain, told.of(name))
    first.wait()
    weak.owed[0](Unavailable("its disk is full"))
    for complete in strong.owed:
        complete(None)
    assert told == [("a", None), ("b", None)]  # type: ignore[comparison-overlap]
    enqueue(chain, told.of("c"))
    first.wait()
    weak.owed[1](None)  # too late, and nobody is told twice
    strong.owed[2](None)
    assert len(told) == 3
    assert len(weak.calls) == 2
    assert weak.is_dropped
    assert [status.failure for status in chain.members] == ["its disk is full", None]
    assert "goes on without its member weak" in caplog.text
    noted = CATEGORY, "dropped: weak"
    assert first.recover().configured[noted] == {"why": "its disk is full"}
    assert noted not in chain.recover().configured
    MessageStoreChain(first, [(Told("strong"), Tolerance())])
    assert noted in first.recover().configured
    MessageStoreChain(first, [(Told("weak"), Tolerance())])
    assert noted not in first.recover().configured
    first.close()


def test_a_member_that_does_not_keep_up_is_dropped_where_that_is_allowed(
    first: HeldMessageStore,
) -> None:
    slow, told = Told(), Answers()
    chain = MessageStoreChain(first, [(slow, Tolerance(may_drop=True, max_waiting=3))])
    for number in range(3):
        enqueue(chain, told.of(str(number)))
    first.wait()
    assert told == []
    assert chain.members[0].waiting == 3
    enqueue(chain, told.of("3"))
    first.wait()
    assert [name for name, _ in told] == ["0", "1", "2", "3"]  # type: ignore[misc]
    assert chain.members[0].failure is not None
    first.close()


def test_a_flush_is_one_of_all_members_after_all_earlier_calls(first: HeldMessageStore) -> None:
    member, told = Told(), Answers()
    chain = MessageStoreChain(first, [(member, Tolerance())])
    enqueue(chain, told.of("a"))
    chain.flush(told.of("flush"))
    first.wait()
    first.wait()
    assert len(member.owed) == 2
    member.owed[1](None)
    first.wait()
    assert told == [("flush", None)]  # type: ignore[comparison-overlap]
    first.close()
    chain.close()
    assert member.is_closed


# ------------------------------------------------------------------------------------- mirrors


def filled() -> RecordedMessageStore:
    """A store with some of everything."""
    store = RecordedMessageStore([])
    for name in ("q", "r"):
        done(store.create, Queue(name, arguments={"max_delivery_count": 5}))
    for number in range(6):
        message = store.message(HEADER, b"%d" % number)
        if number == 3:
            message = done(store.stage, store.message(HEADER), [b"in ", b"pieces"])
        done(store.enqueue, message, "q")
        if number % 2:
            done(store.enqueue, message, "r", annotations={"x-opt-a": ("uint", "1")})
    done(store.acquire, 2, "q", "somebody")
    for _ in range(2):
        done(store.acquire, 1, "q", "c")
        done(store.release, 1, "q", "c", delivery_failed=True)
    key = LinkKey("c", "l", "receiver")
    detail = {
        "version": 1, "source": None, "target": None, "durability": 2, "expiry_policy": "never",
        "timeout_s": 0,
    }  # fmt: skip
    done(store.attach, key, detail)
    done(store.unsettled, key, b"tag", {"queue": "q"})
    done(store.configure, "category", "key", {"a": 1})
    return store


def test_an_empty_store_becomes_like_the_first_and_then_may_take_its_place() -> None:
    first, second = filled(), RecordedMessageStore([])
    mirror = Mirror("m", second, first)
    assert mirror.catch_up() > 10
    assert contents(second) == contents(first)
    assert mirror.catch_up() == 0
    assert take_place(second)
    first.close()
    mirror.close()


@pytest.mark.parametrize("when_full", ["drop_head", "dead_letter"])
def test_a_mirror_hears_what_a_full_queue_drops_or_sends_to_its_dead_letters(
    when_full: str,
) -> None:
    first, second = RecordedMessageStore([]), RecordedMessageStore([])
    mirror = Mirror("second", second, first)
    mirror.catch_up()
    chain = MessageStoreChain(first, [(mirror, Tolerance())])
    arguments = {"max_depth": 2, "when_full": when_full, "dead_letter_queue": "dead"}
    for queue in (Queue("dead"), Queue("q", arguments=arguments)):
        done(chain.create, queue)
    for _ in range(5):
        done(chain.enqueue, chain.message(HEADER, b"body"), "q")
    done(chain.flush)
    assert contents(second) == contents(first)
    depths = {name: len(entries) for name, entries in second.recover().entries.items()}
    assert depths == {"q": 2, "dead": 3 if when_full == "dead_letter" else 0}


def test_a_mirror_hears_what_the_first_store_dropped_as_a_duplicate() -> None:
    """It decides nothing itself: by its clock the window could be over."""
    first, second = RecordedMessageStore([]), RecordedMessageStore([])
    mirror = Mirror("second", second, first)
    mirror.catch_up()
    chain = MessageStoreChain(first, [(mirror, Tolerance())])
    done(chain.create, Queue("q", arguments={"duplicate_window_ms": 1000}))
    for name in "aba":
        header = HEADER._replace(amqp_message_id=name)
        done(chain.enqueue, chain.message(header, b"body"), "q")
    done(chain.flush)
    assert contents(second) == contents(first)
    assert len(second.recover().entries["q"]) == 2


def test_a_mirror_that_was_dropped_says_so_until_it_has_caught_up() -> None:
    first, second = filled(), RecordedMessageStore([])
    mirror = Mirror("m", second, first)
    mirror.catch_up()
    chain = MessageStoreChain(first, [(mirror, Tolerance(may_drop=True, max_waiting=0))])
    enqueue(chain, lambda _error: None)
    first.close()
    with pytest.raises(InvalidRequest, match="was behind when that ended"):
        assert take_place(second)
    second.close()


def test_a_store_that_follows_another_or_is_somebody_elses_is_refused() -> None:
    first, other, second = filled(), filled(), RecordedMessageStore([])
    with pytest.raises(InvalidRequest, match="is not empty, and has followed no store"):
        Mirror("m", other, first).catch_up()
    Mirror("m", second, first).catch_up()
    with pytest.raises(InvalidRequest, match="follows another store: give it an empty root"):
        Mirror("m", second, other).catch_up()
    for store in (first, other, second):
        store.close()


def test_a_store_that_is_too_far_behind_is_refused_with_its_messages_untouched() -> None:
    first, second = filled(), RecordedMessageStore([])
    mirror = Mirror("m", second, first)
    with pytest.raises(InvalidRequest, match="more than 3 calls behind"):
        mirror.catch_up(max_distance=3)
    assert second.recover().queues == []
    mirror.catch_up()
    for store in (first, second):
        store.close()


def test_what_was_done_to_the_second_store_alone_is_undone_when_it_catches_up() -> None:
    first, second = filled(), RecordedMessageStore([])
    mirror = Mirror("m", second, first)
    mirror.catch_up()
    done(second.dequeue, 3, "q", None)
    done(second.acquire, 1, "q", "c")
    done(second.release, 1, "q", "c", delivery_failed=True)
    done(second.destroy, Queue("r"))
    done(second.create, Queue("s"))
    done(second.detach, LinkKey("c", "l", "receiver"), closed=True)
    assert mirror.catch_up() > 3
    assert contents(second) == contents(first)
    for store in (first, second):
        store.close()


def test_content_in_pieces_that_is_gone_when_a_mirror_asks_for_it_does_not_end_the_chain() -> None:
    first, second = HeldMessageStore([]), RecordedMessageStore([])
    done(first.create, Queue("q"))
    mirror, told = Mirror("m", second, first), Answers()
    mirror.catch_up()
    chain = MessageStoreChain(first, [(mirror, Tolerance())])
    message = done(chain.stage, chain.message(HEADER), [b"pie", b"ces"])
    first.sink.is_holding = True
    chain.enqueue(message, "q", told.of("enqueue"))
    chain.dequeue(message.message_id, "q", None, told.of("dequeue"))
    first.sink.tell()  # the enqueue is durable in the first store, and goes to the mirror
    until(lambda: len(first.sink.held) == 2)  # which asks when the dequeue will be
    assert told == []
    first.sink.tell()
    first.sink.tell()
    first.wait()
    first.sink.is_holding = False
    done(chain.flush)
    assert told == [("enqueue", None), ("dequeue", None)]  # type: ignore[comparison-overlap]
    assert contents(second) == contents(first)
    chain.close()


def test_a_mirror_refuses_what_the_first_store_refused_never_more() -> None:
    first, second = filled(), RecordedMessageStore([])
    mirror = Mirror("m", second, first)
    mirror.catch_up()
    chain = MessageStoreChain(first, [(mirror, Tolerance())])
    with pytest.raises(NotAcquired):
        done(chain.acquire, 2, "q", "another")
    done(chain.release, 2, "q", "somebody", delivery_failed=True)
    assert chain.failure is None
    assert contents(second) == contents(first)
    assert chain.durability is TerminusDurability.UNSETTLED_STATE
    chain.close()


# ------------------------------------------------------------------------------------- auditor


def test_an_auditor_writes_one_line_for_each_call(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    chain = MessageStoreChain(MemoryMessageStore(), [(CallAuditor(path), Tolerance())])
    done(chain.create, Queue("q"))
    message = chain.message(HEADER, b"secret")
    done(chain.enqueue, message, "q", annotations={"x-opt-a": ("uint", "1")})
    transaction = chain.begin()
    done(chain.acquire, 1, "q", "me", transaction=transaction)
    done(chain.dequeue, 1, "q", "me", transaction=transaction, outcome={"why": "so"})
    done(chain.commit, transaction)
    with pytest.raises(InvalidRequest):
        done(chain.dequeue, 1, "q", "me")
    chain.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(line.pop("at") > 0 for line in lines)
    assert lines == [
        {"operation": "create", "wiring": "q"},
        {
            "operation": "enqueue", "message": 1, "queue": "q",
            "annotations": {"x-opt-a": ["uint", "1"]},
        },
        {"together": 1, "operation": "acquire", "message_id": 1, "queue": "q", "holder": "me"},
        {
            "together": 1, "operation": "dequeue", "message_id": 1, "queue": "q", "holder": "me",
            "outcome": {"why": "so"},
        },
    ]  # fmt: skip
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_example_of_the_documents_runs_and_its_mirror_takes_the_first_stores_place(
    tmp_path: Path,
) -> None:
    example = next(
        block
        for block in blocks(text_of("docs/store-interface.md"), "python")
        if "MessageStoreChain" in block
    )
    names: dict[str, Any] = {
        "DeltaMessageStore": DeltaMessageStore,
        "root": tmp_path / "root",
        "mirror_root": tmp_path / "mirror",
        "calls_file": tmp_path / "calls.jsonl",
    }
    exec(compile(example, "docs/store-interface.md", "exec"), names)
    chain = names["chain"]
    done(chain.create, Queue("orders"))
    done(chain.enqueue, chain.message(HEADER, b"a dozen"), "orders")
    chain.close()
    mirror = DeltaMessageStore(tmp_path / "mirror")
    assert take_place(mirror)
    assert [mirror.load(i).body for i in mirror.recover().entries["orders"]] == [b"a dozen"]
    mirror.close()
    assert len((tmp_path / "calls.jsonl").read_text().splitlines()) == 2


# ------------------------------------------------------------------------------------ branches

XID, OTHER = Xid(1, b"g", b"b"), Xid(1, b"g", b"other")


def prepared_branch(store: Any, xid: Xid = XID, *, taken: int | None = None) -> int:
    """A branch puts a message on `q`, and maybe takes one off it; the new one's id."""
    transaction, message = store.begin(), store.message(HEADER, b"body")
    done(store.enqueue, message, "q", transaction=transaction)
    if taken is not None:
        done(store.dequeue, taken, "q", "c", transaction=transaction)
    done(store.prepare, transaction, xid)
    return int(message.message_id)


def steps_of(store: RecordedMessageStore) -> list[Xid]:
    return [*store.branch_steps()]


def test_a_branch_is_told_when_all_members_have_it_and_so_is_its_decision(
    first: HeldMessageStore,
) -> None:
    member, told = Told(), Answers()
    chain = MessageStoreChain(first, [(member, Tolerance())])
    transaction = chain.begin()
    chain.enqueue(chain.message(HEADER, b"body"), "q", told.of("enqueue"), transaction)
    chain.prepare(transaction, XID, told.of("prepare"))
    chain.commit_prepared(XID, told.of("commit"))
    first.wait()
    assert [[call.operation for call in calls] for calls in member.calls] == [
        ["enqueue", "prepare"],
        ["commit_prepared"],
    ]
    assert [name for name, _ in told] == ["enqueue"]  # type: ignore[misc]
    member.owed[0](None)
    assert [name for name, _ in told] == ["enqueue", "prepare"]  # type: ignore[misc]
    member.owed[1](None)
    assert told[-1] == ("commit", None)  # type: ignore[comparison-overlap]
    chain.close()


def test_what_the_first_store_refuses_of_branches_no_member_hears_of(
    first: HeldMessageStore,
) -> None:
    member = Told()
    member.apply = lambda calls, on_complete: (  # type: ignore[method-assign]
        member.calls.append([*calls]),
        on_complete(None),
    )[-1]
    chain = MessageStoreChain(first, [(member, Tolerance())])
    for call in (chain.commit_prepared, chain.rollback_prepared):
        with pytest.raises(InvalidRequest, match="no branch 1:67:62 is prepared"):
            done(call, XID)
    with pytest.raises(InvalidRequest, match="nothing is remembered of branch"):
        done(chain.forget_branch, XID)
    prepared_branch(chain)
    with pytest.raises(InvalidRequest, match="is that of a prepared branch already"):
        prepared_branch(chain)
    with pytest.raises(InvalidRequest, match="is empty"):
        done(chain.prepare, chain.begin(), OTHER)
    done(chain.rollback_prepared, XID)
    with pytest.raises(InvalidRequest, match="no branch 1:67:62 is prepared"):
        done(chain.commit_prepared, XID)
    operations = [call.operation for calls in member.calls for call in calls]
    assert operations == ["enqueue", "prepare", "rollback_prepared"]
    assert chain.prepared() == []
    assert not first.recover().entries["q"]
    chain.close()


@pytest.mark.parametrize("commits", [True, False])
def test_a_branch_is_decided_at_the_mirror_when_the_first_store_is_lost_before(
    commits: bool,
) -> None:
    first, log = filled(), list[bytes]()
    mirror = Mirror("m", RecordedMessageStore(log), first)
    mirror.catch_up()
    chain = MessageStoreChain(first, [(mirror, Tolerance())])
    new = prepared_branch(chain, taken=3)
    survivor = RecordedMessageStore([*log])  # nobody closed anything
    assert take_place(survivor)
    for store in (survivor, first):
        done(store.commit_prepared if commits else store.rollback_prepared, XID)
        assert (new in store.recover().entries["q"]) == commits
        assert (3 in store.recover().entries["q"]) != commits
    assert contents(survivor) == contents(first)
    survivor.close()
    chain.close()


@pytest.mark.parametrize("decision", ["commit", "roll back", "by hand", "known", "none"])
def test_a_mirror_that_was_behind_has_the_branches_of_the_first_store(decision: str) -> None:
    """Whatever the first store did while it was alone."""
    first, second = filled(), RecordedMessageStore([])
    mirror = Mirror("m", second, first)
    mirror.catch_up()
    chain = MessageStoreChain(first, [(mirror, Tolerance(may_drop=True))])
    prepared_branch(chain, taken=3)
    chain._places[0]._drop("it is left behind")
    new = prepared_branch(chain, OTHER, taken=5)
    if decision == "commit":
        done(chain.commit_prepared, XID)
    elif decision == "roll back":
        done(chain.rollback_prepared, XID)
    elif decision != "none":
        done(chain.decide_heuristically, XID, "ann", on_steps=list, commits=True)
        if decision == "known":
            done(chain.forget_branch, XID)
    assert mirror.catch_up() >= 3
    assert mirror.catch_up() == 0
    assert contents(second) == contents(first)
    assert second.prepared() == first.prepared()
    assert steps_of(second) == ([XID, OTHER] if decision == "none" else [OTHER])
    done(second.commit_prepared, OTHER)
    assert second.load(new).body == b"body"
    chain.close()


@pytest.mark.parametrize("taken", [3, 5])
def test_a_mirror_whose_branch_is_another_one_gets_that_of_the_first_store(taken: int) -> None:
    first, second = filled(), RecordedMessageStore([])
    mirror = Mirror("m", second, first)
    mirror.catch_up()
    prepared_branch(second, taken=3)
    transaction = first.begin()
    done(first.dequeue, taken, "q", "c", transaction=transaction)
    done(first.prepare, transaction, XID)
    mirror.catch_up()
    assert contents(second) == contents(first)
    assert steps_of(second) == [XID]
    for store in (first, second):
        done(store.commit_prepared, XID)
    assert contents(second) == contents(first)
    mirror.close()
    first.close()


def test_a_branch_whose_place_on_a_queue_is_lost_at_a_mirror_is_prepared_there_anew() -> None:
    first, second = filled(), RecordedMessageStore([])
    mirror = Mirror("m", second, first)
    mirror.catch_up()
    chain = MessageStoreChain(first, [(mirror, Tolerance(may_drop=True))])
    new = prepared_branch(chain, taken=3)
    chain._places[0]._drop("it is left behind")
    done(chain.dequeue, 2, "q", "somebody")  # it is on another queue still
    done(chain.enqueue, chain.load(2), "q")
    mirror.catch_up()
    assert [*second.recover().entries["q"]] == [1, 3, 5, 6, 7, 2]
    assert contents(second) == contents(first)
    for store in (first, second):
        done(store.commit_prepared, XID)
    assert [*second.recover().entries["q"]] == [1, 5, 6, 7, 2, new]
    assert contents(second) == contents(first)
    chain.close()


def test_the_distance_of_a_mirror_counts_the_calls_of_branches() -> None:
    first, second = RecordedMessageStore([]), RecordedMessageStore([])
    mirror = Mirror("m", second, first)
    done(first.create, Queue("q"))
    mirror.catch_up()
    prepared_branch(first)
    with pytest.raises(InvalidRequest, match="more than 1 calls behind"):
        mirror.catch_up(max_distance=1)
    assert second.prepared() == []
    assert mirror.catch_up(max_distance=2) == 2
    assert contents(second) == contents(first)
    mirror.close()
    first.close()


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_branch_of_which_nothing_is_left_when_a_mirror_hears_of_it_does_not_end_the_chain(
    by_hand: bool,
) -> None:
    first, second = HeldMessageStore([]), RecordedMessageStore([])
    done(first.create, Queue("q"))
    mirror, told, ended = Mirror("m", second, first), Answers(), Completion()
    mirror.catch_up()
    chain = MessageStoreChain(first, [(mirror, Tolerance())])
    transaction = chain.begin()
    message = done(chain.stage, chain.message(HEADER), [b"pie", b"ces"])
    done(chain.enqueue, message, "q", transaction=transaction)
    first.sink.is_holding = True
    chain.prepare(transaction, XID, told.of("prepare"))

    def decided(error: StoreError | None) -> None:
        told.of("decide")(error)
        ended.finish(error)

    if by_hand:
        chain.decide_heuristically(XID, "ann", decided, list, commits=False)
    else:
        chain.rollback_prepared(XID, decided)
    first.sink.tell()
    first.sink.tell()
    first.sink.is_holding = False
    ended.complete(30)
    assert told == [("prepare", None), ("decide", None)]  # type: ignore[comparison-overlap]
    assert chain.failure is None
    assert second.prepared() == first.prepared()
    if by_hand:
        done(chain.forget_branch, XID)
    prepared_branch(chain)
    assert contents(second) == contents(first)
    assert steps_of(second) == steps_of(first) == [XID]
    chain.close()


def test_a_branch_of_which_a_restart_left_nothing_is_in_doubt_at_a_mirror_too() -> None:
    """Its coordinator was told that it is prepared, so it can decide it at either store."""
    log: list[bytes] = []
    first, second = RecordedMessageStore(log), RecordedMessageStore([])
    done(first.create, Queue("q"))
    transaction = first.begin()
    done(
        first.enqueue,
        first.message(MessageHeader(durable=False), b"x"),
        "q",
        transaction=transaction,
    )
    done(first.prepare, transaction, XID)
    first.close()
    first = RecordedMessageStore(log)
    mirror = Mirror("m", second, first)
    assert mirror.catch_up() > 0
    assert mirror.catch_up() == 0
    chain = MessageStoreChain(first, [(mirror, Tolerance())])
    assert steps_of(second) == steps_of(first) == [XID]
    done(chain.commit_prepared, XID)
    assert steps_of(second) == steps_of(first) == []
    chain.close()


def test_an_auditor_writes_one_line_for_each_call_of_a_branch(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    chain = MessageStoreChain(MemoryMessageStore(), [(CallAuditor(path), Tolerance())])
    done(chain.create, Queue("q"))
    prepared_branch(chain)
    done(chain.decide_heuristically, XID, "ann", on_steps=list, commits=True)
    done(chain.forget_branch, XID)
    prepared_branch(chain, OTHER)
    done(chain.rollback_prepared, OTHER)
    chain.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [{**line, "at": None} for line in lines[1:]] == [
        {"at": None, **line}
        for line in (
            {"together": 1, "operation": "enqueue", "message": 1, "queue": "q"},
            {"together": 1, "operation": "prepare", "xid": "1:67:62"},
            {
                "operation": "decide_heuristically", "xid": "1:67:62", "by": "ann",
                "commits": True,
            },
            {"operation": "forget_branch", "xid": "1:67:62"},
            {"together": 2, "operation": "enqueue", "message": 2, "queue": "q"},
            {"together": 2, "operation": "prepare", "xid": "1:67:6f74686572"},
            {"operation": "rollback_prepared", "xid": "1:67:6f74686572"},
        )
    ]  # fmt: skip


@pytest.mark.parametrize("is_branch", [True, False])
def test_content_that_only_storage_has_is_copied_while_the_first_stores_log_goes_on(
    tmp_path: Path, is_branch: bool
) -> None:
    """Read on its log's own thread it would wait for what that thread is to write."""
    small = replace(DELTA_CONFIG, cache_bytes=1)
    first = DeltaMessageStore(tmp_path / "first", small)
    second = DeltaMessageStore(tmp_path / "second", DELTA_CONFIG)
    mirror = Mirror("m", second, first)
    mirror.catch_up()
    chain = MessageStoreChain(first, [(mirror, Tolerance())])
    done(chain.create, Queue("q"))
    transaction, pieces = chain.begin(), [b"a" * 50_000, b"b" * 50_000]
    message = done(chain.stage, chain.message(HEADER), pieces)
    done(chain.enqueue, message, "q", transaction=transaction)
    if is_branch:
        done(chain.prepare, transaction, XID)
        done(chain.commit_prepared, XID)
    else:
        done(chain.commit, transaction)
    done(chain.dequeue, message.message_id, "q", None)
    again = done(chain.stage, chain.message(HEADER), pieces)
    chain.enqueue(again, "q", lambda _error: None)
    chain.close()  # what is under way is still copied
    store = DeltaMessageStore(tmp_path / "second", DELTA_CONFIG)
    assert [store.load(i).body for i in store.recover().entries["q"]] == [b"".join(pieces)]
    store.close()
