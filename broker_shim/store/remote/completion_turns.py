"""Completions of a remote store, fired in their order by the thread that reads.

Why they are not fired by a thread of their own: whoever waits for a call would wait for one more
thread to wake up. That costs as much as the service needs to decide.

What a completion may do, then: whatever it may do in a store of this process. It may call the
store. A read that it makes is answered, because the reading thread goes on reading inside that call
(`RemoteConnection.collect`). Completions that come meanwhile wait until this one is over.
"""

from __future__ import annotations

from collections import deque

from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from sparkstore.log.completions import fire_once


class RemoteCompletions:
    """The completions that wait for their turn.

    Any thread puts one in; the thread that reads fires them.
    """

    def __init__(self) -> None:
        self._turns: deque[tuple[OnComplete, StoreError | None]] = deque()

    def put(self, on_complete: OnComplete, error: StoreError | None) -> None:
        """Fire one after those before it, as soon as `fire` is called."""
        self._turns.append((on_complete, error))

    def fire(self) -> None:
        """Fire what is there, under no lock. Not within a completion."""
        while self._turns:
            fire_once(*self._turns.popleft())
