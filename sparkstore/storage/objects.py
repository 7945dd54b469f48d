"""A prefix of a bucket as storage: conditional puts, by the library that deltalake is built on too.

Why of several who create one object exactly one wins: the put says `If-None-Match: *`, and the
store decides. Why of several who replace one exactly one wins: the put says `If-Match` with the
ETag that was read. The answer of a put is its durability: there is nothing to sync and nothing to
heal.

A put may be answered late, twice, or never: an answer that is lost after the work was done makes
the next try fail by its own success. So whoever is told that the object is there, or is another
one, reads it back (`Storage`). A store that is busy with another conditional put of the same key
(409) has not done it: it is asked again.

Credentials and endpoints are found where users have them (`access`). They are never in a URI, a log
line or an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

from sparkstore.errors import CorruptData, InvalidRequest, Unavailable
from sparkstore.storage.access import access_of
from sparkstore.storage.durable_files import fsync_open, fsync_path
from sparkstore.storage.storage import StoredContent, StoredFile

SCHEMES = ("s3", "gs", "az")
"""`gs` and `az` go through the same library and the same calls; only `s3` is tested here."""
_MISREAD = {*"[]\\?#@"}
"""By whoever reads URLs; of spaces and `%` we know that they are meant as they stand."""
_BUCKET = re.compile(r"[A-Za-z0-9._-]+")
_UNSAFE = {
    "AWS_S3_ALLOW_UNSAFE_RENAME": {"true", "1", "yes", "on"},
    "AWS_CONDITIONAL_PUT": {"disabled"},
    "CONDITIONAL_PUT": {"disabled"},
}
"""Settings of the environment with which deltalake commits without asking who was first."""
_DENIED = re.compile(r"status code: 40[13]\b|\bAccessDenied\b")
_WRONG_KEYS = ("SignatureDoesNotMatch", "InvalidAccessKeyId", "XAdminUserNotFound")
_NO_KEYS = "169.254.169.254"
"""Where a machine of a cloud asks for its role."""
_STRANGE_KEY = "object with invalid path"
_CONFLICT_TRIES = 10
_CHUNK_BYTES = 8 << 20


def is_object_uri(where: str | Path) -> bool:
    """True for a URI that is no `file://` URI."""
    return "://" in str(where) and not str(where).startswith("file://")


class ObjectStorage:
    """Objects below a URI such as `s3://bucket/prefix`."""

    def __init__(self, uri: str, *, patience_s: float = 60.0) -> None:
        """Look at the URI and the environment; nothing is asked of the bucket yet.

        Args:
            uri: Where the objects are.
            patience_s: How long a request is tried again before it fails.

        Raises:
            InvalidRequest: No URI of a bucket; a setting that takes the safety away; the extra
                `s3` is not installed.
        """
        self._location = checked_uri(uri)
        _check_settings(os.environ)
        self._store = _store(self._location, patience_s)

    @property
    def location(self) -> str:
        """Return the URI of the prefix."""
        return self._location

    def read(self, name: str) -> StoredContent | None:
        """A small file as a whole; None if there is none of this name."""
        import obstore  # noqa: PLC0415 - the extra `s3`

        with self._as_store_errors("read"):
            try:
                answer = obstore.get(self._store, name)
                return StoredContent(bytes(answer.bytes()), str(answer.meta["e_tag"]))
            except FileNotFoundError as reason:
                self._check_place(reason)
                return None

    def files(self, under: str = "") -> Iterator[StoredFile]:
        """Every file below a folder, in any order."""
        import obstore  # noqa: PLC0415

        with self._as_store_errors("list"):
            for page in obstore.list(self._store, under or None):
                for stored in page:
                    yield StoredFile(stored["path"], stored["size"])

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Write a small file if there is none of this name; True if it now holds this content."""
        import obstore  # noqa: PLC0415
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415

        for _ in range(_CONFLICT_TRIES):
            with self._as_store_errors("put"):
                try:
                    obstore.put(self._store, name, content, mode="create")
                except AlreadyExistsError:
                    pass
                else:
                    return True
            standing = self.read(name)
            if standing is not None:
                return standing.content == content
        raise Unavailable(self._busy(name))

    def replace_if_unchanged(self, name: str, content: bytes, tag: str) -> bool:
        """Replace a small file that `read` gave with this tag; True if this stands."""
        import obstore  # noqa: PLC0415
        from obstore.exceptions import PreconditionError  # noqa: PLC0415

        for _ in range(_CONFLICT_TRIES):
            with self._as_store_errors("put"):
                try:
                    obstore.put(self._store, name, content, mode={"e_tag": tag})
                except PreconditionError:
                    pass
                else:
                    return True
            standing = self.read(name)
            if standing is None or standing.tag != tag:
                return standing is not None and standing.content == content
        raise Unavailable(self._busy(name))

    def upload(self, name: str, file: Path) -> None:
        """Write a file of any size, which whoever else writes this name writes alike."""
        import obstore  # noqa: PLC0415

        with self._as_store_errors("put"):
            obstore.put(self._store, name, file, chunk_size=_CHUNK_BYTES, max_concurrency=4)

    def download(self, name: str, file: Path) -> None:
        """Write an object to a local path, durably.

        Raises:
            FileNotFoundError: There is none of this name.
        """
        import obstore  # noqa: PLC0415

        file.parent.mkdir(parents=True, exist_ok=True)
        scratch = file.with_name(f"{file.name}.{uuid4().hex}")
        try:
            with self._as_store_errors("read"), scratch.open("xb") as new:
                for chunk in obstore.get(self._store, name).stream(_CHUNK_BYTES):
                    new.write(chunk)
                new.flush()
                fsync_open(new.fileno(), scratch)
            scratch.replace(file)
        finally:
            scratch.unlink(missing_ok=True)
        fsync_path(file.parent)

    def delete(self, name: str) -> None:
        """Remove a file; nothing happens if there is none of this name."""
        import obstore  # noqa: PLC0415

        with self._as_store_errors("delete"):
            try:
                obstore.delete(self._store, name)
            except FileNotFoundError as reason:
                self._check_place(reason)

    @contextmanager
    def _as_store_errors(self, act: str) -> Iterator[None]:
        """Raise the library's errors as those of a store: one line, by what the caller can do."""
        from obstore import exceptions  # noqa: PLC0415

        try:
            yield
        except FileNotFoundError as reason:
            self._check_place(reason)
            raise
        except exceptions.BaseError as reason:
            self._check_place(reason)
            why = _why(reason)
            if "Expired" in why:
                message = f"{self._location}: the credentials have expired ({why}): renew them"
                raise Unavailable(message) from reason
            if "TimeTooSkewed" in why:
                message = f"{self._location}: the clock of this machine is too far off ({why})"
                raise Unavailable(f"{message}: set it") from reason
            if _STRANGE_KEY in str(reason):
                message = f"{self._location} holds an object of a key that is no path: {why}"
                raise CorruptData(f"{message}: remove it") from reason
            if _NO_KEYS in str(reason):
                message = f"{self._location}: there are no credentials for it: set AWS_PROFILE or"
                message += " AWS_ACCESS_KEY_ID, or give this machine a role"
                raise InvalidRequest(message) from reason
            denied = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
            # A list, and an object of a bulk deletion, are refused by an error of no class.
            if isinstance(reason, denied) or _DENIED.search(str(reason)):
                message = f"{self._location}: these credentials may not {act} there ({why})"
                raise InvalidRequest(message) from reason
            message = f"{self._location} did not {act}: {why}"
            raise Unavailable(message) from reason

    def _check_place(self, reason: Exception) -> None:
        if "NoSuchBucket" in str(reason):
            message = f"{self._location}: there is no such bucket: create it first"
            raise InvalidRequest(message) from reason
        why = _why(reason)
        if any(sign in why for sign in _WRONG_KEYS):  # versitygw says so as if an object was gone
            message = f"{self._location}: the credentials are wrong ({why})"
            raise InvalidRequest(message) from reason

    def _busy(self, name: str) -> str:
        return f"{self._location}/{name} is being written by others all the time: try again later"


