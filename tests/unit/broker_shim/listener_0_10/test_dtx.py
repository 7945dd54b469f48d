"""Distributed transactions of AMQP 0-10: a branch is prepared and decided, whoever is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from broker_shim.amqp_0_10.commands import (
    DtxCommit,
    DtxEnd,
    DtxForget,
    DtxGetTimeout,
    DtxPrepare,
    DtxRecover,
    DtxRollback,
    DtxSelect,
    DtxSetTimeout,
    DtxStart,
    ExecutionException,
    ExecutionResult,
    MessageAccept,
    MessageRelease,
    MessageTransfer,
    QueueDeclare,
    QueueDelete,
    TxCommit,
    TxSelect,
)
from broker_shim.amqp_0_10.structs import DtxXid
from broker_shim.errors import StoreError, Unavailable
from broker_shim.store.branch_store import OnBranches, Xid
from broker_shim.store.memory import MemoryMessageStore
from sparkstore.operations.administration import AdminAction, Order
from tests.support.amqp.amqp_0_10 import Bench010, Client010, content

XID, OTHER = DtxXid(1, b"global", b"branch"), DtxXid(1, b"global", b"other")
OK, ROLLED_BACK, TIMED_OUT, READ_ONLY = 0, 1, 2, 7


@pytest.fixture
def bench() -> Iterator[Bench010]:
    it = Bench010()
    yield it
    it.close()


@pytest.fixture
def client(bench: Bench010) -> Client010:
    it = bench.opened()
    it.do(DtxSelect())
    return it


def status(client: Client010, command: object) -> int:
    client.do(command)
    return int(client.of(ExecutionResult)[-1].value.status)


def work(client: Client010, xid: DtxXid = XID) -> None:
    """A branch that takes the one message of q and sends another; ended."""
    client.send("q", b"old")
    client.subscribe("q")
    assert status(client, DtxStart(xid)) == OK
    number = client.numbers[-1]
    client.do(MessageAccept(((number, number),)))
    client.send("q", b"new")
    assert status(client, DtxEnd(xid)) == OK


def in_doubt(client: Client010) -> list[DtxXid]:
    client.do(DtxRecover())
    return [*client.of(ExecutionResult)[-1].value.in_doubt]


def code_of(client: Client010) -> int:
    return int(client.of(ExecutionException)[-1].error_code)


def other_client(bench: Bench010) -> Client010:
    it = bench.client()
    it.open()
    it.attach(b"other")
    return it


def test_a_branch_is_seen_when_it_is_committed_and_not_before(
    bench: Bench010, client: Client010
) -> None:
    work(client)
    assert client.bodies == [b"old"]
    assert in_doubt(client) == []
    assert status(client, DtxPrepare(XID)) == OK
    assert in_doubt(client) == [XID]
    assert client.bodies == [b"old"]
    assert status(client, DtxCommit(XID)) == OK
    assert in_doubt(client) == []
    assert client.bodies == [b"old", b"new"]
    assert len(bench.broker.queues["q"]) == 1


@pytest.mark.parametrize("commits", [True, False])
def test_a_branch_of_messages_that_travel_together_is_decided_as_a_whole(
    bench: Bench010, client: Client010, commits: bool
) -> None:
    """It takes two parts of what came together, out of their order, and sends to two queues."""
    client.do(QueueDeclare("r"))
    old, new = ([f"{name}{number:02}".encode() for number in range(9)] for name in ("old", "new"))
    for body in old:
        client.send("q", body)
    client.subscribe("q")
    first, *_ = client.numbers
    assert status(client, DtxStart(XID)) == OK
    client.do(MessageAccept(((first + 5, first + 7),)))
    client.do(MessageAccept(((first, first + 2),)))
    for body in new:
        client.send("q" if body < b"new05" else "r", body)
    assert status(client, DtxEnd(XID)) == OK
    assert status(client, DtxPrepare(XID)) == OK
    assert client.bodies == old
    decide = DtxCommit(XID) if commits else DtxRollback(XID)
    assert status(client, decide) == OK
    assert len(bench.broker.queues["r"]) == (4 if commits else 0)
    came = new[:5] if commits else old[:3] + old[5:8]
    assert client.bodies == old + came
    assert len(bench.broker.queues["q"]) == (3 + 5 if commits else 9)


@pytest.mark.parametrize(("commits", "told"), [(True, 4), (False, 5)])
def test_a_coordinator_is_told_what_an_operator_decided_until_it_forgets_that(
    bench: Bench010, client: Client010, commits: bool, told: int
) -> None:
    work(client)
    assert status(client, DtxPrepare(XID)) == OK
    observer, outcomes = bench.broker.observer, []
    bench.calls.decide_branch(
        Xid(1, b"global", b"branch"),
        "ann",
        lambda steps: [observer.took(step.run) for step in steps],  # type: ignore[arg-type]
        outcomes.append,
        commits=commits,
    )
    bench.run()
    assert outcomes == [None]
    assert client.bodies == [b"old", b"new" if commits else b"old"]
    assert len(bench.broker.queues["q"]) == 1
    assert in_doubt(client) == [XID]
    assert [status(client, each(XID)) for each in (DtxCommit, DtxRollback)] == [told, told]
    client.do(DtxForget(XID))
    assert in_doubt(client) == []


def test_a_prepare_is_answered_when_it_is_durable(bench: Bench010, client: Client010) -> None:
    work(client)
    said = len(client.of(ExecutionResult))
    client.say(DtxPrepare(XID))
    bench.step()
    assert len(client.of(ExecutionResult)) == said
    bench.run()
    assert len(client.of(ExecutionResult)) == said + 1


@pytest.mark.parametrize("decide", [DtxRollback(XID), DtxCommit(XID)], ids=["rollback", "commit"])
def test_a_branch_is_prepared_and_decided_without_waiting_for_answers(
    bench: Bench010, client: Client010, decide: DtxRollback | DtxCommit
) -> None:
    client.send("q", b"old")
    client.subscribe("q")
    assert status(client, DtxStart(XID)) == OK
    number, before = client.numbers[-1], len(client.of(ExecutionResult))
    client.say(MessageAccept(((number, number),)))
    for command in (DtxEnd(XID), DtxPrepare(XID), decide, DtxStart(XID), DtxEnd(XID)):
        client.say(command)
    client.say(DtxCommit(XID, one_phase=True))
    client.say(DtxRecover())
    bench.run()
    assert client.of(ExecutionException) == []
    *ends, recovered = [result.value for result in client.of(ExecutionResult)[before:]]
    assert [end.status for end in ends] == [OK] * 6
    assert not recovered.in_doubt


def test_another_session_is_told_that_a_prepare_is_under_way(
    bench: Bench010, client: Client010
) -> None:
    work(client)
    other = other_client(bench)
    other.do(DtxSelect())
    client.say(DtxPrepare(XID))
    other.say(DtxRollback(XID))
    bench.run()
    assert "is being prepared" in other.of(ExecutionException)[-1].description
    assert in_doubt(client) == [XID]


def test_what_is_rolled_back_comes_again(bench: Bench010, client: Client010) -> None:
    work(client)
    assert status(client, DtxPrepare(XID)) == OK
    assert status(client, DtxRollback(XID)) == OK
    assert client.bodies == [b"old", b"old"]
    assert len(bench.broker.queues["q"]) == 1


def test_an_unprepared_branch_is_rolled_back_and_its_messages_are_redelivered(
    client: Client010,
) -> None:
    work(client)
    assert status(client, DtxRollback(XID)) == OK
    assert client.bodies == [b"old", b"old"]
    assert client.received[-1][2].delivery.redelivered


def test_a_branch_is_committed_in_one_phase(bench: Bench010, client: Client010) -> None:
    work(client)
    assert status(client, DtxCommit(XID, one_phase=True)) == OK
    assert client.bodies == [b"old", b"new"]


def test_a_prepared_branch_outlives_its_session_and_another_one_decides(
    bench: Bench010, client: Client010
) -> None:
    work(client)
    assert status(client, DtxPrepare(XID)) == OK
    client.lose()
    assert bench.broker.queues["q"].held_count == 1
    other = other_client(bench)
    assert in_doubt(other) == [XID]
    assert status(other, DtxCommit(XID)) == OK
    other.subscribe("q")
    assert other.bodies == [b"new"]


def test_an_unprepared_branch_ends_with_its_session(bench: Bench010, client: Client010) -> None:
    work(client)
    client.lose()
    other = other_client(bench)
    other.subscribe("q")
    assert other.bodies == [b"old"]
    other.do(DtxPrepare(XID))
    assert code_of(other) == 404


def test_a_queue_of_a_branch_in_doubt_stays(bench: Bench010, client: Client010) -> None:
    work(client)
    assert status(client, DtxPrepare(XID)) == OK
    other = other_client(bench)
    other.do(QueueDelete("q"))
    assert code_of(other) == 406
    assert "q" in bench.broker.queues


def test_what_a_branch_gives_back_and_may_not_stay_goes_to_the_dead_letters_at_once(
    bench: Bench010, client: Client010
) -> None:
    """The queue's limit falls while the branch is in doubt. No timer passes here."""
    failed = {"max_delivery_count": 1, "dead_letter_queue": "q"}
    client.do(QueueDeclare("in", arguments=failed))
    client.send("in")
    client.subscribe("in")
    client.do(MessageRelease(((0, 0),), set_redelivered=True))
    assert status(client, DtxStart(XID)) == OK
    number = client.numbers[-1]
    client.do(MessageAccept(((number, number),)))
    assert status(client, DtxEnd(XID)) == OK
    assert status(client, DtxPrepare(XID)) == OK
    order = Order(AdminAction.ALTER_QUEUE, "in", arguments={"max_delivery_count": 0})
    answers: list[StoreError | None] = []
    bench.broker.administration.order(order, lambda error, _told: answers.append(error))
    bench.run()
    assert answers == [None]
    assert status(client, DtxRollback(XID)) == OK
    assert [len(bench.broker.queues[each]) for each in ("in", "q")] == [0, 1]
    assert bench.broker.metrics.dead_lettered == 1


