"""Kill the store service under load, again and again, and count what its members were told.

Each member is a `RemoteMessageStore` of this process that lives through all of it. The oracle is
counting: a message that was told to be enqueued is there exactly once, one that was told to be
dequeued is not, and a transaction is whole or not at all. A transaction that a killed service had
open is refused; nothing else is.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from threading import Event

from broker_shim.completion import Completion
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.store.interface import MessageHeader, NewMessageRun, Queue
from broker_shim.store.remote.greeting import MemberIdentity
from broker_shim.store.remote.remote_store import RemoteMessageStore
from sparkstore.recovery.recovery import recover
from sparkstore.tables.root import open_root
from tests.support.roots.logs import until
from tests.support.stores.services import ServiceProcess, short_folder

MEMBERS = 2
_WINDOW = 200


class Member:
    """One member's load, and what it was told.

    Attributes:
        expected: How often each message is on the queues, of all that was told.
        told: Calls that were answered without an error.
        refused: Transactions that died with a service.
        wrong: What should not have been told.
    """

    def __init__(self, path: Path, number: int, seed: int) -> None:
        self.store = RemoteMessageStore(path, MemberIdentity(f"member {number}", f"run {seed}"))
        self.queues = (f"queue {number}", f"twin {number}")
        self.expected: Counter[int] = Counter()
        self.told = self.refused = 0
        self.wrong: list[str] = []
        self._dice = random.Random(seed * 10 + number)
        self._available: list[int] = []
        self._slots = threading.Semaphore(_WINDOW)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"member {number}")

    def start(self) -> None:
        """Create the queues and go to work."""
        for name in self.queues:
            created = Completion()
            self.store.create(Queue(name), created.finish)
            created.complete(60)
        self._thread.start()

    def stop(self) -> None:
        """Wait until everything asked was answered."""
        self._ending.set()
        self._thread.join(120)
        self.store.close()

    def _run(self) -> None:
        calls = [self._enqueue] * 8 + [self._dequeue] * 5 + [self._transact, self._refusable]
        calls += [self._enqueue_many, self._enqueue_many, self._take_many]
        while not self._ending.is_set():
            self._slots.acquire()
            self._dice.choice(calls)()

    def _answered(self, change: Counter[int], *, may_be_refused: bool = False) -> Completion:
        def note(error: StoreError | None) -> None:
            if error is None:
                self.told += 1
                self.expected.update(change)
            elif may_be_refused and isinstance(error, InvalidRequest):
                self.refused += 1
            else:
                self.wrong.append(repr(error))
            self._slots.release()

        completion = Completion()
        completion.add_callback(note)
        return completion

    def _new(self) -> int:
        return self.store.message(MessageHeader()).message_id

    def _enqueue(self) -> None:
        body = self._dice.randbytes(self._dice.choice([0, 10, 300, 3000]))
        message = self.store.message(MessageHeader(), body)
        done = self._answered(Counter({message.message_id: 1}))
        done.add_callback(lambda error: error or self._available.append(message.message_id))
        self.store.enqueue(message, self.queues[0], done.finish)

    def _dequeue(self) -> None:
        if not self._available:
            self._slots.release()
            return
        gone = self._available.pop(0)
        done = self._answered(Counter({gone: -1}))
        self.store.dequeue(gone, self.queues[0], "me", done.finish)

    def _enqueue_many(self) -> None:
        """Each for itself, on its queue or refused; of a queue that is not there all are."""
        queue = self._dice.choice((*self.queues, "nowhere"))
        bodies = [self._dice.randbytes(30) for _ in range(self._dice.choice([3, 90]))]
        new = NewMessageRun((MessageHeader(),), bodies, queue)
        asked = Event()
        ids: list[int] = []

        def note(outcomes: Sequence[StoreError | None]) -> None:
            asked.wait(60)  # until the ids are known here
            for message_id, error in zip(ids, outcomes, strict=True):
                if (queue == "nowhere") != isinstance(error, InvalidRequest):
                    self.wrong.append(f"one of a batch came to {error!r} on {queue}")
                elif error is None:
                    self.told += 1
                    self.expected[message_id] += 1
                    if queue == self.queues[0]:
                        self._available.append(message_id)
            self._slots.release()

        ids += self.store.enqueue_new(new, note)
        asked.set()

    def _take_many(self) -> None:
        """Acquire some, and one that nobody has; then dequeue them, in one frame each."""
        count = min(len(self._available), self._dice.choice([2, 50]))
        gone = [self._available.pop(0) for _ in range(count)]
        taken = [*gone, self._new()]

        def note(outcomes: Sequence[StoreError | None]) -> None:
            shown = [type(each) for each in outcomes]
            if shown != [type(None)] * count + [InvalidRequest]:
                self.wrong.append(f"a batch of entries came to {shown}")

        def dequeued(outcomes: Sequence[StoreError | None]) -> None:
            note(outcomes)
            self.told += count
            self.expected.update(dict.fromkeys(gone, -1))
            self._slots.release()

        self.store.acquire_each(taken, self.queues[0], "me", note)
        self.store.dequeue_each(taken, self.queues[0], "me", dequeued)

    def _transact(self) -> None:
        """One message on both queues, or on none."""
        message, transaction = self.store.message(MessageHeader(), b"both"), self.store.begin()
        for name in self.queues:
            self.store.enqueue(message, name, _ignore, transaction)
        done = self._answered(Counter({message.message_id: 2}), may_be_refused=True)
        self.store.commit(transaction, done.finish)

    def _refusable(self) -> None:
        """A refusal that was told stays one: a replay must not be decided otherwise."""
        done = Completion()

        def note(error: StoreError | None) -> None:
            if not isinstance(error, InvalidRequest):
                self.wrong.append(f"dequeue of nothing came to {error!r}")
            self._slots.release()

        done.add_callback(note)
        self.store.dequeue(self._new(), self.queues[0], "me", done.finish)


def run(folder: Path, kills: int, seed: int) -> tuple[int, int]:
    """So many kills; how many calls were told done, and how many transactions died.

    Raises:
        AssertionError: Something was told twice, lost, or told wrongly.
    """
    dice = random.Random(seed)
    root = folder / "root"
    with short_folder() as sockets:
        service = ServiceProcess(root, sockets / "s")
        service.start()
        members = [Member(service.path, number, seed) for number in range(MEMBERS)]
        try:
            for member in members:
                member.start()
            for _ in range(kills):
                before = sum(member.told for member in members)
                more = dice.choice([1, 100, 1000, 3000])
                until(lambda: sum(m.told for m in members) >= before + more, 120)  # noqa: B023
                service.kill()
                service.start()
            for member in members:
                member.stop()
            assert service.stop() == 0, service.log()
        finally:
            service.close()
    assert [member.wrong for member in members] == [[]] * MEMBERS
    compare(root, members)
    return sum(m.told for m in members), sum(m.refused for m in members)


def compare(root: Path, members: list[Member]) -> None:
    """What is in Delta is what was told, each message as often as it was told."""
    state = recover(open_root(root)).state
    found: Counter[int] = Counter()
    for queue in state.queues.values():
        found.update(queue.entries.keys())
    expected: Counter[int] = Counter()
    for member in members:
        expected.update({number: count for number, count in member.expected.items() if count})
    assert found == expected


def _ignore(_error: StoreError | None) -> None:
    """The commit tells."""
