"""What tests of a message store put into it, and what they see of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker_shim.completion import Completion
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import BrokerStore, MessageHeader, Queue
from tests.support.stores.stores import done

HEADER = MessageHeader(
    header=b"\x00p\xffh", priority=7, subject="späť 🦊", properties=(("a", "1"),)
)


def put(store: BrokerStore, queue: str = "q", body: bytes = b"body") -> int:
    """Enqueue a new message; its id."""
    message = store.message(HEADER, body)
    done(store.enqueue, message, queue)
    return message.message_id


def contents(store: BrokerStore) -> tuple[Any, ...]:
    """Everything that `recover` shows, comparable and copied."""
    found = store.recover()
    return (
        sorted(found.queues, key=lambda queue: queue.name),
        sorted(found.exchanges, key=lambda exchange: exchange.name),
        dict(found.bindings),
        {
            queue: [
                (message_id, entry.acquired_by, entry.delivery_count, entry.priority)
                for message_id, entry in entries.items()
            ]
            for queue, entries in found.entries.items()
        },
    )


def ids(store: BrokerStore, queue: str = "q") -> list[int]:
    """Message ids on a queue, in its order."""
    return [*store.recover().entries[queue]]


def root_with_orders(path: Path, count: int) -> Path:
    """Make a root in which the real store wrote so many messages, on the queue `orders`."""
    store = DeltaMessageStore(path)
    store.create(Queue("orders"), lambda _error: None)
    for number in range(count):
        body = f"order {number}".encode()
        last = Completion()
        store.enqueue(store.message(MessageHeader(), body), "orders", last.finish)
    last.complete(timeout_s=30)
    store.close()
    return path
