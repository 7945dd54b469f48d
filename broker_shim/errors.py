"""The store's errors, as a broker sees them: one class for each thing it can do about it."""

from sparkstore.errors import (
    AlreadyPublished,
    Closed,
    CorruptData,
    Ended,
    Fenced,
    Full,
    InvalidRequest,
    LimitReached,
    Locked,
    NotAcquired,
    NotNow,
    StoreError,
    Unavailable,
)

__all__ = [
    "ENDED",
    "FATAL",
    "AlreadyPublished",
    "Closed",
    "CorruptData",
    "Ended",
    "Fenced",
    "Full",
    "InvalidRequest",
    "LimitReached",
    "Locked",
    "NotAcquired",
    "NotNow",
    "StoreError",
    "Unavailable",
]

ENDED = (Ended, Fenced, Closed, Locked)
"""After one of these the store is not ours any more. What was under way when it came has no outcome
that anybody knows: no client is told one."""

FATAL = (*ENDED, CorruptData)
"""After one of these as an answer to a change the store takes no more: serving on would refuse
everything. What cannot be *read* is one message's trouble, not the log's."""
