"""A request to `$management` and its answer, as AMQP 1.0 messages. Pure.

request   properties: reply-to, message-id or correlation-id
          application properties: operation; type, name, identity, ... as the operation asks
          body: a map, as amqp-value; none if the operation asks for none
answer    properties: correlation-id
          application properties: statusCode (int), statusDescription, ...
          body: a map, or a list
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from broker_shim.amqp_1_0.composites import Properties
from broker_shim.amqp_1_0.definitions import AMQP_VALUE_SECTION, APPLICATION_PROPERTIES_SECTION
from broker_shim.amqp_1_0.primitives import Int
from broker_shim.protocol_1_0.codec.composites import encoded_composite
from broker_shim.protocol_1_0.codec.decoder import read
from broker_shim.protocol_1_0.codec.encoder import described, write
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.protocol_1_0.codec.sections import BODY, entries_of, fields_of, sections_of


class ManagementRequest(NamedTuple):
    """A request of `$management`, as it came.

    Attributes:
        reply_to: Where the answer goes; None: nobody is told.
        correlation_id: What the answer says that it answers.
        properties: The application properties.
        body: What the body says; empty if there is none.
    """

    reply_to: str | None
    correlation_id: Any
    properties: Mapping[str, Any]
    body: Mapping[Any, Any]

    def text(self, name: str) -> str:
        """An application property that is text; "" if it is left out, or is none."""
        value = self.properties.get(name)
        return str(value) if isinstance(value, str) else ""

    def number(self, name: str, default: int) -> int:
        """An application property that is a number from 0 on; the default if it is none."""
        value = self.properties.get(name)
        is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        return int(value or 0) if is_number else default

    def is_set(self, name: str) -> bool:
        """Whether an application property is there and true."""
        return self.properties.get(name) is True


class ManagementAnswer(NamedTuple):
    """The answer to a request: its status and content.

    Attributes:
        status: As of HTTP.
        text: One line for people.
        body: A map or a list.
        properties: More application properties.
    """

    status: int
    text: str
    body: Mapping[str, Any] | list[Any] = MappingProxyType({})
    properties: Mapping[str, Any] = MappingProxyType({})


def request_of(encoded: bytes) -> ManagementRequest:
    """Read a request from a message of AMQP 1.0.

    Raises:
        DecodeError: It is no message, or its body is no map.
    """
    fields: list[Any] = []
    properties: dict[str, Any] = {}
    body: Any = None
    for code, _start, value, end in sections_of(encoded):
        if code == Properties.CODE:
            fields = fields_of(Properties, encoded, value)
        elif code == APPLICATION_PROPERTIES_SECTION:
            properties = dict(entries_of(encoded, value))
        elif code == AMQP_VALUE_SECTION:
            body, read_to = read(encoded, value)
            if read_to != end:
                raise DecodeError("the body of a request has more than one value")
        elif code in BODY:
            raise DecodeError("the body of a request is a map, as amqp-value")
    if not isinstance(body, dict | None):
        raise DecodeError("the body of a request is a map")
    given = Properties(*fields)
    correlation_id = given.message_id if given.correlation_id is None else given.correlation_id
    reply_to = None if given.reply_to is None else str(given.reply_to)
    return ManagementRequest(reply_to, correlation_id, properties, body or {})


def encoded_answer(answer: ManagementAnswer, correlation_id: Any) -> bytes:
    """Write the message of an answer."""
    properties = {
        "statusCode": Int(answer.status),
        "statusDescription": answer.text,
        **answer.properties,
    }
    body = answer.body if isinstance(answer.body, list) else dict(answer.body)
    return b"".join(
        [
            encoded_composite(Properties(correlation_id=correlation_id)),
            described(APPLICATION_PROPERTIES_SECTION, write(properties)),
            described(AMQP_VALUE_SECTION, write(body)),
        ]
    )
