"""python-qpid-proton as a program: see README.md beside this file for what it is told and says."""

from __future__ import annotations

import json
import select
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from uuid import UUID

import proton
from proton import Data, Delivery, Described, Handler, Message, SSLDomain
from proton.utils import BlockingConnection, BlockingReceiver, SendException

TIMEOUT_S, CLOSE_S = 30, 1
IDLE_S, HEARTBEAT_S = 10, 0.1
DATA, SEQUENCE, VALUE = 0x75, 0x76, 0x77
INTEGERS = {
    "ubyte": proton.ubyte,
    "ushort": proton.ushort,
    "uint": proton.uint,
    "ulong": proton.ulong,
    "byte": proton.byte,
    "short": proton.short,
    "int": proton.int32,
    "long": int,
}
NAME_OF_INTEGER = {kind: name for name, kind in INTEGERS.items()}
OUTCOMES = {
    "accept": (Delivery.ACCEPTED, False, False),
    "reject": (Delivery.REJECTED, False, False),
    "release": (Delivery.RELEASED, False, False),
    "fail": (Delivery.MODIFIED, True, False),
    "undeliverable": (Delivery.MODIFIED, True, True),
}
IDS = {"message_id": "id", "correlation_id": "correlation_id"}
PLAIN = {
    "to": "address",
    "subject": "subject",
    "reply_to": "reply_to",
    "content_type": "content_type",
    "content_encoding": "content_encoding",
    "group_id": "group_id",
    "group_sequence": "group_sequence",
    "reply_to_group_id": "reply_to_group_id",
}
TIMES = {"absolute_expiry_time": "expiry_time", "creation_time": "creation_time"}


def value_of(told: list[Any]) -> Any:
    """[type, content] → what proton sends as that type."""
    name, content = told[0], told[1] if len(told) > 1 else None
    if name in INTEGERS:
        return INTEGERS[name](int(content))
    return WRITE[name](content) if name in WRITE else content


def told_of(value: Any) -> list[Any]:
    """What proton read → [type, content]."""
    if isinstance(value, int) and type(value) in NAME_OF_INTEGER:
        return [NAME_OF_INTEGER[type(value)], str(int(value))]
    name, told = next(READ[kind] for kind in type(value).__mro__ if kind in READ)
    return [name] if name == "null" else [name, told(value)]


WRITE: dict[str, Callable[[Any], Any]] = {
    "float": lambda bits: proton.float32(struct.unpack(">f", bytes.fromhex(bits))[0]),
    "double": lambda bits: struct.unpack(">d", bytes.fromhex(bits))[0],
    "char": lambda code: proton.char(chr(code)),
    "timestamp": lambda ms: proton.timestamp(int(ms)),
    "uuid": UUID,
    "binary": bytes.fromhex,
    "symbol": proton.symbol,
    "list": lambda items: [value_of(item) for item in items],
    "map": lambda pairs: {value_of(key): value_of(item) for key, item in pairs},
}
READ: dict[type, tuple[str, Callable[[Any], Any]]] = {
    type(None): ("null", bool),
    bool: ("boolean", bool),
    proton.timestamp: ("timestamp", lambda ms: str(int(ms))),
    proton.float32: ("float", lambda number: struct.pack(">f", number).hex()),
    float: ("double", lambda number: struct.pack(">d", number).hex()),
    proton.char: ("char", ord),
    proton.symbol: ("symbol", str),
    str: ("string", str),
    UUID: ("uuid", lambda value: value.hex),
    bytes: ("binary", bytes.hex),
    memoryview: ("binary", lambda view: bytes(view).hex()),
    list: ("list", lambda items: [told_of(item) for item in items]),
    dict: ("map", lambda pairs: [[told_of(k), told_of(v)] for k, v in pairs.items()]),
}


