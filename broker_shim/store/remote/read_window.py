"""How many questions may be unanswered at a service, which sends away whoever asks more. Pure."""

from __future__ import annotations


class ReadWindow:
    """Lets so many questions out at a time; the others wait here, and requests do not behind them.

    Any number may come at once: each session of a client has one.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._out: set[int] = set()
        self._waiting: dict[int, None] = {}

    def enter(self, read: int) -> bool:
        """Add a question; True if it may be sent now."""
        if len(self._out) >= self._size:
            self._waiting[read] = None
            return False
        self._out.add(read)
        return True

    def is_out(self, read: int) -> bool:
        """True if a question was sent, or may be."""
        return read in self._out

    def leave(self, read: int) -> int | None:
        """Remove a question, and return the one that may be sent in its place."""
        self._waiting.pop(read, None)
        if read not in self._out:
            return None
        self._out.remove(read)
        following = next(iter(self._waiting), None)
        if following is not None:
            del self._waiting[following]
            self._out.add(following)
        return following
