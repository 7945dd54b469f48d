"""A small file that holds all of something: replaced as a whole by a thread, then completions fire.

A power cut leaves the old or the new content; many changes that wait together are one write.

Decision: a write that fails does not end the store. The memory is then ahead of the file, so from
there on every completion waits for a write that succeeds. So does that of a call which changes
nothing: "create it again" makes no change, and its success must not be a lie. Each later call tries
again; the store resumes by itself once there is room. Rejected: undoing the change in memory, as
later calls were decided on it. Rejected as well: acknowledging meanwhile, as what was said to be
there may be something that a restart does not know.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from broker_shim.completion import OnComplete
from broker_shim.errors import CorruptData, InvalidRequest, StoreError, Unavailable
from sparkstore.log.completions import fire_once
from sparkstore.storage.durable_files import replace_durably
from sparkstore.tables.lock import FileLock

Content = TypeVar("Content")


def lock_file(path: Path) -> FileLock:
    """Lock a file for one writer; `<path>.lock` is how others know.

    Raises:
        Locked: Another has it.
        InvalidRequest: There is no such folder.
    """
    try:
        return FileLock(path.with_name(path.name + ".lock"), str(path))
    except OSError as reason:
        message = f"{path}: its folder must be there and writable ({reason})"
        raise InvalidRequest(message) from reason


def read_whole(
    path: Path, form: str, version: int, parse: Callable[[dict[str, Any]], Content], empty: Content
) -> Content:
    """Read a file's JSON object by `parse`; `empty` if there is no file.

    Raises:
        CorruptData: The file cannot be read, is of another format, or is from a newer version.
    """
    if not path.exists():
        return empty
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        if content["format"] != form:
            _raise_format(content["format"], form)
        written = int(content["version"])
        parsed = parse(content) if written <= version else empty
    except (OSError, ValueError, KeyError, TypeError, AttributeError, CorruptData) as reason:
        message = f"{path} cannot be read ({reason!r}): restore it from a backup, or move it away"
        raise CorruptData(message) from reason
    if written > version:
        message = f"{path} has version {written}, this sparkstore knows {version}: install a newer"
        raise CorruptData(message)
    return parsed


def _raise_format(actual: object, form: str) -> NoReturn:
    raise ValueError(f"its format is {actual!r}, not {form!r}")


class _Turn(NamedTuple):
    on_complete: OnComplete
    error: StoreError | None


class ReplacedFile:
    """Writes what `content` shows, then completes those who waited for it.

    The caller changes what `content` shows and calls `turn` under `lock`. The thread takes the
    content and the line of turns together under it. So what it writes holds the change of every
    turn that it then completes.

    Attributes:
        lock: Held by the caller while it changes what `content` shows and calls `turn`.
    """

    def __init__(self, path: Path, content: Callable[[], bytes], thread_name: str) -> None:
        self.lock = threading.Condition()
        self._path = path
        self._content = content
        self._turns: list[_Turn] = []
        self._is_behind = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=thread_name, daemon=True)
        self._thread.start()

    def turn(
        self, on_complete: OnComplete, error: StoreError | None = None, *, is_change: bool
    ) -> None:
        """Have a completion fire in its turn, with an error if there is one.

        Call it under `lock`.
        """
        self._is_behind |= is_change
        self._turns.append(_Turn(on_complete, error))
        self.lock.notify()

    def close(self) -> None:
        """Fire what is open, then stop. May be called twice."""
        with self.lock:
            self._is_closed = True
            self.lock.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self.lock:
                self.lock.wait_for(lambda: self._turns or self._is_closed)
                turns, self._turns = self._turns, []
                content = self._content() if self._is_behind else None
                self._is_behind = False
            if not turns:
                return
            failure = None if content is None else self._write(content)
            for on_complete, error in turns:
                fire_once(on_complete, error or failure)

    def _write(self, content: bytes) -> StoreError | None:
        try:
            replace_durably(self._path, content)
        except OSError as reason:
            with self.lock:
                self._is_behind = True
            message = (
                f"cannot write {self._path} ({reason}): make room and see to its permissions,"
                " the next call tries again"
            )
            return Unavailable(message)
        return None
