from __future__ import annotations

import threading

import pytest

from broker_shim.completion import Completion, all_of
from broker_shim.errors import InvalidRequest, StoreError, Unavailable

FAILURE = Unavailable("no room")


def test_a_completion_is_done_once_it_is_finished() -> None:
    completion = Completion()
    before = completion.is_complete
    completion.finish()
    assert (before, completion.is_complete) == (False, True)
    completion.complete()
    completion.complete()


def test_complete_raises_what_it_failed_with_each_time() -> None:
    completion = Completion()
    completion.finish(FAILURE)
    for _ in range(2):
        with pytest.raises(Unavailable, match="no room"):
            completion.complete()


def test_complete_gives_up_after_its_timeout_and_may_be_called_again() -> None:
    completion = Completion()
    with pytest.raises(TimeoutError, match="0 s"):
        completion.complete(timeout_s=0)
    completion.finish()
    completion.complete(timeout_s=0)


def test_every_thread_that_waits_is_woken() -> None:
    completion, woken = Completion(), threading.Semaphore(0)

    def wait() -> None:
        completion.complete(30)
        woken.release()

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    completion.finish()
    assert all(woken.acquire(timeout=30) for _ in threads)
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("error", [None, FAILURE])
def test_finishing_twice_is_a_bug_and_raises(error: StoreError | None) -> None:
    completion = Completion()
    completion.finish(error)
    with pytest.raises(RuntimeError, match="twice"):
        completion.finish()
    seen: list[StoreError | None] = []
    completion.add_callback(seen.append)
    assert seen == [error]


def test_callbacks_run_in_the_order_they_were_added_the_late_ones_at_once() -> None:
    completion, order = Completion(), list[str]()
    completion.add_callback(lambda _: order.append("first"))
    completion.add_callback(lambda _: order.append("second"))
    assert order == []
    completion.finish()
    completion.add_callback(lambda _: order.append("late"))
    assert order == ["first", "second", "late"]


def test_a_callback_runs_outside_the_lock_and_sees_it_complete() -> None:
    completion, seen = Completion(), list[object]()

    def look(_error: StoreError | None) -> None:
        completion.complete(timeout_s=0)
        completion.add_callback(seen.append)
        Completion().finish()

    completion.add_callback(look)
    completion.finish()
    assert seen == [None]


def test_a_failing_callback_is_logged_and_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    completion, seen = Completion(), list[object]()

    def fails(_error: StoreError | None) -> None:
        raise ValueError("a broker's bug")

    completion.add_callback(fails)
    completion.add_callback(seen.append)
    completion.finish()
    assert seen == [None]
    assert "a broker's bug" in caplog.text


def test_all_of_nothing_is_complete() -> None:
    assert all_of([]).is_complete


def test_all_of_is_done_after_the_last_part_with_the_first_error_reported() -> None:
    parts = [Completion() for _ in range(4)]
    parts[0].finish()
    whole = all_of(parts)
    parts[3].finish(FAILURE)
    parts[1].finish(InvalidRequest("later"))
    assert not whole.is_complete
    parts[2].finish()
    with pytest.raises(Unavailable):
        whole.complete(timeout_s=0)


def test_all_of_succeeds_if_every_part_does() -> None:
    parts = [Completion() for _ in range(3)]
    whole = all_of(parts)
    for part in parts:
        part.finish()
    whole.complete(timeout_s=0)
