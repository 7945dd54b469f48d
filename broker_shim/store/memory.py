"""Tier 0: everything works, nothing survives. The verified fake of the other stores."""

from __future__ import annotations

import time
from collections.abc import Callable

from broker_shim.durability import TerminusDurability
from broker_shim.store.local import LocalMessageStore
from broker_shim.store.sink import MemorySink
from sparkstore.core.fold import State
from sparkstore.core.state_machine.state_machine import StoreStateMachine


def now_us() -> int:
    """The time, UTC µs."""
    return time.time_ns() // 1000


class MemoryMessageStore(LocalMessageStore):
    """A `MessageStore` over the pure fold alone."""

    def __init__(
        self, max_message_bytes: int = 128 << 20, clock: Callable[[], int] = now_us
    ) -> None:
        machine = StoreStateMachine(State(), TerminusDurability.NONE, clock)
        super().__init__(machine, MemorySink(), max_message_bytes)
