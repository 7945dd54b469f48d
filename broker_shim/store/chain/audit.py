"""A member of a chain that writes one line for each call: who wants to know what a broker does."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError, Unavailable
from broker_shim.store.interface import Exchange, Queue, StoredMessage, StoredRun
from sparkstore.core.state_machine.call_values import StoreCall
from sparkstore.core.xids import Xid, xid_text


class CallAuditor:
    """A member of a chain that writes one line of JSON for each call.

    A line has `at` (UTC µs), `operation`, and the arguments by name. See `ChainMember`.

    A message is told by its number, those of a run in a list `message_ids`, a branch by its xid as
    text. Calls of one transaction have the same `together`; with those of a branch is a line
    `prepare`, and its decision is a line by itself. Lines are with the operating system when the
    call completes; they survive a kill, but not a power cut.
    """

    def __init__(self, path: Path) -> None:
        """Append to a file, which only its owner can read.

        Raises:
            InvalidRequest: It cannot be opened.
        """
        if not isinstance(path, Path):
            raise InvalidRequest(f"an audit cannot go to {type(path).__name__}: give a Path")
        try:
            self._file = open(path, "ab", buffering=0, opener=_private)  # noqa: SIM115
        except OSError as reason:
            message = f"{path} cannot get lines of calls: {reason.strerror}"
            raise InvalidRequest(message) from reason
        self._path = path
        self._together = 0

    @property
    def name(self) -> str:
        """The name of this member in logs, metrics and errors."""
        return f"audit of calls ({self._path.name})"

    def apply(self, calls: Sequence[StoreCall], on_complete: OnComplete) -> None:
        """Write a line for each of these calls, then complete them. See `ChainMember.apply`."""
        common: dict[str, Any] = {}
        if len(calls) != 1:
            self._together += 1
            common = {"together": self._together}
        at = time.time_ns() // 1000
        error: StoreError | None = None
        try:
            lines = "".join(_line({"at": at, **common}, call) for call in calls).encode()
            if self._file.write(lines) < len(lines):
                error = Unavailable(f"{self._path}: {os.strerror(errno.ENOSPC)}")
        except OSError as reason:
            error = Unavailable(f"{self._path}: {reason.strerror}")
        on_complete(error)

    def flush(self, on_complete: OnComplete) -> None:
        """Complete at once: each call is written when it completes. See `ChainMember.flush`."""
        on_complete(None)

    def drop(self) -> None:
        """Write nothing: the lines end when the chain calls no more. See `ChainMember.drop`."""

    def close(self) -> None:
        """Close the file that has the lines."""
        self._file.close()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _line(common: Mapping[str, Any], call: StoreCall) -> str:
    """Write a call as JSON, without the arguments that are as they are by default."""
    defaults = {part.name: part.default for part in fields(call)}  # type: ignore[arg-type]
    given = {
        name: _named(value) for name, value in call.by_name().items() if value != defaults[name]
    }
    given = dict(_of_messages(*pair) for pair in given.items())
    return json.dumps({**common, "operation": call.operation, **given}, default=_shown) + "\n"


def _of_messages(name: str, value: Any) -> tuple[str, Any]:
    """A field as it is written: one message as itself, those of a run in a list."""
    if name == "message_ids":
        return ("message_id", value[0]) if len(value) == 1 else (name, [*value])
    return (
        ("message_ids", value) if name == "message" and isinstance(value, list) else (name, value)
    )


def _named(value: object) -> object:
    if isinstance(value, StoredMessage):
        return value.message_id
    if isinstance(value, StoredRun):
        return [*value.message_ids]
    return xid_text(value) if isinstance(value, Xid) else value


def _shown(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Queue | Exchange):
        return value.name
    return str(value)
