"""The filters on a link's source (AMQP 1.0 section 3.5.8): bytes ↔ a selector. Pure.

A filter set is a map: a name of the client's choice → a described value, whose descriptor tells the
type. We know one type, `apache.org:selector-filter:string`; Qpid JMS names it `jms-selector`. The
answer holds what is honoured, as it came: a filter that is missing there does not filter, and the
client is to decide whether it goes on (section 3.5.3).
"""

from __future__ import annotations

from typing import NamedTuple

from broker_shim.embedded.amqp_types import DecodeError, Encoded, items_at, value_at
from broker_shim.selectors import InvalidSelector, Selector, parse

_SELECTOR_NAME = "apache.org:selector-filter:string"
_SELECTOR_CODE = 0x0000468C00000004
_PLAIN_NAMES = frozenset({_SELECTOR_NAME, "jms-selector"})
"""A filter of such a name may be a bare text, as old clients send it."""


class Filters(NamedTuple):
    """What a link's source asks for, as far as we know it.

    Attributes:
        selector: What it selects by; None if it takes all.
        answer: The filter set to answer with, encoded; empty for none.
    """

    selector: Selector | None = None
    answer: bytes = b""


def read_filters(encoded: bytes) -> Filters:
    """The filters that are honoured.

    Args:
        encoded: A filter set; empty if there is none.

    Raises:
        InvalidSelector: The selector is refused, or there are two of them; the set is no map.
    """
    if not encoded:
        return Filters()
    try:
        items, _end = items_at(encoded, 0)
        texts = [
            (name, value, text)
            for name, value in zip(items[::2], items[1::2], strict=True)
            if (text := _selector_text(name, value)) is not None
        ]
    except (DecodeError, ValueError) as reason:
        message = f"the filter set of the source cannot be read: {reason}"
        raise InvalidSelector(message) from reason
    if not texts:
        return Filters()
    if len(texts) > 1:
        raise InvalidSelector("a source takes one selector, not several")
    (name, value, text) = texts[0]
    selector = parse(text) if text.strip() else None
    return Filters(selector, _map_of(str(name), value))


def _selector_text(name: object, value: object) -> str | None:
    """The text of a selector filter; None if it is another filter."""
    if isinstance(value, Encoded) and value[:1] == b"\x00":
        descriptor, at = value_at(value, 1)
        if descriptor not in (_SELECTOR_NAME, _SELECTOR_CODE):
            return None
        text, _end = value_at(value, at)
        if not isinstance(text, str):
            raise DecodeError("a selector that is no text")
        return text
    return value if name in _PLAIN_NAMES and isinstance(value, str) else None


def _map_of(name: str, value: object) -> bytes:
    """A map of one filter."""
    key = name.encode("ascii", "replace")
    content = b"\xb3" + len(key).to_bytes(4, "big") + key
    if isinstance(value, Encoded):
        content += value
    else:
        text = str(value).encode()
        content += b"\xb1" + len(text).to_bytes(4, "big") + text
    return b"\xd1" + (len(content) + 4).to_bytes(4, "big") + b"\0\0\0\2" + content
