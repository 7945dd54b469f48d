"""What every `BrokerStore` promises of its reads: parts, headers, and loads nobody waits for."""

from __future__ import annotations

import threading
from queue import SimpleQueue

import pytest

from broker_shim.durability import TerminusDurability
from broker_shim.errors import Closed, InvalidRequest
from broker_shim.store.interface import BrokerStore, MessageHeader, Queue, StoredMessage
from broker_shim.store.reads import Loaded
from tests.support.stores.stores import TIMEOUT_S, done

HEADER = MessageHeader(
    header=b"\x00p\xffh", priority=7, subject="späť 🦊", properties=(("a", "1"), ("b", "2"))
)
BODY = bytes(range(256)) * 10_000
"""2.5 MB: three pieces when it is staged."""


def put(store: BrokerStore, body: bytes = b"body", header: MessageHeader = HEADER) -> int:
    """Enqueue a new message; its id."""
    message = store.message(header, body)
    done(store.enqueue, message, "q")
    return message.message_id


def put_staged(store: BrokerStore, body: bytes) -> int:
    """Enqueue a message whose content comes in pieces; its id."""
    message = done(store.stage, store.message(HEADER), [body[:100], body[100:]])
    done(store.enqueue, message, "q")
    return int(message.message_id)


@pytest.fixture
def q(store: BrokerStore) -> BrokerStore:
    """The store, with the queue `q`."""
    done(store.create, Queue("q"))
    return store


