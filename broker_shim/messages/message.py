"""Share one message among all queues and holders. One thread.

A `Message` is there while somebody has a reference or an interest, and is the same object to all
of them; it is immutable, so nobody sees another's changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter, methodcaller

from broker_shim.messages.reference import Hold, Interest, Reference
from broker_shim.messages.residency import LoadedMessage, OnLoaded, Residency

_id_of = attrgetter("message_id")

Post = Callable[[Callable[[], None]], None]
"""post(call): have a call made on the one thread; itself safe from any thread, at any time."""


class Message:
    """A message in the store, and the holds on it. `Messages.reference` gives the first hold.

    Attributes:
        message_id: Its id in the store.
    """

    __slots__ = ("_holders", "_interested", "_messages", "_number", "message_id")

    def __init__(self, message_id: int, messages: Messages) -> None:
        self.message_id = message_id
        self._messages = messages
        self._holders: dict[int, str] = {}
        self._interested: set[int] = set()
        self._number = 0

    @property
    def holders(self) -> list[str]:
        """Return the holders of references, in the order in which they took them; for debugging."""
        return list(self._holders.values())

    def reference(self, holder: str) -> Reference:
        """A new reference by a named holder; release it."""
        self._number += 1
        self._holders[self._number] = holder
        return Reference(self, self._number, holder)

    def interest(self, holder: str) -> Interest:
        """A new interest by a named holder; release it. The content begins to be loaded."""
        return self._messages.interests((self,), holder)[0]

    def interested(self, holder: str) -> Interest:
        """Add an interest whose content `Messages.interests` loads."""
        self._number += 1
        self._interested.add(self._number)
        return Interest(self, self._number, holder)

    def when_here(self, call: OnLoaded) -> None:
        """Call with header and content when they are in memory; an interest must be held."""
        self._messages.residency.when_here(self.message_id, call)

    def content_now(self) -> LoadedMessage | None:
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

    def released(self, hold: Hold) -> None:
        """End a hold that its holder released."""
        self._end(hold.number)

    def lost(self, number: int) -> None:
        """End a hold that is garbage, on the broker's thread."""
        self._messages.post(lambda: self._end(number))

    def _end(self, number: int) -> None:
        if number in self._interested:
            self._messages.residency.unwant((self.message_id,))
        self.ended(number)

    def ended(self, number: int) -> None:
        """End a hold. The caller reports that nobody wants the content any more."""
        if number in self._interested:
            self._interested.discard(number)
        else:
            del self._holders[number]
        if not self._holders and not self._interested:
            self._messages.let_go(self)


class Messages:
    """All messages that somebody holds, by id: one object each.

    Attributes:
        residency: The content that is in memory.
        post: Has calls made on the thread that uses messages (`Post`).
    """

    def __init__(self, residency: Residency, post: Post) -> None:
        self.residency = residency
        self.post = post
        self._held: dict[int, Message] = {}

    def __len__(self) -> int:
        """The number of messages that have a holder."""
        return len(self._held)

    def get(self, message_id: int) -> Message:
        """Return the message of an id, to take a hold on at once: without one nobody keeps it."""
        message = self._held.get(message_id)
        if message is None:
            message = self._held[message_id] = Message(message_id, self)
        return message

    def interests(self, messages: Sequence[Message], holder: str) -> list[Interest]:
        """A new interest in each by a named holder, their content looked up together."""
        self.residency.want(map(_id_of, messages))
        return [*map(methodcaller("interested", holder), messages)]

    def release(self, interests: Iterable[Interest]) -> None:
        """Let go of interests together; of one that was let go of, again, does nothing."""
        unwanted: list[int] = []
        for interest in interests:
            owner, interest.owner = interest.owner, None
            if owner is not None:
                unwanted.append(owner.message_id)
                self._held[owner.message_id].ended(interest.number)
        self.residency.unwant(unwanted)

    def let_go(self, message: Message) -> None:
        """Forget a message whose last holder let go."""
        self._held.pop(message.message_id, None)

    def forget(self, message_ids: Iterable[int]) -> None:
        """Messages left their queue: their content need not be kept for the next who wants it."""
        self.residency.forget(message_ids)

    def holders(self) -> dict[int, list[str]]:
        """Return the holders of each message by its id, for debugging."""
        return {message_id: message.holders for message_id, message in self._held.items()}
