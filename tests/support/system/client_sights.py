"""What each client can write of a message, and what it sees of one. Pure.

Where a library does not tell two types apart, or hides a field, this says so, and only this: what
is expected is worked out from what was sent, never from what came.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from tests.support.system.client_cases import Told, Value

DEFAULTS: Told = {"durable": False, "priority": 4, "ttl": 0, "delivery_count": 0}
EXACT_INTEGERS = 2**53
INTEGERS = {"ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long"}
JMS_TYPES = {"boolean", "byte", "short", "int", "long", "float", "double", "string", "null"}
JMS_FLAT = JMS_TYPES | {"char", "binary"}
_RHEA_NAMES = {
    "string": "text",
    "symbol": "text",
    "uuid": "bytes",
    "binary": "bytes",
    "double": "number",
}
_ADDED = {
    "jms": {"message_id", "to", "creation_time", "content_type", "absolute_expiry_time"},
}
JMS_PROPERTIES = {
    *("subject", "reply_to", "correlation_id"),
    *("group_id", "group_sequence", "reply_to_group_id"),
}


def can_write(client: str, told: Told) -> bool:
    """True if the library has a way to send this."""
    return _CAN_WRITE[client](told)


def can_read(client: str, told: Told) -> bool:
    """True if the library does not refuse it or lose a part without a word."""
    return _CAN_READ[client](told)


def as_seen(writer: str, reader: str, told: Told) -> Told:
    """What a client says of a message that was sent so, in a form that can be compared.

    Header fields that were not sent have their defaults; what the client hides is left out.
    """
    properties = told.get("properties", {})
    seen: Told = {
        "header": DEFAULTS | told.get("header", {}),
        "properties": {k: _property(reader, k, v) for k, v in properties.items()},
        "application": {k: _see(reader, v) for k, v in told.get("application", {}).items()},
        "body": _body(reader, told["body"]),
    }
    if reader == "jms":
        seen["properties"].pop("content_type", None)
        seen["properties"].pop("content_encoding", None)
        seen["body"] = _body_in_jms(writer, told["body"])
    else:
        seen["annotations"] = {k: _see(reader, v) for k, v in told.get("annotations", {}).items()}
    found: Told = in_order(seen)
    return found


def as_read(writer: str, reader: str, told: Told, received: Told) -> Told:
    """What a client said of a message, without what is nobody's fault.

    A time to live that shrank on the way counts as what was sent. JMS writes more than it is told
    (a message-id, when and where it was sent), and reads a destination and an expiry where there is
    none.
    """
    header = dict(received["header"])
    ttl = told.get("header", {}).get("ttl", 0)
    if 0 < header["ttl"] <= ttl or "absolute_expiry_time" in received["properties"]:
        header["ttl"] = ttl
    properties = dict(received["properties"])
    if not properties.get("group_sequence"):  # proton writes, and JMS reads, 0 for none
        properties.pop("group_sequence", None)
    added = {name for client in (writer, reader) for name in _ADDED.get(client, ())}
    added -= set(told.get("properties", {}))
    annotations = received.get("annotations", {})
    found: Told = in_order(
        {
            **received,
            "header": header,
            "properties": {k: v for k, v in properties.items() if k not in added},
            "annotations": {k: v for k, v in annotations.items() if not k.startswith("x-opt-jms-")},
        }
    )
    return found


def as_written(client: str, told: Told) -> Told:
    """What a client is told to send: JMS has a writing of its own for a correlation-id."""
    properties = told.get("properties", {})
    if client != "jms" or "correlation_id" not in properties:
        return told
    known = jms_id("correlation_id", properties["correlation_id"])
    return {**told, "properties": {**properties, "correlation_id": known}}


def in_order(told: Any) -> Any:
    """The same with the pairs of every map sorted: they have no order in AMQP."""
    if isinstance(told, dict):
        return {name: in_order(content) for name, content in told.items()}
    if isinstance(told, list):
        if told and told[0] == "map":
            return ["map", sorted(map(in_order, told[1]), key=repr)]
        return [in_order(item) for item in told]
    return told


def _see(client: str, value: Value) -> Value:
    match value[0]:
        case "list":
            return ["list", [_see(client, item) for item in value[1]]]
        case "map":
            return ["map", [_pair(client, key, item) for key, item in value[1]]]
    return _SIMPLE[client](value)


def _pair(client: str, key: Value, item: Value) -> list[Value]:
    if client == "rhea":  # an object of JavaScript: its keys are text
        word = str(key[1]).lower() if key[0] == "boolean" else str(key[1])
        return [["text", word], _see(client, item)]
    return [_see(client, key), _see(client, item)]


def _same(value: Value) -> Value:
    return value


def _rhea(value: Value) -> Value:
    """Numbers are JavaScript's, those of 64 bits bytes where they would not be exact."""
    name, content = value[0], value[1] if len(value) > 1 else None
    if name in INTEGERS and abs(int(content)) >= EXACT_INTEGERS:
        return ["bytes", (int(content) % 2**64).to_bytes(8, "big").hex()]
    if name in INTEGERS or name == "char":
        return ["number", _double(int(content))]
    if name == "float":
        return ["number", _double(struct.unpack(">f", bytes.fromhex(content))[0])]
    return [_RHEA_NAMES[name], content] if name in _RHEA_NAMES else value


