"""How far a connection is, from its header to its end."""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """The phase of a connection: what it waits for."""

    HEADER = "the protocol header"
    START_OK = "start-ok"
    SECURE_OK = "secure-ok"
    TUNE_OK = "tune-ok"
    OPEN = "open"
    OPENED = "anything"
    CLOSING = "close-ok"
    OVER = "nothing"
