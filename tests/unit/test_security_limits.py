"""How many connections an address may have that have not opened."""

from __future__ import annotations

from functools import partial

from broker_shim.security.limits import HalfOpen

HERE, THERE = "127.0.0.1", "10.0.0.7"


def refusal(half_open: HalfOpen, host: str = THERE, count: int = 0, now_s: float = 0.0) -> str:
    """Why a newcomer is one too many, at eight half-open ones; empty if it is not."""
    ask = partial(half_open.refusal_of_newcomer, most=10, most_half_open=8, now_s=now_s)
    return ask(host, count) or ""


def test_an_address_of_another_machine_has_a_quarter_of_the_half_open_ones() -> None:
    half_open = HalfOpen()
    first = [half_open.enter(THERE) for _ in range(2)]
    assert refusal(half_open).startswith("2 connections of this address")
    assert not refusal(half_open, "10.0.0.8")
    first[0].leave()
    first[0].leave()
    assert not refusal(half_open)
    half_open.enter(THERE)
    assert refusal(half_open)


def test_this_machine_has_all_of_them_and_not_more() -> None:
    half_open = HalfOpen()
    there = [half_open.enter(HERE) for _ in range(7)]
    assert not refusal(half_open, HERE)
    there.append(half_open.enter(HERE))
    assert refusal(half_open, HERE).startswith("8 connections are half-open")
    assert refusal(half_open, HERE, count=10) == "10 connections are open"
    for newcomer in there:
        newcomer.leave()
    assert not refusal(half_open, HERE)


def test_who_failed_to_log_in_counts_until_its_answer_was_due_though_it_hung_up() -> None:
    half_open = HalfOpen()
    for until_s in (8.0, 9.0):
        guess = half_open.enter(THERE)
        guess.failed(until_s)
        guess.leave()
    assert refusal(half_open, now_s=7.9)
    assert not refusal(half_open, now_s=8.0)
    half_open.enter(THERE)
    assert refusal(half_open, now_s=8.9)
    assert not refusal(half_open, now_s=9.0)


def test_who_waits_longer_than_its_answer_does_not_count_twice() -> None:
    half_open = HalfOpen()
    guess = half_open.enter(THERE)
    guess.failed(8.0)
    assert not refusal(half_open, now_s=1.0)
    half_open.enter(THERE)
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