def test_branches_end_empty_suspended_or_failed(bench: Bench010, client: Client010) -> None:
    assert status(client, DtxStart(XID)) == OK
    assert status(client, DtxEnd(XID)) == OK
    assert status(client, DtxPrepare(XID)) == READ_ONLY
    assert status(client, DtxStart(XID)) == OK
    client.send("q")
    assert status(client, DtxEnd(XID, suspend=True)) == OK
    client.send("q", b"outside")
    assert len(bench.broker.queues["q"]) == 1
    assert status(client, DtxStart(XID, resume=True)) == OK
    assert status(client, DtxEnd(XID, fail=True)) == ROLLED_BACK
    assert status(client, DtxPrepare(XID)) == ROLLED_BACK
    assert len(bench.broker.queues["q"]) == 1


def test_two_sessions_work_in_one_branch(bench: Bench010, client: Client010) -> None:
    other = other_client(bench)
    other.do(DtxSelect())
    assert status(client, DtxStart(XID)) == OK
    assert status(other, DtxStart(XID, join=True)) == OK
    for each in (client, other):
        each.send("q")
        assert status(each, DtxEnd(XID)) == OK
    assert status(client, DtxCommit(XID, one_phase=True)) == OK
    assert len(bench.broker.queues["q"]) == 2


