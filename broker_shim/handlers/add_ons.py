"""Add-on handlers by configuration: `[amqp_0_10]` of sparkstore.toml.

    handlers = [
        {point = "connection-incoming", handler = "frame-tracer"},
        {point = "connection-incoming", handler = "rate-limiter", frames_per_s = 1000},
        {point = "session-incoming", handler = "header-router", header = "region", value = "eu",
         exchange = "amq.topic", routing_key = "eu.orders"},
        {point = "session-outgoing", handler = "my_package.my_module:MyHandler", limit = 3},
    ]

The first one named stands first. Whatever else a row says is given to the handler by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from broker_shim.errors import InvalidRequest
from broker_shim.handlers.frame_tracer import FrameTracer
from broker_shim.handlers.handler_chain import HandlerContext, InsertionPoints
from broker_shim.handlers.header_router import HeaderRouter
from broker_shim.handlers.rate_limiter import RateLimiter
from sparkstore.settings_file import named_section, read_section


@named_section
@dataclass(frozen=True, slots=True)
class HandlerSettings:
    """Settings that are read where `sparkstore serve --amqp-0-10 HOST:PORT` listens.

    Attributes:
        handlers: Handlers that stand before the standard ones, the first one named first. Whatever
            else a row says is given to the handler.

              point    "connection-incoming" (sees every frame), "session-incoming" (controls,
                       commands, and frames of headers and bodies), "session-outgoing"
              handler  "frame-tracer", "rate-limiter" (frames_per_s, burst), "header-router"
                       (header, value, exchange, routing_key), or "package.module:name" of your own

            For example:

              handlers = [
                {point = "connection-incoming", handler = "rate-limiter", frames_per_s = 1000},
                {point = "session-incoming", handler = "header-router", header = "region",
                 value = "eu", exchange = "amq.topic", routing_key = "eu.orders"},
              ]
    """

    PLACE: ClassVar[str] = "[amqp_0_10]"

    handlers: tuple[Mapping[str, Any], ...] = ()


def read_handlers(path: Path) -> InsertionPoints:
    """Read the handlers that a settings file lists.

    Raises:
        InvalidRequest: The file cannot be used, or as `insertion_points`; it names the file.
    """
    return read_section(path, HandlerSettings, lambda handlers=(): insertion_points(handlers))


POINTS = {
    "connection-incoming": "connection_incoming",
    "session-incoming": "session_incoming",
    "session-outgoing": "session_outgoing",
}
SHIPPED: dict[str, tuple[Callable[..., Any], frozenset[str]]] = {
    "frame-tracer": (FrameTracer, frozenset(POINTS)),
    "header-router": (HeaderRouter, frozenset({"session-incoming", "session-outgoing"})),
    "rate-limiter": (RateLimiter, frozenset({"connection-incoming"})),
}
"""Name → maker, and where it can stand."""


def insertion_points(rows: Sequence[Mapping[str, Any]]) -> InsertionPoints:
    """Make the insertion points from a list of handlers.

    Raises:
        InvalidRequest: It names a point or a handler that there is not, or gives a handler what it
            does not take: one line.
    """
    makers_of: dict[str, list[Any]] = {name: [] for name in POINTS.values()}
    if type(rows) not in {list, tuple}:
        message = f"[amqp_0_10] handlers: {rows!r:.80} is no list of tables"
        raise InvalidRequest(message)
    for row in rows:
        if not isinstance(row, Mapping) or not {"point", "handler"} <= row.keys():
            message = f"[amqp_0_10] handlers: {row!r:.80} is no table with point and handler"
            raise InvalidRequest(message)
        options = {key: value for key, value in row.items() if key not in {"point", "handler"}}
        point, name = row["point"], row["handler"]
        if not isinstance(point, str) or point not in POINTS:
            message = f"[amqp_0_10] handlers: point {point!r:.80} is not one of {', '.join(POINTS)}"
            raise InvalidRequest(message)
        make = _maker(name, point)
        _check(name, make, options)
        makers_of[POINTS[point]].append(partial(make, **options))
    return InsertionPoints(**{point: tuple(makers) for point, makers in makers_of.items()})


def _maker(name: Any, point: str) -> Callable[..., Any]:
    if isinstance(name, str) and name in SHIPPED:
        make, points = SHIPPED[name]
        if point not in points:
            message = f"[amqp_0_10] handlers: {name} stands at {' or '.join(sorted(points))}"
            raise InvalidRequest(message)
        return make
    module, colon, attribute = str(name).partition(":")
    if not colon:
        names = ", ".join(SHIPPED)
        message = f"[amqp_0_10] handlers: {name!r:.80} is not {names} or package.module:name"
        raise InvalidRequest(message)
    try:
        maker: Callable[..., Any] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as reason:
        message = f"[amqp_0_10] handlers: {name!r:.80} cannot be imported: {reason}"
        raise InvalidRequest(message) from reason
    return maker


def _check(name: str, make: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Make a handler for no connection, so that a slip is found at the start."""
    try:
        inspect.signature(make).bind(None, None, **options)
        if name in SHIPPED:
            make(None, HandlerContext("", lambda: 0.0, lambda _delayed: None), **options)
    except TypeError as reason:
        message = f"[amqp_0_10] handlers: {name}: {reason}"
        raise InvalidRequest(message) from reason
