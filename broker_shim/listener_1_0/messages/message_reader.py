"""Reads the messages of one link: one that begins as the one before it is not read anew. Pure.

Most messages of a sender differ in their content alone. What is before the content, its *lead*,
says all that `parse` finds: sections, types and columns, and how long the content is. So a message
of the same lead and the same length has the same header, and its content is what comes after.

Why that is the same as to parse it: `message.parse` looks at bytes of the content for text only,
which has to be UTF-8; that is looked at here, too. All else that it reads is in the lead, with one
exception: a time to live counts from now, so a header that expires is never taken for the next
one's. Nor is that of a message with anything after its content.

Two in a row have to be alike before the next is compared: to a sender whose messages all differ
the comparison costs nothing. Messages that differ in an id and a time alone are read by a template
(`header_template`), which two of the same lengths make.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker_shim.listener_1_0.messages.header_template import HeaderTemplate, template_of
from broker_shim.listener_1_0.messages.message import located
from sparkstore.core.records import MessageHeader

_ALIKE = frozenset({"data", "binary", "text"})
"""Types of messages whose content is one piece that the lead tells the length of."""
_PASSES = 32
"""A template that fitted no message is made anew after so many: some senders change all fields."""


class MessageReader:
    """Reads messages, each with the one before it in mind.

    Attributes:
        header: The header of each message that `alike` finds; None while it need not be asked: the
            last two messages were not alike.
    """

    def __init__(self, most_header_bytes: int) -> None:
        """Begin with no message read; headers may be as long as `parse` is told."""
        self._most = most_header_bytes
        self._lead, self._byte_count = b"", -1
        self._is_text = False
        self._template: HeaderTemplate | None = None
        self._passes = 0
        self.header: MessageHeader | None = None

    def read(self, encoded: bytes, now_us: int) -> tuple[MessageHeader, bytes]:
        """The header and the content of a message that came at `now_us`, UTC µs.

        Raises:
            DecodeError: It is not a message, as `parse` says.
        """
        end, template = len(encoded), self._template
        header = template.fill(encoded) if template and end == self._byte_count else None
        if header is not None:
            content = encoded[len(self._lead) :]
            if not self._is_text or _is_utf8(content):
                self._passes = 0
                self._noted(header, end)
                return header, content
        header, first, end = located(encoded, now_us=now_us, most_header_bytes=self._most)
        self._template = None
        if end < len(encoded) or header.expires_at is not None or header.message_type not in _ALIKE:
            self._byte_count, self.header = -1, None
            return header, encoded[first:end]
        if end == self._byte_count and first == len(self._lead):
            self._template = template_of(header) if not self._passes else None
            self._passes = (self._passes or _PASSES) - 1
        self._noted(header, end)
        self._is_text = header.message_type == "text"
        return header, encoded[first:end]

    def _noted(self, header: MessageHeader, byte_count: int) -> None:
        """Note a message that the next one may be like."""
        lead = header.header or b""
        is_repeated = byte_count == self._byte_count and lead == self._lead
        self.header = header if is_repeated else None
        self._lead, self._byte_count = lead, byte_count

    def alike(self, messages: Iterable[bytes]) -> list[bytes]:
        """The contents of the first of these messages, as far as they have `header`."""
        lead, byte_count, contents = self._lead, self._byte_count, list[bytes]()
        start = len(lead)
        for encoded in messages:
            if len(encoded) != byte_count or not encoded.startswith(lead):
                break
            content = encoded[start:]
            if self._is_text and not _is_utf8(content):
                break  # `parse` says what is wrong
            contents.append(content)
        return contents


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
