"""Tier 1: queues, exchanges and bindings survive in one JSON file; messages live in memory.

    {"format": "sparkstore wiring", "version": 1,
     "queues":    [{"name": text, "definition": {"arguments": {…}, "durability": 0…2}}],
     "exchanges": [{"name": text, "definition": {… as above, "type": text}}],
     "bindings":  [{"exchange": text, "queue": text, "binding_key": text,
                    "definition": {"arguments": {…}}}]}

The file holds the whole wiring and is replaced as a whole, so a power cut leaves the old or the
new one; many changes that wait together are one write.

Decision: a write that fails does not end the store. The memory is then ahead of the file, so from
there on every completion waits for a write that succeeds, also that of a call which changes no
wiring: "create it again" makes no change, and its success must not be a lie. Each later call tries
again; the store resumes by itself once there is room. Rejected: undoing the change in memory, as
later calls were decided on it; acknowledging messages meanwhile, as the queue that they are on may
be one that a restart does not know.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import CorruptData, InvalidRequest, StoreError, Unavailable
from broker_shim.store.ledger import Ledger
from broker_shim.store.local import LocalMessageStore
from broker_shim.store.memory import now_us
from broker_shim.store.sink import NoContent
from broker_shim.store.wiring import as_json
from sparkstore import fold
from sparkstore.durable_files import replace_durably
from sparkstore.log.firing import fire_once
from sparkstore.log.lock import FileLock
from sparkstore.records import BindingKey, Record

FORMAT = "sparkstore wiring"
VERSION = 1
_LINKS = TerminusDurability.NONE
"""Links are in memory only here: a broker keeps them in a file of their own."""


class JsonMessageStore(LocalMessageStore):
    """A `MessageStore` that keeps its wiring in the file at `path`, made by the first change.

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
        self._file_lock = _lock(path)
        try:
            ledger = Ledger(read_wiring(path), TerminusDurability.CONFIGURATION, clock, _LINKS)
            sink = JsonSink(path)
        except BaseException:
            self._file_lock.release()
            raise
        super().__init__(ledger, sink, max_message_bytes)

    def close(self) -> None:
        """See `MessageStore.close`."""
        super().close()
        self._file_lock.release()


def _lock(path: Path) -> FileLock:
    try:
        return FileLock(path.with_name(path.name + ".lock"), str(path))
    except OSError as reason:
        message = f"{path}: its folder must be there and writable ({reason})"
        raise InvalidRequest(message) from reason


class _Turn(NamedTuple):
    on_complete: OnComplete
    error: StoreError | None


class JsonSink(NoContent):
    """Writes the fold of all wiring records it took, then completes those who waited for it.

    The lock covers the fold and the line of turns: the thread takes both together, so what it
    writes holds the records of every turn that it then completes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state = read_wiring(path)
        self._changed = threading.Condition()
        self._turns: list[_Turn] = []
        self._is_behind = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="json-store", daemon=True)
        self._thread.start()

    def append(self, records: Sequence[Record], on_complete: OnComplete) -> int:
        """Complete when the file has them."""
        with self._changed:
            first = self._state.position + 1
            for position, record in enumerate(records, first):
                fold.apply(self._state, position, record)
            self._is_behind |= bool(records)
            self._turns.append(_Turn(on_complete, None))
            self._changed.notify()
            return first

    def finish(self, on_complete: OnComplete, error: StoreError | None) -> None:
        """Fire it in its turn."""
        with self._changed:
            self._turns.append(_Turn(on_complete, error))
            self._changed.notify()

    def flush(self, on_complete: OnComplete) -> None:
        """The file is where one looks."""
        self.finish(on_complete, None)

    def close(self) -> None:
        """Fire what is open, then stop."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._turns or self._is_closed)
                turns, self._turns = self._turns, []
                content = packed(self._state) if self._is_behind else None
                self._is_behind = False
            if not turns:
                return
            failure = None if content is None else self._write(content)
            for on_complete, error in turns:
                fire_once(on_complete, error or failure)

    def _write(self, content: bytes) -> StoreError | None:
        try:
            replace_durably(self._path, content)
        except OSError as reason:
            with self._changed:
                self._is_behind = True
            message = (
                f"cannot write {self._path} ({reason}): make room and see to its permissions,"
                " the next call tries again"
            )
            return Unavailable(message)
        return None


def packed(state: fold.State) -> bytes:
    """The wiring of a state as the file has it."""
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
    """The wiring in a file; none if there is no file.

    Raises:
        CorruptData: The file cannot be read, or is from a newer version.
    """
    if not path.exists():
        return fold.State()
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        version = _version_of(content)
        state = _state_of(content) if version <= VERSION else fold.State()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as reason:
        message = f"{path} cannot be read ({reason!r}): restore it from a backup, or move it away"
        raise CorruptData(message) from reason
    if version > VERSION:
        message = f"{path} has version {version}, this sparkstore knows {VERSION}: install a newer"
        raise CorruptData(message)
    return state


def _version_of(content: dict[str, Any]) -> int:
    if content["format"] != FORMAT:
        raise ValueError(f"its format is {content['format']!r}, not {FORMAT!r}")
    return int(content["version"])


def _named(name: str, detail: str) -> dict[str, Any]:
    return {"name": name, "definition": json.loads(detail)}


def _state_of(content: dict[str, Any]) -> fold.State:
    state = fold.State()
    for position, item in enumerate(content["queues"], 1):
        state.queues[item["name"]] = fold.Queue(as_json(item["definition"]), position)
    for item in content["exchanges"]:
        state.exchanges[item["name"]] = as_json(item["definition"])
    for item in content["bindings"]:
        key = BindingKey(*(item[name] for name in BindingKey._fields))
        state.bindings[key] = as_json(item["definition"])
    for item in content.get("configured", []):  # a file of before has none
        state.configured[item["category"], item["key"]] = as_json(item["object"])
    wired = len(state.queues) + len(state.exchanges) + len(state.bindings)
    state.position = wired + len(state.configured)
    return state
