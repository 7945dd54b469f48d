"""How much a consumer takes, in messages and in bytes. Pure.

A message is handed out if there is credit for one more, and for all of its bytes. One that the
bytes do not cover is not passed over for a smaller one behind it: the consumer waits, without any
credit, until it is given bytes again. So nothing overtakes a large message.
"""

from __future__ import annotations

_MANY = 1 << 30
"""What is told of credit without a limit."""


class ConsumerCredit:
    """Credit of one consumer; it begins with none.

    Attributes:
        messages: How many more it takes; None: any number.
        content_bytes: How many bytes more; None: any number.
    """

    __slots__ = ("_is_short", "content_bytes", "messages")

    def __init__(self, messages: int | None = 0, content_bytes: int | None = 0) -> None:
        self.messages = messages
        self.content_bytes = content_bytes
        self._is_short = False

    @property
    def count(self) -> int:
        """The number of messages that may go now, if their bytes allow: `Consumer.credit`."""
        if self._is_short or self.content_bytes == 0:
            return 0
        return _MANY if self.messages is None else self.messages

    def grant_messages(self, count: int | None) -> None:
        """Give credit for so many messages more; None: without a limit from now on."""
        self.messages = _more(self.messages, count)

    def grant_bytes(self, count: int | None) -> None:
        """Give credit for so many bytes more; None: without a limit from now on."""
        self.content_bytes = _more(self.content_bytes, count)
        self._is_short = False

    def stop(self) -> None:
        """Take all credit back, so that nothing more is handed out."""
        self.messages = self.content_bytes = 0
        self._is_short = False

    def covers(self, message_bytes: int) -> bool:
        """True if the next message may be handed out; else there is no credit until bytes come."""
        is_covered = self.content_bytes is None or message_bytes <= self.content_bytes
        self._is_short = not is_covered
        return is_covered

    def spend(self, message_bytes: int, count: int = 1) -> None:
        """Take the credit of messages that are handed out, of so many bytes in all."""
        if self.messages is not None:
            self.messages -= count
        if self.content_bytes is not None:
            self.content_bytes -= message_bytes

    def restore(self, message_bytes: int, count: int = 1) -> None:
        """Give back the credit of messages, where credit is a window."""
        self.grant_messages(count)
        self.grant_bytes(message_bytes)


def _more(left: int | None, count: int | None) -> int | None:
    return None if left is None or count is None else left + count
