"""Messages that wait for their content, in the order in which a consumer gets them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import filterfalse
from operator import attrgetter

from broker_shim.broker.delivery.taken_message import Arrived, TakenMessage, is_large
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.errors import StoreError
from broker_shim.messages.residency import LoadedMessage
from broker_shim.store.interface import MessageHeader

_id_of = attrgetter("message_id")

OnArrived = Callable[[Sequence[Arrived]], None]
Then = Callable[[TakenMessage, MessageHeader | None, StoreError | None], None]
"""then(taken, header, error): of a large message its header; or why it cannot be read."""


class ContentLine:
    """Hands on messages when their content is here, in the order in which they came.

    Content of several messages is on its way at once, and may come in any order. The first in line
    holds up the others, as a consumer gets messages in the order of the queue. All that is here
    goes on together.
    """

    def __init__(
        self,
        calls: StoreCalls,
        on_arrived: OnArrived,
        then: Then,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin with no message in line.

        Args:
            calls: Of the broker: its messages, and the headers of large ones.
            on_arrived: Called with those that follow each other whose content is here; they are
                its from then on, so it raises nothing.
            then: Called for each of the others.
            after: Called when all were handed on that could be.
        """
        self._calls, self._on_arrived, self._then, self._after = calls, on_arrived, then, after
        self._line: deque[TakenMessage] = deque()
        self._came: dict[int, LoadedMessage | StoreError] = {}
        self._is_held = False
        self._is_going = False

    def __len__(self) -> int:
        """The number of messages in line."""
        return len(self._line)

    def add(self, batch: Sequence[TakenMessage]) -> None:
        """Wait for the content of messages, after all that came before."""
        self._line.extend(batch)
        self._ask(batch)
        self._go()

    def again(self, taken: TakenMessage) -> None:
        """Ask for the content of the last message once more, before all the others."""
        self._line.appendleft(taken)
        self._ask((taken,))
        self._go()

    def hold(self) -> None:
        """Call nothing until `go`: one message is being sent in pieces."""
        self._is_held = True

    def go(self) -> None:
        """Hand on what was held, and whatever is ready behind it."""
        self._is_held = False
        self._go()

    def clear(self) -> list[TakenMessage]:
        """Forget and return all that wait."""
        line = list(self._line)
        self._line.clear()
        self._came.clear()
        return line

    def let_go(self) -> None:
        """Let go of those who are called, as nothing is added any more.

        They hold this line, which holds them no more.

        Content that comes later is of nobody in line.
        """
        del self._on_arrived, self._then, self._after

    def _ask(self, batch: Sequence[TakenMessage]) -> None:
        small = [*filterfalse(is_large, batch)]
        here = self._calls.messages.residency.wanted_here(map(_id_of, small))
        self._came.update(here)
        for taken in small if len(here) < len(small) else ():
            if taken.message_id not in here:
                taken.message.when_here(partial(self._is_here, taken))

    def _is_here(self, taken: TakenMessage, result: LoadedMessage | StoreError) -> None:
        if taken in self._line:
            self._came[taken.message_id] = result
            self._go()

    def _go(self) -> None:
        if self._is_going:
            return  # what `then` led to: the loop below goes on
        self._is_going, has_called = True, False
        try:
            while self._line and not self._is_held:
                first = self._line[0]
                if not first.is_large and first.message_id not in self._came:
                    break
                has_called = True
                arrived = self._take_arrived()
                if arrived:
                    self._on_arrived(arrived)
                else:
                    self._call(self._line.popleft())
        finally:
            self._is_going = False
            if has_called:
                self._after()

    def _take_arrived(self) -> list[Arrived]:
        """Take the first in line, as far as their content is here."""
        line, came, arrived = self._line, self._came, []
        while line and isinstance(content := came.get(line[0].message_id), LoadedMessage):
            taken = line.popleft()
            del came[taken.message_id]
            arrived.append((taken, content))
        return arrived

    def _call(self, taken: TakenMessage) -> None:
        header, error = None, self._came.pop(taken.message_id, None)
        assert not isinstance(error, LoadedMessage)
        if taken.is_large:
            try:
                header = self._calls.header(taken.message_id)
            except StoreError as reason:
                error = reason
        self._then(taken, header, error)
