"""A service of an earlier release is asked in its own version of the protocol.

It is scripted: no release of that version is installed beside this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from broker_shim.errors import InvalidRequest
from broker_shim.store import protocol as wire
from broker_shim.store.interface import MessageHeader, NewMessageRun
from broker_shim.store.remote.greeting import MemberIdentity
from broker_shim.store.remote.remote_store import RemoteMessageStore
from tests.support.stores.scripted_service import ScriptedService
from tests.support.stores.services import short_folder


class OlderService(ScriptedService):
    """Speaks with each connection the version that is next, and with the rest the last one.

    The first connection that asks for something is lost before its answer.
    """

    def __init__(self, path: Path, versions: list[int]) -> None:
        self._versions, self._is_first = versions, True
        self.asked: list[wire.Frame] = []
        super().__init__(path)

    def answers(self, kind: int, body: Any) -> Iterable[tuple[int, Any] | None]:
        version = self._versions[0]
        if kind == wire.HELLO and body[0] > version:
            refusal = f"the client speaks version {body[0]} of the store protocol, this service"
            return (wire.GOODBYE, ("InvalidRequest", f"{refusal} version {version}: install")), None
        if kind == wire.HELLO:
            limits = (wire.MAX_FRAME_BYTES, wire.MAX_WAITING_REQUESTS)
            return [(wire.WELCOME, (version, 0, "run", "root", (), *limits, 1, 1))]
        if kind == wire.IDS:
            return [(wire.ANSWER, (body[0], True, 1))]
        self.asked.append((kind, body))
        if self._is_first:
            self._is_first, self._versions = False, self._versions[1:]
            return [None]
        return [(wire.DONE, (body[0] + wire.request_count((kind, body)) - 1, (), 2))]


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as there:
        yield there


@pytest.mark.parametrize("versions", [[4, 4], [5, 4], [4, 5], [5, 5]])
def test_a_run_is_sent_in_the_frames_that_the_service_knows_also_when_it_is_sent_again(
    folder: Path, versions: list[int]
) -> None:
    service = OlderService(folder / "s", [*versions])
    store = RemoteMessageStore(folder / "s", MemberIdentity("m", "1"))
    outcomes: SimpleQueue[Any] = SimpleQueue()
    store.enqueue_new(NewMessageRun((MessageHeader(),), (b"a", b"b"), "q"), outcomes.put)
    assert [*outcomes.get(timeout=30)] == [None, None]
    first = wire.BATCH if versions[0] == 4 else wire.RUN
    again = wire.BATCH if 4 in versions else wire.RUN
    assert [kind for kind, _body in service.asked] == [first, again]
    assert {wire.request_count(frame) for frame in service.asked} == {2}
    store.close()
    service.end()


def test_a_service_that_speaks_no_version_of_ours_is_told_of(folder: Path) -> None:
    service = OlderService(folder / "s", [3])
    with pytest.raises(InvalidRequest, match="this service version 3"):
        RemoteMessageStore(folder / "s", MemberIdentity("m", "1"))
    service.end()