def checked_uri(uri: str) -> str:
    """The URI without a slash at its end, its scheme in small letters.

    Raises:
        InvalidRequest: A URI of another kind; one with a character that is misread, or with a step
            that is no name, as `..`; credentials in it, which are not repeated.
    """
    _check_is_text(uri)
    parts = urlsplit(uri)
    if "@" in parts.netloc:
        message = f"{parts.scheme}://…: credentials do not belong in a URI: set the environment"
        raise InvalidRequest(message)
    if parts.scheme not in SCHEMES or not parts.netloc:
        message = f"{uri}: a root in a bucket is written s3://BUCKET/PREFIX (or gs://, az://)"
        raise InvalidRequest(message)
    if not _BUCKET.fullmatch(parts.netloc):
        raise InvalidRequest(f"{uri!r}: {parts.netloc!r} is no name of a bucket")
    misread = sorted({part for part in uri if part in _MISREAD or not part.isprintable()})
    if misread:
        message = f"{uri!r}: {misread[0]!r} is misread in a URI: choose another prefix"
        raise InvalidRequest(message)
    if not parts.path.strip("/"):
        message = f"{uri} is a whole bucket: name a prefix in it, as {uri.rstrip('/')}/queues"
        raise InvalidRequest(message)
    strange = [part for part in parts.path.strip("/").split("/") if part in {"", ".", ".."}]
    if strange:
        message = f"{uri} has {strange[0]!r} between slashes, which is no name: leave it out"
        raise InvalidRequest(message)
    return f"{parts.scheme}{uri[len(parts.scheme) :].rstrip('/')}"


