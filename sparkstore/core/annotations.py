"""Keep an entry's annotations, which it adds to its message, in records. Pure.

A message is written once and never changed. What is said about it on the way (why it is in a
dead-letter queue, what a consumer annotated) belongs to its entry, and goes with it to another
queue. In an `enqueued` or a `released` record it is the column `detail`, an entry of `state` has it
there, too: a JSON object

    {"x-opt-death-queue": ["string", "orders"], "x-opt-death-attempts": ["uint", "3"], …}

of all of them, by key: the name of an AMQP 1.0 type (part 1, section 1.6), and the value as text; a
timestamp is milliseconds since 1970 UTC.
`{}` says that there are none, and that the entry was given back before: its message was acquired
by somebody already. Null, that nobody ever had it, as far as the queue knows. Nor had anybody one
that is annotated with nothing but its delivery time, and has no failed delivery (`is_untouched`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import NamedTuple

from sparkstore.errors import InvalidRequest

MAX_ANNOTATIONS_BYTES = 16 << 10
"""The JSON of one entry's annotations, in bytes of UTF-8, inclusive."""

NONE = "{}"
"""No annotations, of an entry that was given back."""

DEATH = "x-opt-death-"
"""How the keys begin that only the store gives: nobody else may say how a message ended."""

EXPIRED, OVER_DELIVERED, REJECTED = "expired", "over-delivered", "rejected"
QUEUE_DELETED, QUEUE_FULL = "queue-deleted", "full"
"""Why a message may not stay."""

_OF_CONSUMERS = frozenset({REJECTED, OVER_DELIVERED})

CYCLE = "cycle"
"""Why an expired message leaves the store, and not for the dead-letter queue."""

_FIRST = DEATH + "first-"
_PATH = DEATH + "path"
_MOST_PATH = 64
_PATH_NAME_BYTES = 64
"""A longer name of a queue is shortened in a path: cut, with a hash of all of it."""

RESUBMITTED_FROM = "x-opt-resubmitted-from"
"""The message that a repaired one was put in the place of."""

RESTORED = "x-opt-restored-"
RESTORED_FROM, RESTORED_BY = RESTORED + "from", RESTORED + "by"
"""The message that one is a copy of, and `UNDO/OPERATION`: who restored it, undoing what."""

DELIVERY_TIME = "x-opt-delivery-time"
"""When a message may be delivered, in ms since 1970 UTC; before, it is on its queue and hidden."""

_OURS = (DEATH, RESUBMITTED_FROM, RESTORED, DELIVERY_TIME)
_PLAIN_TIME = '{"' + DELIVERY_TIME + '":["long","', '"]}'
"""Around the time, in the JSON of an entry that is annotated with nothing else."""
MOST_TIME_MS = 253_402_300_799_999
_TIME_DIGITS = 15
"""The end of the year 9999."""

_MAX_TEXT = 1_000
"""Characters of a condition or a description that are kept."""

Annotations = Mapping[str, tuple[str, str]]
"""Key → name of the type, value as text."""


class Death(NamedTuple):
    """The reason why a message left its queue for the dead letters, or for an alternate exchange.

    Attributes:
        queue: Name of the queue that the message left.
        reason: `expired`, `over-delivered`, `rejected`, `queue-deleted` or `full`.
        attempts: Deliveries that failed, a rejected one included.
        at: When the message left it, UTC µs.
        condition: What a consumer that rejected it said, if it did.
        description: The text for people that this consumer gave with its condition, if it did.
    """

    queue: str
    reason: str
    attempts: int
    at: int
    condition: str | None = None
    description: str | None = None


