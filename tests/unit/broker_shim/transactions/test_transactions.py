"""Local transactions, what is pure of them: the commands of a client, and how one stands."""

from __future__ import annotations

import pytest
from proton import Described, Message, symbol, ulong

from broker_shim.amqp_1_0.composites import Declare, Discharge
from broker_shim.listener_1_0.conditions import refusal_of
from broker_shim.listener_1_0.receiving.coordinator import read_command
from broker_shim.protocol_1_0.codec.encoder import write
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.transactions.standing import (
    Memory,
    TransactionLimits,
    TransactionStanding,
    TransactionState,
)
from broker_shim.transactions.transaction_refusals import TransactionRefused, rolled_back

LIMITS = TransactionLimits(open_count=2, operation_count=3, content_bytes=100, timeout_s=10.0)
VALUE = b"\0\x53\x77"
UNKNOWN, ROLLBACK = "amqp:transaction:unknown-id", "amqp:transaction:rollback"


def standing() -> TransactionStanding:
    return TransactionStanding(b"t", LIMITS, Memory())


def condition_of(refused: pytest.ExceptionInfo[TransactionRefused]) -> str:
    return refusal_of(refused.value).condition


@pytest.mark.parametrize("name", [symbol("amqp:declare:list"), ulong(0x31)])
def test_declare_is_read_as_clients_write_it(name: object) -> None:
    assert read_command(bytes(Message(Described(name, [None])).encode())) == Declare()


@pytest.mark.parametrize("name", [symbol("amqp:discharge:list"), ulong(0x32)])
def test_discharge_is_read_as_clients_write_it(name: object) -> None:
    encoded = bytes(Message(Described(name, [b"id", True])).encode())
    assert read_command(encoded) == Discharge(b"id", True)


@pytest.mark.parametrize("command", [Declare(), Discharge(b"x" * 32), Discharge(b"", False)])
def test_a_command_may_come_without_any_header(command: Declare | Discharge) -> None:
    assert read_command(VALUE + write(command)) == command


def test_a_command_that_is_cut_short_is_refused() -> None:
    encoded = VALUE + write(Discharge(b"id", True))
    for size in range(len(encoded)):
        with pytest.raises(DecodeError):
            read_command(encoded[:size])


@pytest.mark.parametrize(
    "encoded",
    [
        VALUE + b"\x40",
        VALUE + write("declare"),
        b"\0\x53\x75\xa0\x01x",
        VALUE + b"\0\x53\x32\x45",
        VALUE + b"\0\x53\x24\x45",
    ],
    ids=["null", "text", "data", "discharge of nothing", "another composite"],
)
def test_what_is_no_command_is_refused(encoded: bytes) -> None:
    with pytest.raises(DecodeError):
        read_command(encoded)


def test_a_transaction_takes_work_until_it_is_committed() -> None:
    it = standing()
    it.take(50, 1.0)
    it.take(50, 2.0)
    it.commit()
    assert it.state is TransactionState.COMMITTING
    with pytest.raises(TransactionRefused) as refused:
        it.take(0, 3.0)
    assert condition_of(refused) == UNKNOWN
    with pytest.raises(TransactionRefused) as refused:
        it.commit()
    assert condition_of(refused) == UNKNOWN
    it.spoil(rolled_back("too late"))
    assert it.refusal is None
    it.end()
    assert it.state is TransactionState.OVER


@pytest.mark.parametrize(("count", "content_bytes"), [(3, 0), (1, 100)])
def test_one_that_takes_too_much_is_spoiled(count: int, content_bytes: int) -> None:
    it = standing()
    for _ in range(count):
        it.take(content_bytes, 0.0)
    with pytest.raises(TransactionRefused) as refused:
        it.take(1, 0.0)
    assert condition_of(refused) == ROLLBACK
    assert it.state is TransactionState.SPOILED


def test_the_transactions_of_a_connection_share_its_memory_until_they_are_over() -> None:
    memory = Memory()
    first, second, third = (
        TransactionStanding(name, LIMITS, memory) for name in (b"1", b"2", b"3")
    )
    first.take(90, 0.0)
    with pytest.raises(TransactionRefused, match="100 bytes"):
        second.take(20, 0.0)
    second.end()
    third.take(10, 0.0)
    first.end()
    first.end()
    third.take(90, 0.0)
    assert memory.content_bytes == 100


def test_the_first_reason_is_what_a_spoiled_one_is_refused_with() -> None:
    it = standing()
    it.spoil(rolled_back("first"))
    it.spoil(rolled_back("second"))
    for call in (it.commit, lambda: it.take(0, 0.0)):
        with pytest.raises(TransactionRefused, match="first") as refused:
            call()
        assert condition_of(refused) == ROLLBACK
    assert it.operation_count == 0


def test_time_counts_from_the_first_operation() -> None:
    it = standing()
    assert not it.expire(1e9)
    it.take(0, 1e9)
    assert not it.expire(1e9 + 9.9)
    assert it.expire(1e9 + 10)
    assert not it.expire(1e9 + 11)
    with pytest.raises(TransactionRefused, match="10 s") as refused:
        it.commit()
    assert condition_of(refused) == "amqp:transaction:timeout"


def test_the_time_of_a_spoiled_one_runs_too_and_its_first_reason_stays() -> None:
    it = standing()
    it.spoil(rolled_back("first"))
    with pytest.raises(TransactionRefused, match="first"):
        it.take(0, 1e9)
    assert not it.expire(1e9 + 9.9)
    assert it.expire(1e9 + 10)
    assert not it.expire(1e9 + 11)
    with pytest.raises(TransactionRefused, match="first"):
        it.commit()


def test_one_that_is_being_committed_does_not_expire() -> None:
    it = standing()
    it.take(0, 0.0)
    it.commit()
    assert not it.expire(1e9)
