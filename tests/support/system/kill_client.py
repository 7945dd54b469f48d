"""The process that the kill loop kills: a mixed load on a real store, and what it was told.

python -m tests.support.system.kill_client ROOT TOLD SEED

It writes a line to TOLD before each call (`?`) and in its completion (`+`, `-`): one `os.write` a
line, so that the file holds what this process was told up to the moment it died. Threads work on
queues of their own and on one that they share, where only messages of their own are touched.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from broker_shim.errors import StoreError
from broker_shim.store.branch_store import BranchStore, Xid
from broker_shim.store.chain.mirror import Mirror
from broker_shim.store.chain.place import Tolerance
from broker_shim.store.chain.store_chain import MessageStoreChain
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import (
    BrokerStore,
    MessageHeader,
    Queue,
    StoredMessage,
    TransactionContext,
)
from sparkstore.config import StoreConfig
from sparkstore.core.xids import branch_holder, xid_text

THREADS = 3
CONFIG = StoreConfig(
    commit_interval_ms=15,
    wal_file_bytes=1 << 20,
    max_wal_files=4,
    segment_commits=20,
    cache_bytes=20_000,
)
SHARED = "shared"


def queue_of(thread: int) -> str:
    """The queue that only one thread uses."""
    return f"queue {thread}"


class Told:
    """Lines to the parent."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def line(self, *what: object) -> None:
        os.write(self._file, json.dumps(what).encode() + b"\n")


class WorkStore(BrokerStore, BranchStore, Protocol):
    """What is worked on."""


