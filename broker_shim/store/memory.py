"""Tier 0: everything works, nothing survives. The verified fake of the other stores."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import StoreError
from broker_shim.store.local import LocalMessageStore
from broker_shim.store.sink import Completions, NoContent
from sparkstore.core.fold import State
from sparkstore.core.records import Run, rows_of
from sparkstore.core.state_machine.state_machine import StoreStateMachine


def now_us() -> int:
    """The time, UTC µs."""
    return time.time_ns() // 1000


class MemorySink(NoContent):
    """Keeps nothing; the sink of tier 0."""

    def __init__(self) -> None:
        self._completions = Completions()
        self._position = 1

    def append(self, runs: Sequence[Run], on_complete: OnComplete) -> int:
        """Number the records and complete at once, as nothing is written."""
        first = self._position
        self._position += rows_of(runs)
        self._completions.put(on_complete, None)
        return first

    def finish(self, on_complete: OnComplete, error: StoreError | None) -> None:
        """Fire a completion in its turn."""
        self._completions.put(on_complete, error)

    def flush(self, on_complete: OnComplete) -> None:
        """Complete at once, as no query sees what is in memory."""
        self._completions.put(on_complete, None)

    def close(self) -> None:
        """Fire what is open, then stop."""
        self._completions.close()


class MemoryMessageStore(LocalMessageStore):
    """A `BrokerStore` over the pure fold alone."""

    def __init__(
        self, max_message_bytes: int = 128 << 20, clock: Callable[[], int] = now_us
    ) -> None:
        machine = StoreStateMachine(State(), TerminusDurability.NONE, clock)
        super().__init__(machine, MemorySink(), max_message_bytes)
