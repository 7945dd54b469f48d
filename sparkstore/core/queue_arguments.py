"""Read a queue's arguments: rules for its messages and for their consumers. Pure.

`QueueArguments` declares them, each once (`declared_arguments`).

A queue may have other arguments, too: the store keeps them and asks nothing of them. But for
`policy`, which it writes itself: what policies say of the queue (`core.policies`), where the queue
says nothing of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from sparkstore.core.annotations import EXPIRED, OVER_DELIVERED
from sparkstore.core.queue_names import canonical
from sparkstore.declared_arguments import (
    NOT_FOR_SEVERAL,
    WHILE_EMPTY,
    WHILE_UNUSED,
    Argument,
    declared_arguments,
)
from sparkstore.errors import InvalidRequest

POLICY = "policy"
"""{argument: {"value": …, "from": the policy's name}}, in the arguments of a definition."""

_DROP = "drop"
_DEAD_LETTER = "dead_letter"
_REJECT = "reject"
_DROP_HEAD = "drop_head"
_MAX_NAME, _MAX_QUEUE_NAME = 1000, 10_000
"""Characters of a name."""
_KEPT_MESSAGES = 2
_US = 1000
_MAX_TTL_MS = 1000 * 365 * 24 * 3600 * 1000
"""A thousand years: a time that far away is still a timestamp to every engine."""
_MOST_DOUBLINGS = 64
"""After so many failures no delay grows any more: by 2 at least each, it is the longest by then."""
_MOST_FAILURES = (1 << 31) - 1
_MOST = (1 << 63) - 1


class QueueArguments(NamedTuple):
    """Those arguments of a queue that the store acts on; None where there is none."""

    message_ttl_ms: Annotated[
        int | None,
        Argument("the longest a message stays on the queue, in ms", "0.1", 0, _MAX_TTL_MS),
    ] = None
    max_delivery_count: Annotated[
        int | None,
        Argument(
            "failed deliveries that a message may have; with one more it may not stay",
            "0.1",
            0,
            _MOST_FAILURES,
        ),
    ] = None
    dead_letter_queue: Annotated[
        str | None,
        Argument(
            "where a message goes that stayed too long, failed too often or was rejected; without"
            " it such a message leaves the store",
            "0.1",
            names="another queue",
            most=_MAX_QUEUE_NAME,
        ),
    ] = None
    on_reject: Annotated[
        str | None,
        Argument(
            "whether a message that a consumer rejects goes to the dead letters, or leaves the"
            " store",
            "0.2",
            words=(_DEAD_LETTER, _DROP),
        ),
    ] = None
    alternate_exchange: Annotated[
        str | None,
        Argument(
            "gets what a consumer rejects, where neither dead_letter_queue nor on_reject says"
            " otherwise, and what is on the queue when it is deleted",
            "0.3",
            names="an exchange",
            most=_MAX_NAME,
        ),
    ] = None
    last_value_key: Annotated[
        str | None,
        Argument(
            "an application property or a field of the header (JMSType, amqp.subject): of waiting"
            " messages with the same value of it only the newest stays",
            "0.1",
            names="a property",
            most=_MAX_NAME,
            changes=WHILE_EMPTY,
        ),
    ] = None
    message_groups: Annotated[
        bool,
        Argument(
            "messages of one JMSXGroupID go to one consumer, in order, while it is there",
            "0.1",
            changes=WHILE_UNUSED,
        ),
    ] = False
    exclusive: Annotated[
        bool,
        Argument(
            "one consumer at a time; another that attaches is refused",
            "0.1",
            changes=NOT_FOR_SEVERAL,
        ),
    ] = False
    single_active_consumer: Annotated[
        bool, Argument("one consumer gets messages, the others wait until it is gone", "0.7")
    ] = False
    auto_delete: Annotated[
        bool,
        Argument(
            "the queue is deleted when its last consumer goes; one that never had a consumer stays",
            "0.3",
        ),
    ] = False
    max_depth: Annotated[
        int | None,
        Argument(
            "the most messages that senders may fill it with, those that consumers hold included",
            "0.6",
            1,
            _MOST,
        ),
    ] = None
    max_bytes: Annotated[
        int | None,
        Argument("the same of their headers and bodies, in bytes", "0.6", 1, _MOST),
    ] = None
    when_full: Annotated[
        str | None,
        Argument(
            "what becomes of a new message for which there is no room: it is refused, the oldest"
            " that wait leave the store, or it goes to the dead letters",
            "0.6",
            words=(_REJECT, _DROP_HEAD, _DEAD_LETTER),
        ),
    ] = None
    delivery_delay_ms: Annotated[
        int | None,
        Argument(
            "how long a message that comes is hidden from consumers, in ms", "0.7", 0, _MAX_TTL_MS
        ),
    ] = None
    retry_delay_ms: Annotated[
        int | None, Argument("the same after a failed delivery, in ms", "0.7", 0, _MAX_TTL_MS)
    ] = None
    retry_delay_multiplier: Annotated[
        int | None, Argument("each further failure makes it so many times as long", "0.7", 1, 1000)
    ] = None
    max_retry_delay_ms: Annotated[
        int | None, Argument("but not longer than this, in ms", "0.7", 0, _MAX_TTL_MS)
    ] = None
    duplicate_window_ms: Annotated[
        int | None,
        Argument(
            "for how long a message with the id of an earlier one is accepted and dropped, in ms",
            "0.7",
            1,
            _MAX_TTL_MS,
        ),
    ] = None
    lock_timeout_ms: Annotated[
        int | None,
        Argument(
            "how long a consumer has a message that it does not settle, in ms",
            "0.7",
            1,
            _MAX_TTL_MS,
        ),
    ] = None

    @property
    def asks_of_arrivals(self) -> bool:
        """True if a message that comes is asked anything; else `why_full` need not be called."""
        asks = (
            self.message_ttl_ms,
            self.delivery_delay_ms,
            self.duplicate_window_ms,
        )
        return self.has_limits or any(argument is not None for argument in asks)

    @property
    def has_limits(self) -> bool:
        """True if the queue may be full (`why_full`)."""
        return self.max_depth is not None or self.max_bytes is not None

    @property
    def drops_head(self) -> bool:
        """True if the oldest messages of a full queue make room for new ones."""
        return self.when_full == _DROP_HEAD

    def overflow_queue(self, queue: str) -> str | None:
        """Return where a new message goes for which `queue` has no room; None if not elsewhere."""
        return self.dead_letter_queue_of(queue) if self.when_full == _DEAD_LETTER else None

    def why_full(self, depth: int, byte_count: int) -> str | None:
        """Say why a queue may not hold so many messages, of so many bytes; None: it may.

        This is the one place that knows what a queue has room for. Every road that enqueues asks
        it, by `core.state_machine.admission`.
        """
        if self.max_depth is not None and depth > self.max_depth:
            return f"max_depth is {self.max_depth}"
        if self.max_bytes is not None and byte_count > self.max_bytes:
            return f"max_bytes is {self.max_bytes}, with it there would be {byte_count}"
        return None

    def expires_at(self, wanted: int | None, now_us: int) -> int | None:
        """When a message that is enqueued now expires, UTC µs: the earlier of both wishes."""
        if self.message_ttl_ms is None:
            return wanted
        latest = now_us + self.message_ttl_ms * _US
        return latest if wanted is None else min(wanted, latest)

    def delivered_from(self, wanted: int | None, now_us: int) -> int | None:
        """When a message that comes now may be delivered, UTC µs: the later of both wishes.

        None: at once.
        """
        if not self.delivery_delay_ms:
            return wanted
        return max(wanted or 0, now_us + self.delivery_delay_ms * _US)

    def retried_from(self, delivery_count: int, now_us: int) -> int | None:
        """When a message may be delivered again whose delivery failed just now, UTC µs.

        None: at once. That is also so for one that may not stay on the queue (`reason_to_end`).

        Args:
            delivery_count: Its failed deliveries, from 1.
            now_us: When it failed, UTC µs.
        """
        if not self.retry_delay_ms or self.is_over_delivered(delivery_count):
            return None
        longer = min(delivery_count - 1, _MOST_DOUBLINGS)
        delay_ms: int = self.retry_delay_ms * (self.retry_delay_multiplier or 1) ** longer
        most = _MAX_TTL_MS if self.max_retry_delay_ms is None else self.max_retry_delay_ms
        return now_us + min(delay_ms, most) * _US

    def reason_to_end(self, expires_at: int | None, failures: int, now_us: int) -> str | None:
        """Why a message may not stay on the queue now; None if it may."""
        if expires_at is not None and expires_at <= now_us:
            return EXPIRED
        return OVER_DELIVERED if self.is_over_delivered(failures) else None

    def is_over_delivered(self, delivery_count: int) -> bool:
        """True if a message with so many failed deliveries may not stay on the queue."""
        limit = self.max_delivery_count
        return limit is not None and delivery_count > limit

    def dead_letter_queue_of(self, queue: str, *, rejected: bool = False) -> str | None:
        """Where a message goes that may not stay on `queue`; None if it leaves the store."""
        is_dropped = rejected and self.on_reject == _DROP
        return None if is_dropped or self.dead_letter_queue == queue else self.dead_letter_queue

    def reject_exchange(self, queue: str) -> str | None:
        """The exchange that a message goes to which is rejected on `queue`; None: to none.

        Decision: what the queue says of its dead letters wins over an alternate exchange: that they
        have a queue, or that what is rejected is dropped. It says of just these messages what
        becomes of them; an alternate exchange is the way out for what nobody provided for.
        """
        is_dropped = self.on_reject == _DROP
        is_provided = is_dropped or self.dead_letter_queue_of(queue) is not None
        return None if is_provided else self.alternate_exchange


ARGUMENTS = declared_arguments(QueueArguments)
"""Every argument that the store acts on, by name."""


class QueueTerms(NamedTuple):
    """A queue's definition, as far as the store acts on it.

    Attributes:
        keeps_messages: Messages on it survive a restart.
        arguments: What it asks of its messages.
        asks_of_arrivals: As `arguments` say.
    """

    keeps_messages: bool = True
    arguments: QueueArguments = QueueArguments()
    asks_of_arrivals: bool = False


def check_arguments(owner: str, arguments: Mapping[str, Any], what: str = "queue") -> None:
    """Refuse arguments of a queue that could not be kept, whoever says them.

    Args:
        owner: Name of the queue, or of the policy, that says them.
        arguments: What is said.
        what: `queue` or `policy`: a policy may name a queue that it fits, and leaves that out.

    Raises:
        InvalidRequest: A time or count is no integer from 0, a limit none from 1; the dead-letter
            queue is no other queue's name, plain or `address::queue`; the alternate exchange is no
            name; a switch is neither true nor false; the key of last values is no name;
            `on_reject` or `when_full` is none of its words, or needs a dead-letter queue.
    """
    subject, own = f"{what} {owner!r:.100}", owner if what == "queue" else None
    for name, argument in ARGUMENTS.items():
        value = arguments.get(name)
        if value is not None and not _may_be(argument, value):
            message = f"{subject}: {name} is {value!r:.200}: say {argument.may_be}"
            raise InvalidRequest(message)
    _check_dead_letters(subject, arguments, own)


def _may_be(argument: Argument, value: object) -> bool:
    if argument.kind is bool:
        return isinstance(value, bool)
    if argument.kind is int:
        return _is_number(value, argument.most, argument.least)
    return value in argument.words if argument.words else is_name(value, argument.most)


def _check_dead_letters(subject: str, arguments: Mapping[str, Any], own: str | None) -> None:
    target = arguments.get("dead_letter_queue")
    if target is None:
        if arguments.get("when_full") == _DEAD_LETTER:
            message = f"{subject}: when_full is {_DEAD_LETTER!r}: name a dead_letter_queue"
            raise InvalidRequest(message)
        return
    if canonical(target) == own:
        message = f"{subject}: dead_letter_queue is {target!r}: say the name of another queue"
        raise InvalidRequest(message)


def arguments_of(detail: str) -> dict[str, Any]:
    """All arguments of a definition (the JSON of a `created` record), whatever they mean."""
    content: dict[str, Any] = json.loads(detail)
    return content.get("arguments") or {}


def own_arguments_of(detail: str) -> dict[str, Any]:
    """The arguments that a queue has by itself, by its definition."""
    return own_arguments(arguments_of(detail))


def own_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a queue has by itself, without what policies say of it."""
    return {name: value for name, value in arguments.items() if name != POLICY}


def effective_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that count: a queue's own, then those that policies give it."""
    policies = arguments.get(POLICY)
    by_policy = policies if isinstance(policies, dict) else {}
    given = {
        name: argument["value"] for name, argument in by_policy.items() if _has_value(argument)
    }
    return given | own_arguments(arguments)


def sources(arguments: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each argument that counts, with its value and where that is from: `queue`, `policy NAME`."""
    policies = arguments.get(POLICY)
    by_policy = policies if isinstance(policies, dict) else {}
    own = own_arguments(arguments)
    return {
        name: {
            "value": value,
            "from": "queue" if name in own else f"policy {by_policy[name].get('from', '')}",
        }
        for name, value in sorted(effective_arguments(arguments).items())
    }


def _has_value(argument: object) -> bool:
    return isinstance(argument, dict) and "value" in argument


def terms_of(detail: str) -> QueueTerms:
    """Read a definition (the JSON of a `created` record).

    A value of the wrong type is none: a definition that an older version took is not refused now.
    """
    content: dict[str, Any] = json.loads(detail)
    given = effective_arguments(arguments_of(detail))
    right = {
        name: given[name]
        for name, argument in ARGUMENTS.items()
        if given.get(name) is not None and _may_be(argument, given[name])
    }
    right["dead_letter_queue"] = target_of(given)
    arguments = QueueArguments(**right)
    is_kept = content.get("durability", _KEPT_MESSAGES) >= _KEPT_MESSAGES
    return QueueTerms(is_kept, arguments, arguments.asks_of_arrivals)


def target_of(arguments: Mapping[str, Any]) -> str | None:
    """Name the dead-letter queue of arguments as the store does; a text that is no name is none."""
    value = arguments.get("dead_letter_queue")
    if not isinstance(value, str) or not value:
        return None
    try:
        return canonical(value)
    except InvalidRequest:
        return None


def _is_number(value: object, most: int, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_name(value: object, most: int = _MAX_NAME) -> bool:
    """True if an argument's value is a name that is not empty, and not too long."""
    return isinstance(value, str) and 0 < len(value) <= most
