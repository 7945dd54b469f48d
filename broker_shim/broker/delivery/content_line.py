"""Messages that wait for their content, in the order in which a consumer gets them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from broker_shim.broker.delivery.taken_run import TakenRun
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.errors import StoreError
from broker_shim.store.interface import Content

OnArrived = Callable[[TakenRun], None]
OnMissing = Callable[[TakenRun, StoreError], None]


class ContentLine:
    """Hands on messages when their content is here, in the order in which they came.

    Content of several messages is on its way at once, and may come in any order. The first in line
    holds up the others, as a consumer gets messages in the order of the queue. A run goes on as far
    as all before it is here.
    """

    def __init__(
        self,
        calls: StoreCalls,
        on_arrived: OnArrived,
        on_missing: OnMissing,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin with no message in line.

        Args:
            calls: Of the broker: its messages, and the headers of large ones.
            on_arrived: Called with a run whose content is here, or with a large message whose
                header is; it is its from then on, so it raises nothing.
            on_missing: Called with a message that cannot be read, and why.
            after: Called when all were handed on that could be.
        """
        self._calls, self._after = calls, after
        self._on_arrived, self._on_missing = on_arrived, on_missing
        self._line: deque[TakenRun] = deque()
        self._awaited: set[int] = set()
        self._came: dict[int, Content | StoreError] = {}
        self._is_held = False
        self._is_going = False

    def __len__(self) -> int:
        """The number of messages in line."""
        return sum(map(len, self._line))

    def add(self, runs: Iterable[TakenRun]) -> None:
        """Wait for the content of messages that was asked for, after all that came before."""
        self._line.extend(runs)
        self._go()

    def again(self, run: TakenRun) -> None:
        """Ask for the content of the last message once more, before all the others."""
        self._line.appendleft(run)
        self.ask(run)
        self._go()

    def hold(self) -> None:
        """Call nothing until `go`: one message is being sent in pieces."""
        self._is_held = True

    def go(self) -> None:
        """Hand on what was held, and whatever is ready behind it."""
        self._is_held = False
        self._go()

    def clear(self) -> list[TakenRun]:
        """Forget and return all that wait."""
        line = list(self._line)
        self._line.clear()
        self._awaited.clear()
        self._came.clear()
        return line

    def let_go(self) -> None:
        """Let go of those who are called, as nothing is added any more.

        They hold this line, which holds them no more.

        Content that comes later is of nobody in line.
        """
        del self._on_arrived, self._on_missing, self._after

    def ask(self, run: TakenRun) -> None:
        """Ask for the content of messages that are in line, or will be: see `forget`."""
        if run.is_large:
            return
        run.contents = self._calls.contents.now(run.message_ids)
        for message_id in self._missing(run):
            self._awaited.add(message_id)
            self._calls.contents.load(message_id, partial(self._is_here, message_id))

    def forget(self, run: TakenRun) -> None:
        """Await the content of messages no longer."""
        for message_id in self._missing(run):
            self._awaited.discard(message_id)
            self._came.pop(message_id, None)

    def _missing(self, run: TakenRun) -> list[int]:
        """List the messages of a run whose content was not at hand."""
        if None not in run.contents:  # as nearly always
            return []
        rows = zip(run.message_ids, run.contents, strict=True)
        return [message_id for message_id, content in rows if content is None]

    def _is_here(self, message_id: int, result: Content | StoreError) -> None:
        if message_id in self._awaited:
            self._awaited.discard(message_id)
            self._came[message_id] = result
            self._go()

    def _go(self) -> None:
        if self._is_going:
            return  # what is called led to it: the loop below goes on
        self._is_going, has_called = True, False
        try:
            while self._line and not self._is_held and self._hand_on():
                has_called = True
        finally:
            self._is_going = False
            if has_called:
                self._after()

    def _hand_on(self) -> bool:
        """Hand on the first run, as far as it is here; False if nothing of it is."""
        run = self._line[0]
        if run.is_large:
            self._line.popleft()
            self._read_header(run)
            return True
        count = self._here_count(run)
        error = None if count else self._came.pop(run.message_ids[0], None)
        if not count and error is None:
            return False
        if (count or 1) < len(run):
            self._line[0] = run.cut(count or 1)
        else:
            self._line.popleft()
        if count:
            self._on_arrived(run)
        else:
            assert isinstance(error, StoreError)
            self._on_missing(run, error)
        return True

    def _here_count(self, run: TakenRun) -> int:
        """Count the first of a run that are here."""
        contents, came = run.contents, self._came
        if None not in contents:
            return len(contents)
        for at, content in enumerate(contents):
            if content is None:
                late = came.get(run.message_ids[at])
                if late is None or isinstance(late, StoreError):
                    return at
                contents[at] = late
                del came[run.message_ids[at]]
        return len(contents)

    def _read_header(self, run: TakenRun) -> None:
        try:
            run.header = self._calls.header(run.message_ids[0])
        except StoreError as error:
            self._on_missing(run, error)
        else:
            self._on_arrived(run)