class Worker:
    """One thread's calls; it knows which messages it may still use and who has them."""

    def __init__(self, store: WorkStore, told: Told, number: int, seed: int) -> None:
        self.store, self.told, self.number = store, told, number
        self.dice = random.Random(seed * 100 + number)
        self.available: list[tuple[str, int]] = []
        self.acquired: list[tuple[str, int]] = []
        self.branches: list[Xid] = []
        self.slots = threading.Semaphore(8)
        self.calls = 0

    def adopt(self) -> None:
        """Go on with what is there: every message on a queue of this thread's, every branch."""
        entries = self.store.recover().entries
        for message_id, entry in entries.get(queue_of(self.number), {}).items():
            known = {None: self.available, "me": self.acquired}.get(entry.acquired_by, [])
            known.append((queue_of(self.number), message_id))
        own = b"%d" % self.number
        self.branches = [each.xid for each in self.store.prepared() if each.xid.branch_id == own]

    def run(self) -> None:
        calls = [self.enqueue] * 6 + [self.stage, self.transact, self.transact, self.abort]
        calls += [self.acquire, self.acquire, self.release, self.dequeue, self.dequeue]
        calls += [self.prepare, self.decide]
        while True:
            if len(self.available) > 150:
                calls = [self.dequeue] * 6 + [
                    self.acquire,
                    self.transact,
                    self.prepare,
                    self.decide,
                ]
            elif len(self.available) < 20:
                calls = [self.enqueue] * 6 + [self.stage, self.transact, self.abort, self.release]
            self.dice.choice(calls)()
            if self.dice.random() < 0.01:
                self.store.flush(self.asked("flush", []))

    def asked(self, what: str, facts: list[Any]) -> Callable[[StoreError | None], None]:
        """Say what is about to be asked for; the completion says what came of it."""
        self.slots.acquire()
        self.calls += 1
        call = f"{os.getpid()}/{self.number}/{self.calls}"
        self.told.line("?", call, what, facts)

        def answered(error: StoreError | None) -> None:
            self.told.line("+" if error is None else "-", call, str(error or ""))
            self.slots.release()

        return answered

    def new(self) -> StoredMessage:
        body = self.dice.randbytes(self.dice.choice([0, 10, 300, 3000]))
        return self.store.message(MessageHeader(), body)

    def enqueue(self) -> None:
        message, queue = self.new(), queue_of(self.number)
        fact = ["on", queue, message.message_id, message.body.hex()]
        self.store.enqueue(message, queue, self.asked("enqueue", [fact]))
        self.available.append((queue, message.message_id))

    def stage(self) -> None:
        pieces = [self.dice.randbytes(self.dice.randrange(1, 2000)) for _ in range(3)]
        message = self.store.message(MessageHeader())
        staged = self.store.stage(message, pieces, self.asked("stage", []))
        queue = queue_of(self.number)
        fact = ["on", queue, message.message_id, b"".join(pieces).hex()]
        self.store.enqueue(staged, queue, self.asked("enqueue", [fact]))
        self.available.append((queue, message.message_id))

    def acquire(self) -> None:
        if self.available:
            key = self.available.pop(self.dice.randrange(len(self.available)))
            call = self.asked("acquire", [["held", *key, "me"]])
            self.store.acquire(key[1], key[0], "me", call)
            self.acquired.append(key)

    def release(self) -> None:
        if self.acquired:
            key = self.acquired.pop()
            call = self.asked("release", [["held", *key, None]])
            self.store.release(key[1], key[0], "me", call, delivery_failed=True)
            self.available.append(key)

    def dequeue(self) -> None:
        keys = self.acquired or self.available
        if keys:
            key = keys.pop(self.dice.randrange(len(keys)))
            self.store.dequeue(key[1], key[0], "me", self.asked("dequeue", [["off", *key]]))

    def transact(self) -> None:
        """One new message on two queues, one taken off, one acquired: all or nothing."""
        transaction, facts = self.store.begin(), self._changes()
        commit = self.asked("commit", [fact for fact, _ in facts])
        for _, act in facts:
            act(transaction)
        self.store.commit(transaction, commit)

    def prepare(self) -> None:
        """A new message, some of them in pieces, one taken off, one acquired: all in doubt."""
        store, message, ignore = self.store, self.new(), lambda _error: None
        body = message.body
        if self.dice.random() < 0.3:
            body = self.dice.randbytes(3000)
            staged = store.message(MessageHeader())
            message = store.stage(staged, [body[:2000], body[2000:]], self.asked("stage", []))
        number = message.message_id
        xid = Xid(1, b"%d" % number, b"%d" % self.number)
        transaction, holder = store.begin(), branch_holder(xid_text(xid))
        then: list[Any] = [["on", SHARED, number, body.hex()]]
        held: list[Any] = []
        store.enqueue(message, SHARED, ignore, transaction)
        for kind, by in (("off", None), ("held", "me")):
            if not self.available:
                continue
            queue, taken = self.available.pop(self.dice.randrange(len(self.available)))
            take = store.dequeue if kind == "off" else store.acquire
            take(taken, queue, "me", ignore, transaction)
            then.append([kind, queue, taken, *filter(None, [by])])
            held.append(["held", queue, taken, holder])
        store.prepare(transaction, xid, self.asked("prepare", [*held, ["doubt", "", number, then]]))
        self.branches.append(xid)

    def decide(self) -> None:
        if self.branches:
            xid = self.branches.pop(self.dice.randrange(len(self.branches)))
            what = self.dice.choice(["commit", "roll back"])
            decide = self.store.commit_prepared
            if what == "roll back":
                decide = self.store.rollback_prepared
            decide(xid, self.asked(what, [[what, "", int(xid.global_id)]]))

    def abort(self) -> None:
        transaction = self.store.begin()
        available, acquired = [*self.available], [*self.acquired]
        for _, act in self._changes():
            act(transaction)
        self.available, self.acquired = available, acquired
        self.store.abort(transaction, self.asked("abort", []))

    def _changes(self) -> list[tuple[list[Any], Callable[[TransactionContext], None]]]:
        store, message, ignore = self.store, self.new(), lambda _error: None
        changes: list[tuple[list[Any], Callable[[TransactionContext], None]]] = []
        for queue in (queue_of(self.number), SHARED):
            fact = ["on", queue, message.message_id, message.body.hex()]
            changes.append((fact, lambda t, queue=queue: store.enqueue(message, queue, ignore, t)))
        if self.available:
            queue, gone = self.available.pop(self.dice.randrange(len(self.available)))
            act = lambda t: store.dequeue(gone, queue, "me", ignore, t)  # noqa: E731
            changes.append((["off", queue, gone], act))
        if self.available:
            of, held = self.available.pop(self.dice.randrange(len(self.available)))
            take = lambda t: store.acquire(held, of, "me", ignore, t)  # noqa: E731
            changes.append((["held", of, held, "me"], take))
            self.acquired.append((of, held))
        self.available.append((queue_of(self.number), message.message_id))
        return changes


def main() -> None:
    """Open, say so, work until killed; with the root of a mirror after the seed, on a chain."""
    root, told, seed, *mirrors = sys.argv[1], Told(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]
    more = json.loads(os.environ.get("SPARKSTORE_KILL_CONFIG", "{}"))
    first = DeltaMessageStore(root, replace(CONFIG, **more))
    store: WorkStore = first
    if mirrors:
        mirror = Mirror("mirror", DeltaMessageStore(mirrors[0], CONFIG), first)
        mirror.catch_up()
        store = MessageStoreChain(first, [(mirror, Tolerance())])
    workers = [Worker(store, told, number, seed) for number in range(THREADS)]
    for name in (*map(queue_of, range(THREADS)), SHARED):
        store.create(Queue(name), workers[0].asked("create", [["queue", name, 0]]))
    for worker in workers:
        worker.adopt()
    told.line("!", "open")
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
