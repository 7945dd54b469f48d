"""A message's header as selectors, groups and last-value queues see it: names to typed values.

    name                                  of the AMQP message
    JMSPriority JMSDeliveryMode           header.priority, header.durable
    JMSMessageID JMSCorrelationID         properties, written as Qpid JMS writes them
    JMSTimestamp JMSType JMSXUserID       properties.creation-time (ms), .subject, .user-id
    JMSXGroupID JMSXGroupSeq              properties.group-id, .group-sequence
    amqp.NAME                             any field of header and properties, `-` written `_`;
                                          app_id and message_type, as SQL has them
    anything else                         an application property

Values keep the type that the sender gave them: what SQL sees is text, so they are read from the
header's bytes, when the first of them is asked for. A binary or a compound value is NULL, a UUID is
its text. A message of another protocol has what its columns have. JMSRedelivered is no name here:
it changes while a message waits, and a selector looks once.

Decision: a view is made for each reader that judges a message, and not kept with the message. Kept
views would be a copy of every header outside the budget of content in memory, in decoded size. The
cost of one is bounded by `max_header_bytes`, and readers judge in slices that are their peer's
turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from uuid import UUID

from broker_shim.amqp_1_0.composites import Header, Properties
from broker_shim.amqp_1_0.definitions import APPLICATION_PROPERTIES_SECTION
from broker_shim.listener_1_0.messages.column_text import text_of
from broker_shim.listener_1_0.messages.message import PROTOCOL
from broker_shim.messages.neutral import NeutralValue, neutral_of
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.protocol_1_0.codec.scanner import entries_at, entry_at, item_at, scalar_at
from broker_shim.protocol_1_0.codec.sections import values_before_body
from broker_shim.protocol_1_0.codec.values import Opaque, Scalar
from broker_shim.selectors import Value as Known
from sparkstore.core.records import MessageHeader

_FIELDS = {
    name.replace("-", "_"): (section.CODE, index, default)
    for section in (Header, Properties)
    for index, (name, _kind, _is_mandatory, default) in enumerate(section.FIELDS)
}
"""Section, index and AMQP's default of each field, by its name."""
_COLUMNS = frozenset({*_FIELDS} & {*MessageHeader._fields})


class AmqpCommonHeader:
    """The header of one message. Each part of it is read once, when it is first asked for.

    A few properties are looked for one by one, passing over the others. A reader who asks for more
    has all places written down first, so a selector of a thousand names costs no more than the
    header's bytes.
    """

    __slots__ = ("_columns", "_entries", "_foreign", "_known", "_values")

    def __init__(self, columns: MessageHeader) -> None:
        self._columns = columns
        self._values: dict[int, int] | None = None
        self._entries: dict[bytes, int] | None = None
        self._known: dict[str, Known] = {}
        self._foreign: Mapping[str, NeutralValue] | None = None

    @property
    def steps(self) -> int:
        """The work to look through the header, in steps of some µs."""
        return len(self._columns.header or b"") // _STEP_BYTES

    def get(self, name: str) -> Known:
        """Read the value of a name in this message; None if it has nothing by that name."""
        known = self._known
        if name not in known:
            known[name] = self._read(name)
        return known[name]

    def _read(self, name: str) -> Known:
        special = _SPECIAL.get(name)
        if special is not None:
            return special(self)
        if name in _OF_COLUMNS:
            return _OF_COLUMNS[name](self._columns)
        if name.startswith(_AMQP):
            return _known(self.field(name[len(_AMQP) :]))
        columns = self._columns
        if columns.protocol != PROTOCOL or columns.header is None:
            if self._foreign is None:
                self._foreign = neutral_of(columns).properties
            foreign_property = self._foreign.get(name)
            return None if foreign_property is None else _known(foreign_property.value)
        try:
            start = self._places().get(APPLICATION_PROPERTIES_SECTION)
            value = None if start is None else self._entry(columns.header, start, _utf8(name))
        except DecodeError:  # it was read when it came: only a damaged root has one
            return None
        return _known(value)

    def field(self, name: str) -> Scalar:
        """A field of AMQP's header or properties section."""
        columns = self._columns
        if columns.protocol != PROTOCOL or columns.header is None:
            return _column(columns, name)
        code, index, default = _FIELDS.get(name, (-1, 0, None))
        try:
            start = self._places().get(code)
            value = None if start is None else item_at(columns.header, start, index)
        except DecodeError:
            return None
        return default if value is None else value

    def _entry(self, encoded: bytes, start: int, key: bytes) -> Scalar:
        """A value of the map at `start`."""
        if self._entries is None and len(self._known) >= _ONE_BY_ONE:
            self._entries = entries_at(encoded, start)
        if self._entries is None:
            return entry_at(encoded, start, key)
        at = self._entries.get(key)
        return None if at is None else scalar_at(encoded, at)[0]

    def _places(self) -> dict[int, int]:
        """Find where the value of each section begins."""
        if self._values is None:
            self._values = values_before_body(self._columns.header or b"")
        return self._values


_STEP_BYTES = 64
_ONE_BY_ONE = 3
"""Names that are looked for in turn, before it pays to write all places down."""


def _column(columns: MessageHeader, name: str) -> Scalar:
    if name == "creation_time":
        return None if columns.created_at is None else columns.created_at // 1000
    if name == "message_id":
        return columns.amqp_message_id
    value: Scalar = getattr(columns, name, None) if name in _COLUMNS else None
    return value


def _known(value: Scalar) -> Known:
    """A value as a selector knows it."""
    if isinstance(value, UUID):
        return str(value)
    return None if isinstance(value, bytes) else value


def _jms_id(value: Scalar, *, is_message_id: bool) -> Known:
    """An id as Qpid JMS shows it to an application, which then selects by that."""
    match value:
        case None | Opaque():
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
_SPECIAL: dict[str, Callable[[AmqpCommonHeader], Known]] = {
    "JMSPriority": lambda it: _known(it.field("priority")),
    "JMSDeliveryMode": lambda it: "PERSISTENT" if it.field("durable") is True else "NON_PERSISTENT",
    "JMSMessageID": lambda it: _jms_id(it.field("message_id"), is_message_id=True),
    "JMSCorrelationID": lambda it: _jms_id(it.field("correlation_id"), is_message_id=False),
    "JMSTimestamp": lambda it: _known(it.field("creation_time")),
    "JMSType": lambda it: _known(it.field("subject")),
    "JMSXUserID": lambda it: text_of(it.field("user_id")),
    "JMSXGroupID": lambda it: _known(it.field("group_id")),
    "JMSXGroupSeq": lambda it: _known(it.field("group_sequence")),
}
_OF_COLUMNS: dict[str, Callable[[MessageHeader], Known]] = {
    f"{_AMQP}app_id": lambda columns: columns.app_id,
    f"{_AMQP}message_type": lambda columns: columns.message_type,
}
"""What AMQP 1.0 has no field for."""


@lru_cache(1024)
def _utf8(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")
