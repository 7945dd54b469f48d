"""A member acts on frames of its service in their order, also on those that one read brought."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from broker_shim.store import protocol as wire
from broker_shim.store.interface import Queue
from broker_shim.store.remote.greeting import MemberIdentity
from broker_shim.store.remote.remote_store import RemoteMessageStore
from tests.support.stores.scripted_service import ScriptedService
from tests.support.stores.services import short_folder


class TellingService(ScriptedService):
    """Says of its own accord that a subscription ended, with the answer of each request."""

    def answers(self, kind: int, body: Any) -> Iterable[tuple[int, Any]]:
        if kind == wire.HELLO:
            limits = (wire.MAX_FRAME_BYTES, wire.MAX_WAITING_REQUESTS)
            return [(wire.WELCOME, (wire.VERSION, 0, "run", "root", (), *limits, 1, 1))]
        if kind == wire.DO:
            return [(wire.DONE, (body[0], (), 2)), (wire.ENDED, (body[0], "", ""))]
        return []


class Hearer:
    """Notes what it hears of."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.has_heard = threading.Event()

    def connected(self, *, is_new_run: bool) -> None:
        """Note nothing of a connection."""

    def hear(self, kind: int, body: Any) -> None:
        """Note a frame."""
        self.events.append(f"{kind} {body[0]}")
        self.has_heard.set()


def test_what_is_done_completes_before_what_the_service_says_after_it() -> None:
    """A message that was rejected may come round, and be granted anew, before that is told."""
    with short_folder() as folder:
        service, hearer = TellingService(folder / "s"), Hearer()
        store = RemoteMessageStore(folder / "s", MemberIdentity("m", "1"))
        store.listen(hearer)
        store.create(Queue("q"), lambda error: hearer.events.append(f"done {error}"))
        assert hearer.has_heard.wait(20)
        store.close()
        service.end()
    assert hearer.events == ["done None", f"{wire.ENDED} 1"]
