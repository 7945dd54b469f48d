"""Hold messages by name: as many at once as travel together.

Why a hold ends exactly once: `release` takes its number away, and whoever finds none does nothing;
it is called on one thread, and what is garbage nobody can call. Garbage is collected on any thread,
in the middle of anything, so what it calls must only note what is to be done: the owner hands in a
function that posts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from sys import is_finalizing
from typing import Self

_log = logging.getLogger(__name__)

Post = Callable[[Callable[[], None]], None]
"""post(call): have a call made on the one thread; itself safe from any thread, at any time."""


class Hold:
    """A named hold on messages, until `release`.

    Attributes:
        message_ids: What is held.
        holder: The holder's name, for people who look for what keeps a message.
    """

    __slots__ = ("_messages", "_number", "holder", "message_ids")

    def __init__(self, messages: Messages, message_ids: Sequence[int], holder: str) -> None:
        """Begin to hold; none of the messages twice."""
        self.message_ids, self.holder = message_ids, holder
        self._messages = messages
        self._number: int | None = messages.began(self)

    def cut(self, count: int) -> Self:
        """Keep the first `count` messages, and return a hold on the rest."""
        messages, rest = self._messages, self.message_ids[count:]
        self.message_ids = self.message_ids[:count]
        if self._number is not None:
            messages.shrank(self._number, self.message_ids)
        return type(self)(messages, rest, self.holder)

    def release(self) -> None:
        """Let go of the messages; again does nothing."""
        number, self._number = self._number, None
        if number is not None:
            self._messages.ended(number)

    def __del__(self) -> None:
        """Report a hold that became garbage without a release: that is a fault."""
        if self._number is not None and not is_finalizing():
            text = "message %d was held by %r, who never released it: a fault"
            _log.warning(text, self.message_ids[0], self.holder)
            self._messages.lost(self._number)


class Messages:
    """All messages that somebody holds. One thread.

    Attributes:
        post: Has calls made on the thread that uses messages (`Post`).
    """

    def __init__(self, post: Post) -> None:
        self.post = post
        self._numbers = count()
        self._held: dict[int, tuple[Sequence[int], str]] = {}

    def began(self, hold: Hold) -> int:
        """Note a hold; the number by which it ends."""
        number = next(self._numbers)
        self._held[number] = hold.message_ids, hold.holder
        return number

    def shrank(self, number: int, message_ids: Sequence[int]) -> None:
        """Note that a hold is on these of its messages only."""
        self._held[number] = message_ids, self._held[number][1]

    def ended(self, number: int) -> None:
        """Forget a hold that was released."""
        del self._held[number]

    def lost(self, number: int) -> None:
        """End a hold that is garbage, on the broker's thread."""
        self.post(partial(self.ended, number))

    def holders(self) -> dict[int, list[str]]:
        """Return the holders of each message by its id, for debugging."""
        holders: dict[int, list[str]] = {}
        for message_ids, holder in self._held.values():
            for message_id in message_ids:
                holders.setdefault(message_id, []).append(holder)
        return holders
