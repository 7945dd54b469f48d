"""The store's errors, as a broker sees them (STYLE 3.4)."""

from sparkstore.errors import (
    Closed,
    CorruptData,
    Ended,
    Fenced,
    InvalidRequest,
    Locked,
    NotAcquired,
    StoreError,
    Unavailable,
)

__all__ = [
    "Closed",
    "CorruptData",
    "Ended",
    "Fenced",
    "InvalidRequest",
    "Locked",
    "NotAcquired",
    "StoreError",
    "Unavailable",
]
