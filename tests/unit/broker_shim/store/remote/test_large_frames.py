"""What a member sends of many messages at once stays under the limit of a frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from broker_shim.errors import StoreError
from broker_shim.store import protocol as wire
from broker_shim.store.interface import MessageHeader, NewMessageRun
from broker_shim.store.remote.batches import MOST_BYTES
from broker_shim.store.remote.greeting import MemberIdentity
from broker_shim.store.remote.remote_store import RemoteMessageStore
from sparkstore.core.state_machine.arguments import with_lengths
from sparkstore.core.state_machine.call_values import EnqueueCall, StoredRun
from tests.support.stores.scripted_service import ScriptedService
from tests.support.stores.services import short_folder
from tests.support.stores.stores import done, outcomes

LARGE = 9 << 20
"""More than a frame may have."""
HEADER = MessageHeader("amqp", header=b"h" * 20_000)


class NotingService(ScriptedService):
    """Takes all, and notes of each frame its type, its messages, and the bytes of its contents."""

    def __init__(self, *args: Any) -> None:
        self.frames: list[tuple[int, int, int]] = []
        super().__init__(*args)

    def answers(self, kind: int, body: Any) -> Iterable[tuple[int, Any]]:
        if kind == wire.HELLO:
            limits = (wire.MAX_FRAME_BYTES, wire.MAX_WAITING_REQUESTS)
            return [(wire.WELCOME, (wire.VERSION, 0, "run", "root", (), *limits, 1 << 26, 1))]
        if kind == wire.IDS:
            return [(wire.ANSWER, (body[0], True, 1))]
        count, size = 1, len(body[1][8] or b"") if kind == wire.PIECE else 0
        if kind == wire.RUN:
            _request, _record, _first, count, headers, bodies = body
            headers = headers * (1 if len(headers) > 1 else count)
            size = sum(len(header[1] or b"") for header in headers)
            size += sum(len(content or b"") for content in bodies)
        self.frames.append((kind, count, size))
        return [(wire.DONE, (body[0] + count - 1, (), 0))]


def enqueued(
    headers: Sequence[MessageHeader], bodies: Sequence[bytes], *, have_ids: bool
) -> tuple[list[tuple[int, int, int]], list[str]]:
    """The frames of messages that are enqueued together, and what came of them."""
    with short_folder() as folder:
        service = NotingService(folder / "s")
        store = RemoteMessageStore(folder / "s", MemberIdentity("m", "1"))
        if have_ids:
            ids = range(1, len(bodies) + 1)
            known = with_lengths(headers, bodies, 1 << 30)
            call = EnqueueCall(StoredRun(ids, known, bodies), "q")
            try:
                done(store.call, call)
                refused = [""]
            except StoreError as refusal:
                refused = [type(refusal).__name__]
        else:
            refused = outcomes(store.enqueue_new, NewMessageRun(headers, bodies, "q"))[1]
        store.close()
        service.end()
    return service.frames, refused


@pytest.mark.parametrize("have_ids", [True, False])
def test_frames_are_cut_by_headers_and_contents(*, have_ids: bool) -> None:
    frames, refused = enqueued((HEADER,), [b"x"] * 512, have_ids=have_ids)
    assert {*refused} == {""}
    assert sum(count for _kind, count, _size in frames) == 512
    assert 10 <= len(frames) <= 11
    assert all(kind == wire.RUN and size <= MOST_BYTES for kind, _count, size in frames)


@pytest.mark.parametrize("have_ids", [True, False])
def test_content_that_no_frame_has_room_for_goes_before_in_pieces(*, have_ids: bool) -> None:
    bodies = [b"x", bytes(LARGE), b"y"]
    frames, refused = enqueued((MessageHeader("amqp"),), bodies, have_ids=have_ids)
    assert {*refused} == {""}
    pieces = [size for kind, _count, size in frames if kind == wire.PIECE]
    assert sum(pieces) == LARGE
    runs = [(count, size) for kind, count, size in frames if kind == wire.RUN]
    assert runs == [(1, 1), (1, 0), (1, 1)]
    volatile = MessageHeader("amqp", durable=False)
    frames, refused = enqueued((volatile,), bodies, have_ids=have_ids)
    assert refused == (["SomeRefused"] if have_ids else ["", "InvalidRequest", ""])
    assert [size for _kind, _count, size in frames] == [1, 1]
