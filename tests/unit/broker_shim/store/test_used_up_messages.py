"""What a store remembers of new messages ends with their transaction, unless that is undone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from broker_shim.errors import Full, StoreError
from broker_shim.store.branch_store import Xid
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.core.state_machine.call_values import EnqueueCall
from tests.support.stores.stores import Home, done


@pytest.fixture(params=["memory", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A store with a queue that is full, and one that takes all."""
    home = Home(request.param, tmp_path / "store")
    done(home.store.create, Queue("small", arguments={"max_depth": 1}))
    done(home.store.create, Queue("large"))
    done(home.store.enqueue, home.store.message(MessageHeader("raw")), "small")
    yield home.store
    home.store.close()


def end(store: Any, within: Any, ending: str) -> None:
    """End a transaction in one of three ways."""
    if ending == "prepare":
        done(store.prepare, within, Xid(1, b"g", b"b"))
    else:
        done(getattr(store, ending), within)


@pytest.mark.parametrize("ending", ["commit", "abort", "prepare"])
@pytest.mark.parametrize("queue", ["small", "large"])
@pytest.mark.parametrize("is_run", [False, True])
def test_new_messages_are_forgotten_when_their_transaction_ends(
    store: Any, ending: str, queue: str, is_run: bool
) -> None:
    header, bodies, within = MessageHeader("raw"), [b"1", b"2"], store.begin()
    singles = (store.message(header, body) for body in bodies)
    for messages in store.messages((header,), bodies) if is_run else singles:
        with suppress(Full):
            done(store.call, EnqueueCall(messages, queue), transaction=within)
    is_refused = queue == "small"
    with pytest.raises(StoreError) if is_refused and ending != "abort" else nullcontext():
        end(store, within, ending)
    remembered = store._machine.fresh if hasattr(store, "_machine") else store._messages._fresh
    may_come_again = ending == "abort" and not is_refused
    is_in_memory = ending == "prepare" and not is_refused and hasattr(store, "_machine")
    assert len(remembered) == (2 if may_come_again or is_in_memory else 0)
