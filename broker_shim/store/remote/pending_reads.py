"""The reads of a remote store that wait for answers, and the thread that fires completions."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from broker_shim.errors import StoreError
from broker_shim.service import protocol as wire

Answer = tuple[bool, tuple[Any, ...], StoreError | None]
"""Of a read: if it is the last one, what it brings, or the error instead."""
OnAnswer = Callable[[Answer], None]


def answer_of(frame: wire.Frame) -> Answer:
    """What an ANSWER or FAILED frame says."""
    kind, body = frame
    if kind == wire.FAILED:
        return True, (), wire.error_of(*body[1:])
    return bool(body[1]), body[2:], None


class PendingReads:
    """By number. One thread at a time."""

    def __init__(self) -> None:
        self._waiting: dict[int, OnAnswer] = {}
        self._last = 0

    def add(self, on_answer: OnAnswer) -> int:
        """A new one; its number."""
        self._last += 1
        self._waiting[self._last] = on_answer
        return self._last

    def find(self, read: int, *, is_last: bool) -> OnAnswer | None:
        """Who waits for an answer; the last one ends the wait."""
        return self._waiting.pop(read, None) if is_last else self._waiting.get(read)

    def end_all(self) -> dict[int, OnAnswer]:
        """Nobody waits any more; who did."""
        ended, self._waiting = self._waiting, {}
        return ended


def collect(answers: SimpleQueue[Answer]) -> list[tuple[Any, ...]]:
    """Wait for all answers of a read.

    Raises:
        StoreError: What came instead.
    """
    found: list[tuple[Any, ...]] = []
    while True:
        is_last, answer, error = answers.get()
        if error is not None:
            raise error
        found.append(answer)
        if is_last:
            return found
