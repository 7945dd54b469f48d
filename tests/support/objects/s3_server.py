"""A server of the S3 protocol in this process: conditional under a lock, and it fails on demand.

It knows what obstore and deltalake ask of a bucket, and no more; signatures are not looked at. A
test gives it faults: each is asked once for every request and may answer it, or let the work be
done and drop the answer.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase, BytesIO
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

import pytest

BUCKET = "lake"
_PAGE = 1000
"""Keys in the answer to one request for a list, as S3 has it."""
DROP = -1
"""Of a fault: do the work and close the connection without an answer."""


class Request(NamedTuple):
    """What a fault is shown."""

    method: str
    key: str


Fault = Callable[[Request], int | None]
"""A status to answer without doing the work, DROP, or None: as if nothing was wrong."""


class _QuietServer(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that is gone, since a test has killed it."""


class S3Server:
    """A bucket `lake` in memory; `faults` are asked in their order."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.faults: list[Fault] = []
        self.error_code = "Injected"
        self.signers: set[str] = set()
        """Whose keys requests were signed with."""
        self.requests: list[Request] = []
        self.ignores_conditions = False
        self.lists_backwards = False
        self.snapshots: list[dict[str, bytes]] | None = None
        """What there was after each change, if a test wants to know: set it to a list."""
        self.lock = threading.RLock()
        self._server = _QuietServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        # A daemon: tests that share one server never close it, and a run must end all the same.
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """What AWS_ENDPOINT_URL is to be."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def fault_of(self, request: Request) -> int | None:
        """What is wrong with this request."""
        self.requests.append(request)
        answers = (fault(request) for fault in self.faults)
        return next((answer for answer in answers if answer is not None), None)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def once(method: str, key: str, answer: int) -> Fault:
    """A fault of the first request of this method for a key that matches a pattern."""
    left = [answer]

    def fault(request: Request) -> int | None:
        is_it = request.method == method and re.search(key, request.key) is not None
        return left.pop() if left and is_it else None

    return fault


