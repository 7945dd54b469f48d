"""The bindings of a headers exchange: a message goes where its application properties fit. Pure.

A message is not held against each binding: those that could fit are found by the values of the
properties that bindings name, a look-up for each name. A binding that wants all of several headers
is looked up by the first of them, one that wants any of them by each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from broker_shim.messages.header import CommonHeader, HeaderReader
from sparkstore.core.records import MessageHeader
from sparkstore.core.wiring_arguments import HeaderMatch, HeaderValue, match_of

Get = Callable[[str], HeaderValue]
"""The value of an application property of a message; None: it has none."""


def properties_of(reader: HeaderReader, columns: MessageHeader) -> Get:
    """Make a reader of application properties, which decodes nothing before it is asked."""
    common: CommonHeader | None = None

    def get(name: str) -> HeaderValue:
        nonlocal common
        if common is None:
            common = reader(columns)
        return common.get(name)

    return get


class _Bound(NamedTuple):
    """One binding of a queue, which may have several."""

    binding_key: str
    queue: str


_Value = tuple[str, HeaderValue]


class HeadersBindings:
    """The bindings of one headers exchange."""

    def __init__(self) -> None:
        self._matches: dict[_Bound, HeaderMatch] = {}
        self._by_value: dict[str, dict[_Value, set[_Bound]]] = {}
        self._by_name: dict[str, set[_Bound]] = {}
        self._always: set[_Bound] = set()

    def bind(self, binding_key: str, queue: str, arguments: Mapping[str, Any]) -> None:
        """Add a binding; of one that is there, these are the arguments from now on."""
        self.unbind(binding_key, queue)
        bound, match = _Bound(binding_key, queue), match_of(arguments)
        self._matches[bound] = match
        for name, value in _looked_up(match):
            if value is None:
                self._by_name.setdefault(name, set()).add(bound)
            else:
                values = self._by_value.setdefault(name, {})
                values.setdefault(_comparable(value), set()).add(bound)
        if not match.headers:
            self._always.add(bound)

    def unbind(self, binding_key: str, queue: str) -> None:
        """Take a binding away; one that is not there changes nothing."""
        bound = _Bound(binding_key, queue)
        match = self._matches.pop(bound, None)
        if match is None:
            return
        self._always.discard(bound)
        for name, value in _looked_up(match):
            if value is None:
                _discard(self._by_name, name, bound)
            else:
                _discard(self._by_value[name], _comparable(value), bound)
                if not self._by_value[name]:
                    del self._by_value[name]

    def route(self, get: Get) -> set[str]:
        """Names of the queues that a message with these application properties goes to."""
        queues = {bound.queue for bound in self._always}
        for name, by_value in self._by_value.items():
            value = get(name)
            if value is not None:
                candidates = by_value.get(_comparable(value), ())
                queues.update(bound.queue for bound in candidates if self._fits(bound, get))
        for name, bounds in self._by_name.items():
            if get(name) is not None:
                queues.update(bound.queue for bound in bounds if self._fits(bound, get))
        return queues

    def _fits(self, bound: _Bound, get: Get) -> bool:
        """True if what was not looked up fits, too."""
        match = self._matches[bound]
        return match.is_any or all(
            _is_as_wanted(get(name), value) for name, value in match.headers.items()
        )


def _looked_up(match: HeaderMatch) -> list[tuple[str, HeaderValue]]:
    """The headers that a binding is found by; those with a value first: they say more."""
    headers = sorted(match.headers.items(), key=lambda header: header[1] is None)
    return headers if match.is_any else headers[:1]


def _comparable(value: HeaderValue) -> _Value:
    """A value that equals another if both are the same to a sender: 1 is 1.0, and not true."""
    return ("switch" if isinstance(value, bool) else "other"), value


def _is_as_wanted(value: HeaderValue, wanted: HeaderValue) -> bool:
    if value is None or wanted is None:
        return value is not None
    return _comparable(value) == _comparable(wanted)


def _discard(sets: dict[Any, set[_Bound]], key: object, bound: _Bound) -> None:
    sets[key].discard(bound)
    if not sets[key]:
        del sets[key]
