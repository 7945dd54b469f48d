"""Stores for tests: how each is opened and reopened, and a fake of tier 2 that keeps all records.

`RecordedMessageStore` is the real state machine over a list of packed records instead of a log:
what the rules of tier 2 mean, without Delta, at the speed of memory.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from broker_shim.completion import Completion, OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest, StoreError, Unavailable
from broker_shim.service.service import Service
from broker_shim.service.socket import ServiceSocket, listen_on_path
from broker_shim.store.chain.mirror import Mirror
from broker_shim.store.chain.place import Tolerance
from broker_shim.store.chain.store_chain import MessageStoreChain
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import BrokerStore
from broker_shim.store.json.json_store import JsonMessageStore
from broker_shim.store.local import LocalMessageStore
from broker_shim.store.memory import MemoryMessageStore, MemorySink
from broker_shim.store.remote.greeting import MemberIdentity
from broker_shim.store.remote.remote_store import RemoteMessageStore
from sparkstore.config import StoreConfig
from sparkstore.core import fold
from sparkstore.core.codec import packer, unpack_all
from sparkstore.core.records import Kind, MessageHeader, Record, Run
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from tests.support.objects.bucket_home import copy_bucket, open_in_bucket

MAX_MESSAGE_BYTES = 3 << 20
"""Of every store here: small enough to go over it."""
DELTA_CONFIG = StoreConfig(
    max_message_bytes=MAX_MESSAGE_BYTES,
    wal_file_bytes=8 << 20,
    commit_interval_ms=50,
    reserve_bytes=1 << 20,
)
TIMEOUT_S = 30.0
"""No test waits so long unless it fails."""


def done(call: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Call a store, wait for the completion, return what the call returned.

    Raises:
        StoreError: What it completed with.
    """
    completion = Completion()
    result = call(*args, on_complete=completion.finish, **named)
    completion.complete(TIMEOUT_S)
    return result


def outcomes(call: Callable[..., Any], *args: Any) -> tuple[Any, list[str]]:
    """What a batch returned, and the type of what each of its calls came to."""
    told: list[Sequence[StoreError | None]] = []
    is_told = threading.Event()

    def on_complete(said: Sequence[StoreError | None]) -> None:
        told.append(said)
        is_told.set()

    returned = call(*args, on_complete)
    assert is_told.wait(TIMEOUT_S)
    assert len(told) == 1
    return returned, ["" if each is None else type(each).__name__ for each in told[0]]


class RecordingSink(MemorySink):
    """Keeps packed records in a list that outlives it; refuses while `is_full`."""

    def __init__(self, log: list[bytes]) -> None:
        super().__init__()
        self.log = log
        self.is_full = False
        self._pack = packer()
        self._guard, self._read_count = threading.Lock(), 0
        # Header and pieces by offset, since one may be there twice.
        self._contents: dict[int, tuple[MessageHeader | None, dict[int, bytes]]] = {}

    def append(self, runs: Sequence[Run], on_complete: OnComplete) -> int:
        """Complete at once, or take nothing."""
        if self.is_full:
            raise Unavailable("no room")
        try:
            packed = [self._pack(record) for run in runs for record in run.singles()]
        except (OverflowError, ValueError) as reason:
            raise InvalidRequest("a record cannot be written") from reason
        first = len(self.log) + 1
        super().append((), on_complete)
        self.log += packed
        return first

    def load(self, message_id: int) -> tuple[MessageHeader, bytes]:
        """Header and content, from the records that brought them."""
        with self._guard:
            self._find_contents()
        header, pieces = self._contents.get(message_id, (None, {}))
        if header is None:
            message = f"unknown message {message_id}"
            raise InvalidRequest(message)
        return header, b"".join(pieces[offset] for offset in sorted(pieces))

    def _find_contents(self) -> None:
        """Look at the records that have come since."""
        unread = self.log[self._read_count :]
        self._read_count += len(unread)
        for record in read(unread):
            if record.message_id is None:
                continue
            header, pieces = self._contents.get(record.message_id, (None, {}))
            if record.kind is Kind.CONTENT:
                pieces[record.body_offset or 0] = record.body or b""
                header = record.message or header
            elif record.message and record.message.protocol:
                header = record.message
                pieces.setdefault(0, record.body or b"")
            self._contents[record.message_id] = header, pieces

    def read(self, message_id: int, offset: int, length: int) -> bytes:
        """A part of the content."""
        return self.load(message_id)[1][offset : offset + length]

    def headers(self, message_ids: Sequence[int]) -> list[MessageHeader | None]:
        """One by one."""
        return [self.load(message_id)[0] for message_id in message_ids]