def _check_is_text(uri: object) -> None:
    if not isinstance(uri, str):
        message = f"{uri!r}: the URI of a bucket has two slashes, which no Path keeps: write it as"
        raise InvalidRequest(f"{message} a text, s3://BUCKET/PREFIX")


def encoded(uri: str) -> str:
    """Quote the place in a URI, for a library that decodes what stands after a `%`."""
    scheme, _, place = uri.partition("://")
    return f"{scheme}://{quote(place)}"


def _check_settings(environment: Mapping[str, str]) -> None:
    """Refuse settings by which two who commit at once could both be told that they were first."""
    for name, values in _UNSAFE.items():
        if environment.get(name, environment.get(name.lower(), "")).lower() in values:
            message = f"{name} takes the safety of commits away, two writers could win: unset it"
            raise InvalidRequest(message)
    _check_endpoint(
        environment.get("AWS_ENDPOINT_URL", environment.get("AWS_ENDPOINT", "")), environment
    )


def _check_endpoint(endpoint: str, environment: Mapping[str, str]) -> None:
    if endpoint.startswith("http://") and not _allows_http(environment):
        message = "AWS_ENDPOINT_URL has no TLS: name https://, or set AWS_ALLOW_HTTP=true"
        raise InvalidRequest(message)


def _allows_http(environment: Mapping[str, str]) -> bool:
    return environment.get("AWS_ALLOW_HTTP", "").lower() in {"true", "1"}


def _store(uri: str, patience_s: float) -> Any:
    try:
        from obstore.store import from_url  # noqa: PLC0415
    except ImportError as reason:
        message = f"{uri}: a bucket needs the extra s3: pip install 'sparkstore[s3]'"
        raise InvalidRequest(message) from reason
    retries: Any = {"max_retries": 6, "retry_timeout": timedelta(seconds=patience_s)}
    clients: Any = {
        "connect_timeout": f"{min(5.0, patience_s)}s",
        "timeout": f"{patience_s}s",
        "allow_http": _allows_http(os.environ),
    }
    more: Any = {}
    if uri.startswith("s3://"):
        access = access_of(os.environ)
        _check_endpoint(access.settings.get("endpoint", ""), os.environ)
        more = {"config": access.settings, "credential_provider": access.keys}
    try:
        return from_url(encoded(uri), retry_config=retries, client_options=clients, **more)
    except Exception as reason:
        message = f"{uri} cannot be opened: {_why(reason)}"
        raise InvalidRequest(message) from reason


def _why(reason: Exception) -> str:
    """The store's own code and message if there are any, else the first line; never headers."""
    text = str(reason)
    code, detail = (re.search(f"<{tag}>([^<]+)</", text) for tag in ("Code", "Message"))
    if code is not None:
        return f"{code[1]}: {detail[1]}" if detail is not None else code[1]
    return (text.splitlines() or [type(reason).__name__])[0][:300]
