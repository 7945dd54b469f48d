"""A message's header as selectors, groups and last-value queues see it: names to typed values.

    name                                  of the AMQP message
    JMSPriority JMSDeliveryMode           header.priority, header.durable
    JMSMessageID JMSCorrelationID         properties, written as Qpid JMS writes them
    JMSTimestamp JMSType JMSXUserID       properties.creation-time (ms), .subject, .user-id
    JMSXGroupID JMSXGroupSeq              properties.group-id, .group-sequence
    amqp.NAME                             any field of header and properties, `-` written `_`
    anything else                         an application property

Values keep the type that the sender gave them: what SQL sees is text, so they are read from the
header's bytes, when the first of them is asked for. A binary or a compound value is NULL, a UUID is
its text. A message of another protocol has what its columns have. JMSRedelivered is no name here:
it changes while a message waits, and a selector looks once.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from broker_shim.embedded.amqp_message import DEFAULT_PRIORITY, PROTOCOL, values_of
from broker_shim.embedded.amqp_sections import APPLICATION_PROPERTIES, HEADER, PROPERTIES
from broker_shim.embedded.amqp_types import DecodeError, Encoded, Value, items_at, text_of
from broker_shim.selectors import Value as Known
from sparkstore.records import MessageHeader

_HEADER_FIELDS = ("durable", "priority", "ttl", "first_acquirer", "delivery_count")
_PROPERTIES_FIELDS = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "absolute_expiry_time",
    "creation_time",
    "group_id",
    "group_sequence",
    "reply_to_group_id",
)
_DEFAULTS: dict[str, Value] = {
    "durable": False,
    "priority": DEFAULT_PRIORITY,
    "first_acquirer": False,
    "delivery_count": 0,
}


class CommonHeader:
    """The header of one message, read when it is asked for."""

    __slots__ = ("_columns", "_fields", "_properties")

    def __init__(self, columns: MessageHeader) -> None:
        self._columns = columns
        self._fields: dict[str, Value] | None = None
        self._properties: dict[Value, Value] = {}

    def get(self, name: str) -> Known:
        """What a name stands for in this message; None if it has nothing by that name."""
        if self._fields is None:
            self._fields = self._read()
        special = _SPECIAL.get(name)
        if special is not None:
            return special(self._fields)
        if name.startswith(_AMQP):
            return _known(self._fields.get(name[len(_AMQP) :]))
        return _known(self._properties.get(name))

    def _read(self) -> dict[str, Value]:
        columns = self._columns
        if columns.protocol != PROTOCOL or columns.header is None:
            return self._read_columns()
        encoded, fields = columns.header, dict(_DEFAULTS)
        try:
            values = values_of(columns)
            for code, names in ((HEADER, _HEADER_FIELDS), (PROPERTIES, _PROPERTIES_FIELDS)):
                if code in values:
                    items = items_at(encoded, values[code])[0]
                    told = zip(names, items, strict=False)
                    fields.update((field, item) for field, item in told if item is not None)
            if APPLICATION_PROPERTIES in values:
                items = items_at(encoded, values[APPLICATION_PROPERTIES])[0]
                self._properties = dict(zip(items[::2], items[1::2], strict=True))
        except (DecodeError, ValueError):  # it was read when it came: only a damaged root has one
            return dict(_DEFAULTS)
        return fields

    def _read_columns(self) -> dict[str, Value]:
        columns = self._columns
        self._properties = dict(columns.properties)
        created = columns.created_at
        return {
            "durable": columns.durable,
            "priority": columns.priority,
            "message_id": columns.amqp_message_id,
            "user_id": columns.user_id,
            "to": columns.to,
            "subject": columns.subject,
            "reply_to": columns.reply_to,
            "correlation_id": columns.correlation_id,
            "content_type": columns.content_type,
            "content_encoding": columns.content_encoding,
            "creation_time": None if created is None else created // 1000,
            "group_id": columns.group_id,
        }


def _known(value: Value) -> Known:
    """A value as a selector knows it."""
    if isinstance(value, UUID):
        return str(value)
    return None if isinstance(value, bytes) else value


def _jms_id(value: Value, *, is_message_id: bool) -> Known:
    """An id as Qpid JMS shows it to an application, which then selects by that."""
    match value:
        case None | Encoded():
            return None
        case UUID():
            return f"ID:AMQP_UUID:{value}"
        case bytes():
            return f"ID:AMQP_BINARY:{value.hex().upper()}"
        case int():
            return f"ID:AMQP_ULONG:{value}"
        case str() if is_message_id and not value.startswith("ID:"):
            return f"ID:AMQP_NO_PREFIX:{value}"
        case _:
            return str(value)


_AMQP = "amqp."
_SPECIAL: dict[str, Callable[[dict[str, Value]], Known]] = {
    "JMSPriority": lambda fields: _known(fields.get("priority")),
    "JMSDeliveryMode": lambda f: "PERSISTENT" if f.get("durable") is True else "NON_PERSISTENT",
    "JMSMessageID": lambda fields: _jms_id(fields.get("message_id"), is_message_id=True),
    "JMSCorrelationID": lambda fields: _jms_id(fields.get("correlation_id"), is_message_id=False),
    "JMSTimestamp": lambda fields: _known(fields.get("creation_time")),
    "JMSType": lambda fields: _known(fields.get("subject")),
    "JMSXUserID": lambda fields: text_of(fields.get("user_id")),
    "JMSXGroupID": lambda fields: _known(fields.get("group_id")),
    "JMSXGroupSeq": lambda fields: _known(fields.get("group_sequence")),
}


def common_header(header: MessageHeader) -> CommonHeader:
    """A header to look names up in."""
    return CommonHeader(header)
