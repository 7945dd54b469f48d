"""What stores of a chain have in common."""

from __future__ import annotations

from typing import Any

from broker_shim.store.chain.difference import CATEGORY
from broker_shim.store.interface import BrokerStore
from sparkstore.core.annotations import annotations_of


def contents(store: BrokerStore) -> dict[str, Any]:
    """All that two stores must have alike, which is all but positions and times."""
    found = store.recover()
    return {
        "queues": {queue.name: queue for queue in found.queues},
        "exchanges": {exchange.name: exchange for exchange in found.exchanges},
        "bindings": dict(found.bindings),
        "entries": {
            queue: [
                (i, entry.acquired_by, entry.delivery_count, annotations_of(entry.detail))
                for i, entry in entries.items()
            ]
            for queue, entries in found.entries.items()
        },
        "content": {i: store.load(i).body for entries in found.entries.values() for i in entries},
        "configured": {
            key: detail for key, detail in found.configured.items() if key[0] != CATEGORY
        },
        "links": dict(found.links),
        "unsettled": {key: dict(states) for key, states in found.unsettled.items() if states},
    }
