"""How many connections an address may have that have not opened."""

from __future__ import annotations

from functools import partial
from typing import Any

from broker_shim.security.rules.limits import HalfOpen, Newcomer
from broker_shim.security.summed_refusals import SummedRefusals

HERE, THERE = "127.0.0.1", "10.0.0.7"


def refusal(half_open: HalfOpen, host: str = THERE, count: int = 0, now_s: float = 0.0) -> str:
    """Why a newcomer is one too many, at eight half-open ones; empty if it is not."""
    ask = partial(half_open.refusal_of_newcomer, most=10, most_half_open=8, now_s=now_s)
    return ask(host, count) or ""


def enter(half_open: HalfOpen, host: str, gone: list[str], *, has_failed: bool = False) -> Newcomer:
    """One more; it appends why it gave way to `gone`."""
    newcomer = half_open.enter(host)
    newcomer.on_give_way = gone.append
    if has_failed:
        newcomer.failed(100.0)
    return newcomer


def test_an_address_of_another_machine_has_a_quarter_of_the_half_open_ones() -> None:
    half_open, others, gone = HalfOpen(), list[str](), list[str]()
    enter(half_open, "10.0.0.8", others)
    enter(half_open, THERE, gone)
    second = enter(half_open, THERE, others)
    assert not refusal(half_open)
    assert [text.startswith("2 connections of this address") for text in gone] == [True]
    assert not refusal(half_open)
    assert (len(gone), others) == (1, [])
    enter(half_open, THERE, gone)
    second.leave()
    assert not refusal(half_open)
    assert (len(gone), others) == (1, [])


def test_an_address_whose_quarter_failed_to_log_in_is_refused() -> None:
    half_open, gone = HalfOpen(), list[str]()
    first = [enter(half_open, THERE, gone, has_failed=True) for _ in range(2)]
    assert refusal(half_open).startswith("2 connections of this address")
    assert not refusal(half_open, "10.0.0.8")
    first[0].leave()
    first[0].leave()
    assert refusal(half_open, now_s=99.0)
    assert not refusal(half_open, now_s=100.0)
    assert not gone


def test_where_there_is_no_room_the_oldest_that_has_not_failed_gives_way() -> None:
    half_open, gone = HalfOpen(), [list[str]() for _ in range(10)]
    for number in range(8):
        enter(half_open, HERE, gone[number], has_failed=number == 0)
    assert not refusal(half_open, HERE)
    assert [len(each) for each in gone] == [0, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    assert gone[1][0].startswith("8 connections are half-open")
    enter(half_open, HERE, gone[8])
    assert not refusal(half_open, HERE, count=10)
    assert gone[2] == ["10 connections are open"]


def test_where_nobody_can_give_way_the_newcomer_is_refused() -> None:
    half_open, gone = HalfOpen(), list[str]()
    assert refusal(half_open, HERE, count=10) == "10 connections are open"
    there = [enter(half_open, HERE, gone, has_failed=True) for _ in range(8)]
    assert refusal(half_open, HERE).startswith("8 connections are half-open")
    for newcomer in there:
        newcomer.leave()
    assert refusal(half_open, HERE)
    assert not refusal(half_open, HERE, now_s=100.0)
    assert not gone


def test_who_failed_to_log_in_counts_until_its_answer_was_due_though_it_hung_up() -> None:
    half_open = HalfOpen()
    for until_s in (8.0, 9.0):
        guess = half_open.enter(THERE)
        guess.failed(until_s)
        guess.leave()
    assert refusal(half_open, now_s=7.9)
    assert not refusal(half_open, now_s=8.0)
    half_open.enter(THERE).failed(100.0)
    assert refusal(half_open, now_s=8.9)
    assert not refusal(half_open, now_s=9.0)


def test_who_waits_longer_than_its_answer_does_not_count_twice() -> None:
    half_open = HalfOpen()
    guess = half_open.enter(THERE)
    guess.failed(8.0)
    assert not refusal(half_open, now_s=1.0)
    half_open.enter(THERE).failed(100.0)
    guess.leave()
    assert refusal(half_open, now_s=7.0)
    assert not refusal(half_open, now_s=8.0)


def test_many_addresses_that_left_take_no_room() -> None:
    half_open = HalfOpen()
    for number in range(1000):
        half_open.enter(f"10.1.{number >> 8}.{number & 255}").leave()
        assert not refusal(half_open)
    assert not half_open._of
    assert not half_open._held


def test_refusals_are_told_in_a_line_a_second_and_none_is_left_out() -> None:
    lines: list[dict[str, Any]] = []
    summed = SummedRefusals(lambda **details: lines.append(details))
    for number in range(2000):
        summed.add(f"10.0.0.{number % 7}", 1.0 + number / 10_000, reason="full", peer=number)
    assert lines == [{"reason": "full", "peer": 0}]
    assert summed.pending == 1999
    summed.add("10.0.0.9", 2.0, reason="full", peer="late")
    hosts = "10.0.0.1 (286), 10.0.0.2 (286), 10.0.0.3 (286), 10.0.0.4 (286), 10.0.0.5 (285)"
    assert lines[1:] == [
        {"count": 2000, "peers": f"{hosts} and 3 more", "reason": "full"},
    ]
    summed.add("10.0.0.9", 2.5, reason="other")
    summed.tell()
    summed.tell()
    assert lines[2:] == [{"count": 1, "peers": "10.0.0.9 (1)", "reason": "other"}]
    assert not summed.pending