class RecordedMessageStore(LocalMessageStore):
    """A `BrokerStore` of tier 2 over `log`; opening another over the same list is a restart."""

    sink_of: type[RecordingSink] = RecordingSink

    @staticmethod
    def now_us() -> int:
        """The store's clock stands still."""
        return 0

    def __init__(
        self, log: list[bytes], durability: TerminusDurability = TerminusDurability.UNSETTLED_STATE
    ) -> None:
        state = fold.State()
        for position, record in enumerate(read(log), 1):
            fold.apply(state, position, record)
        self.sink = self.sink_of(log)
        self.machine = StoreStateMachine(state, durability, self.now_us)
        super().__init__(self.machine, self.sink, MAX_MESSAGE_BYTES)


class HeldSink(RecordingSink):
    """While `is_holding` no completion fires before `tell`: as over storage that takes its time.

    Attributes:
        held: What is owed, in the order of the calls: the completion, and how it would end.
    """

    def __init__(self, log: list[bytes]) -> None:
        super().__init__(log)
        self.is_holding = False
        self.held: deque[tuple[OnComplete, StoreError | None]] = deque()

    def append(self, runs: Sequence[Run], on_complete: OnComplete) -> int:
        """Take them; what was taken is told later."""
        return super().append(runs, self._held(on_complete, None))

    def finish(self, on_complete: OnComplete, error: StoreError | None) -> None:
        """Also a refusal is told in its turn."""
        super().finish(self._held(on_complete, error), error)

    def flush(self, on_complete: OnComplete) -> None:
        """As the others."""
        super().flush(self._held(on_complete, None))

    def tell(self, error: StoreError | None = None) -> None:
        """Fire the oldest that is held; with `error`, its records may or may not be durable."""
        on_complete, own = self.held.popleft()
        super().finish(on_complete, error or own)

    def wait(self) -> None:
        """Until every completion that is not held has fired."""
        fired = threading.Event()
        super().finish(lambda _error: fired.set(), None)
        assert fired.wait(TIMEOUT_S)

    def _held(self, on_complete: OnComplete, error: StoreError | None) -> OnComplete:
        if not self.is_holding:
            return on_complete
        self.held.append((on_complete, error))
        return lambda _error: None


class HeldMessageStore(RecordedMessageStore):
    """The fake of tier 2 whose completions a test fires: what is told before is told wrongly."""

    sink: HeldSink
    sink_of = HeldSink

    def wait(self) -> None:
        """Until every completion that is not held has fired, and every load has been answered."""
        self.sink.wait()
        loaded = threading.Event()
        self.prefetch([0], lambda _id, _found: loaded.set())  # no message has this id
        assert loaded.wait(TIMEOUT_S)


def read(log: list[bytes]) -> list[Record]:
    """The records of a `RecordingSink`."""
    return [record for packed in log for record in unpack_all(packed)]


def open_memory(_folder: Path, _log: list[bytes]) -> BrokerStore:
    """Tier 0: every opening is a new one."""
    return MemoryMessageStore(MAX_MESSAGE_BYTES)


def open_json(folder: Path, _log: list[bytes]) -> BrokerStore:
    """Tier 1."""
    return JsonMessageStore(folder / "wiring.json", MAX_MESSAGE_BYTES)


def open_recorded(_folder: Path, log: list[bytes]) -> BrokerStore:
    """Tier 2 without Delta."""
    return RecordedMessageStore(log)


def open_held(_folder: Path, log: list[bytes]) -> BrokerStore:
    """Tier 2 without Delta, whose completions can be held back: here they are not."""
    return HeldMessageStore(log)


def open_delta(folder: Path, _log: list[bytes]) -> BrokerStore:
    """Tier 2, the product."""
    return DeltaMessageStore(folder, DELTA_CONFIG)


