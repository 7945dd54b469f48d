"""Messages on their way from a queue to one consumer: held by name, content coming, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker_shim.broker.storage.store_puts import STAGED_BYTES
from broker_shim.errors import StoreError
from broker_shim.messages.message import Message
from broker_shim.messages.residency import LoadedMessage
from broker_shim.store.interface import Entry, MessageHeader

if TYPE_CHECKING:
    from broker_shim.broker.virtual_host import Broker


class Taken:
    """A message that a consumer took up: the link's reference, and its interest in the content.

    Attributes:
        message_id: What.
        message: The one object of it.
        expires_at: On its queue, UTC µs: a queue may limit what the message asks for.
        detail: What its entry there adds to its annotations; None: it was never given back.
        is_large: Its content is not brought into memory whole, but read as it is sent.
        held_bytes: How much of it is in memory on its way.
    """

    __slots__ = (
        "_interest",
        "_reference",
        "detail",
        "expires_at",
        "held_bytes",
        "is_large",
        "message",
        "message_id",
    )

    def __init__(self, message: Message, holder: str, entry: Entry | None, *, whole: bool) -> None:
        """Take it up; `whole`: its content is needed in memory at once, however large."""
        is_large = not whole and entry is not None and entry.message_bytes > STAGED_BYTES
        self.message_id, self.message, self.is_large = message.message_id, message, is_large
        self.expires_at = None if entry is None else entry.expires_at
        self.detail = None if entry is None else entry.detail
        self.held_bytes = 0 if is_large or entry is None else entry.message_bytes
        self._reference = message.reference(holder)
        self._interest = None if is_large else message.interest(holder)

    def sent(self) -> None:
        """The content is with the peer, or will never be: it need not stay in memory."""
        if self._interest is not None:
            self._interest.release()

    def release(self) -> None:
        """The consumer has it no longer."""
        self.sent()
        self._reference.release()


Then = Callable[[Taken, MessageHeader | None, StoreError | None], None]
"""then(taken, header, error): the header, and the content is here; or why not."""


class InOrder:
    """Calls `then` for each message when its content is here, in the order in which they came.

    Content of several messages is on its way at once, and may come in any order; who is first in
    line holds up the others, as a consumer gets messages in the order of the queue.
    """

    def __init__(self, broker: Broker, then: Then) -> None:
        self._broker, self._then = broker, then
        self._line: deque[Taken] = deque()
        self._came: dict[int, LoadedMessage | StoreError] = {}
        self._is_held = False
        self._is_going = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._line)

    def add(self, taken: Taken) -> None:
        """Wait for this one, after all that came before."""
        self._line.append(taken)
        self._ask(taken)

    def again(self, taken: Taken) -> None:
        """Ask for the content of the one that came last once more, before all the others."""
        self._line.appendleft(taken)
        self._ask(taken)

    def hold(self) -> None:
        """Call nothing until `go`: one message is being sent in pieces."""
        self._is_held = True

    def go(self) -> None:
        """Go on."""
        self._is_held = False
        self._go()

    def clear(self) -> list[Taken]:
        """Forget and return all that wait."""
        line = list(self._line)
        self._line.clear()
        self._came.clear()
        return line

    def _ask(self, taken: Taken) -> None:
        if taken.is_large:
            self._go()
        else:
            taken.message.when_here(partial(self._is_here, taken))

    def _is_here(self, taken: Taken, result: LoadedMessage | StoreError) -> None:
        if taken in self._line:
            self._came[taken.message_id] = result
            self._go()

    def _go(self) -> None:
        if self._is_going:
            return  # what `then` led to: the loop below goes on
        self._is_going = True
        try:
            while self._line and not self._is_held:
                first = self._line[0]
                if not first.is_large and first.message_id not in self._came:
                    return
                self._line.popleft()
                self._call(first)
        finally:
            self._is_going = False

    def _call(self, taken: Taken) -> None:
        result = self._large_header(taken) if taken.is_large else self._came.pop(taken.message_id)
        if isinstance(result, LoadedMessage):
            self._then(taken, result.header, None)
        elif isinstance(result, StoreError):
            self._then(taken, None, result)
        else:
            self._then(taken, result, None)

    def _large_header(self, taken: Taken) -> MessageHeader | StoreError:
        try:
            return self._broker.calls.header(taken.message_id)
        except StoreError as error:
            return error
