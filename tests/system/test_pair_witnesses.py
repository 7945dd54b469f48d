"""A pair whose witness is a bucket, or a Lease of an API server: real brokers, begun at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from proton import Message

from tests.support.objects import lease_server, s3_server
from tests.support.system.clients import send, take
from tests.support.system.pair_machines import Pair

pytestmark = [pytest.mark.system, pytest.mark.slow]
LEASE_S = 1.5
COUNT = 30


@contextmanager
def witness_of(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if kind == "bucket":
        with s3_server.served(monkeypatch):
            yield "s3://lake/witness/orders"
    else:
        with lease_server.served(folder, monkeypatch) as server:
            yield "kubernetes:queues/orders"
            spec = server.leases["orders"]["spec"]
            assert spec["holderIdentity"] == ""  # as both have ended
            assert spec["leaseTransitions"] == 2


@pytest.mark.parametrize("kind", ["bucket", "kubernetes"])
def test_a_standby_takes_over_by_it_and_the_old_primary_follows(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with witness_of(kind, tmp_path, monkeypatch) as witness:
        pair = Pair(tmp_path, LEASE_S, witness=witness)
        try:
            for number in (0, 1):  # at once, with empty folders: one makes the root
                pair.start(number)
            first = pair.primary_in_step()
            messages = [Message(id=number, body="", durable=True) for number in range(COUNT)]
            send(f"amqp://127.0.0.1:{pair.ports[first]}", "orders", *messages)
            pair.kill(first)
            pair.wait(lambda: pair.primary() != first and not pair.holder()["is_closed"])
            pair.start(first)
            assert pair.primary_in_step() == 1 - first
            url = f"amqp://127.0.0.1:{pair.ports[1 - first]}"
            assert [message.id for message in take(url, "orders", COUNT)] == [*range(COUNT)]
            assert pair.holder()["generation"] == 2
        finally:
            pair.end()
