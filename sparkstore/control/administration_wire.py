r"""Orders over the control socket: one JSON object a line, as `wire` has it. Pure.

    client → server   {"order": "alter-queue", "queue": "a", "arguments": {"message_ttl_ms": 5000}}
    server → client   {"told": {"act": "alter-queue", "queue": "a", …, "changed": true}}
    client → server   {"purge": "a"}
    server → client   {"so_far": {"done": 250, "left": 0, "gone": 0}}           any number of them
    server → client   {"done": 400, "left": 1, "gone": 0}
    client → server   {"connections": true}
    server → client   {"connections": [{"connection": 7, "peer": "…", …}]}
    client → server   {"close": 7}
    server → client   {"told": {"act": "close-connection", "connection": 7, …}}

An order is answered when what the answer says is durable, a purge likewise: each `so_far` is.
"""

from __future__ import annotations

from typing import Any

from sparkstore.control.wire import error_of, line
from sparkstore.errors import InvalidRequest, Unavailable
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.operations.bulk import Answer

_TYPES: dict[str, type] = {
    "queue": str,
    "exchange": str,
    "key": str,
    "type": str,
    "arguments": dict,
    "durability": int,
    "force": bool,
}


def order_line(order: Order) -> bytes:
    """An order as a line."""
    plain = Order(order.act)._asdict()
    said = {name: value for name, value in order._asdict().items() if value != plain[name]}
    return line({"order": str(order.act), **said})


def order_of(content: dict[str, Any]) -> Order:
    """An order that came.

    Raises:
        InvalidRequest: It is none.
    """
    said = {name: value for name, value in content.items() if name != "order"}
    if content.get("order") not in [*AdminAction]:
        message = f"an order is one of {', '.join(AdminAction)}"
        raise InvalidRequest(message)
    for name, value in said.items():
        if type(value) is not _TYPES.get(name):
            message = f"an order cannot have {name!r} as {value!r:.80}"
            raise InvalidRequest(message)
    if said.get("durability", 2) not in range(3):
        raise InvalidRequest("the durability of a queue is 0, 1 or 2")
    return Order(AdminAction(content["order"]), **said)


def told_line(told: dict[str, Any]) -> bytes:
    """What an order came to, as a line."""
    return line({"told": told})


def object_of(content: dict[str, Any], name: str) -> Any:
    """What came under a name.

    Raises:
        StoreError: What came instead.
    """
    if "error" in content:
        raise error_of(content)
    if name not in content:
        message = f"the broker's answer has no {name!r}: run it again"
        raise Unavailable(message)
    return content[name]


def so_far_line(so_far: Answer) -> bytes:
    """How far a purge is, as a line."""
    return line({"so_far": so_far._asdict()})


def text_of(content: dict[str, Any], name: str) -> str:
    """A name that came.

    Raises:
        InvalidRequest: It is none.
    """
    value = content.get(name)
    if not isinstance(value, str):
        message = f"{name} needs the name of a queue"
        raise InvalidRequest(message)
    return value


def number_of(content: dict[str, Any], name: str) -> int:
    """A number that came.

    Raises:
        InvalidRequest: It is none.
    """
    value = content.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        message = f"{name} needs the number of a connection"
        raise InvalidRequest(message)
    return value
