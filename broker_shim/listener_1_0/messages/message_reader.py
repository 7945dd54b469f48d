"""Reads the messages of one link: one that begins as the one before it is not read anew. Pure.

Most messages of a sender differ in their content alone. What is before the content, its *lead*,
says all that `parse` finds: sections, types and columns, and how long the content is. So a message
of the same lead and the same length has the same header, and its content is what comes after.

Why that is the same as to parse it: `message.parse` looks at bytes of the content for text only,
which has to be UTF-8; that is looked at here, too. All else that it reads is in the lead, with one
exception: a time to live counts from now, so a header that expires is never taken for the next
one's. Nor is that of a message with anything after its content.

Two in a row have to be alike before the next is compared: to a sender whose messages all differ,
by an id or a time, the comparison costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker_shim.listener_1_0.messages.message import located
from sparkstore.core.records import MessageHeader

_ALIKE = frozenset({"data", "binary", "text"})
"""Types of messages whose content is one piece that the lead tells the length of."""


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
        self.header: MessageHeader | None = None

    def read(self, encoded: bytes, now_us: int) -> tuple[MessageHeader, bytes]:
        """The header and the content of a message that came at `now_us`, UTC µs.

        Raises:
            DecodeError: It is not a message, as `parse` says.
        """
        header, first, end = located(encoded, now_us=now_us, most_header_bytes=self._most)
        lead = header.header or b""
        is_last = end == len(encoded)
        if is_last and header.expires_at is None and header.message_type in _ALIKE:
            is_repeated = end == self._byte_count and lead == self._lead
            self.header = header if is_repeated else None
            self._lead, self._byte_count = lead, end
            self._is_text = header.message_type == "text"
        else:
            self._byte_count, self.header = -1, None
        return header, encoded[first:end]

    def alike(self, messages: Iterable[bytes]) -> list[bytes]:
        """The contents of the first of these messages, as far as they have `header`."""
        lead, byte_count, found = self._lead, self._byte_count, list[bytes]()
        start = len(lead)
        for encoded in messages:
            if len(encoded) != byte_count or not encoded.startswith(lead):
                break
            content = encoded[start:]
            if self._is_text and not _is_utf8(content):
                break  # `parse` says what is wrong
            found.append(content)
        return found


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