def test_a_branch_that_is_late_is_rolled_back(bench: Bench010, client: Client010) -> None:
    assert status(client, DtxStart(XID)) == OK
    client.do(DtxSetTimeout(XID, 60))
    client.do(DtxGetTimeout(XID))
    assert client.of(ExecutionResult)[-1].value.timeout == 60
    client.send("q")
    bench.pass_time()
    assert status(client, DtxEnd(XID)) == TIMED_OUT
    assert status(client, DtxCommit(XID, one_phase=True)) == TIMED_OUT
    assert len(bench.broker.queues["q"]) == 0


def test_a_branch_in_doubt_is_not_late(bench: Bench010, client: Client010) -> None:
    assert status(client, DtxStart(XID)) == OK
    client.do(DtxSetTimeout(XID, 60))
    client.send("q")
    assert status(client, DtxEnd(XID)) == OK
    assert status(client, DtxPrepare(XID)) == OK
    bench.pass_time()
    assert status(client, DtxCommit(XID)) == OK
    assert len(bench.broker.queues["q"]) == 1


def test_a_large_message_is_prepared(bench: Bench010, client: Client010) -> None:
    assert status(client, DtxStart(XID)) == OK
    client.send("q", bytes(300_000))
    assert status(client, DtxEnd(XID)) == OK
    assert status(client, DtxPrepare(XID)) == OK
    assert status(client, DtxCommit(XID)) == OK
    client.subscribe("q")
    assert [len(each) for each in client.bodies] == [300_000]


