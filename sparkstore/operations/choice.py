"""Choose messages of a queue by what needs no query engine: id, age and properties. Pure.

A predicate of SQL says more, and costs the start of a JVM. These conditions are what people ask for
most; a message is chosen if all of them hold.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sparkstore.core.records import MessageHeader
from sparkstore.errors import InvalidRequest

_UNITS_US = {
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_AGE = re.compile(r"(\d{1,12})(ms|[smhd])")


@dataclass(frozen=True, slots=True)
class Choice:
    """Conditions that all hold for a chosen message; no condition chooses every message.

    Attributes:
        message_ids: The messages by id; empty: whatever their ids are.
        older_than_us: Microseconds since the message came to its queue, at least; None: any.
        properties: Application properties that it has, each with its value as text.
        subject: Its subject; None: any.
    """

    message_ids: frozenset[int] = frozenset()
    older_than_us: int | None = None
    properties: tuple[tuple[str, str], ...] = ()
    subject: str | None = None

    @property
    def needs_header(self) -> bool:
        """Tell whether a message's header must be read before it can be chosen."""
        return bool(self.properties) or self.subject is not None

    def takes(self, message_id: int, at_us: int, now_us: int) -> bool:
        """Say whether a message that came, or left, at a time meets those about id and age."""
        if self.message_ids and message_id not in self.message_ids:
            return False
        return self.older_than_us is None or at_us <= now_us - self.older_than_us

    def takes_header(self, header: MessageHeader) -> bool:
        """Tell whether a header meets the conditions about subject and properties."""
        if self.subject is not None and header.subject != self.subject:
            return False
        return {*self.properties} <= {*header.properties}


def choice_of(
    message_ids: Sequence[int],
    older_than: str | None,
    properties: Sequence[str],
    subject: str | None,
) -> Choice:
    """The conditions as a command line says them.

    Args:
        message_ids: Ids of messages.
        older_than: A number and a unit: `90s`, `15m`, `2h`, `7d`.
        properties: `NAME=VALUE` each.
        subject: The subject, whole.

    Raises:
        InvalidRequest: An age or a property is not written so.
    """
    pairs = []
    for condition in properties:
        name, is_pair, value = condition.partition("=")
        if not name or not is_pair:
            message = f"--property {condition!r}: write it as NAME=VALUE"
            raise InvalidRequest(message)
        pairs.append((name, value))
    least_us = None if older_than is None else age_us("--older-than", older_than)
    return Choice(frozenset(message_ids), least_us, tuple(pairs), subject)


def age_us(option: str, text: str) -> int:
    """Read an age as somebody says it, in µs.

    Args:
        option: The option or field that says it.
        text: A number and a unit, such as 90s or 7d.

    Raises:
        InvalidRequest: It is not written so.
    """
    match = _AGE.fullmatch(text)
    if match is None:
        message = f"{option} {text!r}: write a number and ms, s, m, h or d, such as 90s or 7d"
        raise InvalidRequest(message)
    return int(match[1]) * _UNITS_US[match[2]]
