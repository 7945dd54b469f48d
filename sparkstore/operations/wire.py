r"""Encode the lines of the control socket: one JSON object a line, UTF-8, without state. Pure.

    client → server   {"control": 1, "root_id": "…"}                         hello
    server → client   {"control": 1, "root_id": "…"}
    client → server   {"action": "move", "queue": "a", "to": "b", "ids": [1, 2]}
    server → client   {"done": 2, "left": 0, "gone": 0}
    client → server   {"put": "a", "messages": [{"header": {…}, "body": base64}]}
    server → client   {"done": 1, "left": 0, "gone": 0}
    client → server   {"placements": [{"message_id": 1, "source": "a", "target": "b"}], …}
    server → client   {"done": 1, "left": 0, "gone": 0}                      see `placement_wire`
    client → server   {"holders": 1000}                                      messages at most
    server → client   {"held": [["a", 1, ["who"]]], "left_out": 3,           queue, id, holders
                     "since": {"who": 1790000000000000}}                   where it is known, UTC µs
    client → server   {"not_durable": true}                                  messages in memory only
    server → client   {"not_durable": {"a": 3}}                              by queue
    client → server   {"order": "alter-queue", "queue": "a", "arguments": {"message_ttl_ms": 5000}}
    server → client   {"told": {"act": "alter-queue", "queue": "a", …, "changed": true}}
    client → server   {"flush": true}
    server → client   {"flushed": true}                          all before it is in the tables
    client → server   {"purge": "a", "operation": "0123abcd"}
    server → client   {"so_far": {"done": 250, "left": 0, "gone": 0}}           any number of them
    server → client   {"done": 400, "left": 1, "gone": 0}
    client → server   {"branch": "commit-branch", "xid": "7:ab:cd", "by": "ann"}
    server → client   {"told": {"act": "commit-branch", "xid": "7:ab:cd", …}}
    client → server   {"connections": true}
    server → client   {"connections": [{"connection": 7, "peer": "…", …}]}
    client → server   {"close": 7}
    server → client   {"told": {"act": "close-connection", "connection": 7, …}}
    server → client   {"error": "InvalidRequest", "message": "…"}            instead of an answer

`header` has the fields of `MessageHeader` that differ from its defaults, `header` in base64.
An answer comes when what it says is durable, in the order of the requests; each `so_far`, too.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from sparkstore import errors
from sparkstore.core.records import MessageHeader
from sparkstore.errors import InvalidRequest, StoreError, Unavailable
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.operations.bulk import Action, Answer, MessageDraft, Request, is_operation

VERSION = 1
NOT_DURABLE = "not_durable"
_MAX_ID = ALL = (1 << 63) - 1
"""No message has a larger id; more are never held."""

_ORDER_TYPES: dict[str, type] = {
    "queue": str,
    "exchange": str,
    "key": str,
    "type": str,
    "arguments": dict,
    "durability": int,
    "force": bool,
    "if_unused": bool,
    "if_empty": bool,
    "match": str,
    "priority": int,
}


class HeldMessage(NamedTuple):
    """A message on a queue, and who holds it."""

    queue: str
    message_id: int
    holders: list[str]
    since_us: int | None = None
    """Since when its only holder is there, UTC µs; None if nobody knows."""


class HeldMessages(NamedTuple):
    """Messages that somebody holds.

    Attributes:
        shown: The held messages, as many as were asked for.
        left_out: How many more are held.
    """

    shown: list[HeldMessage]
    left_out: int


def hello(root_id: str) -> dict[str, Any]:
    """The first line of either side."""
    return {"control": VERSION, "root_id": root_id}


def check_hello(hello: dict[str, Any], root_id: str) -> None:
    """Refuse a peer that speaks another version, or is about another root.

    Raises:
        InvalidRequest: It does, or it said something else.
    """
    if "error" in hello:
        raise error_of(hello)
    if hello.get("control") != VERSION:
        message = f"the other side speaks version {hello.get('control')!r} of the control protocol,"
        message += f" this one {VERSION}: install the same sparkstore on both sides"
        raise InvalidRequest(message)
    if hello.get("root_id") != root_id:
        message = f"the socket is of root {hello.get('root_id')!r}, not of {root_id!r}"
        raise InvalidRequest(message)


def line(content: dict[str, Any]) -> bytes:
    """Encode a JSON object as one line."""
    return json.dumps(content).encode() + b"\n"


def content_of(received: bytes | bytearray) -> dict[str, Any]:
    """The object in a line.

    Raises:
        InvalidRequest: It is none.
    """
    try:
        content = json.loads(received)
    except (ValueError, RecursionError) as reason:
        message = f"a line of the control protocol is not JSON: {reason}"
        raise InvalidRequest(message) from reason
    if not isinstance(content, dict):
        raise InvalidRequest("a line of the control protocol is not an object")
    return content


def request_of(content: dict[str, Any]) -> Request:
    """Decode a request that came.

    Raises:
        InvalidRequest: It is none.
    """
    queue, to, ids = content.get("queue"), content.get("to"), content.get("ids")
    if content.get("action") not in [*Action] or not isinstance(queue, str):
        message = f"a request needs a queue and one of the actions {', '.join(Action)}"
        raise InvalidRequest(message)
    if not isinstance(ids, list) or not all(_is_id(number) for number in ids):
        raise InvalidRequest("a request needs ids: a list of message ids")
    if not (to is None or isinstance(to, str)):
        raise InvalidRequest("the target of a request is the name of a queue")
    return Request(Action(content["action"]), queue, tuple(ids), to, operation_of(content))


def operation_of(content: dict[str, Any]) -> str | None:
    """Return the name of the operation that a line is a part of; None: of none.

    Raises:
        InvalidRequest: It is no name.
    """
    operation = content.get("operation")
    if operation is not None and not is_operation(operation):
        raise InvalidRequest("an operation is named by 8 to 32 letters and digits")
    return operation


def put_line(queue: str, messages: Sequence[MessageDraft]) -> bytes:
    """Encode new messages as a line."""
    return line({"put": queue, "messages": [draft_told(draft) for draft in messages]})


def put_of(content: dict[str, Any]) -> tuple[str, list[MessageDraft]]:
    """The queue, and the messages that are to be put there.

    Raises:
        InvalidRequest: They are none.
    """
    queue = content.get("put")
    try:
        messages = [draft_of(draft) for draft in content["messages"]]
    except (KeyError, TypeError, ValueError) as reason:
        message = f"messages to put cannot be read: {reason!r}"
        raise InvalidRequest(message) from reason
    if not isinstance(queue, str):
        raise InvalidRequest("messages to put need the name of a queue")
    return queue, messages


def draft_told(draft: MessageDraft) -> dict[str, Any]:
    """Encode a new message as an object."""
    return {"header": _header_told(draft.header), "body": _text(draft.body)}


def draft_of(draft: dict[str, Any]) -> MessageDraft:
    """Read a new message.

    Raises:
        KeyError: It is none.
        TypeError: It is none.
        ValueError: It is none.
    """
    return MessageDraft(_header_of(dict(draft["header"])), b64decode(draft["body"], validate=True))


def holders_limit(content: dict[str, Any]) -> int:
    """Return the number of messages that a client asks about.

    Raises:
        InvalidRequest: It is no number.
    """
    limit = content.get("holders")
    if not isinstance(limit, int) or not _is_id(limit):
        raise InvalidRequest("holders needs how many messages to tell of: an integer from 1")
    return limit


def held_line(held: HeldMessages) -> bytes:
    """Encode the messages that somebody holds as a line."""
    since = {one.holders[0]: one.since_us for one in held.shown if one.since_us is not None}
    shown = [[*one[:3]] for one in held.shown]
    return line({"held": shown, "left_out": held.left_out, "since": since})


@contextmanager
def _answer_in(content: dict[str, Any]) -> Iterator[None]:
    """Read the broker's answer.

    Raises:
        StoreError: What came instead.
        Unavailable: What came cannot be read.
    """
    if "error" in content:
        raise error_of(content)
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as reason:
        message = f"the broker's answer cannot be read ({reason!r}): run it again"
        raise Unavailable(message) from reason


def held_of(content: dict[str, Any]) -> HeldMessages:
    """The answer that came.

    Raises:
        StoreError: What came instead.
    """
    with _answer_in(content):
        since = {str(holder): int(at) for holder, at in content.get("since", {}).items()}
        shown = [
            HeldMessage(str(q), int(m), names := [str(h) for h in holders], _since(names, since))
            for q, m, holders in content["held"]
        ]
        return HeldMessages(shown, int(content.get("left_out", 0)))


def _since(holders: list[str], since: Mapping[str, int]) -> int | None:
    return since.get(holders[0]) if len(holders) == 1 else None


def order_line(order: Order) -> bytes:
    """Encode an order as a line."""
    plain = Order(order.act)._asdict()
    fields = {name: value for name, value in order._asdict().items() if value != plain[name]}
    return line({"order": str(order.act), **fields})


def order_of(content: dict[str, Any]) -> Order:
    """Decode an order that came.

    Raises:
        InvalidRequest: It is none.
    """
    fields = {name: value for name, value in content.items() if name != "order"}
    if content.get("order") not in [*AdminAction]:
        message = f"an order is one of {', '.join(AdminAction)}"
        raise InvalidRequest(message)
    for name, value in fields.items():
        if type(value) is not _ORDER_TYPES.get(name):
            message = f"an order cannot have {name!r} as {value!r:.80}"
            raise InvalidRequest(message)
    if fields.get("durability", 2) not in range(3):
        raise InvalidRequest("the durability of a queue is 0, 1 or 2")
    return Order(AdminAction(content["order"]), **fields)


def told_line(answer: dict[str, Any]) -> bytes:
    """Encode the answer to an order as a line."""
    return line({"told": answer})


def object_of(content: dict[str, Any], name: str) -> Any:
    """Return the value that the broker's answer has under a name.

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
    """Encode the progress of a purge as a line."""
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


