"""Read and check the arguments of exchanges and bindings. Pure. Those of queues: `queue_arguments`.

of an exchange
alternate_exchange  another exchange, which gets the messages that go to no queue of this one
auto_delete         true: it is deleted when its last binding goes

of a binding to an exchange of the type `headers`
x-match             "all", as where this is not said: each of the other arguments has to fit;
                    "any": one of them has to
any other           the name of an application property, and the value that a message has to
                    have for it: a text, a number, true or false; null: whatever its value is
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from sparkstore.core.queue_arguments import is_name
from sparkstore.core.queue_names import shown
from sparkstore.errors import InvalidRequest
from sparkstore.settings_file import check_names

HEADERS = "headers"
"""The type of exchange whose bindings have arguments."""
EXCHANGE_TYPES = ("direct", "fanout", "topic", HEADERS)
ALTERNATE_EXCHANGE = "alternate_exchange"
AUTO_DELETE = "auto_delete"
EXCHANGE_ARGUMENTS = (ALTERNATE_EXCHANGE, AUTO_DELETE)
X_MATCH = "x-match"
_ALL, _ANY = "all", "any"
_OURS = "x-"
_MOST_HEADERS = 100

HeaderValue = bool | int | float | str | None


class HeaderMatch(NamedTuple):
    """The condition on messages of a binding to a headers exchange.

    Attributes:
        is_any: One of the headers is enough.
        headers: By name, the value that is wanted; None: any value.
    """

    is_any: bool = False
    headers: Mapping[str, HeaderValue] = {}


def match_of(arguments: Mapping[str, Any]) -> HeaderMatch:
    """Return the header match that a binding's arguments ask for; they were checked."""
    headers = {name: value for name, value in arguments.items() if name != X_MATCH}
    return HeaderMatch(arguments.get(X_MATCH) == _ANY, headers)


def alternate_of(arguments: Mapping[str, Any]) -> str | None:
    """The alternate exchange that an exchange's arguments name; None: none."""
    alternate = arguments.get(ALTERNATE_EXCHANGE)
    return alternate if is_name(alternate) else None


def deletes_itself(arguments: Mapping[str, Any]) -> bool:
    """Tell whether an exchange with these arguments goes with its last binding."""
    return arguments.get(AUTO_DELETE) is True


def _can_be(value: object) -> bool:
    """True if a header can have this value, and equal it."""
    is_number = not isinstance(value, float) or not math.isnan(value)
    return isinstance(value, HeaderValue) and is_number


def check_exchange_type(exchange: str, kind: str) -> None:
    """Refuse a type that no broker of this store routes by.

    Raises:
        InvalidRequest: It is none of `EXCHANGE_TYPES`.
    """
    if kind not in EXCHANGE_TYPES:
        message = f"exchange {shown(exchange)}: type {shown(kind)}: say one of "
        raise InvalidRequest(message + ", ".join(EXCHANGE_TYPES))


def check_exchange_arguments(exchange: str, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that no exchange has.

    Raises:
        InvalidRequest: One is unknown, the alternate exchange is no other exchange's name, or
            `auto_delete` is neither true nor false.
    """
    check_names(arguments, EXCHANGE_ARGUMENTS, "argument", f"of exchange {shown(exchange)}")
    alternate = arguments.get(ALTERNATE_EXCHANGE)
    if alternate is not None and (not is_name(alternate) or alternate == exchange):
        message = f"exchange {shown(exchange)}: {ALTERNATE_EXCHANGE} is {alternate!r:.200}: say"
        raise InvalidRequest(f"{message} another exchange's name")
    if not isinstance(arguments.get(AUTO_DELETE, False), bool):
        message = f"exchange {shown(exchange)}: {AUTO_DELETE} is {arguments[AUTO_DELETE]!r:.200}"
        raise InvalidRequest(f"{message}: say true or false")


def check_binding_arguments(exchange: str, kind: str, arguments: Mapping[str, Any]) -> None:
    """Refuse what a binding to an exchange of some type cannot ask.

    Raises:
        InvalidRequest: It is no headers exchange; `x-match` says neither of both; a value cannot be
            that of a header; "any" without a header, which no message fits.
    """
    where = f"binding to {shown(exchange)}"
    if kind != HEADERS:
        if arguments:
            message = f"{where}: exchange is of type {kind}: only bindings to one of type {HEADERS}"
            raise InvalidRequest(f"{message} have arguments, not {min(arguments)!r:.200}")
        return
    if arguments.get(X_MATCH, _ALL) not in (_ALL, _ANY):
        message = f'{where}: {X_MATCH} is {arguments[X_MATCH]!r:.200}: say "{_ALL}" or "{_ANY}"'
        raise InvalidRequest(message)
    headers = match_of(arguments).headers
    ours = {name: value for name, value in arguments.items() if name.startswith(_OURS)}
    check_names(ours, (X_MATCH,), "argument", f"of {where}")
    for name, value in headers.items():
        if not is_name(name) or not _can_be(value):
            message = (
                f"{where}: header {name!r:.200} is {value!r:.200}: say a text, a number, true,"
            )
            raise InvalidRequest(f"{message} false, or null for any value")
    if len(headers) > _MOST_HEADERS:
        message = f"{where}: {len(headers)} headers: say {_MOST_HEADERS} at most"
        raise InvalidRequest(message)
    if arguments.get(X_MATCH) == _ANY and not headers:
        message = f'{where}: {X_MATCH} is "{_ANY}" and no header is named: no message would fit'
        raise InvalidRequest(message)