@pytest.mark.parametrize(
    ("commands", "code"),
    [
        ([DtxStart(XID), DtxStart(OTHER)], 409),
        ([DtxStart(XID), DtxEnd(XID), DtxStart(XID)], 530),
        ([DtxStart(XID, join=True, resume=True)], 530),
        ([DtxStart(XID, join=True)], 530),
        ([DtxStart(XID, resume=True)], 409),
        ([DtxEnd(XID)], 409),
        ([DtxStart(XID), DtxEnd(XID, fail=True, suspend=True)], 530),
        ([DtxStart(XID), DtxPrepare(XID)], 409),
        ([DtxStart(XID), DtxCommit(XID, one_phase=True)], 409),
        ([DtxStart(XID), DtxEnd(XID), DtxCommit(XID)], 409),
        ([DtxStart(XID), DtxEnd(XID, suspend=True), DtxRollback(XID)], 409),
        ([DtxStart(XID), DtxForget(XID)], 409),
        ([DtxForget(XID)], 404),
        ([DtxPrepare(XID)], 404),
        ([DtxCommit(XID)], 404),
        ([DtxRollback(XID)], 404),
        ([DtxGetTimeout(XID)], 404),
        ([DtxSetTimeout(XID, 1)], 404),
        ([DtxStart(DtxXid(1, b"", b"b"))], 531),
        ([DtxStart(DtxXid(1, bytes(65), b"b"))], 531),
        ([DtxStart(DtxXid(0xFFFFFFFF, b"g", b"b"))], 531),
        ([DtxSelect()], 409),
        ([TxSelect()], 409),
        ([DtxStart(XID), TxCommit()], 409),
    ],
)
def test_what_cannot_be_is_refused_by_its_code(
    client: Client010, commands: list[object], code: int
) -> None:
    for each in commands:
        client.do(each)
    assert code_of(client) == code


def test_a_prepared_branch_is_not_begun_prepared_or_committed_otherwise(
    bench: Bench010, client: Client010
) -> None:
    work(client)
    assert status(client, DtxPrepare(XID)) == OK
    for number, (command, code) in enumerate(
        [
            (DtxStart(XID), 530),
            (DtxPrepare(XID), 409),
            (DtxCommit(XID, one_phase=True), 409),
            (DtxForget(XID), 409),
        ]
    ):
        other = bench.client()
        other.open()
        other.attach(b"other %d" % number)
        other.do(DtxSelect())
        other.do(command)
        assert code_of(other) == code
    assert in_doubt(client) == [XID]


def test_a_start_needs_a_select(bench: Bench010) -> None:
    client = bench.opened()
    client.do(DtxStart(XID))
    assert code_of(client) == 409


