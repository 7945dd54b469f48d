"""Branches that are not prepared fail when their time is over, by one timer for all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker_shim.broker.orders.xid_claims import XidClaims
from broker_shim.listener_0_10.open_branches import OpenBranch, OpenBranches
from broker_shim.listener_0_10.transaction import SessionTransaction
from broker_shim.store.branch_store import Xid
from tests.support.amqp.amqp_0_10 import Bench010
from tests.support.amqp.timers import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def branches(clock: Clock) -> OpenBranches:
    return OpenBranches(clock.later, 60, XidClaims(), lambda: clock.now_s)


@pytest.fixture
def bench() -> Iterator[Bench010]:
    it = Bench010()
    yield it
    it.close()


def begun(branches: OpenBranches, bench: Bench010, name: bytes) -> OpenBranch:
    transaction = SessionTransaction(bench.broker, gives_back=True)
    branches.add(branch := OpenBranch(Xid(1, name, b""), "user", transaction))
    return branch


def test_each_fails_when_it_is_open_for_so_long(
    bench: Bench010, branches: OpenBranches, clock: Clock
) -> None:
    first = begun(branches, bench, b"1")
    clock.pass_s(20)
    second, ended = begun(branches, bench, b"2"), begun(branches, bench, b"3")
    branches.forget(ended)
    branches.set_timeout(first, 3600)
    clock.pass_s(39)
    assert len(clock.timers) == 2, "one for all, and one that a client set"
    assert not first.is_late
    clock.pass_s(1)
    assert (first.is_late, first.has_failed, second.is_late) == (True, True, False)
    clock.pass_s(20)
    assert (second.is_late, ended.has_failed) == (True, False)
    branches.forget(first)
    branches.forget(second)
    clock.pass_s(7200)
    assert clock.timers == []


def test_one_that_the_store_is_asked_about_is_left_to_the_answer(
    bench: Bench010, branches: OpenBranches, clock: Clock
) -> None:
    prepared, waiting = begun(branches, bench, b"1"), begun(branches, bench, b"2")
    prepared.is_deciding = waiting.is_deciding = True
    clock.pass_s(600)
    branches.forget(prepared)
    waiting.is_deciding = False
    clock.pass_s(1)
    assert (waiting.is_late, prepared.has_failed) == (True, False)