def _double(number: float) -> str:
    return struct.pack(">d", number).hex()


def _go(value: Value) -> Value:
    return ["text", value[1]] if value[0] in {"string", "symbol"} else value


_SIMPLE: dict[str, Callable[[Value], Value]] = {
    "proton": _same,
    "rhea": _rhea,
    "go-amqp": _go,
    "fe2o3-amqp": _same,
    "jms": _same,
}


def _body(client: str, body: Told) -> Told:
    if "data" in body:
        return dict(body)
    if "sequence" in body:
        items = [["list", part] for part in body["sequence"]]
        return {"sequence": [_see(client, part)[1] for part in items]}
    if "value" in body:
        return {"value": _see(client, body["value"])}
    return {} if client in {"proton", "rhea", "fe2o3-amqp"} else {"value": ["null"]}


def _body_in_jms(writer: str, body: Told) -> Told:
    """Of a message that is not JMS's own, Qpid JMS makes what seems next to it."""
    if writer != "jms":
        if "sequence" in body:
            return {"value": ["list", body["sequence"][0]]}
        if body.get("value", [""])[0] == "binary":
            return {"data": [body["value"][1]]}
        if not body:
            return {"data": [""]}
    return body or {"value": ["null"]}


def _property(client: str, name: str, content: Any) -> Any:
    if client == "jms" and name == "group_sequence":  # an int of Java
        return content - 2**32 if content >= 2**31 else content
    if name not in {"message_id", "correlation_id"}:
        return content
    return jms_id(name, content) if client == "jms" else _see(client, content)


def jms_id(name: str, value: Value) -> str:
    """A message-id or correlation-id as JMS writes it (AMQP JMS mapping, section 3.2.1.1)."""
    kind, content = value
    match kind:
        case "ulong":
            return f"ID:AMQP_ULONG:{content}"
        case "binary":
            return f"ID:AMQP_BINARY:{content.upper()}"
        case "uuid":
            parts = (content[:8], content[8:12], content[12:16], content[16:20], content[20:])
            return f"ID:AMQP_UUID:{'-'.join(parts)}"
    if content.startswith("ID:") or name == "correlation_id":
        return str(content)
    return f"ID:AMQP_NO_PREFIX:{content}"


def _values(told: Told) -> list[Value]:
    """Every value of a message, those inside others too."""
    found: list[Value] = []
    body = told["body"]
    waiting = [*told.get("application", {}).values(), *told.get("annotations", {}).values()]
    waiting += [item for part in body.get("sequence", ()) for item in part]
    waiting += [body["value"]] if "value" in body else []
    while waiting:
        value = waiting.pop()
        found.append(value)
        if value[0] == "list":
            waiting += value[1]
        elif value[0] == "map":
            waiting += [item for pair in value[1] for item in pair]
    return found


def _has_char(told: Told) -> bool:
    return any(value[0] == "char" for value in _values(told))


def _is_written_by_jms(told: Told) -> bool:
    """JMS has its own kinds of messages: the others cannot be said with it."""
    properties = told.get("properties", {})
    return (
        not told.get("annotations")
        and set(properties) <= JMS_PROPERTIES
        and properties.get("group_sequence", 0) < 2**31
        and all(value[0] in JMS_TYPES for value in told.get("application", {}).values())
        and _is_body_of_jms(told["body"])
    )


def _is_body_of_jms(body: Told) -> bool:
    """One section of data or sequence, text, a map or a list, or none."""
    kinds = {value[0] for value in _values({"body": body})}
    if "value" not in body:
        return len(_sections(body)) <= 1 and kinds <= JMS_FLAT
    if body["value"][0] not in {"map", "list"}:
        return kinds == {"string"}
    return kinds <= {*JMS_FLAT, "map"} or not kinds & {"binary", "symbol"}


def _is_read_by_jms(told: Told) -> bool:
    """Of several sections it shows the last; a char of Java has 16 bits."""
    chars = [value[1] for value in _values(told) if value[0] == "char"]
    return (
        len(_sections(told["body"])) <= 1
        and told["body"].get("value", [""])[0] != "symbol"
        and all(code < 2**16 for code in chars)
    )


def _sections(body: Told) -> list[Any]:
    sections: list[Any] = body.get("data", body.get("sequence", []))
    return sections


_CAN_WRITE: dict[str, Callable[[Told], bool]] = {
    "proton": lambda _told: True,
    "rhea": lambda told: told["body"] != {},  # it sends null for no body
    "go-amqp": lambda told: not _has_char(told),
    "fe2o3-amqp": lambda told: told["body"] != {},  # the same
    "jms": _is_written_by_jms,
}
_CAN_READ: dict[str, Callable[[Told], bool]] = {
    "proton": lambda _told: True,
    "rhea": lambda _told: True,
    "go-amqp": lambda told: not _has_char(told),
    "fe2o3-amqp": lambda _told: True,
    "jms": _is_read_by_jms,
}
