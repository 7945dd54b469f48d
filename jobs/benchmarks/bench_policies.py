"""How long a policy takes that alters 10,000 queues of a running broker: `make bench-policies`."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

from broker_shim.store.interface import Queue
from sparkstore.operations.administration import AdminAction, Order
from tests.support.stores.controls import Place

QUEUES, ROUNDS = 10_000, 5


def main() -> None:
    """Print a line for each round: over the control socket, durable, and in use by the broker."""
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder) / "root", is_served=True)
        made, store = threading.Semaphore(0), place._store
        assert store is not None
        for number in range(QUEUES):
            store.create(Queue(f"orders.q{number}"), lambda _error: made.release())
        for _ in range(QUEUES):
            made.acquire()
        for depth in range(1, ROUNDS + 1):
            order = Order(AdminAction.SET_POLICY, key="all", match="orders.#")
            began_s = time.perf_counter()
            answer = place.control.order(order._replace(arguments={"max_depth": depth}))
            took_s = time.perf_counter() - began_s
            print(f"a policy altered {answer['altered']:,} queues in {took_s:.2f} s")
        place.close()


if __name__ == "__main__":
    main()
