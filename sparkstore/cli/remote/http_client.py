"""A client of a broker's HTTP port, as its commands need one: JSON in, JSON out, one connection.

It follows no redirection and asks no proxy, since each request has a password. TLS checks the
broker's name against the authorities of the system, or of `--ca-file`.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from sparkstore.errors import CorruptData, InvalidRequest, StoreError, Unavailable
from sparkstore.secret_file import bearer_token, read_secret

TOKEN_VARIABLE = "SPARKSTORE_TOKEN"  # noqa: S105  # likewise
PASSWORD_VARIABLE = "SPARKSTORE_PASSWORD"  # noqa: S105  # the name of it
_TIMEOUT_S = 150.0
"""Longer than the broker lets an order wait."""
_PAGE, _PIECE_BYTES = 1_000, 1 << 16
_TRY_LATER = frozenset({429, 503})
_PORTS = {"http": 80, "https": 443}


class RemoteLogin(NamedTuple):
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


class RemoteBroker:
    """A broker's HTTP port. One thread at a time may use it."""

    def __init__(self, url: str, login: RemoteLogin) -> None:
        """Prepare to ask; nothing is sent yet.

        Raises:
            InvalidRequest: The URL is none; a file cannot be read; a password would go unencrypted.
        """
        place = _place_of(url)
        self._url, self._path = url, place.path.rstrip("/")
        self._headers = {"Accept": "application/json", **_authorization(login, place)}
        host, port = place.hostname or "", place.port or _PORTS[place.scheme]
        self._connection: http.client.HTTPConnection
        if place.scheme == "https":
            context = _context(login)
            self._connection = http.client.HTTPSConnection(
                host, port, timeout=_TIMEOUT_S, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)

    def ask(self, method: str, path: str, body: Any = None, **query: object) -> Any:
        """Send a request below `/api/v1/`, and return what its answer's JSON says.

        Args:
            method: The HTTP method.
            path: The path, with names that are percent-encoded (`name_in_path`).
            body: What is sent as JSON; None: nothing is.
            query: What stands after the question mark; a None is left out.

        Raises:
            InvalidRequest: The broker refused it: what is wrong, and what to do.
            Unavailable: There was no answer, or the broker says to try later.
            StoreError: The broker failed on it.
        """
        answer = self._answer(method, path, body, query)
        with self._told_as_errors():
            text = answer.read()
        return _content(self._url, answer.status, text)

    def lines(self, method: str, path: str, body: Any) -> Iterator[str]:
        """Iterate over the lines of an answer while it comes; it is refused as that of `ask`.

        Raises:
            Unavailable: It ended before it was whole.
        """
        answer = self._answer(method, path, body, {})
        with self._told_as_errors():
            if answer.status != 200:
                _content(self._url, answer.status, answer.read())
            for line in io.BufferedReader(answer, _PIECE_BYTES):
                if not line.endswith(b"\n"):
                    raise http.client.IncompleteRead(line)
                yield line[:-1].decode()

    def _answer(
        self, method: str, path: str, body: Any, query: Mapping[str, object]
    ) -> http.client.HTTPResponse:
        said = {name: _told(value) for name, value in query.items() if value is not None}
        target = f"{self._path}/api/v1/{path}" + (f"?{urlencode(said)}" if said else "")
        headers = dict(self._headers)
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            headers["Content-Type"] = "application/json"
        with self._told_as_errors():
            self._connection.request(method, target, content, headers)
            return self._connection.getresponse()

    @contextmanager
    def _told_as_errors(self) -> Iterator[None]:
        try:
            yield
        except ssl.SSLError as reason:
            message = f"{self._url}: TLS: {reason.reason or reason}: see --ca-file and --cert"
            raise InvalidRequest(message) from reason
        except (OSError, http.client.HTTPException) as reason:
            message = f"{self._url} does not answer: {reason}: look whether it is served there"
            raise Unavailable(message) from reason

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


def name_in_path(name: str) -> str:
    """Percent-encode the name of a queue as a whole, as it stands in a path."""
    return quote(name, safe="")


def _told(value: object) -> str:
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


def _authorization(login: RemoteLogin, place: SplitResult) -> Mapping[str, str]:
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


def _token(login: RemoteLogin) -> str | None:
    if login.token_file is not None:
        token = read_secret(login.token_file, "token").strip()
        return bearer_token(token, f"token file {login.token_file}")
    named = os.environ.get(TOKEN_VARIABLE) if login.user is None else None
    return None if named is None else bearer_token(named, TOKEN_VARIABLE)


def _password(login: RemoteLogin) -> str:
    if login.password_file is not None:
        return read_secret(login.password_file, "password")
    password = os.environ.get(PASSWORD_VARIABLE)
    if password is None:
        raise InvalidRequest(f"--user {login.user}: give --password-file or {PASSWORD_VARIABLE}")
    return password


def _context(login: RemoteLogin) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=login.ca_file)
        if login.certificate is not None:
            context.load_cert_chain(*login.certificate)
    except (OSError, ssl.SSLError) as reason:
        named = [login.ca_file, *(login.certificate or ())]
        files = ", ".join(str(each) for each in named if each is not None)
        raise InvalidRequest(f"TLS: {files}: {reason}") from reason
    return context


def _content(url: str, status: int, text: bytes) -> Any:
    try:
        content = json.loads(text)
    except ValueError as reason:
        message = f"{url} answered {status} and no JSON: is it a broker's --http port?"
        raise CorruptData(message) from reason
    if status == 200:
        return content
    told = content.get("error", text.decode(errors="replace")[:200])
    if status in _TRY_LATER:
        raise Unavailable(told)
    raise InvalidRequest(told) if status < 500 else StoreError(told)