def test_the_branch_of_another_user_is_not_found(bench: Bench010, client: Client010) -> None:
    work(client)
    other = bench.client()
    other.open()
    other.connection.login.principal = type(other.connection.login.principal)("bob")
    other.attach(b"other")
    other.do(DtxRollback(XID))
    assert code_of(other) == 404


# ------------------------------------------------- a store elsewhere, which answers in its time


class Asked(MemoryMessageStore):
    """A store whose word on branches is held back."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Callable[[], None]] = []
        self.is_holding = False

    def find_branches(self, xid: Xid | None, on_found: OnBranches) -> None:
        def answer() -> None:
            super(Asked, self).find_branches(xid, on_found)

        if self.is_holding:
            self.held.append(answer)
        else:
            answer()

    def answer(self) -> None:
        held, self.held = self.held, []
        for each in held:
            each()


@pytest.fixture
def elsewhere() -> Iterator[tuple[Bench010, Asked, Client010]]:
    store = Asked()
    bench = Bench010(store)
    client = bench.opened()
    client.do(DtxSelect())
    yield bench, store, client
    bench.close()


def held(bench: Bench010, store: Asked, client: Client010, *commands: object) -> None:
    """Some commands are said; none is answered, and so many more wait for the first."""
    store.is_holding = True
    for each in commands:
        client.say(each)
    said = len(client.of(ExecutionResult))
    for _ in range(3):
        bench.step()
        bench.broker.dispatch()
    assert len(store.held) == 1
    assert len(client.of(ExecutionResult)) == said


def test_what_follows_a_start_waits_for_the_store_and_is_in_its_branch(
    elsewhere: tuple[Bench010, Asked, Client010],
) -> None:
    bench, store, client = elsewhere
    client.subscribe("q")
    held(bench, store, client, DtxStart(XID))
    store.is_holding = False
    client.say(MessageTransfer("", 1, 0), **content("q", b"in it"))
    client.say(DtxEnd(XID))
    bench.step()
    assert client.bodies == []
    store.answer()
    bench.run()
    assert client.bodies == []
    assert status(client, DtxCommit(XID, one_phase=True)) == OK
    assert client.bodies == [b"in it"]


def test_branches_are_decided_in_the_order_of_the_commands(
    elsewhere: tuple[Bench010, Asked, Client010],
) -> None:
    bench, store, client = elsewhere
    work(client)
    assert status(client, DtxPrepare(XID)) == OK
    before = len(client.of(ExecutionResult))
    held(bench, store, client, DtxCommit(XID), DtxRecover(), DtxStart(XID), DtxEnd(XID))
    store.is_holding = False
    store.answer()
    bench.run()
    values = [each.value for each in client.of(ExecutionResult)[before:]]
    assert [getattr(each, "status", None) for each in values] == [OK, None, OK, OK]
    assert not values[1].in_doubt


def test_a_session_that_ends_while_the_store_is_asked_begins_and_decides_nothing(
    elsewhere: tuple[Bench010, Asked, Client010],
) -> None:
    bench, store, client = elsewhere
    work(client)
    assert status(client, DtxPrepare(XID)) == OK
    for command in (DtxStart(OTHER), DtxCommit(XID)):
        store.is_holding = False
        other = other_client(bench)
        other.do(DtxSelect())
        held(bench, store, other, command)
        other.connection.receive(b"")
        store.answer()
        bench.run()
    store.is_holding = False
    assert in_doubt(client) == [XID]
    assert status(client, DtxStart(OTHER)) == OK


def test_a_store_that_cannot_be_asked_ends_the_session_and_leaves_the_branch(
    elsewhere: tuple[Bench010, Asked, Client010],
) -> None:
    bench, store, client = elsewhere
    work(client)
    assert status(client, DtxPrepare(XID)) == OK
    store.find_branches = lambda _xid, told: told(Unavailable("no service"), [])  # type: ignore[method-assign]
    other = other_client(bench)
    other.do(DtxRollback(XID))
    assert "no service" in other.of(ExecutionException)[-1].description
    del store.find_branches  # type: ignore[method-assign]
    assert in_doubt(client) == [XID]
