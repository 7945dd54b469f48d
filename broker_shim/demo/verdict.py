"""Judge whether the store agrees with what clients were told. Pure.

A client that was told "accepted" relies on it. One that was cut off before it was told knows
nothing: that operation is *in doubt*, and either outcome is right, but the same one everywhere.
For every (departure, queue), with e, d, p the numbers of its `enqueued` and `dequeued` events and
of its entries on the queue now:

    e = 1    if the publish was acknowledged, or a consumer saw the message
    e ∈ 0,1  if the publish is in doubt, for all its queues alike; 0 if it was never sent
    d = 1    if the settlement was acknowledged; d ∈ 0,1 if that is in doubt; else 0
    p = e − d
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Key(NamedTuple):
    """A departure on a queue."""

    queue: str
    number: int


@dataclass(slots=True)
class ConfirmedDeliveries:
    """The ledgers of all clients, put together.

    Attributes:
        published: Departures whose publish was acknowledged.
        publish_in_doubt: Departures sent and not acknowledged.
        settled: What left its queue for good, acknowledged.
        settle_in_doubt: Accepted by a consumer, not acknowledged.
        released: Given back at least once, acknowledged.
        seen: Delivered to a consumer.
    """

    published: set[int] = field(default_factory=set)
    publish_in_doubt: set[int] = field(default_factory=set)
    settled: set[Key] = field(default_factory=set)
    settle_in_doubt: set[Key] = field(default_factory=set)
    released: set[Key] = field(default_factory=set)
    seen: set[Key] = field(default_factory=set)

    def add_publisher(self, ledger: Mapping[str, Any]) -> None:
        """Add the ledger of one publisher."""
        self.published.update(ledger["accepted"])
        self.publish_in_doubt.update(ledger["in_doubt"])

    def add_consumer(self, ledger: Mapping[str, Any]) -> None:
        """Add the ledger of one consumer."""
        for name, keys in (
            ("settled", self.settled),
            ("settle_in_doubt", self.settle_in_doubt),
            ("released", self.released),
            ("seen", self.seen),
        ):
            keys.update(Key(queue, number) for queue, number in ledger[name])


@dataclass(frozen=True, slots=True)
class Stored:
    """Counts of the store's events by departure and queue, read by SQL.

    Attributes:
        enqueued: How often each departure was put on a queue, ever.
        dequeued: How often each left a queue for good, ever.
        present: Entries on the queue now.
    """

    enqueued: Mapping[Key, int]
    dequeued: Mapping[Key, int]
    present: Mapping[Key, int]


def disagreements(
    client: ConfirmedDeliveries, stored: Stored, queues_of: Callable[[int], Iterable[str]]
) -> list[str]:
    """Return where the store differs from what clients were told: a line each, none if it holds."""
    lines = []
    doubtful: dict[int, set[int]] = {}
    sent = {
        Key(queue, number)
        for number in client.published | client.publish_in_doubt
        for queue in queues_of(number)
    }
    for key in sorted(sent | client.seen | stored.enqueued.keys() | stored.present.keys()):
        e, d, p = (counts.get(key, 0) for counts in _columns(stored))
        allowed_e, allowed_d = _allowed_enqueued(key, client, sent), _allowed_dequeued(key, client)
        if e not in allowed_e or d not in allowed_d or p != e - d:
            lines.append(
                f"departure {key.number} on {key.queue}: enqueued {e} times"
                f" ({_either(allowed_e)} expected), dequeued {d} ({_either(allowed_d)} expected),"
                f" there {p} times"
            )
        if key.number in client.publish_in_doubt:
            doubtful.setdefault(key.number, set()).add(e)
    lines += [
        f"departure {number} is on some of its queues only"
        for number, outcomes in sorted(doubtful.items())
        if len(outcomes) > 1
    ]
    return lines


def landed_in_doubt(client: ConfirmedDeliveries, stored: Stored) -> tuple[int, int]:
    """Count the publishes and settlements in doubt that happened all the same."""
    numbers = {key.number for key, count in stored.enqueued.items() if count}
    landed = len(client.publish_in_doubt & numbers)
    settled = client.settle_in_doubt - client.settled
    return landed, sum(stored.dequeued.get(key, 0) for key in settled)


def count(keys: Iterable[tuple[Key, int]]) -> Counter[Key]:
    """Counts by key; a key may come several times."""
    counted: Counter[Key] = Counter()
    for key, number in keys:
        counted[key] += number
    return counted


def _columns(stored: Stored) -> tuple[Mapping[Key, int], ...]:
    return stored.enqueued, stored.dequeued, stored.present


def _allowed_enqueued(key: Key, client: ConfirmedDeliveries, sent: set[Key]) -> set[int]:
    if key not in sent:
        return {0}
    return {1} if key.number in client.published or key in client.seen else {0, 1}


def _allowed_dequeued(key: Key, client: ConfirmedDeliveries) -> set[int]:
    if key in client.settled:
        return {1}
    return {0, 1} if key in client.settle_in_doubt else {0}


def _either(allowed: set[int]) -> str:
    return " or ".join(map(str, sorted(allowed)))
