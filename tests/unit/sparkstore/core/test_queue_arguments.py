"""What a queue's arguments ask of its messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkstore.core.fold import Entry
from sparkstore.core.queue_arguments import QueueArguments, check_arguments, terms_of
from sparkstore.errors import InvalidRequest

NOW_US = 1_750_000_000_000_000


def entry(expires_at: int | None = None, delivery_count: int = 0) -> Entry:
    return Entry(1, NOW_US, 4, expires_at, 10, None, delivery_count)


@pytest.mark.parametrize(
    ("wanted", "ttl_ms", "expires_at"),
    [
        (None, None, None),
        (NOW_US + 5_000, None, NOW_US + 5_000),
        (None, 2, NOW_US + 2_000),
        (NOW_US + 5_000, 2, NOW_US + 2_000),
        (NOW_US + 1_000, 2, NOW_US + 1_000),
        (None, 0, NOW_US),
    ],
)
def test_a_message_expires_at_the_earlier_of_both_wishes(
    wanted: int | None, ttl_ms: int | None, expires_at: int | None
) -> None:
    assert QueueArguments(message_ttl_ms=ttl_ms).expires_at(wanted, NOW_US) == expires_at


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (entry(), None),
        (entry(expires_at=NOW_US + 1), None),
        (entry(expires_at=NOW_US), "expired"),
        (entry(delivery_count=3), None),
        (entry(delivery_count=4), "over-delivered"),
        (entry(expires_at=NOW_US, delivery_count=4), "expired"),
    ],
)
def test_a_message_may_stay_until_it_expires_or_fails_more_often_than_allowed(
    found: Entry, reason: str | None
) -> None:
    about = found.expires_at, found.delivery_count
    assert QueueArguments(max_delivery_count=3).reason_to_end(*about, NOW_US) == reason


def test_without_a_limit_a_message_may_fail_for_ever() -> None:
    assert QueueArguments().reason_to_end(None, 10**6, NOW_US) is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"message_ttl_ms": -1},
        {"message_ttl_ms": "60"},
        {"message_ttl_ms": True},
        {"message_ttl_ms": 1.5},
        {"message_ttl_ms": 10**18},
        {"max_delivery_count": -1},
        {"max_delivery_count": 1 << 40},
        {"dead_letter_queue": "q"},
        {"dead_letter_queue": ""},
        {"dead_letter_queue": 7},
        {"last_value_key": ""},
        {"last_value_key": 7},
        {"last_value_key": "k" * 1_001},
        {"exclusive": 1},
        {"exclusive": "yes"},
        {"message_groups": []},
        {"delivery_delay_ms": -1},
        {"delivery_delay_ms": 10**18},
        {"retry_delay_ms": "1s"},
        {"retry_delay_multiplier": 0},
        {"retry_delay_multiplier": 1.5},
        {"max_retry_delay_ms": None, "retry_delay_ms": False},
    ],
    ids=str,
)
def test_a_queue_with_arguments_that_cannot_be_kept_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"queue 'q': \w+ is .*: say "):
        check_arguments("q", arguments)


@pytest.mark.parametrize(
    ("wanted", "delay_ms", "from_us"),
    [
        (None, None, None),
        (None, 0, None),
        (NOW_US - 1, None, NOW_US - 1),
        (NOW_US + 5_000, 2, NOW_US + 5_000),
        (NOW_US + 1_000, 2, NOW_US + 2_000),
        (None, 2, NOW_US + 2_000),
    ],
)
def test_a_message_is_delivered_from_the_later_of_both_wishes(
    wanted: int | None, delay_ms: int | None, from_us: int | None
) -> None:
    assert QueueArguments(delivery_delay_ms=delay_ms).delivered_from(wanted, NOW_US) == from_us


@pytest.mark.parametrize(
    ("asked", "after_ms"),
    [
        ((None, None, None), [None, None]),
        ((0, 2, 9), [None, None]),
        ((10, None, None), [10, 10, 10]),
        ((10, 2, None), [10, 20, 40, 80]),
        ((10, 3, 50), [10, 30, 50, 50]),
        ((10, None, 5), [5, 5]),
    ],
)
def test_each_failure_makes_the_delay_of_a_retry_longer(
    asked: tuple[int | None, int | None, int | None], after_ms: list[int | None]
) -> None:
    delay_ms, multiplier, most = asked
    arguments = QueueArguments(
        retry_delay_ms=delay_ms, retry_delay_multiplier=multiplier, max_retry_delay_ms=most
    )
    told = [arguments.retried_from(count, NOW_US) for count, _ in enumerate(after_ms, 1)]
    assert told == [None if ms is None else NOW_US + ms * 1000 for ms in after_ms]


def test_no_number_of_failures_makes_a_delay_that_is_no_time() -> None:
    arguments = QueueArguments(retry_delay_ms=1, retry_delay_multiplier=1000)
    assert arguments.retried_from(1 << 31, NOW_US) == arguments.retried_from(100, NOW_US)
    assert (arguments.retried_from(100, NOW_US) or 0) < 253_402_300_800_000_000


def test_what_goes_to_the_dead_letters_is_not_delayed_before() -> None:
    arguments = QueueArguments(retry_delay_ms=1, max_delivery_count=1)
    assert arguments.retried_from(1, NOW_US)
    assert arguments.retried_from(2, NOW_US) is None


def test_other_arguments_are_anything() -> None:
    check_arguments("q", {"colour": ["brown"], "message_ttl_ms": 0, "dead_letter_queue": "dead"})


def test_a_definition_of_an_older_version_is_read_as_far_as_it_makes_sense() -> None:
    given = {
        "message_ttl_ms": "soon",
        "max_delivery_count": 5,
        "dead_letter_queue": 3,
        "last_value_key": 1,
        "exclusive": "yes",
        "message_groups": 1,
    }
    terms = terms_of(json.dumps({"arguments": given, "durability": 2}))
    assert terms.arguments == QueueArguments(max_delivery_count=5)
    assert terms.keeps_messages
    assert terms_of("{}") == terms_of('{"arguments": null}')


def test_a_queue_of_a_lower_tier_keeps_no_messages() -> None:
    assert not terms_of('{"arguments": {}, "durability": 1}').keeps_messages
