"""Tier 1: queues, exchanges and bindings survive in one JSON file; messages live in memory.

    {"format": "sparkstore wiring", "version": 1,
     "queues":    [{"name": text, "definition": {"arguments": {…}, "durability": 0…2}}],
     "exchanges": [{"name": text, "definition": {… as above, "type": text}}],
     "bindings":  [{"exchange": text, "queue": text, "binding_key": text,
                    "definition": {"arguments": {…}}}]}

The file holds the whole wiring (see `file` for how it is written, and what if that fails).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import StoreError
from broker_shim.store.json.file import ReplacedFile, lock_file, read_whole
from broker_shim.store.local import LocalMessageStore
from broker_shim.store.memory import now_us
from broker_shim.store.sink import NoContent
from sparkstore.core import fold
from sparkstore.core.records import ExchangeBindingKey, Run
from sparkstore.core.state_machine.definitions import as_json
from sparkstore.core.state_machine.state_machine import StoreStateMachine

FORMAT = "sparkstore wiring"
VERSION = 1
_LINKS = TerminusDurability.NONE
"""Links are in memory only here: a broker keeps them in a file of their own."""


class JsonMessageStore(LocalMessageStore):
    """A `BrokerStore` that keeps its wiring in the file at `path`, made by the first change.

    Raises:
        Locked: Another store has the file open; `<path>.lock` is how it knows.
        InvalidRequest: There is no such folder.
        CorruptData: The file cannot be read, or is from a newer version; it is left as it is.
    """

    def __init__(
        self,
        path: Path,
        max_message_bytes: int = 128 << 20,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._file_lock = lock_file(path)
        try:
            machine = StoreStateMachine(
                read_wiring(path), TerminusDurability.CONFIGURATION, clock, _LINKS
            )
            sink = JsonSink(path)
        except BaseException:
            self._file_lock.release()
            raise
        super().__init__(machine, sink, max_message_bytes)

    def close(self) -> None:
        """Close the store, and give back the lock of the file. See `MessageStore.close`."""
        super().close()
        self._file_lock.release()


class JsonSink(NoContent):
    """Keeps the fold of all wiring records it took in the file."""

    def __init__(self, path: Path) -> None:
        self._state = read_wiring(path)
        self._file = ReplacedFile(path, lambda: packed(self._state), "json-store")

    def append(self, runs: Sequence[Run], on_complete: OnComplete) -> int:
        """Apply records to the state; complete when the file has them."""
        with self._file.lock:
            first = self._state.position + 1
            for run in runs:
                fold.apply(self._state, self._state.position + 1, run)
            self._file.turn(on_complete, is_change=bool(runs))
            return first

    def finish(self, on_complete: OnComplete, error: StoreError | None) -> None:
        """Fire a completion in its turn."""
        with self._file.lock:
            self._file.turn(on_complete, error, is_change=False)

    def flush(self, on_complete: OnComplete) -> None:
        """Complete when the file is written, as that is where one looks."""
        self.finish(on_complete, None)

    def close(self) -> None:
        """Fire what is open, then stop."""
        self._file.close()


def packed(state: fold.State) -> bytes:
    """Encode the wiring of a state as the file has it."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "queues": [_named(name, queue.detail) for name, queue in state.queues.items()],
        "exchanges": [_named(name, detail) for name, detail in state.exchanges.items()],
        "bindings": [
            {**key._asdict(), "definition": json.loads(detail)}
            for key, detail in state.bindings.items()
        ],
        "configured": [
            {"category": category, "key": key, "object": json.loads(detail)}
            for (category, key), detail in state.configured.items()
        ],
    }
    return json.dumps(content, indent=1).encode()


def read_wiring(path: Path) -> fold.State:
    """The wiring in a file; see `file.read_whole`."""
    return read_whole(path, FORMAT, VERSION, _state_of, fold.State())


def _named(name: str, detail: str) -> dict[str, Any]:
    return {"name": name, "definition": json.loads(detail)}


def _state_of(content: dict[str, Any]) -> fold.State:
    state = fold.State()
    for position, item in enumerate(content["queues"], 1):
        state.queues[item["name"]] = fold.QueueState(as_json(item["definition"]), position)
    for item in content["exchanges"]:
        state.exchanges[item["name"]] = as_json(item["definition"])
    for item in content["bindings"]:
        key = ExchangeBindingKey(*(item[name] for name in ExchangeBindingKey._fields))
        state.bindings[key] = as_json(item["definition"])
    for item in content.get("configured", []):  # a file of before has none
        state.configured[item["category"], item["key"]] = as_json(item["object"])
    wired = len(state.queues) + len(state.exchanges) + len(state.bindings)
    state.position = wired + len(state.configured)
    return state
