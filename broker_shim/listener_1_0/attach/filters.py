"""The filters on a link's source (AMQP 1.0 section 3.5.8) as a selector. Pure.

A filter set is a map: a name of the client's choice → a described value, whose descriptor tells the
type. We know one type, `apache.org:selector-filter:string`; Qpid JMS names it `jms-selector`. The
answer holds what is honoured, as it came: a filter that is missing there does not filter, and the
client is to decide whether it goes on (section 3.5.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker_shim.protocol_1_0.codec.values import Described
from broker_shim.selectors import InvalidSelector, Selector, parse

_SELECTOR_NAME = "apache.org:selector-filter:string"
_SELECTOR_CODE = 0x0000468C00000004
_PLAIN_NAMES = frozenset({_SELECTOR_NAME, "jms-selector"})
"""A filter of such a name may be a bare text, as old clients send it."""


class Filters(NamedTuple):
    """What a link's source asks for, as far as we know it.

    Attributes:
        selector: What it selects by; None if it takes all.
        answer: The filter set to answer with; None for none.
    """

    selector: Selector | None = None
    answer: dict[Any, Any] | None = None


class Said(NamedTuple):
    """What a filter set asks for, its selector not compiled.

    Attributes:
        text: Of the selector; None if there is none, or an empty one.
        answer: The filter set to answer with; None for none.
    """

    text: str | None = None
    answer: dict[Any, Any] | None = None


def said_by(filter_set: Mapping[Any, Any] | None) -> Said:
    """The filters that are honoured.

    Raises:
        InvalidSelector: The selector is no text, or there are two of them.
    """
    texts = [
        (name, value, text)
        for name, value in (filter_set or {}).items()
        if (text := _selector_text(name, value)) is not None
    ]
    if not texts:
        return Said()
    if len(texts) > 1:
        raise InvalidSelector("a source takes one selector, not several")
    (name, value, text) = texts[0]
    return Said(text if text.strip() else None, {name: value})


def read_filters(filter_set: Mapping[Any, Any] | None) -> Filters:
    """The same of a link that was kept, compiled in one go, whatever today's limits are.

    Raises:
        InvalidSelector: The selector is refused, or there are two of them.
    """
    text, answer = said_by(filter_set)
    return Filters(None if text is None else parse(text, is_kept=True), answer)


def _selector_text(name: object, value: object) -> str | None:
    """The text of a selector filter; None if it is another filter."""
    if isinstance(value, Described):
        if value.descriptor not in (_SELECTOR_NAME, _SELECTOR_CODE):
            return None
        if not isinstance(value.value, str):
            raise InvalidSelector("a selector that is no text")
        return value.value
    return value if name in _PLAIN_NAMES and isinstance(value, str) else None