def open_bucket(folder: Path, _log: list[bytes]) -> BrokerStore:
    """Tier 2 on a root in a bucket."""
    return open_in_bucket(folder, DELTA_CONFIG)


class ServedMessageStore(RemoteMessageStore):
    """A remote store with a service of its own over a Delta store, closed together.

    Its incarnation is always the same, as of a broker that closes its store and opens it again.
    """

    def __init__(self, folder: Path, config: StoreConfig = DELTA_CONFIG) -> None:
        self.served = DeltaMessageStore(folder, config)
        self._sockets = tempfile.TemporaryDirectory(prefix="served-")  # a short path
        path = Path(self._sockets.name) / "s"
        address = ServiceSocket(listen_on_path(path))
        self.service = Service(self.served, [address], config.max_message_bytes)
        greeting = MemberIdentity("remote", "the same")
        super().__init__(path, greeting, retry_s=5, max_message_bytes=config.max_message_bytes)

    def close(self) -> None:
        """Close the client, then the service, then what it serves."""
        super().close()
        self.service.close()
        self.served.close()
        self._sockets.cleanup()


def open_remote(folder: Path, _log: list[bytes]) -> BrokerStore:
    """Tier 2 over the store protocol."""
    return ServedMessageStore(folder)


def open_chain(folder: Path, log: list[bytes]) -> BrokerStore:
    """The fake of tier 2 and after it one of tier 1, which catches up at each start."""
    first = RecordedMessageStore(log)
    mirror = Mirror("mirror", JsonMessageStore(folder / "wiring.json", MAX_MESSAGE_BYTES), first)
    mirror.catch_up()
    return MessageStoreChain(first, [(mirror, Tolerance())])


def open_mirrored(folder: Path, _log: list[bytes]) -> BrokerStore:
    """A chain of two roots."""
    first = DeltaMessageStore(folder / "first", DELTA_CONFIG)
    mirror = Mirror("mirror", DeltaMessageStore(folder / "mirror", DELTA_CONFIG), first)
    mirror.catch_up()
    return MessageStoreChain(first, [(mirror, Tolerance())])


OPENERS: dict[str, Callable[[Path, list[bytes]], BrokerStore]] = {
    "memory": open_memory,
    "json": open_json,
    "recorded": open_recorded,
    "held": open_held,
    "delta": open_delta,
    "bucket": open_bucket,
    "remote": open_remote,
    "chain": open_chain,
    "mirrored": open_mirrored,
}
"""Every implementation; the contract runs against each."""


class Home:
    """Where one store lives, and the store that is open there."""

    def __init__(self, name: str, folder: Path, log: list[bytes] | None = None) -> None:
        self._name, self._open, self._folder = name, OPENERS[name], folder
        self._log = [] if log is None else log
        folder.mkdir(parents=True, exist_ok=True)
        self.store = self._open(folder, self._log)

    @property
    def tier(self) -> TerminusDurability:
        """The highest durability that the store keeps."""
        return self.store.durability

    def reopen(self) -> BrokerStore:
        """Close the store and open what is left of it."""
        self.store.close()
        self.store = self._open(self._folder, self._log)
        return self.store

    def crash(self) -> Home:
        """Another home, as a machine would find it that lost power now; this store stays open.

        The store goes on meanwhile, so the order matters: marks before what they are about, the
        write-ahead log before the tables, a table's log before the files that it names.
        """
        folder = Path(tempfile.mkdtemp(prefix="crashed-", dir=self._folder.parent))
        if self._name == "bucket":
            copy_bucket(self._folder, folder)
            return Home(self._name, folder)
        first = ("durable.json", "wal", "journal/_delta_log")
        parts = [part for part in first if (self._folder / part).exists()]
        for part in (*parts, "."):
            _copy_live(self._folder / part, folder / part)
        return Home(self._name, folder, [*self._log])


def _copy_live(where: Path, to: Path) -> None:
    """Copy what is there and not there yet; what vanishes meanwhile was scratch."""
    if where.is_dir():
        to.mkdir(parents=True, exist_ok=True)
        for child in sorted(where.iterdir()):
            _copy_live(child, to / child.name)
    elif not to.exists():
        with suppress(FileNotFoundError):
            shutil.copyfile(where, to)
