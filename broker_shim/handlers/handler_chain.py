"""The three insertion points: what stands before the standard handlers of each connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from broker_shim.errors import InvalidRequest
from broker_shim.handlers.handler import AssemblyHandler, FrameHandler


class Delayed(Protocol):
    """A handler that holds back what it was given, for a while."""

    def due_at_s(self) -> float | None:
        """Return the time to go on, by the clock of its context; None: it holds nothing back."""

    def go_on(self) -> None:
        """Hand on what is due now."""


@dataclass(slots=True)
class HandlerContext:
    """Knowledge of an add-on about the connection that it stands in.

    Attributes:
        peer: The other end of the connection, for people to read.
        now_s: Tells the time, in seconds, by a clock that only rises.
        delay: Tells the connection of a handler that holds frames back: nothing more is read
            while it does, and it is asked to go on when it is due.
    """

    peer: str
    now_s: Callable[[], float]
    delay: Callable[[Delayed], None]


FrameFactory = Callable[[FrameHandler, HandlerContext], FrameHandler]
AssemblyFactory = Callable[[AssemblyHandler, HandlerContext], AssemblyHandler]


@dataclass(frozen=True, slots=True)
class InsertionPoints:
    """Makers of add-on handlers, for each connection or session anew; the first one stands first.

    Attributes:
        connection_incoming: Before methods are put together: they see every frame.
        session_incoming: Before session controls are invoked: controls, commands, frames.
        session_outgoing: Before anything is encoded: all that goes out on a session.
    """

    connection_incoming: tuple[FrameFactory, ...] = ()
    session_incoming: tuple[AssemblyFactory, ...] = ()
    session_outgoing: tuple[AssemblyFactory, ...] = ()

    def __post_init__(self) -> None:
        """Find a slip here, and not by the first client.

        Raises:
            InvalidRequest: A point has something else than a tuple of makers.
        """
        for name in ("connection_incoming", "session_incoming", "session_outgoing"):
            makers = getattr(self, name)
            if type(makers) is not tuple or not all(map(callable, makers)):
                message = f"{name} is a tuple of makers of handlers, not {makers!r:.80}"
                raise InvalidRequest(message)

    def before_connection(self, standard: FrameHandler, context: HandlerContext) -> FrameHandler:
        """The first handler of a connection's frames."""
        for make in reversed(self.connection_incoming):
            standard = make(standard, context)
        return standard

    def before_session(self, standard: AssemblyHandler, context: HandlerContext) -> AssemblyHandler:
        """The first handler of what comes in on a session."""
        for make in reversed(self.session_incoming):
            standard = make(standard, context)
        return standard

    def before_output(self, standard: AssemblyHandler, context: HandlerContext) -> AssemblyHandler:
        """The first handler of what goes out on a session."""
        for make in reversed(self.session_outgoing):
            standard = make(standard, context)
        return standard
