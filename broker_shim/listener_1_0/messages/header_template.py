"""Headers of one sender that differ in message-id and creation-time alone, read by place. Pure.

Most libraries give each message an id and a time of its own, and leave the rest as it was. Of such
a message the two values are read, and all other bytes before the content are compared.

Why that is the same as to parse it: `message.parse` took a message that has these bytes, and the
constructors and lengths of the two values are among them. So sections, lists and lengths are where
they were. The values themselves cannot be wrong but for text that is not UTF-8, which is looked at
here. They stand in columns of their own, and in the header as it came.
"""

from __future__ import annotations

from broker_shim.amqp_1_0.composites import Properties
from broker_shim.listener_1_0.messages.column_text import text_of
from broker_shim.listener_1_0.messages.message import (
    CREATED_AT,
    MESSAGE_ID,
    REST,
    header_sections,
    in_range,
)
from broker_shim.protocol_1_0.codec.decoder import SCALARS, UNREADABLE
from broker_shim.protocol_1_0.codec.scanner import content_start, places_of, skip
from sparkstore.core.records import MessageHeader

_CREATION_TIME = 9
"""The number of the field among those of the properties section (AMQP 1.0, 3.2.4)."""
_TIMESTAMP = 0x83
_new = tuple.__new__  # a NamedTuple's own constructor is a call of Python for each


class HeaderTemplate:
    """The header of a message, with the places of its message-id and its creation-time."""

    def __init__(self, header: MessageHeader, id_at: int, time_at: int) -> None:
        """Take a header whose values begin at these places; `time_at` is 0 if it has no time."""
        lead = header.header or b""
        self._columns, self._lead_bytes = [*header], len(lead)
        self._read_id, self._id_at = SCALARS[lead[id_at]], id_at + 1
        self._id_start, self._id_end = content_start(lead, id_at), skip(lead, id_at)
        self._time_start, self._time_end = (time_at + 1, time_at + 9) if time_at else (0, 0)
        self._before = lead[: self._id_start]
        self._between = lead[self._id_end : self._time_start or len(lead)]
        self._after = lead[self._time_end :] if time_at else b""

    def fill(self, encoded: bytes) -> MessageHeader | None:
        """The header of a message that differs in these values alone; None of any other.

        Args:
            encoded: The whole message; its content is as long as that of the template's.
        """
        start, end = self._time_start, self._lead_bytes
        if not encoded.startswith(self._before) or not encoded.startswith(
            self._between, self._id_end
        ):
            return None
        columns = self._columns.copy()
        if start:
            if not encoded.startswith(self._after, self._time_end):
                return None
            created_ms = int.from_bytes(encoded[start : self._time_end], "big", signed=True)
            columns[CREATED_AT] = in_range(created_ms * 1000)
        try:
            value, _end = self._read_id(encoded, self._id_at, 0)
        except UNREADABLE:
            return None  # `parse` says what is wrong
        columns[MESSAGE_ID], columns[REST] = text_of(value), encoded[:end]
        return _new(MessageHeader, columns)


def template_of(header: MessageHeader) -> HeaderTemplate | None:
    """The template that a message makes for those after it; None if it has no message-id."""
    lead = header.header or b""
    if header.amqp_message_id is None:
        return None
    value = next(value for code, _, value, _ in header_sections(header) if code == Properties.CODE)
    places = places_of(lead, value)
    time_at = places[_CREATION_TIME] if len(places) > _CREATION_TIME else 0
    if time_at and lead[time_at] != _TIMESTAMP:
        time_at = 0
    return HeaderTemplate(header, places[0], time_at)