def encoded(told: dict[str, Any]) -> bytes:
    """A message as proton encodes it; body sections after the first by its codec alone."""
    message = Message()
    header, properties = told.get("header", {}), told.get("properties", {})
    message.durable = header.get("durable", False)
    message.priority = header.get("priority", Message.DEFAULT_PRIORITY)
    message.ttl = header.get("ttl", 0) / 1000
    _write_properties(message, properties)
    if "application" in told:
        message.properties = {k: value_of(v) for k, v in told["application"].items()}
    if "annotations" in told:
        items = told["annotations"].items()
        message.annotations = {proton.symbol(k): value_of(v) for k, v in items}
    sections = list(_body_sections(told.get("body", {})))
    if sections and sections[0].value is not None:  # proton leaves out a body that is null
        first = sections.pop(0)
        message.inferred, message.body = first.descriptor != VALUE, first.value
    return message.encode() + b"".join(map(_section, sections))


def _write_properties(message: Message, told: dict[str, Any]) -> None:
    for name, content in told.items():
        if name in IDS:
            setattr(message, IDS[name], value_of(content))
        elif name in TIMES:
            setattr(message, TIMES[name], content / 1000)
        elif name == "user_id":
            message.user_id = bytes.fromhex(content)
        else:
            setattr(message, PLAIN[name], content)


def _body_sections(body: dict[str, Any]) -> Iterator[Described]:
    for content in body.get("data", ()):
        yield Described(proton.ulong(DATA), bytes.fromhex(content))
    for items in body.get("sequence", ()):
        yield Described(proton.ulong(SEQUENCE), [value_of(item) for item in items])
    if "value" in body:
        yield Described(proton.ulong(VALUE), value_of(body["value"]))


def _section(section: Described) -> bytes:
    data = Data()
    data.put_object(section)
    return bytes(data.encode())


def told_message(raw: bytes) -> dict[str, Any]:
    """A received message; its body by proton's codec, as `Message` shows one section only."""
    message = Message()
    message.decode(raw)
    return {
        "header": {
            "durable": message.durable,
            "priority": message.priority,
            "ttl": round(message.ttl * 1000),
            "delivery_count": message.delivery_count,
        },
        "annotations": {str(k): told_of(v) for k, v in (message.annotations or {}).items()},
        "properties": _read_properties(message),
        "application": {k: told_of(v) for k, v in (message.properties or {}).items()},
        "body": _read_body(raw),
    }


