"""Refuse a request: a status, and one line that says what to do."""

from __future__ import annotations

from collections.abc import Mapping

from broker_shim.errors import InvalidRequest, LimitReached, NotNow, StoreError


class HttpRefusal(Exception):
    """A request that is answered with this status instead.

    Attributes:
        status: The HTTP status code.
        headers: Headers that the answer has, too.
    """

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status, self.headers = status, dict(headers or {})


def refused_by(error: StoreError, status: int = 400) -> HttpRefusal:
    """Tell an error of the broker as a status.

    Args:
        error: Why the broker did not do it.
        status: That of an order which is wrong, now or always.
    """
    if isinstance(error, LimitReached):
        return HttpRefusal(429, str(error))
    if isinstance(error, InvalidRequest):
        return HttpRefusal(status, str(error))
    return HttpRefusal(503 if isinstance(error, NotNow) else 500, str(error))
