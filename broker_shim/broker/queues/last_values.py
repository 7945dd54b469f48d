"""The newest message of each key on a last-value queue. Pure.

Memory is two entries for each message on the queue that has a key: such a queue is as long as it
has keys, and what its consumers hold.
"""

from __future__ import annotations

from broker_shim.messages.header import CommonHeader


def value_of(key: str, header: CommonHeader) -> str | None:
    """Get a message's value of a key as text, so that 1 and '1' differ.

    None: it has none, and replaces nothing.
    """
    value = header.get(key)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{'text' if isinstance(value, str) else 'plain'} {value}"


class LastValues:
    """The keys of one queue.

    Attributes:
        stale: Messages that wait and are not the newest of their key: to be taken off.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._newest: dict[str, int] = {}
        self._values: dict[int, str] = {}
        self.stale: set[int] = set()

    def value_of(self, header: CommonHeader) -> str | None:
        """Get a message's value of the queue's key. See `value_of`."""
        return value_of(self._key, header)

    def newest(self, value: str) -> int | None:
        """The newest message with a value."""
        return self._newest.get(value)

    def value(self, message_id: int) -> str | None:
        """The value of a message on the queue; None if it has none, or none is known."""
        return self._values.get(message_id)

    def __contains__(self, message_id: int) -> bool:
        """True if the value of a message is known."""
        return message_id in self._values

    def note(self, message_id: int, value: str) -> int | None:
        """Note a new message; return the one that it replaces, if that is still on the queue."""
        older = self._newest.get(value)
        self._newest[value] = message_id
        self._values[message_id] = value
        return older

    def released(self, message_id: int) -> None:
        """Mark a message that waits again as stale, if there is a newer one."""
        value = self._values.get(message_id)
        if value is not None and self._newest.get(value) != message_id:
            self.stale.add(message_id)

    def ended(self, message_id: int) -> None:
        """A message left the queue."""
        self.stale.discard(message_id)
        value = self._values.pop(message_id, None)
        if value is not None and self._newest.get(value) == message_id:
            del self._newest[value]
