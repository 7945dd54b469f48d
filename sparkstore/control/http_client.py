"""A client of a broker over HTTP, as commands need one: JSON in, JSON out, one connection.

It asks at a URL, or as the owner of a root at its control socket, where nobody logs in.
It follows no redirection and asks no proxy, since each request has a password. TLS checks the
broker's name against the authorities of the system, or of `--ca-file`.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlencode, urlsplit

from sparkstore import errors
from sparkstore.control.socket_address import SocketAddress
from sparkstore.errors import CorruptData, InvalidRequest, StoreError, Unavailable
from sparkstore.secret_file import (
    PASSWORD_VARIABLE,
    TOKEN_VARIABLE,
    bearer_token,
    read_secret,
)

ANSWER_S = 150.0
"""Longer than the broker lets an order wait; a request without an answer has an unknown outcome."""
READ_S = 10.0
"""The owner of a root who only looks has the answer at once, unless the broker is stuck."""
_CONNECT_S, _IDLE_S = 10.0, 5.0
_PAGE, _PIECE_BYTES = 1_000, 1 << 16
_TRY_LATER, _NO_ENDPOINT = frozenset({429, 503}), frozenset({404, 405})
_PORTS = {"http": 80, "https": 443}


class BrokerLogin(NamedTuple):
    """The user of a remote broker, and whom to trust.

    Attributes:
        user: Its name; None: a certificate says it, or nobody logs in there.
        password_file: Has the password; None: the environment has it.
        ca_file: Authorities that vouch for the broker, PEM; None: the system's.
        token_file: Has the token of a user; None: the environment may have it.
        certificate: The client's certificate and key, PEM; None: it has none.
    """

    user: str | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    certificate: tuple[Path, Path] | None = None
    token_file: Path | None = None


class BrokerClient:
    """A broker that is asked over HTTP. One thread at a time may use it."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        *,
        url: str = "",
        path: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare to ask; nothing is sent yet. `by_url` and `at_root` make one.

        Args:
            connection: The connection, which may be closed.
            url: The URL that somebody named; empty: it is the control socket of a root.
            path: What stands before the path of each request.
            headers: Those of each request, as of a login.
        """
        self._connection, self._url, self._path = connection, url, path
        self._headers = {"Accept": "application/json", **(headers or {})}
        self._used_at = time.monotonic()

    @classmethod
    def by_url(cls, url: str, login: BrokerLogin) -> BrokerClient:
        """Prepare to ask at a URL.

        Raises:
            InvalidRequest: The URL is none; a file cannot be read; a password would go unencrypted.
        """
        place = _place_of(url)
        host, port = place.hostname or "", place.port or _PORTS[place.scheme]
        connection = http.client.HTTPConnection(host, port)
        if place.scheme == "https":
            connection = http.client.HTTPSConnection(host, port, context=_context(login))
        headers = _authorization(login, place)
        return cls(connection, url=url, path=place.path.rstrip("/"), headers=headers)

    @classmethod
    def at_root(cls, folder: Path) -> BrokerClient:
        """Connect to the control socket of a root.

        Raises:
            OSError: Nobody listens there, or not for us.
        """
        connection = _SocketConnection(folder)
        connection.connect()
        return cls(connection)

    def ask(self, method: str, path: str, body: Any = None, **query: object) -> Any:
        """Send a request below `/api/v1/`, and return what its answer's JSON says.

        Args:
            method: The HTTP method.
            path: The path, with names that are percent-encoded (`broker_control.path_of`).
            body: What is sent as JSON; None: nothing is.
            query: What stands after the question mark; a None is left out.

        Raises:
            InvalidRequest: The broker refused it: what is wrong, and what to do.
            Unavailable: There was no answer, or the broker says to try later.
            StoreError: The broker failed on it.
        """
        answer = self._answer(method, path, body, query)
        with self._told_as_errors(method):
            text = answer.read()
        return self._content(answer.status, text)

    def lines(self, method: str, path: str, body: Any) -> Iterator[str]:
        """Iterate over the lines of an answer while it comes; it is refused as that of `ask`.

        Raises:
            Unavailable: It ended before it was whole.
        """
        answer = self._answer(method, path, body, {}, {"Accept": "application/x-ndjson"})
        with self._told_as_errors(method):
            if answer.status != 200:
                self._content(answer.status, answer.read())
            for line in io.BufferedReader(answer, _PIECE_BYTES):
                if not line.endswith(b"\n"):
                    raise http.client.IncompleteRead(line)
                yield line[:-1].decode()

    def _answer(
        self,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, object],
        headers: Mapping[str, str] = {},
    ) -> http.client.HTTPResponse:
        words = {name: _word(value) for name, value in query.items() if value is not None}
        target = f"{self._path}/api/v1/{path}" + (f"?{urlencode(words)}" if words else "")
        try:
            content = None if body is None else json.dumps(body, allow_nan=False).encode()
        except ValueError as reason:
            raise InvalidRequest(f"not JSON: {reason}") from reason
        kind = {} if content is None else {"Content-Type": "application/json"}
        with self._told_as_errors(method):
            self._be_connected(method)
            self._connection.request(method, target, content, {**self._headers, **kind, **headers})
            answer = self._connection.getresponse()
        self._used_at = time.monotonic()
        return answer

    def _be_connected(self, method: str) -> None:
        """Connect anew what was not used for long: the broker closes such a connection."""
        connection, patience_s = self._connection, self._patience_s(method)
        if connection.sock is None or time.monotonic() - self._used_at > _IDLE_S:
            connection.close()
            connection.timeout = patience_s
            connection.connect()
        connection.sock.settimeout(patience_s)

    def _patience_s(self, method: str) -> float:
        return READ_S if method == "GET" and not self._url else ANSWER_S

    @contextmanager
    def _told_as_errors(self, method: str) -> Iterator[None]:
        try:
            yield
        except ssl.SSLError as reason:
            message = f"{self._url}: TLS: {reason.reason or reason}: see --ca-file and --cert"
            raise InvalidRequest(message) from reason
        except (OSError, http.client.HTTPException) as reason:
            self._connection.close()
            if isinstance(reason, TimeoutError):
                message = f"the broker has not answered for {self._patience_s(method):g} s: look"
                message += (
                    " into its log; what was asked is done whole or not at all, perhaps later"
                )
            elif self._url:
                message = f"{self._url} does not answer: {reason}: look whether it is served there"
            else:
                message = f"the broker went away ({reason}): the last request was done whole or not"
                message += " at all; run it again"
            raise Unavailable(message) from reason

    def _content(self, status: int, text: bytes) -> Any:
        try:
            content = json.loads(text)
        except ValueError as reason:
            message = f"{self._url} answered {status} and no JSON: is it a broker's --http port?"
            raise CorruptData(message) from reason
        if status == 200:
            return content
        raise self.error_of(status, content)

    @staticmethod
    def error_of(status: int, content: Mapping[str, Any]) -> StoreError:
        """Return the error that a broker answered, of its own class if this side knows it."""
        text, kind = str(content.get("error")), getattr(errors, str(content.get("kind")), None)
        if isinstance(kind, type) and issubclass(kind, StoreError):
            return kind(text)
        if status in _NO_ENDPOINT and "openapi.json" in text:
            return InvalidRequest("the broker is of another release: use its sparkstore")
        if status in _TRY_LATER:
            return Unavailable(text)
        return InvalidRequest(text) if status < 500 else StoreError(text)

    def pages(self, path: str, **query: object) -> Iterator[dict[str, Any]]:
        """Iterate over the items of a list that comes in pages."""
        offset: int | None = 0
        while offset is not None:
            page = self.ask("GET", path, limit=_PAGE, offset=offset, **query)
            yield from page["items"]
            offset += len(page["items"])
            after = offset if page["items"] and offset < page["total"] else None
            offset = page.get("next_offset", after)  # a page of messages may end earlier

    def close(self) -> None:
        """Close the connection to the broker."""
        self._connection.close()


class _SocketConnection(http.client.HTTPConnection):
    """A connection to the control socket of a root."""

    def __init__(self, folder: Path) -> None:
        super().__init__("localhost")
        self._folder = folder

    def connect(self) -> None:
        """Connect by a short name, wherever the root is."""
        self.sock = socket.socket(socket.AF_UNIX)
        try:
            self.sock.settimeout(_CONNECT_S)
            with SocketAddress(self._folder) as address:
                self.sock.connect(address)
        except BaseException:
            self.close()
            raise


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _place_of(url: str) -> SplitResult:
    shown = re.sub("//.*@", "//…@", url)  # before the @ a password may stand
    wrong = InvalidRequest(f"--url {shown}: say http://HOST:PORT or https://HOST:PORT")
    try:
        place = urlsplit(url)
        port = place.port
    except ValueError as reason:
        raise wrong from reason
    if place.scheme not in _PORTS or not place.hostname or port == 0:
        raise wrong
    if place.username is not None or place.query or place.fragment:
        text = f"--url {place.scheme}://{place.hostname}: leave out what is no host, port or path;"
        raise InvalidRequest(f"{text} the user is --user NAME")
    return place


def _authorization(login: BrokerLogin, place: SplitResult) -> Mapping[str, str]:
    token = _token(login)
    if login.user is None and token is None:
        return {}
    if place.scheme != "https" and place.hostname not in {"localhost", "127.0.0.1", "::1"}:
        text = f"{place.geturl()}: a password or token would go unencrypted: ask by https://"
        raise InvalidRequest(text)
    if token is not None:
        return {"Authorization": f"Bearer {token}"}
    encoded = b64encode(f"{login.user}:{_password(login)}".encode()).decode("ascii")
    return {"Authorization": f"Basic {encoded}"}


def _token(login: BrokerLogin) -> str | None:
    if login.token_file is not None:
        token = read_secret(login.token_file, "token").strip()
        return bearer_token(token, f"token file {login.token_file}")
    named = os.environ.get(TOKEN_VARIABLE) if login.user is None else None
    return None if named is None else bearer_token(named, TOKEN_VARIABLE)


def _password(login: BrokerLogin) -> str:
    if login.password_file is not None:
        return read_secret(login.password_file, "password")
    password = os.environ.get(PASSWORD_VARIABLE)
    if password is None:
        raise InvalidRequest(f"--user {login.user}: give --password-file or {PASSWORD_VARIABLE}")
    return password


def _context(login: BrokerLogin) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=login.ca_file)
        if login.certificate is not None:
            context.load_cert_chain(*login.certificate)
    except (OSError, ssl.SSLError) as reason:
        named = [login.ca_file, *(login.certificate or ())]
        files = ", ".join(str(file) for file in named if file is not None)
        raise InvalidRequest(f"TLS: {files}: {reason}") from reason
    return context