def as_detail(annotations: Annotations) -> str:
    """The JSON of annotations.

    Raises:
        InvalidRequest: They are not annotations, or too large, or hold a delivery time that is
            none.
    """
    if not isinstance(annotations, Mapping) or not all(map(_is_one, annotations.items())):
        raise InvalidRequest("annotations are texts with a type and a text each")
    if DELIVERY_TIME in annotations and not _is_time(*annotations[DELIVERY_TIME]):
        given = " ".join(annotations[DELIVERY_TIME])[:100]
        message = f"{DELIVERY_TIME} is {given!r}: give a long from 0 to {MOST_TIME_MS}, as text"
        raise InvalidRequest(message)
    detail = _packed(annotations)
    if _bytes_of(detail) > MAX_ANNOTATIONS_BYTES:
        message = f"annotations of {len(detail)} bytes: at most {MAX_ANNOTATIONS_BYTES} are kept"
        raise InvalidRequest(message)
    return detail


def given_back(detail: str | None, annotations: Annotations | None) -> str | None:
    """The new `detail` of an entry that is given back, None if it stays the same.

    Raises:
        InvalidRequest: The annotations are none, or too large (`as_detail`).
    """
    if annotations is not None:
        return as_detail(annotations)
    return NONE if detail is None or plain_time_of(detail) is not None else None


def is_untouched(detail: str | None, delivery_count: int) -> bool:
    """True if nobody ever had the message of an entry, as far as its queue knows."""
    return detail is None or (not delivery_count and plain_time_of(detail) is not None)


def delivery_time_of(detail: str | None) -> int | None:
    """When an entry may be delivered, UTC µs; None: at any time."""
    if detail is None or DELIVERY_TIME not in detail:
        return None
    if (at_ms := plain_time_of(detail)) is not None:  # most often
        return at_ms * 1000
    value = annotations_of(detail).get(DELIVERY_TIME)
    return int(value[1]) * 1000 if value is not None and _is_time(*value) else None


def plain_time_of(detail: str | None) -> int | None:
    """The delivery time, in ms, of an entry that has no other annotation; None of any other."""
    before, after = _PLAIN_TIME
    if detail is None or not detail.startswith(before):
        return None
    text = detail.removeprefix(before).removesuffix(after)
    return int(text) if _is_time("long", text) and text == str(int(text)) else None


def plain_time(at_ms: int) -> str:
    """The detail of an entry that has no annotation but its delivery time (`plain_time_of`)."""
    return str(at_ms).join(_PLAIN_TIME)


def are_alike(detail: str | None, other: str | None) -> bool:
    """True if two entries are annotated alike, but for when each may be delivered.

    A copy of a store reckons a delay from its own clock. Whether there is one is no small thing.
    """
    if detail == other:
        return True
    if delivery_time_of(detail) is None or delivery_time_of(other) is None:
        return False
    ours, theirs = annotations_of(detail), annotations_of(other)
    return {**ours, DELIVERY_TIME: theirs[DELIVERY_TIME]} == theirs