def answer_line(answer: Answer) -> bytes:
    """An answer as a line."""
    return line(answer._asdict())


def answer_of(content: dict[str, Any]) -> Answer:
    """The answer that came.

    Raises:
        StoreError: What came instead.
    """
    with _answer_in(content):
        done, left, gone = (int(content[name]) for name in ("done", "left", "gone"))
        return Answer(done, left, gone, int(content.get("full", 0)))


def error_line(error: StoreError) -> bytes:
    """An error as a line."""
    return line({"error": type(error).__name__, "message": str(error)})


def error_of(content: dict[str, Any]) -> StoreError:
    """The error that came, of the same class if this side knows it."""
    kind: object = getattr(errors, str(content.get("error")), None)
    text = str(content.get("message"))
    if isinstance(kind, type) and issubclass(kind, StoreError):
        return kind(text)
    return Unavailable(text)


def _header_told(header: MessageHeader) -> dict[str, Any]:
    plain = MessageHeader()
    fields = {
        name: value
        for name, value in header._asdict().items()
        if value != getattr(plain, name) and name not in {"header_bytes", "body_bytes"}
    }
    return fields | ({} if header.header is None else {"header": _text(header.header)})


def _header_of(fields: dict[str, Any]) -> MessageHeader:
    if fields.get("header") is not None:
        fields["header"] = b64decode(fields["header"], validate=True)
    fields["properties"] = tuple((str(k), str(v)) for k, v in fields.get("properties", ()))
    header = MessageHeader(**fields)
    numbers = (header.priority, header.expires_at or 0, header.created_at or 0)
    if not all(isinstance(number, int) for number in numbers) or header.protocol is None:
        message = f"priority, expires_at and created_at are integers, protocol a name: {fields!r}"
        raise ValueError(message)
    return header


def _text(content: bytes) -> str:
    return b64encode(content).decode("ascii")


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MAX_ID
