"""Refuse a request: a status, and one line that says what to do."""

from __future__ import annotations

from collections.abc import Mapping

from broker_shim.errors import InvalidRequest, LimitReached, NotNow, StoreError
from broker_shim.serve.http.bodies import ProblemAnswer


class HttpRefusal(Exception):
    """A request that is answered with this status instead.

    Attributes:
        status: The HTTP status code.
        headers: Headers that the answer has, too.
        kind: The class of the error that a command raises for it; None: the status says it.
    """

    def __init__(
        self,
        status: int,
        text: str,
        headers: Mapping[str, str] | None = None,
        kind: str | None = None,
    ) -> None:
        super().__init__(text)
        self.status, self.headers, self.kind = status, dict(headers or {}), kind

    @property
    def content(self) -> ProblemAnswer:
        """Return what is told, in one line."""
        line = " ".join(str(self).split())
        return ProblemAnswer(status=self.status, error=line, kind=self.kind)


def refused_by(error: StoreError, status: int = 400) -> HttpRefusal:
    """Tell an error of the broker as a status.

    Args:
        error: Why the broker did not do it.
        status: That of an order which is wrong, now or always.
    """
    if isinstance(error, LimitReached):
        status = 429
    elif not isinstance(error, InvalidRequest):
        status = 503 if isinstance(error, NotNow) else 500
    return HttpRefusal(status, str(error), kind=type(error).__name__)