def with_delivery_time(detail: str | None, at_us: int) -> str:
    """The detail of an entry that is delivered at a time and not before.

    Where both do not fit, those that consumers gave are left out.
    """
    at_ms = min(-(-at_us // 1000), MOST_TIME_MS)
    together = _packed({**annotations_of(detail), DELIVERY_TIME: ("long", str(at_ms))})
    return together if _bytes_of(together) <= MAX_ANNOTATIONS_BYTES else plain_time(at_ms)


def annotations_of(detail: str | None) -> dict[str, tuple[str, str]]:
    """The annotations that a record or an entry has."""
    if detail is None or detail == NONE:
        return {}
    return {key: (kind, text) for key, (kind, text) in json.loads(detail).items()}


def merged(detail: str | None, more: Annotations) -> Annotations | None:
    """An entry's annotations with more of them; None if together they are too large.

    What only the store gives is not taken from others.
    """
    given = {key: value for key, value in more.items() if not key.startswith(_OURS)}
    together = {**annotations_of(detail), **given}
    return together if _fits(together) else None


def with_death(detail: str | None, death: Death) -> Annotations:
    """Return an entry's annotations on the dead-letter queue: its first death, and this last one.

    Where not all fit, those that consumers gave are left out, and then the first death.
    """
    last_death: dict[str, tuple[str, str]] = {
        DEATH + "queue": ("string", death.queue),
        DEATH + "reason": ("string", death.reason),
        DEATH + "attempts": ("uint", str(death.attempts)),
        DEATH + "time": ("timestamp", str(death.at // 1000)),
    }
    for name in ("condition", "description"):
        text = getattr(death, name)
        if text:
            last_death[DEATH + name] = ("string", text[:_MAX_TEXT])
    before = annotations_of(detail)
    path = [] if death.reason in _OF_CONSUMERS else _expired_on(before)
    if path:
        last_death[_PATH] = ("string", json.dumps(path, ensure_ascii=False))
    with_first = {**_first(before, last_death), **last_death}
    kept = {key: value for key, value in before.items() if not key.startswith(DEATH)}
    together = {**kept, **with_first}
    choices = (annotations for annotations in (together, with_first) if _fits(annotations))
    return next(choices, last_death)


def _first(before: Annotations, last_death: Annotations) -> Annotations:
    """Return the annotations of a message's first death, which may be this last one."""
    if _FIRST + "queue" in before:
        return {key: value for key, value in before.items() if key.startswith(_FIRST)}
    earliest = before if DEATH + "queue" in before else last_death
    parts = ((name, earliest.get(DEATH + name)) for name in ("queue", "reason", "time"))
    return {_FIRST + name: (value[0], value[1][:_MAX_TEXT]) for name, value in parts if value}


def is_cycle(detail: str | None, death: Death, target: str) -> bool:
    """Tell whether a dead message goes round: it has expired on its dead-letter queue before.

    Only what nobody had since counts: whatever consumers reject, or fail to handle too often, goes
    round because they do. So a queue for retries, which sends what expires back, may be in a cycle.
    Of a path 64 queues are remembered.
    """
    if death.reason != EXPIRED or detail is None or DEATH not in detail:
        return False
    return _path_name(target) in _expired_on(annotations_of(detail))


def _expired_on(annotations: Annotations) -> list[str]:
    """List the queues on which a message has expired since a consumer last failed on it."""
    reason, queue = (annotations.get(DEATH + name, ("", ""))[1] for name in ("reason", "queue"))
    path = _texts(annotations.get(_PATH, ("", "[]"))[1])
    last = [_path_name(queue)] if reason == EXPIRED else []
    return [*dict.fromkeys([*path, *last])][-_MOST_PATH:]


def _texts(path: str) -> list[str]:
    """Read a path; what another broker on the store wrote may be anything, and is none then."""
    try:
        names = json.loads(path)
    except (ValueError, RecursionError):
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _path_name(queue: str) -> str:
    name = queue.encode(errors="surrogatepass")
    if len(name) <= _PATH_NAME_BYTES:
        return queue
    return f"{queue[:8]}…{hashlib.sha256(name).hexdigest()[:16]}"


def origin_of(detail: str | None) -> str | None:
    """Return the queue that a dead letter came from; None if an entry is no dead letter."""
    if detail is None or DEATH not in detail:
        return None
    return annotations_of(detail).get(DEATH + "queue", (None, None))[1]


def _fits(annotations: Annotations) -> bool:
    return _bytes_of(_packed(annotations)) <= MAX_ANNOTATIONS_BYTES


def _is_time(kind: str, text: str) -> bool:
    is_number = kind == "long" and text.isascii() and text.isdigit() and len(text) <= _TIME_DIGITS
    return is_number and int(text) <= MOST_TIME_MS


def _is_one(item: tuple[object, object]) -> bool:
    key, value = item
    is_pair = isinstance(value, tuple | list) and len(value) == 2
    return is_pair and all(isinstance(text, str) for text in (key, *value))  # type: ignore[misc]


def _packed(annotations: Annotations) -> str:
    return json.dumps(annotations, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _bytes_of(detail: str) -> int:
    try:
        return len(detail.encode())
    except UnicodeEncodeError as reason:
        message = f"annotations hold half a surrogate pair: {reason}"
        raise InvalidRequest(message) from reason
