"""What a machine that was taken over says is asked of the one that took over.

The machines are scripted: a real one says this only in the moment before it sends its members away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_shim.store import protocol as wire
from broker_shim.store.interface import Queue
from broker_shim.store.remote.greeting import MemberIdentity
from broker_shim.store.remote.remote_store import RemoteMessageStore
from tests.support.stores.scripted_service import ScriptedService
from tests.support.stores.services import short_folder
from tests.support.stores.stores import done

FENCED = ("Fenced", "the other machine took over, with generation 2")


class Machine(ScriptedService):
    """Serves members in turn; one that is fenced refuses what it is asked."""

    def __init__(self, path: Path, generation: int, *, is_fenced: bool) -> None:
        self._generation, self._is_fenced = generation, is_fenced
        self.asked: list[int] = []
        super().__init__(path)

    def answers(self, kind: int, body: Any) -> Iterable[tuple[int, Any]]:
        if kind == wire.HELLO:
            limits = (wire.MAX_FRAME_BYTES, wire.MAX_WAITING_REQUESTS)
            root = (f"run {self._generation}", f"root {self._generation}", ())
            return [(wire.WELCOME, (wire.VERSION, 0, *root, *limits, self._generation, 1))]
        self.asked.append(kind)
        if kind == wire.BRANCHES:
            fenced = (wire.FAILED, (body[0], *FENCED))
            return [fenced if self._is_fenced else (wire.ANSWER, (body[0], True, ()))]
        if kind == wire.DO:
            refusals = ((body[0], *FENCED),) if self._is_fenced else ()
            return [(wire.DONE, (body[0], refusals, 2))]
        return []


@pytest.fixture
def pair() -> Iterator[tuple[Machine, Machine, str]]:
    with short_folder() as folder:
        old = Machine(folder / "a", 1, is_fenced=True)
        new = Machine(folder / "b", 2, is_fenced=False)
        yield old, new, f"unix:{folder / 'a'},unix:{folder / 'b'}"
        old.end()
        new.end()


def test_a_read_that_a_fenced_machine_refuses_is_answered_by_the_other_one(
    pair: tuple[Machine, Machine, str],
) -> None:
    old, new, addresses = pair
    store: Any = RemoteMessageStore(addresses, MemberIdentity("m", "1"))
    assert store.prepared() == []
    assert old.asked[:1] == new.asked[:1] == [wire.BRANCHES]
    store.close()


def test_a_request_that_a_fenced_machine_refuses_is_decided_by_the_other_one(
    pair: tuple[Machine, Machine, str],
) -> None:
    old, new, addresses = pair
    store: Any = RemoteMessageStore(addresses, MemberIdentity("m", "1"))
    done(store.create, Queue("q"))
    assert old.asked[:1] == new.asked[:1] == [wire.DO]
    store.close()
