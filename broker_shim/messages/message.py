"""One message, however many queues it is on and whoever holds it. One thread.

A `Message` is there while somebody has a reference or an interest, and is the same object to all
of them; it is immutable, so nobody sees another's changes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from weakref import WeakValueDictionary

from broker_shim.messages.reference import Interest, Reference
from broker_shim.messages.residency import Content, OnLoaded, Residency

Post = Callable[[Callable[[], None]], None]
"""post(call): have a call made on the one thread; itself safe from any thread, at any time."""


class Message:
    """See above. Made by `Messages.get`.

    Attributes:
        message_id: Its id in the store.
    """

    __slots__ = ("__weakref__", "_holds", "_messages", "message_id")

    def __init__(self, message_id: int, messages: Messages) -> None:
        self.message_id = message_id
        self._messages = messages
        self._holds: dict[int, str] = {}

    @property
    def holders(self) -> list[str]:
        """Who has a reference, in the order in which they took it; for debugging."""
        return list(self._holds.values())

    def reference(self, holder: str) -> Reference:
        """A new reference by a named holder; release it."""
        number = self._messages.next_number()
        end = partial(self._end_reference, number)
        reference = Reference(self.message_id, holder, end, partial(self._messages.post, end))
        self._holds[number] = holder
        self._messages.referred(self)
        return reference

    def interest(self, holder: str) -> Interest:
        """A new interest by a named holder; release it. The content begins to be loaded."""
        residency, message_id = self._messages.residency, self.message_id
        residency.want(message_id)
        end = partial(residency.unwant, message_id)
        return Interest(message_id, holder, end, partial(self._messages.post, end))

    def when_here(self, call: OnLoaded) -> None:
        """Call with header and content when they are in memory; an interest must be held."""
        self._messages.residency.when_here(self.message_id, call)

    def content_now(self) -> Content | None:
        """Header and content if they are in memory."""
        return self._messages.residency.get(self.message_id)

    def read_content(self, offset: int, buffer: memoryview) -> int:
        """Write content from `offset` on into a buffer; how many bytes, 0 at the end.

        Quick with an interest whose content has come, else it waits for the store.

        Raises:
            StoreError: It cannot be read.
        """
        part = self._messages.residency.read(self.message_id, offset, len(buffer))
        buffer[: len(part)] = part
        return len(part)

    def _end_reference(self, number: int) -> None:
        del self._holds[number]
        if not self._holds:
            self._messages.unreferred(self)


class Messages:
    """All messages that somebody holds, by id: one object each.

    Attributes:
        residency: Which content is in memory.
        post: See `Post`.
    """

    def __init__(self, residency: Residency, post: Post) -> None:
        self.residency = residency
        self.post = post
        self._known: WeakValueDictionary[int, Message] = WeakValueDictionary()
        self._referred: dict[int, Message] = {}
        self._number = 0

    def get(self, message_id: int) -> Message:
        """The message of an id: the same object for as long as anybody has it."""
        message = self._known.get(message_id)
        if message is None:
            message = self._known[message_id] = Message(message_id, self)
        return message

    def holders(self) -> dict[int, list[str]]:
        """Who holds what, by message id, for debugging."""
        return {message_id: message.holders for message_id, message in self._referred.items()}

    def next_number(self) -> int:
        """Of a new reference."""
        self._number += 1
        return self._number

    def referred(self, message: Message) -> None:
        """It has a holder: it stays the one object of its id."""
        self._referred[message.message_id] = message

    def unreferred(self, message: Message) -> None:
        """Its last holder let go."""
        self._referred.pop(message.message_id, None)
