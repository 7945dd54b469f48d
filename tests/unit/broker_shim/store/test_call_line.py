"""Calls are made in their order, and who brings one never waits for another."""

from __future__ import annotations

import threading

from broker_shim.store.chain.call_line import CallLine
from tests.support.stores.stores import TIMEOUT_S


def test_a_call_that_waits_is_overtaken_by_none_and_who_brings_them_waits_for_none() -> None:
    line, may_go_on, made = CallLine("test"), threading.Event(), list[tuple[str, int]]()

    def call(name: str) -> None:
        made.append((name, threading.get_ident()))

    def wait() -> None:
        assert may_go_on.wait(TIMEOUT_S)
        call("waits")

    line.take(lambda: call("before"), may_wait=False)
    line.take(wait, may_wait=True)
    line.take(lambda: call("after"), may_wait=False)
    assert [name for name, _ in made] == ["before"]
    may_go_on.set()
    line.close()
    line.take(lambda: call("last"), may_wait=False)
    assert [name for name, _ in made] == ["before", "waits", "after", "last"]
    here = threading.get_ident()
    assert [thread == here for _, thread in made] == [True, False, False, True]


def test_a_call_that_fails_by_a_bug_does_not_keep_the_others() -> None:
    line, made = CallLine("test"), list[int]()
    line.take(lambda: made.append(1 // 0), may_wait=True)
    line.take(lambda: made.append(2), may_wait=True)
    line.close()
    assert made == [2]