def use(server_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let obstore and deltalake find a server, as a user would."""
    for name, setting in {
        "AWS_ENDPOINT_URL": server_endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "testtest",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, setting)


@contextmanager
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server that this process's environment names."""
    pytest.importorskip("obstore", reason="the extra s3 is not installed")
    server = S3Server()
    use(server.endpoint, monkeypatch)
    try:
        yield server
    finally:
        server.close()


def etag_of(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


def _handler(server: S3Server) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        store = server

    return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    store: S3Server

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._serve(self._get)

    def do_HEAD(self) -> None:
        self._serve(self._get)

    def do_PUT(self) -> None:
        self._serve(self._put)

    def do_POST(self) -> None:
        self._serve(self._post)

    def do_DELETE(self) -> None:
        self._serve(self._delete)

    def _serve(self, work: Callable[[], tuple[int, bytes, dict[str, str]]]) -> None:
        url = urlsplit(self.path)
        self.bucket, _, self.key = unquote(url.path.lstrip("/")).partition("/")
        self.query = {
            name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()
        }
        self.content = _content(self.headers, self.rfile)
        signed = re.search("Credential=([^/]+)/", self.headers.get("Authorization", ""))
        self.store.signers |= {signed[1]} if signed else set()
        fault = self.store.fault_of(Request(self.command, self.key or self.query.get("prefix", "")))
        if fault is not None and fault != DROP:
            self._answer(*_error(fault, self.store.error_code))
            return
        with self.store.lock:
            answer = work() if self.bucket == BUCKET else _error(404, "NoSuchBucket")
            if self.store.snapshots is not None and self.command in {"PUT", "POST", "DELETE"}:
                self.store.snapshots.append(dict(self.store.objects))
        if fault == DROP:
            self.close_connection = True
            return
        self._answer(*answer)

    def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", headers.get("X-Size", str(len(content))))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _get(self) -> tuple[int, bytes, dict[str, str]]:
        if not self.key:
            return self._list()
        content = self.store.objects.get(self.key)
        if content is None:
            return _error(404, "NoSuchKey")
        headers = {"ETag": etag_of(content), "Last-Modified": "Mon, 23 Nov 2026 03:00:00 GMT"}
        headers["X-Size"] = str(len(content))
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            return 200, content, headers
        first = int(wanted[1]) if wanted[1] else len(content) - int(wanted[2])
        last = (
            min(int(wanted[2]), len(content) - 1) if wanted[1] and wanted[2] else len(content) - 1
        )
        part = content[first : last + 1]
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        headers["X-Size"] = str(len(part))
        return 206, part, headers

    def _list(self) -> tuple[int, bytes, dict[str, str]]:
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        after, token = self.query.get("start-after", ""), self.query.get("continuation-token")
        found, folders = [], set[str]()
        keys = sorted(self.store.objects, reverse=self.store.lists_backwards)
        for key in keys if token is None else keys[keys.index(token) + 1 :]:
            if not key.startswith(prefix) or key <= after:
                continue
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
            else:
                found.append(key)
        more = len(found) > _PAGE
        found = found[:_PAGE]
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.store.objects[key])}</Size>"
            f"<LastModified>2026-11-23T03:00:00.000Z</LastModified>"
            f"<ETag>{escape(etag_of(self.store.objects[key]))}</ETag></Contents>"
            for key in found
        )
        entries += "".join(
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in folders
        )
        end = f"<NextContinuationToken>{escape(found[-1])}</NextContinuationToken>" if more else ""
        return _xml(
            f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{end}{entries}"
            "</ListBucketResult>"
        )

    def _put(self) -> tuple[int, bytes, dict[str, str]]:
        if "partNumber" in self.query:
            self.store.parts[self.query["uploadId"]][int(self.query["partNumber"])] = self.content
            return 200, b"", {"ETag": etag_of(self.content)}
        standing = self.store.objects.get(self.key)
        must_match = self.headers.get("If-Match")
        if not self.store.ignores_conditions:
            if self.headers.get("If-None-Match") == "*" and standing is not None:
                return _error(412, "PreconditionFailed")
            if must_match is not None and (standing is None or etag_of(standing) != must_match):
                return _error(412, "PreconditionFailed")
        self.store.objects[self.key] = self.content
        return 200, b"", {"ETag": etag_of(self.content)}

    def _post(self) -> tuple[int, bytes, dict[str, str]]:
        if "delete" in self.query:
            keys = re.findall(r"<Key>(.*?)</Key>", self.content.decode())
            for key in keys:
                self.store.objects.pop(unescape(key), None)
            told = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
            return _xml(f"<DeleteResult>{told}</DeleteResult>")
        if "uploads" in self.query:
            upload = f"upload-{len(self.store.parts)}"
            self.store.parts[upload] = {}
            told = f"<UploadId>{upload}</UploadId>"
            return _xml(f"<InitiateMultipartUploadResult>{told}</InitiateMultipartUploadResult>")
        parts = self.store.parts.pop(self.query["uploadId"])
        self.store.objects[self.key] = b"".join(parts[number] for number in sorted(parts))
        tag = escape(etag_of(self.store.objects[self.key]))
        told = f"<ETag>{tag}</ETag>"
        return _xml(f"<CompleteMultipartUploadResult>{told}</CompleteMultipartUploadResult>")

    def _delete(self) -> tuple[int, bytes, dict[str, str]]:
        self.store.objects.pop(self.key, None)
        return 204, b"", {}


def _content(headers: Message, sent: BufferedIOBase) -> bytes:
    """The body of a request; Java's client sends it in chunks of its own, each signed."""
    length = int(headers.get("Content-Length", 0))
    if not headers.get("X-Amz-Content-Sha256", "").startswith("STREAMING-"):
        return sent.read(length)
    left, chunks = BytesIO(sent.read(length)), list[bytes]()
    while size := int(left.readline().partition(b";")[0], 16):
        chunks.append(left.read(size))
        left.readline()
    return b"".join(chunks)


def _xml(text: str) -> tuple[int, bytes, dict[str, str]]:
    return 200, text.encode(), {"Content-Type": "application/xml"}


def _error(status: int, code: str) -> tuple[int, bytes, dict[str, str]]:
    text = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"
    return status, text.encode(), {"Content-Type": "application/xml"}