def _read_properties(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, attribute in IDS.items():
        value = getattr(message, attribute)
        if value is not None:
            found[name] = told_of(proton.ulong(value) if isinstance(value, int) else value)
    found |= {name: getattr(message, attribute) for name, attribute in PLAIN.items()}
    found |= {name: round(getattr(message, where) * 1000) for name, where in TIMES.items()}
    found["user_id"] = bytes(message.user_id or b"").hex()
    # proton 0.40 reads a content type that is not there as the symbol "None"
    return {name: value for name, value in found.items() if value and value != "None"}


def _read_body(raw: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while raw:
        data = Data()
        raw = raw[data.decode(raw) :]
        data.rewind()
        data.next()
        section = data.get_object()
        told = told_of(section.value) if DATA <= section.descriptor <= VALUE else []
        if section.descriptor == DATA:
            found.setdefault("data", []).append(told[1])
        elif section.descriptor == SEQUENCE:
            found.setdefault("sequence", []).append(told[1])
        elif section.descriptor == VALUE:
            found["value"] = told
    return found


class Client:
    """One connection, at most one receiver."""

    def __init__(self) -> None:
        self._connection: BlockingConnection | None = None
        self._receiver: BlockingReceiver | None = None
        self._held = _Held()

    def connect(self, host: str, port: int, **security: str) -> dict[str, Any]:
        """Open a connection."""
        scheme, found = "amqp", {}
        if "ca" in security:
            scheme, domain = "amqps", SSLDomain(SSLDomain.MODE_CLIENT)
            domain.set_trusted_ca_db(security["ca"])
            domain.set_peer_authentication(SSLDomain.VERIFY_PEER)  # by name it takes no IP
            if "certificate" in security:
                domain.set_credentials(security["certificate"], security["key"], None)
            found["ssl_domain"] = domain
        if "mechanism" in security:
            found["allowed_mechs"] = security["mechanism"]
        names = {"user": security.get("user"), "password": security.get("password")}
        found |= {name: value for name, value in names.items() if value is not None}
        url = f"{scheme}://{host}:{port}"
        self._connection = BlockingConnection(url, timeout=TIMEOUT_S, **found)
        return {}

    def disconnect(self) -> dict[str, Any]:
        """Close it; if the broker is gone, `close` waits for an answer and then lets go."""
        connection, self._connection, self._receiver = self._connection, None, None
        if connection is not None:
            connection.timeout = CLOSE_S
            with suppress(proton.Timeout):
                connection.close()
        return {}

    def keep_alive(self) -> None:
        """What other clients do of themselves while nothing is asked of them."""
        if self._connection is not None:
            with suppress(proton.Timeout, proton.ConnectionException):  # as the next command says
                self._connection.wait(lambda: False, timeout=HEARTBEAT_S)

    def send(self, address: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """Send each and wait for what becomes of it."""
        assert self._connection is not None
        sender = self._connection.create_sender(address)
        outcomes = []
        for told in messages:
            try:
                sender.send(_Encoded(encoded(told)))
                outcomes.append("accepted")
            except SendException:
                outcomes.append("rejected")
        sender.close()
        return {"outcomes": outcomes}

    def open(self, address: str, count: int) -> dict[str, Any]:
        """Open a receiver with credit for so many messages."""
        assert self._connection is not None
        self._held = _Held()
        self._receiver = self._connection.create_receiver(address, count, handler=self._held)
        return {}

    def receive(self, count: int) -> dict[str, Any]:
        """Wait until it holds so many."""
        assert self._connection is not None
        held = self._held.held
        self._connection.wait(lambda: len(held) >= count, timeout=TIMEOUT_S)
        return {"messages": [told_message(raw) for _delivery, raw in held]}

    def settle(self, outcomes: list[str]) -> dict[str, Any]:
        """Decide on what is held, in order."""
        assert self._receiver is not None
        for word, (delivery, _raw) in zip(outcomes, self._held.held, strict=True):
            outcome, failed, undeliverable = OUTCOMES[word]
            delivery.local.failed, delivery.local.undeliverable = failed, undeliverable
            delivery.update(outcome)
            delivery.settle()
        self._receiver.close()
        return {}


class _Held(Handler):
    """What came and is not settled, with its bytes: proton's own fetcher keeps no bytes."""

    def __init__(self) -> None:
        self.held: list[tuple[Delivery, bytes]] = []

    def on_delivery(self, event: Any) -> None:
        """Keep it once it is whole."""
        delivery = event.delivery
        if delivery.readable and not delivery.partial:
            self.held.append((delivery, event.link.recv(delivery.pending) or b""))
            event.link.advance()


class _Encoded:
    """What a sender takes for a message: the bytes are there already."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def send(self, sender: proton.Sender, tag: str | None = None) -> Delivery:
        """As `Message.send`."""
        delivery = sender.delivery(tag or sender.delivery_tag())
        sender.stream(self._content)
        sender.advance()
        return delivery


def main() -> None:
    """Answer each line."""
    client = Client()
    while True:
        while not select.select([sys.stdin], [], [], IDLE_S)[0]:
            client.keep_alive()
        line = sys.stdin.readline()
        if not line:
            return
        command = json.loads(line)
        try:
            answer = getattr(client, command.pop("do"))(**command)
        except Exception as reason:  # noqa: BLE001  # whatever it is, the test wants to see it
            answer = {"error": f"{type(reason).__name__}: {reason}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