class Loads:
    """What `prefetch` told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[int, Loaded]] = []
        self.threads: set[int] = set()
        self._news: SimpleQueue[None] = SimpleQueue()

    def __call__(self, message_id: int, loaded: Loaded) -> None:
        self.told.append((message_id, loaded))
        self.threads.add(threading.get_ident())
        self._news.put(None)

    def wait(self, count: int) -> None:
        """Until so many more were told."""
        for _ in range(count):
            self._news.get(timeout=TIMEOUT_S)


# ---------------------------------------------------------------------------------------- read


@pytest.mark.parametrize("put_it", [put, put_staged])
def test_a_part_of_the_content_is_that_slice_of_it(q: BrokerStore, put_it: object) -> None:
    assert callable(put_it)
    message_id = put_it(q, BODY)
    for offset, length in (
        (0, 0),
        (0, 1),
        (0, len(BODY)),
        (99, 2),
        (100, 1 << 20),
        ((1 << 20) + 90, 30),
        (len(BODY) - 5, 5),
        (len(BODY) - 5, 500),
        (len(BODY), 10),
        (len(BODY) + 7, 10),
    ):
        assert q.read(message_id, offset, length) == BODY[offset : offset + length]


@pytest.mark.parametrize("put_it", [put, put_staged])
def test_content_of_no_bytes_is_at_its_end_at_once(q: BrokerStore, put_it: object) -> None:
    assert callable(put_it)
    assert q.read(put_it(q, b""), 0, 10) == b""


def test_a_part_of_a_message_that_is_on_no_queue_is_refused(q: BrokerStore) -> None:
    message_id = put(q)
    done(q.dequeue, message_id, "q", None)
    for gone in (message_id, message_id + 1_000_000, 0, -1):
        with pytest.raises(InvalidRequest, match="on no queue"):
            q.read(gone, 0, 1)


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, -1), (-5, -5)])
def test_a_negative_offset_or_length_is_refused(q: BrokerStore, offset: int, length: int) -> None:
    message_id = put(q)
    with pytest.raises(InvalidRequest, match="negative"):
        q.read(message_id, offset, length)


# ------------------------------------------------------------------------------------- headers


def test_headers_come_in_the_order_asked_as_load_has_them(q: BrokerStore) -> None:
    numbers = [put(q, b"x" * n, HEADER._replace(subject=str(n))) for n in range(20)]
    numbers += [put_staged(q, b"staged"), put(q, b"", MessageHeader(durable=False))]
    asked = [*reversed(numbers), numbers[3], numbers[3]]
    assert q.headers(asked) == [q.load(number).header for number in asked]


def test_the_header_of_a_message_that_is_on_no_queue_is_none(q: BrokerStore) -> None:
    kept, gone = put(q), put(q)
    done(q.dequeue, gone, "q", None)
    found = q.headers([gone, kept, kept + 1_000_000, -1])
    assert [header is None for header in found] == [True, False, True, True]
    assert q.headers([]) == []


# ------------------------------------------------------------------------------------ prefetch


def test_prefetch_tells_each_message_once_in_the_order_asked_on_another_thread(
    q: BrokerStore,
) -> None:
    numbers = [put(q, str(n).encode()) for n in range(100)]
    gone = numbers.pop(50)
    done(q.dequeue, gone, "q", None)
    asked = [*reversed(numbers), numbers[0], gone]
    loads = Loads()
    q.prefetch(asked, loads)
    q.prefetch([], loads)
    q.prefetch(numbers[:3], loads)
    loads.wait(len(asked) + 3)
    assert [number for number, _ in loads.told] == [*asked, *numbers[:3]]
    assert threading.get_ident() not in loads.threads
    for number, loaded in loads.told:
        if number == gone:
            assert isinstance(loaded, InvalidRequest)
        else:
            assert loaded == q.load(number)


def test_a_callback_of_prefetch_may_call_the_store_and_what_it_raises_stops_nobody(
    q: BrokerStore,
) -> None:
    first, second = put(q), put(q)
    bodies: SimpleQueue[bytes] = SimpleQueue()

    def told(message_id: int, loaded: Loaded) -> None:
        assert isinstance(loaded, StoredMessage)
        bodies.put(q.load(message_id).body)
        raise RuntimeError("a caller's bug")

    q.prefetch([first, second], told)
    assert [bodies.get(timeout=TIMEOUT_S) for _ in range(2)] == [b"body", b"body"]


def test_what_close_leaves_unloaded_is_told_closed_and_nothing_is_forgotten(
    q: BrokerStore,
) -> None:
    numbers = [put(q) for _ in range(5)]
    loads = Loads()
    has_begun, may_go_on = threading.Event(), threading.Event()

    def first(message_id: int, loaded: Loaded) -> None:
        loads(message_id, loaded)
        has_begun.set()
        may_go_on.wait(TIMEOUT_S)

    q.prefetch(numbers, first)
    q.prefetch(numbers[:2], loads)
    assert has_begun.wait(TIMEOUT_S)
    closing = threading.Thread(target=q.close)
    closing.start()
    while not _is_closed(q, loads):
        pass
    may_go_on.set()
    closing.join(TIMEOUT_S)
    assert [number for number, _ in loads.told] == [*numbers, *numbers[:2]]
    assert isinstance(loads.told[0][1], StoredMessage)
    assert all(isinstance(loaded, Closed) for _, loaded in loads.told[1:])


def _is_closed(store: BrokerStore, loads: Loads) -> bool:
    try:
        store.prefetch([], loads)
    except Closed:
        return True
    return False


def test_a_store_that_is_closed_refuses_every_read(q: BrokerStore) -> None:
    message_id = put(q)
    q.close()
    for call in (
        lambda: q.read(message_id, 0, 1),
        lambda: q.headers([message_id]),
        lambda: q.prefetch([message_id], Loads()),
    ):
        with pytest.raises(Closed):
            call()


def test_a_transient_message_is_read_like_any_other(q: BrokerStore) -> None:
    done(q.create, Queue("passing", TerminusDurability.NONE))
    message = q.message(HEADER, b"0123456789")
    done(q.enqueue, message, "passing")
    loads = Loads()
    q.prefetch([message.message_id], loads)
    loads.wait(1)
    assert q.read(message.message_id, 3, 4) == b"3456"
    assert q.headers([message.message_id]) == [message.header]
    assert loads.told == [(message.message_id, message)]
