"""The HTTP port under people who mean no good, on real sockets, with and without TLS."""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker_shim.broker.settings import BrokerSettings
from broker_shim.serve.http.port.http_connection import Patience
from broker_shim.serve.http.resources.events import OpenStreams
from broker_shim.store.interface import MessageHeader
from tests.support.amqp.certificates import Authority, Pair
from tests.support.amqp.left_behind import objects_left, told
from tests.support.roots.logs import until
from tests.support.stores.http_houses import HttpHouse, path_of

TIMEOUT_S = 20
SHORT = Patience(head_s=0.2, body_s=0.2, read_s=0.2)
LONG = Patience(head_s=600, body_s=600, read_s=600)
PLACES = 8
TRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TRUSTING.check_hostname, TRUSTING.verify_mode = False, ssl.CERT_NONE
HOST = b"Host: 127.0.0.1\r\n"
PROBE = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
CREATE = (
    b"PUT /api/v1/queues/q HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
    b"Content-Length: 2\r\n\r\n"
)


class Place(NamedTuple):
    """A broker with its HTTP port."""

    house: HttpHouse
    is_tls: bool

    def connect(self, received_bytes: int | None = None) -> socket.socket:
        """A connected socket, after the handshake of TLS."""
        peer = self.silent(received_bytes)
        return TRUSTING.wrap_socket(peer) if self.is_tls else peer

    def silent(self, received_bytes: int | None = None) -> socket.socket:
        """A connected socket, before any handshake."""
        peer = socket.socket()
        if received_bytes is not None:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received_bytes)
        peer.settimeout(TIMEOUT_S)
        peer.connect(("127.0.0.1", self.house.port))
        return peer

    def status(self, path: str = "/healthz", method: str = "GET") -> int:
        """The status of an honest request."""
        peer = self.connect()
        with closing(peer):
            peer.sendall(f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            return answered(peer).status


class Answer(http.client.HTTPResponse):
    """An answer that was read whole."""

    content: bytes


def answered(peer: socket.socket, method: str = "GET") -> Answer:
    """The next answer on a connection."""
    answer = Answer(peer, method=method)
    answer.begin()
    answer.content = answer.read()
    return answer


class Pipeline(io.BytesIO):
    """What a peer reads of several answers; an answer that was read does not close it."""

    def makefile(self, _mode: str) -> Pipeline:
        return self

    def close(self) -> None:
        """Stay open for the next answer."""


def statuses(peer: socket.socket, count: int) -> list[int]:
    """The statuses of answers to requests that were sent at once, of which the last is a probe."""
    content = b""
    while content.count(b"HTTP/1.1 ") < count or not content.endswith(b"ok\n"):
        content += peer.recv(1 << 16) or pytest.fail(f"hung up after {content!r}")
    pipeline: Any = Pipeline(content)
    return [answered(pipeline).status for _ in range(count)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Authority(tmp_path_factory.mktemp("tls")).issue_server()


@pytest.fixture(params=["http", "https"])
def serve(
    request: pytest.FixtureRequest, tmp_path: Path, pair: Pair
) -> Iterator[Callable[..., Place]]:
    """Serve a broker whose peers have so much time, and so many places."""
    is_tls = request.param == "https"
    with ExitStack() as stack:

        def begin(patience: Patience = LONG, places: int = PLACES) -> Place:
            settings = BrokerSettings(max_connections=places)
            tls = pair if is_tls else None
            house = HttpHouse(tmp_path, settings=settings, tls=tls, patience=patience)
            stack.callback(house.stop)
            return Place(house, is_tls)

        yield begin


def is_hung_up(peer: socket.socket) -> bool:
    """Wait until the port hangs up; True if it did."""
    with suppress(ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):
        while peer.recv(1 << 16):
            pass
    return True


@pytest.mark.parametrize(
    "began",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\n" + HOST,
        CREATE + b"{",
        b"POST /api/v1/sql HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{",
    ],
    ids=["nothing", "half a head", "half a body", "half a body in chunks"],
)
def test_who_does_not_say_all_in_time_is_hung_up_on(
    serve: Callable[..., Place], began: bytes
) -> None:
    with closing(serve(SHORT).connect()) as peer:
        peer.sendall(began)
        assert is_hung_up(peer)


@pytest.mark.parametrize("more", [b"", b"G"])
def test_who_was_answered_and_begins_anew_is_hung_up_on(
    serve: Callable[..., Place], more: bytes
) -> None:
    with closing(serve(SHORT).connect()) as peer:
        peer.sendall(PROBE)
        assert answered(peer).content == b"ok\n"
        peer.sendall(more)
        assert is_hung_up(peer)


def test_who_sends_the_rest_of_a_refused_body_too_late_is_hung_up_on(
    serve: Callable[..., Place],
) -> None:
    with closing(serve(SHORT).connect()) as peer:
        peer.sendall(b"POST /nothing HTTP/1.1\r\n" + HOST + b"Content-Length: 9\r\n\r\n1")
        assert answered(peer).status == 404
        assert is_hung_up(peer)


@pytest.mark.parametrize("patience", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize(
    ("began", "then"),
    [(b"", b""), (b"GET /healthz HT", b""), (PROBE, b"G"), (CREATE, b"")],
    ids=["silent", "half a head", "answered", "half a body"],
)
def test_probes_and_requests_are_answered_however_many_sockets_are_held(
    serve: Callable[..., Place], patience: Patience, began: bytes, then: bytes
) -> None:
    """With all the time there is, too: who waits for longest gives way."""
    place = serve(patience)
    with ExitStack() as stack:
        for _ in range(3 * PLACES):
            peer = stack.enter_context(closing(place.connect()))
            with suppress(OSError):  # it gave way meanwhile
                peer.sendall(began)
                if then:
                    answered(peer)
                    peer.sendall(then)
        for _ in range(3):
            assert place.status() == place.status("/readyz") == 200
            assert place.status("/api/v1/queues") == 200


def test_sockets_that_never_shake_hands_keep_nobody_out(serve: Callable[..., Place]) -> None:
    place = serve()
    with ExitStack() as stack:
        for _ in range(3 * PLACES):
            stack.enter_context(closing(place.silent()))
        assert place.status() == place.status("/api/v1/queues") == 200


def test_refusals_are_one_line_with_the_reason(serve: Callable[..., Place]) -> None:
    place = serve()
    with ExitStack() as stack:
        for _ in range(5 * PLACES):
            stack.enter_context(closing(place.silent()))
        assert place.status() == 200
        refused = [details for event, details in place.house.audited if "refused" in event]
    assert [details["reason"] for details in refused] == [
        f"HTTP: {PLACES} connections are open: the oldest gave way"
    ]


def page(place: Place, message_bytes: int = 100_000, count: int = 60) -> str:
    """A queue with so much in the properties of its messages; the path of a page."""
    place.house.put_queue("large")
    header = MessageHeader("raw", b"h", properties=(("p", "x" * message_bytes),))
    place.house.put("large", *[b""] * count, header=header)
    return path_of("large", f"/messages?limit={count}")


def asked(place: Place, path: str) -> socket.socket:
    """A peer with little room that asked for that, and does not read."""
    peer = place.connect(received_bytes=4096)
    peer.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return peer


def test_an_answer_that_nobody_reads_in_time_is_cut_off(serve: Callable[..., Place]) -> None:
    place = serve(SHORT)
    with closing(asked(place, page(place))) as peer:
        until_empty(place)  # before a byte was read
        answer = Answer(peer)
        answer.begin()
        with pytest.raises((http.client.IncompleteRead, OSError)):
            answer.read()
    assert place.status() == 200


def test_a_stream_that_nobody_reads_is_cut_off_and_keeps_nothing(
    serve: Callable[..., Place],
) -> None:
    place = serve(SHORT)
    place.house.put_queue("large")
    place.house.put("large", *[b"x" * 100_000] * 60)
    with closing(place.connect(received_bytes=4096)) as peer:
        head = b"POST /api/v1/queues/large/export HTTP/1.1\r\n" + CREATE.split(b"\r\n", 1)[1]
        peer.sendall(head + b"{}")
        until_empty(place)  # before a byte was read
        answer = Answer(peer)
        answer.begin()
        assert answer.headers["transfer-encoding"] == "chunked"
        with pytest.raises((http.client.IncompleteRead, OSError)):
            answer.read()
    assert OpenStreams.count == 0


def until_empty(place: Place) -> None:
    """Wait until nobody is connected and nothing is answered; all were accepted before."""
    assert place.status() == 200
    is_empty, loop = threading.Event(), place.house.server._loop

    def look() -> None:
        places = place.house.server.ports[0].places
        if places.count or places.request_count:
            loop.call_later(0.01, look)
        else:
            is_empty.set()

    loop.call_soon_threadsafe(look)
    assert is_empty.wait(TIMEOUT_S)


def test_who_reads_slowly_gets_all_of_it(serve: Callable[..., Place]) -> None:
    place = serve()
    with closing(asked(place, page(place))) as peer:
        assert len(json.loads(answered(peer).content)["items"]) == 60
        peer.sendall(PROBE)
        assert answered(peer).content == b"ok\n"


def test_answers_that_nobody_reads_keep_no_probe_out(serve: Callable[..., Place]) -> None:
    place = serve()
    path = page(place)
    with ExitStack() as stack:
        for _ in range(3 * PLACES):
            stack.enter_context(closing(asked(place, path)))
        assert place.status() == 200
        until(lambda: place.status("/api/v1/queues") == 200)  # 503 while pages are being made


@pytest.mark.parametrize(
    "lengths",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Transfer-Encoding: gzip\r\n",
        b"Content-Length: -1\r\n",
    ],
)
def test_a_body_of_two_lengths_is_refused_and_ends_the_connection(
    serve: Callable[..., Place], lengths: bytes
) -> None:
    """Whatever came with it is no request: a proxy before this may have counted otherwise."""
    with closing(serve().connect()) as peer:
        peer.sendall(b"POST /nothing HTTP/1.1\r\n" + HOST + lengths + b"\r\n0\r\n\r\n" + PROBE)
        answer = answered(peer)
        assert answer.status in {400, 501}
        assert answer.headers["connection"] == "close"
        assert is_hung_up(peer)


def test_what_is_no_http_is_refused_in_a_line(serve: Callable[..., Place]) -> None:
    with closing(serve().connect()) as peer:
        peer.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert answered(peer).status == 400
        assert is_hung_up(peer)


def test_a_head_that_is_too_long_is_refused(serve: Callable[..., Place]) -> None:
    with closing(serve().connect()) as peer:
        peer.sendall(b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 40_000)
        assert answered(peer).status == 431
        assert is_hung_up(peer)


def test_requests_on_a_connection_are_answered_in_their_order(serve: Callable[..., Place]) -> None:
    with closing(serve().connect()) as peer:
        peer.sendall(PROBE + b"GET /nothing HTTP/1.1\r\n" + HOST + b"\r\n" + PROBE)
        assert statuses(peer, 3) == [200, 404, 200]


def test_the_rest_of_a_body_that_was_refused_is_thrown_away(serve: Callable[..., Place]) -> None:
    with closing(serve().connect()) as peer:
        peer.sendall(b"POST /api/v1/sql HTTP/1.1\r\n" + HOST + b"Content-Length: 2000000\r\n\r\n")
        peer.sendall(b" " * 2_000_000 + PROBE)
        assert statuses(peer, 2) == [413, 200]


def test_a_body_that_waits_to_be_asked_for_is_asked_for(serve: Callable[..., Place]) -> None:
    with closing(serve().connect()) as peer:
        peer.sendall(CREATE.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        assert peer.recv(1000).startswith(b"HTTP/1.1 100 ")
        peer.sendall(b"{}")
        assert answered(peer).status == 200


def test_a_head_alone_is_answered_without_a_body(serve: Callable[..., Place]) -> None:
    place = serve()
    with closing(place.connect()) as peer:
        peer.sendall(PROBE.replace(b"GET", b"HEAD"))
        answer = answered(peer, "HEAD")
        assert (answer.status, answer.headers["content-length"], answer.content) == (200, "3", b"")
        assert answer.headers["date"].endswith("GMT")
        peer.sendall(PROBE)
        assert answered(peer).content == b"ok\n"


def test_a_peer_of_http_1_0_is_hung_up_on_after_its_answer(serve: Callable[..., Place]) -> None:
    with closing(serve().connect()) as peer:
        peer.sendall(b"GET /healthz HTTP/1.0\r\n" + HOST + b"\r\n")
        assert answered(peer).content == b"ok\n"
        assert is_hung_up(peer)


def test_a_port_that_closes_hangs_up_on_who_waits(serve: Callable[..., Place]) -> None:
    place = serve()
    with closing(place.connect()) as silent, closing(place.connect()) as half:
        half.sendall(CREATE)
        assert place.status() == 200
        place.house.server.close()
        assert is_hung_up(silent)
        assert is_hung_up(half)


TIMES = 300
MOST = 0.6
KINDS = ["nothing", "half", "probe", "request", "missing", "order", "refused", "unread"]


@pytest.mark.slow
@pytest.mark.parametrize("said", KINDS)
def test_a_connection_that_is_over_leaves_nothing_for_the_collector(
    serve: Callable[..., Place], said: str
) -> None:
    place = serve(places=1_000)
    large = page(place, count=20).encode() if said == "unread" else b"/nothing"
    words = {
        "nothing": b"",
        "half": CREATE + b"{",
        "probe": PROBE,
        "request": PROBE.replace(b"/healthz", b"/api/v1/queues"),
        "missing": PROBE.replace(b"/healthz", b"/api/v1/queues/none"),
        "order": CREATE + b"{}",
        "refused": b"no http\r\n\r\n",
        "unread": PROBE.replace(b"/healthz", large),
    }[said]
    is_read = said in {"probe", "request", "missing", "order", "refused"}

    def come() -> None:
        with closing(place.connect(received_bytes=4096 if said == "unread" else None)) as peer:
            peer.sendall(words)
            if is_read:
                answered(peer)
            elif said == "unread":
                peer.recv(100)

    def settle() -> None:
        until_empty(place)
        place.house.audited.clear()

    times = 100 if said == "unread" else TIMES
    assert objects_left(come, times, settle) < MOST, told()
