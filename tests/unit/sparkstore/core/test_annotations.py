"""What a dead letter's annotations tell of its deaths, and when it goes round."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sparkstore.core.annotations import (
    EXPIRED,
    MAX_ANNOTATIONS_BYTES,
    OVER_DELIVERED,
    QUEUE_DELETED,
    QUEUE_FULL,
    REJECTED,
    Death,
    annotations_of,
    as_detail,
    is_cycle,
    with_death,
)

Died = tuple[str, str]
"""The queue that a message left, and why."""


def detail_after(deaths: Sequence[Died], detail: str | None = None) -> str | None:
    for at_ms, (queue, reason) in enumerate(deaths, 1):
        detail = as_detail(with_death(detail, Death(queue, reason, 1, at_ms * 1000)))
    return detail


def told(detail: str | None) -> dict[str, str]:
    prefix = "x-opt-death-"
    return {key.removeprefix(prefix): text for key, (_, text) in annotations_of(detail).items()}


def test_the_first_death_stands_beside_the_last() -> None:
    detail = detail_after([("a", EXPIRED), ("b", REJECTED), ("c", EXPIRED)])
    assert told(detail) == {
        "queue": "c",
        "reason": "expired",
        "time": "3",
        "attempts": "1",
        "first-queue": "a",
        "first-reason": "expired",
        "first-time": "1",
    }


def test_one_death_is_the_first_and_the_last() -> None:
    said = told(detail_after([("a", REJECTED)]))
    assert (said["first-queue"], said["first-reason"], said["first-time"]) == ("a", "rejected", "1")


def test_the_first_death_of_an_older_version_s_dead_letter_is_the_one_it_has() -> None:
    old = as_detail({"x-opt-death-queue": ("string", "a"), "x-opt-death-reason": ("string", "x")})
    said = told(detail_after([("b", EXPIRED)], old))
    assert (said["first-queue"], said["first-reason"], said["queue"]) == ("a", "x", "b")
    assert "first-time" not in said


@pytest.mark.parametrize(
    ("deaths", "died", "target", "ends"),
    [
        ([], ("a", EXPIRED), "b", False),
        ([("a", EXPIRED)], ("b", EXPIRED), "a", True),
        ([("a", EXPIRED)], ("b", EXPIRED), "c", False),
        ([("a", EXPIRED), ("b", EXPIRED)], ("c", EXPIRED), "a", True),
        ([("a", EXPIRED), ("b", EXPIRED)], ("c", EXPIRED), "b", True),
        ([("a", EXPIRED)], ("b", REJECTED), "a", False),
        ([("a", EXPIRED)], ("b", OVER_DELIVERED), "a", False),
        ([("a", EXPIRED), ("b", REJECTED)], ("a", EXPIRED), "b", False),
        ([("a", EXPIRED), ("b", REJECTED), ("a", EXPIRED)], ("b", EXPIRED), "a", True),
        ([("a", REJECTED)], ("b", EXPIRED), "a", False),
        ([("a", OVER_DELIVERED)], ("b", EXPIRED), "a", False),
        ([("a", QUEUE_FULL)], ("b", EXPIRED), "a", False),
        ([("a", QUEUE_FULL), ("b", EXPIRED)], ("a", EXPIRED), "b", True),
        ([("a", EXPIRED), ("b", QUEUE_DELETED)], ("c", EXPIRED), "a", True),
    ],
)
def test_a_message_goes_round_where_it_expired_since_nobody_failed_on_it(
    deaths: list[Died], died: Died, target: str, *, ends: bool
) -> None:
    death = Death(*died, 0, 9)
    assert is_cycle(detail_after(deaths), death, target) is ends


@pytest.mark.parametrize("length", [2, 3, 64])
@pytest.mark.parametrize("name", ["q{}", "ä" * 600 + "{}"])
def test_a_cycle_ends_in_its_first_round_whatever_its_queues_are_called(
    length: int, name: str
) -> None:
    """Also where the message came into it from a queue that is not in it."""
    names = [name.format(number) for number in range(length)]
    deaths = [("outside", EXPIRED), *((each, EXPIRED) for each in names[:-1])]
    detail = detail_after(deaths)
    assert is_cycle(detail, Death(names[-1], EXPIRED, 0, 9), names[0])
    assert not is_cycle(detail, Death(names[-1], EXPIRED, 0, 9), "new")
    assert len((detail or "").encode()) <= MAX_ANNOTATIONS_BYTES


def test_what_does_not_fit_beside_the_last_death_is_left_out() -> None:
    mine = as_detail({"x-mine": ("string", "m" * (MAX_ANNOTATIONS_BYTES - 100))})
    detail = detail_after([("a", EXPIRED), ("b", EXPIRED)], mine)
    assert told(detail)["queue"] == "b"
    assert told(detail)["first-queue"] == "a"
    assert "x-mine" not in annotations_of(detail)


@pytest.mark.parametrize("path", ["", "nonsense", "{}", "[1, null]", "[" * 5000])
def test_a_path_that_another_broker_wrote_may_be_anything(path: str) -> None:
    detail = as_detail(
        {
            "x-opt-death-queue": ("string", "a"),
            "x-opt-death-reason": ("string", EXPIRED),
            "x-opt-death-path": ("string", path),
        }
    )
    assert is_cycle(detail, Death("b", EXPIRED, 0, 9), "a")
    assert not is_cycle(detail, Death("b", EXPIRED, 0, 9), "c")
