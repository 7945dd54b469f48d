"""Tier 2, the product: what the ledger decides goes to the log, and from there to Delta."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from broker_shim.durability import TerminusDurability
from broker_shim.store.interface import Message
from broker_shim.store.ledger import Ledger
from broker_shim.store.local import LocalMessageStore
from broker_shim.store.memory import now_us
from sparkstore.config import StoreConfig
from sparkstore.log.metrics import LogMetrics
from sparkstore.log.opening import open_log


class DeltaMessageStore(LocalMessageStore):
    """A `MessageStore` whose queues are Delta tables."""

    def __init__(
        self,
        root: str | Path,
        config: StoreConfig | None = None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        """Open the root for writing, or create it. See `opening.open_log` for what it raises."""
        config = config or StoreConfig()
        opened = open_log(root, config)
        self._log = opened.log
        ledger = Ledger(opened.state, TerminusDurability.UNSETTLED_STATE, clock)
        super().__init__(ledger, opened.log, config.max_message_bytes)

    @property
    def metrics(self) -> LogMetrics:
        """Counters since it was opened."""
        return self._log.metrics

    def load_staged(self, message_id: int) -> Message:
        """`load`, also of a message that was staged with its header and is on no queue yet.

        Raises:
            InvalidRequest: It is neither; or not all pieces of it came.
        """
        with self._lock:
            self._check_open()
            is_staged = message_id in self._ledger.state.staged
        return (
            Message(message_id, *self._log.load(message_id)) if is_staged else self.load(message_id)
        )
